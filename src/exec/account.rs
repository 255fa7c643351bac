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
    /// The row of the user; absent for a number.
    pub(super) row: Option<Row>,
}

/// The further fields of a row of the user table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) gid: u32,
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
        Account::Id(uid) => Ok(User {
            uid: *uid,
            row: None,
        }),
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

fn find_user(table: &[u8], name: &str) -> Option<User> {
    rows(table, name)
        .find_map(|row| {
            Some(User {
                uid: number(row.get(2)?)?,
                row: Some(Row {
                    gid: number(row.get(3)?)?,
                    name: name.as_bytes().to_vec(),
                    home: row.get(5).copied().unwrap_or_default().to_vec(),
                }),
            })
        })
        .or_else(|| {
            let uid = number(name.as_bytes())?;
            Some(User { uid, row: None })
        })
}

fn find_group(table: &[u8], name: &str) -> Option<u32> {
    rows(table, name)
        .find_map(|row| number(row.get(2)?))
        .or_else(|| number(name.as_bytes()))
}

/// The rows whose first field is `name`, split at the colons.
fn rows<'a>(table: &'a [u8], name: &'a str) -> impl Iterator<Item = Vec<&'a [u8]>> {
    table
        .split(|byte| *byte == b'\n')
        .map(|line| line.split(|byte| *byte == b':').collect::<Vec<_>>())
        .filter(move |row| !name.is_empty() && row[0] == name.as_bytes())
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

    fn check_user(name: &str, expected: Option<(u32, Option<(u32, &str)>)>) {
        let found = find_user(PASSWD, name).map(|user| {
            let row = user.row.map(|row| {
                assert_eq!(row.name, name.as_bytes());
                (row.gid, String::from_utf8(row.home).expect("ASCII"))
            });
            (user.uid, row)
        });
        let expected =
            expected.map(|(uid, row)| (uid, row.map(|(gid, home)| (gid, home.to_owned()))));
        assert_eq!(found, expected, "{name}");
    }

    #[test]
    fn a_name_is_found_with_its_group_and_home() {
        check_user("bob", Some((1000, Some((1001, "/home/bob")))));
        check_user("last", Some((9, Some((9, "")))));
    }

    #[test]
    fn a_name_of_digits_is_a_name_first_and_a_number_second() {
        check_user("77", Some((5, Some((6, "/seven")))));
        check_user("78", Some((78, None)));
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
