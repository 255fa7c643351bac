//! The names of users and groups, by their numbers: `/etc/passwd` and `/etc/group` (passwd(5), group(5)).

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;

/// Names by number, read once.
pub(super) struct Owners {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl Owners {
    /// Reads both tables; what cannot be read is empty. For helper threads.
    pub(super) fn read() -> Self {
        Self {
            users: names(&table("/etc/passwd")),
            groups: names(&table("/etc/group")),
        }
    }

    pub(super) fn user(&self, uid: u32) -> Option<&str> {
        self.users.get(&uid).map(String::as_str)
    }

    pub(super) fn group(&self, gid: u32) -> Option<&str> {
        self.groups.get(&gid).map(String::as_str)
    }
}

/// The first name of each number, as the C library finds it.
fn names(table: &[u8]) -> HashMap<u32, String> {
    let mut names = HashMap::new();
    for row in table.split(|byte| *byte == b'\n') {
        let mut fields = row.split(|byte| *byte == b':');
        let (name, number) = (fields.next().unwrap_or_default(), fields.nth(1));
        let number = number.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        if let Some(number) = number
            && !name.is_empty()
        {
            let name = || String::from_utf8_lossy(name).into_owned();
            names.entry(number).or_insert_with(name);
        }
    }
    names
}

fn table(path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(path) {
        let _ = file.take(MOST_BYTES).read_to_end(&mut bytes);
    }
    bytes
}

/// Bytes read of a table; names behind them are not told.
const MOST_BYTES: u64 = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_the_first_name_of_the_table() {
        let table =
            b"root:x:0:0:root:/root:/bin/sh\nbroken\n:x:5:\ntoor:x:0:0::/:\nbob:x:1000:1:B:/:";
        let names = names(table);
        assert_eq!(names.get(&0).map(String::as_str), Some("root"));
        assert_eq!(names.get(&1000).map(String::as_str), Some("bob"));
        assert_eq!(names.len(), 2);
    }
}
