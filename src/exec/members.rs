//! Who belongs to an exec, told from the process table.
//!
//! Members are the processes of the child's group, everything descended from them, and orphans that carry the exec's
//! mark (see [`super::marks`]) with everything descended from those. So a daemon that forked twice and called
//! `setsid` is found too.
//!
//! A group number outlives its group and may come back as somebody else's. It is trusted while the child was not
//! reaped; later only while a member carries the mark (or marks cannot be read); and never again once the group was
//! seen empty.

use std::collections::{HashMap, HashSet};

use super::kill::Reach;
use super::scan::Process;

/// What a walk looks for, as known at one moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) reach: Reach,
    pub(super) leader: i32,
    pub(super) reaped: bool,
    pub(super) gone: bool,
    pub(super) mark: Option<u64>,
    pub(super) reaper: i32,
}

/// Live processes by their parent.
pub(super) type Children<'a> = HashMap<i32, Vec<&'a Process>>;

pub(super) fn children(all: &[Process]) -> Children<'_> {
    let mut children = Children::new();
    for process in all.iter().filter(|process| process.live) {
        children.entry(process.parent).or_default().push(process);
    }
    children
}

/// The live members of the exec among `all`.
pub(super) fn members<'a>(
    all: &'a [Process],
    target: &Target,
    slack: impl Fn(i32) -> Option<u64>,
) -> Vec<&'a Process> {
    let children = match target.reach {
        Reach::Group => Children::new(),
        Reach::All => children(all),
    };
    members_below(all, &children, target, slack)
}

/// As [`members`], with what is known of parents already.
pub(super) fn members_below<'a>(
    all: &'a [Process],
    children: &Children<'a>,
    target: &Target,
    slack: impl Fn(i32) -> Option<u64>,
) -> Vec<&'a Process> {
    let in_group = |process: &&Process| process.live && process.group == target.leader;
    let has_mark = |process: &Process| slack(process.pid).is_some_and(|ns| Some(ns) == target.mark);
    // Zero is what a real-time policy shows: such a process says nothing about its mark.
    let may_have_mark =
        |process: &Process| slack(process.pid).is_none_or(|ns| ns == 0 || Some(ns) == target.mark);
    let is_ours = !target.gone
        && (!target.reaped
            || target.mark.is_none()
            || all.iter().filter(in_group).any(may_have_mark));

    if target.reach == Reach::Group {
        return all.iter().filter(in_group).filter(|_| is_ours).collect();
    }
    let is_root = |process: &Process| {
        let leads = process.pid == target.leader && !target.reaped;
        let orphaned = process.parent == target.reaper && !leads;
        leads || (is_ours && in_group(&process)) || (orphaned && has_mark(process))
    };
    let mut pending: Vec<&Process> = all
        .iter()
        .filter(|process| process.live && is_root(process))
        .collect();
    let mut known: HashSet<i32> = pending.iter().map(|process| process.pid).collect();
    let mut found = Vec::new();
    while let Some(member) = pending.pop() {
        found.push(member);
        for child in children.get(&member.pid).into_iter().flatten() {
            if known.insert(child.pid) {
                pending.push(child);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: i32 = 10;
    const LEADER: i32 = 100;
    const MARK: u64 = 50_001;

    /// pid, parent, group, live.
    fn table(rows: &[(i32, i32, i32, bool)]) -> Vec<Process> {
        let row = |&(pid, parent, group, live): &(i32, i32, i32, bool)| Process {
            pid,
            parent,
            group,
            live,
            started: 1,
        };
        rows.iter().map(row).collect()
    }

    fn check(
        rows: &[(i32, i32, i32, bool)],
        (reaped, gone): (bool, bool),
        marked: &[i32],
        expected: &[i32],
    ) {
        let all = table(rows);
        let target = Target {
            reach: Reach::All,
            leader: LEADER,
            reaped,
            gone,
            mark: Some(MARK),
            reaper: ME,
        };
        let slack = |pid| Some(if marked.contains(&pid) { MARK } else { 50_000 });
        let mut found: Vec<_> = members(&all, &target, slack)
            .iter()
            .map(|process| process.pid)
            .collect();
        found.sort_unstable();
        assert_eq!(found, expected);
    }

    #[test]
    fn the_group_and_its_descendants_are_members() {
        let rows = [
            (LEADER, ME, LEADER, true),
            (101, LEADER, LEADER, true),
            (102, 101, 102, true),
            (103, 102, 102, true),
            (104, LEADER, LEADER, false),
            (900, ME, 900, true),
        ];
        check(&rows, (false, false), &[LEADER], &[LEADER, 101, 102, 103]);
    }

    #[test]
    fn an_orphan_with_the_mark_is_a_member_and_another_is_not() {
        let rows = [
            (200, ME, 200, true),
            (201, 200, 201, true),
            (300, ME, 300, true),
        ];
        check(&rows, (true, true), &[200], &[200, 201]);
    }

    #[test]
    fn a_marked_process_that_is_no_orphan_of_ours_is_left_alone() {
        check(&[(200, 1, 200, true)], (true, true), &[200], &[]);
    }

    #[test]
    fn a_reused_group_number_is_left_alone() {
        let rows = [(LEADER, ME, LEADER, true), (101, LEADER, LEADER, true)];
        check(&rows, (true, true), &[], &[]);
        check(&rows, (true, false), &[], &[]);
    }

    #[test]
    fn a_group_is_trusted_as_a_whole_while_one_member_has_the_mark() {
        let rows = [(101, ME, LEADER, true), (102, ME, LEADER, true)];
        check(&rows, (true, false), &[102], &[101, 102]);
    }

    #[test]
    fn a_leader_that_left_its_group_is_still_found() {
        check(&[(LEADER, ME, 7, true)], (false, false), &[], &[LEADER]);
    }
}
