//! Users and groups of the guest: names looked up in `/etc/passwd` and `/etc/group` (passwd(5), group(5)).

use std::fs::File;
use std::io::Read;

use crate::error::{Kind, Result};

/// A user or a group as a request names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Account {
    /// By number.
    Id(u32),
    /// By name; a name of digits that nobody has is a number.
    Name(String),
}

/// What a user name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) uid: u32,
    /// The row of the user; absent for a number that nobody has.
    pub(super) row: Option<Row>,
    /// The user's own group, when the user was given by name.
    pub(super) group: Option<u32>,
}

/// The further fields of a row of the user table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: Vec<u8>,
    pub(super) home: Vec<u8>,
}

/// Looks a user up. Blocks: it reads a file.
///
/// # Errors
/// `UnknownUser` when nobody has the name and it is not a number.
pub(super) fn user(account: &Account) -> Result<User> {
    match account {
        Account::Id(NO_ID) => Err(Kind::UnknownUser.told(format!("{NO_ID} is not a user id"))),
        Account::Id(uid) => Ok(find_id(&table("/etc/passwd"), *uid)),
        Account::Name(name) => find_user(&table("/etc/passwd"), name)
            .ok_or_else(|| Kind::UnknownUser.told(format!("no user is named {name:?}"))),
    }
}

/// Looks a group up. Blocks: it reads a file.
///
/// # Errors
/// `UnknownGroup` when no group has the name and it is not a number.
pub(super) fn group(account: &Account) -> Result<u32> {
    match account {
        Account::Id(NO_ID) => Err(Kind::UnknownGroup.told(format!("{NO_ID} is not a group id"))),
        Account::Id(gid) => Ok(*gid),
        Account::Name(name) => find_group(&table("/etc/group"), name)
            .ok_or_else(|| Kind::UnknownGroup.told(format!("no group is named {name:?}"))),
    }
}

/// The number of a user by name or number. Blocks: it reads a file.
///
/// # Errors
/// `UnknownUser`.
pub fn user_id(name: String) -> Result<u32> {
    user(&Account::Name(name)).map(|user| user.uid)
}

/// The number of a group by name or number. Blocks: it reads a file.
///
/// # Errors
/// `UnknownGroup`.
pub fn group_id(name: String) -> Result<u32> {
    group(&Account::Name(name))
}

fn find_user(table: &[u8], name: &str) -> Option<User> {
    let by_name = |row: Vec<&[u8]>| {
        Some(User {
            uid: number(row.get(2)?)?,
            group: Some(number(row.get(3)?)?),
            row: Some(Row::of(&row)),
        })
    };
    let by_number = || number(name.as_bytes()).map(|uid| find_id(table, uid));
    rows(table, name).find_map(by_name).or_else(by_number)
}

/// The user of this number; whether anybody has it does not matter.
fn find_id(table: &[u8], uid: u32) -> User {
    let has_number = |row: &Vec<&[u8]>| row.get(2).copied().and_then(number) == Some(uid);
    User {
        uid,
        row: split(table).find(has_number).map(|row| Row::of(&row)),
        group: None,
    }
}

impl Row {
    fn of(fields: &[&[u8]]) -> Self {
        let field = |index: usize| fields.get(index).copied().unwrap_or_default().to_vec();
        Self {
            name: field(0),
            home: field(5),
        }
    }
}

fn find_group(table: &[u8], name: &str) -> Option<u32> {
    rows(table, name)
        .find_map(|row| number(row.get(2)?))
        .or_else(|| number(name.as_bytes()))
}

/// The rows whose first field is `name`, split at the colons.
fn rows<'a>(table: &'a [u8], name: &'a str) -> impl Iterator<Item = Vec<&'a [u8]>> {
    split(table).filter(move |row| !name.is_empty() && row[0] == name.as_bytes())
}

/// Every row, split at the colons.
fn split(table: &[u8]) -> impl Iterator<Item = Vec<&[u8]>> {
    let lines = table.split(|byte| *byte == b'\n');
    lines.map(|line| line.split(|byte| *byte == b':').collect())
}

/// A decimal number without sign.
fn number(text: &[u8]) -> Option<u32> {
    if !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = std::str::from_utf8(text).ok()?.parse().ok()?;
    (number != NO_ID).then_some(number)
}

/// Not an id: setresuid(2) takes it for "leave unchanged", which would keep ours.
const NO_ID: u32 = u32::MAX;

/// The file at `path`; what cannot be read is empty, as in an image without that file.
fn table(path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(path) {
        let _ = file.take(MAX_TABLE).read_to_end(&mut bytes);
    }
    bytes
}

/// Bytes read of a table.
const MAX_TABLE: u64 = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &[u8] = b"root:x:0:0:root:/root:/bin/sh\nbroken:x\n\nbob:x:1000:1001:Bob,,,:/home/bob:/bin/sh\n77:x:5:6::/seven:\nlast:x:9:9";
    const GROUP: &[u8] = b"root:x:0:\nstaff:x:50:bob,root\n88:x:3:\n";

    /// A user as number, own group, and name with home.
    type Expected<'a> = (u32, Option<u32>, Option<(&'a str, &'a str)>);

    fn check_user(name: &str, expected: Option<Expected<'_>>) {
        let expected = expected.map(|(uid, group, row)| User {
            uid,
            group,
            row: row.map(|(name, home)| Row {
                name: name.into(),
                home: home.into(),
            }),
        });
        assert_eq!(find_user(PASSWD, name), expected, "{name}");
    }

    #[test]
    fn a_name_is_found_with_its_group_and_home() {
        check_user("bob", Some((1000, Some(1001), Some(("bob", "/home/bob")))));
        check_user("last", Some((9, Some(9), Some(("last", "")))));
    }

    #[test]
    fn a_name_of_digits_is_a_name_first_and_a_number_second() {
        check_user("77", Some((5, Some(6), Some(("77", "/seven")))));
        check_user("78", Some((78, None, None)));
    }

    #[test]
    fn a_number_brings_name_and_home_and_no_group() {
        check_user("1000", Some((1000, None, Some(("bob", "/home/bob")))));
    }

    #[test]
    fn an_unknown_name_is_nobody() {
        for name in ["eve", "", "broken", "4294967296", "-1", "+5", "root:x"] {
            check_user(name, None);
        }
    }

    #[test]
    fn groups_are_found_by_the_same_rule() {
        for (name, expected) in [
            ("staff", Some(50)),
            ("88", Some(3)),
            ("89", Some(89)),
            ("bob", None),
            ("", None),
        ] {
            assert_eq!(find_group(GROUP, name), expected, "{name}");
        }
    }

    #[test]
    fn the_error_names_the_user() {
        let error = user(&Account::Name("no-such-user".into())).expect_err("nobody");
        assert_eq!(error.kind(), Kind::UnknownUser);
        assert!(error.sentence().contains("no-such-user"));
    }
}
