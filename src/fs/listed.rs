//! A list of names below a root, in an order in which each directory's names stand together.

use std::cmp::Ordering;
use std::ops::Range;

use super::member::PATH_BYTES;
use crate::error::{Kind, Result};

/// The names that are asked for.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Relative, without `.` and `..`; the root is empty.
    names: Vec<Vec<u8>>,
    /// True when a directory comes with all below it.
    pub recursive: bool,
    /// True when a name that is not there is left out.
    pub skip_missing: bool,
}

/// The names of a list that lie at or below one entry of a directory.
pub(super) struct Group<'a> {
    pub(super) entry: &'a [u8],
    /// The first of them, as it is told to the client.
    pub(super) first: &'a [u8],
    /// The first that is not the entry itself.
    pub(super) below: Option<&'a [u8]>,
    /// True when the entry itself is in the list.
    pub(super) exact: bool,
}

impl Listed {
    /// Takes names as a client writes them: `a/b`, `./a`, `a/` and, for the root itself, `.`.
    ///
    /// # Errors
    /// `Malformed`, naming the one that is absolute, leaves the root or is too long.
    pub fn new(names: Vec<String>, recursive: bool, skip_missing: bool) -> Result<Self> {
        let names = names.into_iter().map(normal);
        let mut names = names.collect::<Result<Vec<_>>>()?;
        names.sort_unstable_by(|a, b| order(a, b));
        names.dedup();
        Ok(Self {
            names,
            recursive,
            skip_missing,
        })
    }

    /// True when the root itself is in the list.
    pub(super) fn has_root(&self) -> bool {
        self.names.first().is_some_and(Vec::is_empty)
    }

    /// The entries of a directory that the list names or leads through.
    pub(super) fn groups(&self, directory: &[u8]) -> impl Iterator<Item = Group<'_>> {
        let range = self.range(directory);
        let skip = match directory.len() {
            0 => 0,
            length => length + 1,
        };
        let mut rest = &self.names[range];
        std::iter::from_fn(move || {
            let first = rest.first()?;
            let name = &first[skip..];
            let length = name.iter().position(|byte| *byte == b'/');
            let entry = &name[..length.unwrap_or(name.len())];
            let end = skip + entry.len();
            let inside = |name: &Vec<u8>| {
                name.starts_with(&first[..end]) && name.get(end).is_none_or(|byte| *byte == b'/')
            };
            let count = rest.iter().take_while(|name| inside(name)).count();
            let (group, others) = rest.split_at(count);
            rest = others;
            Some(Group {
                entry,
                first,
                below: group
                    .iter()
                    .map(Vec::as_slice)
                    .find(|name| name.len() > end),
                exact: length.is_none(),
            })
        })
    }

    /// The names below a directory.
    fn range(&self, directory: &[u8]) -> Range<usize> {
        if directory.is_empty() {
            return usize::from(self.has_root())..self.names.len();
        }
        let below =
            |name: &[u8]| name.starts_with(directory) && name.get(directory.len()) == Some(&b'/');
        let start = self
            .names
            .partition_point(|name| order(name, directory) != Ordering::Greater);
        let count = self.names[start..].partition_point(|name| below(name));
        start..start + count
    }
}

/// The order of names in which a slash comes before every other letter.
fn order(a: &[u8], b: &[u8]) -> Ordering {
    let key = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    a.iter().map(key).cmp(b.iter().map(key))
}

fn normal(name: String) -> Result<Vec<u8>> {
    let refused = |what: &str| {
        let shown: String = name.chars().take(200).collect();
        Kind::Malformed.told(format!("name {shown:?} {what}"))
    };
    if name.len() > PATH_BYTES {
        return Err(refused("is longer than 4096 bytes"));
    }
    if name.starts_with('/') || name.is_empty() {
        return Err(refused("is not relative to path"));
    }
    if name.contains('\0') {
        return Err(refused("has a NUL"));
    }
    let mut plain = Vec::with_capacity(name.len());
    for component in name.split('/') {
        match component {
            "" | "." => {}
            ".." => return Err(refused("has a .. in it")),
            _ => {
                if !plain.is_empty() {
                    plain.push(b'/');
                }
                plain.extend_from_slice(component.as_bytes());
            }
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(names: &[&str]) -> Listed {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Listed::new(names, false, false).expect("the names are good")
    }

    #[track_caller]
    fn check(listed: &Listed, directory: &str, expected: &[(&str, bool, Option<&str>)]) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let found: Vec<_> = listed
            .groups(directory.as_bytes())
            .map(|group| (text(group.entry), group.exact, group.below.map(text)))
            .collect();
        let owned = |(entry, exact, below): &(&str, bool, Option<&str>)| {
            ((*entry).to_owned(), *exact, below.map(str::to_owned))
        };
        assert_eq!(
            found,
            expected.iter().map(owned).collect::<Vec<_>>(),
            "{directory}"
        );
    }

    #[test]
    fn names_are_grouped_by_directory() {
        let some = listed(&[
            "a/c", "b", "./a/b/", "a-b", "a", "a//b", ".", "c/d/e", "a.d",
        ]);
        assert!(some.has_root());
        check(
            &some,
            "",
            &[
                ("a", true, Some("a/b")),
                ("a-b", true, None),
                ("a.d", true, None),
                ("b", true, None),
                ("c", false, Some("c/d/e")),
            ],
        );
        check(&some, "a", &[("b", true, None), ("c", true, None)]);
        check(&some, "c", &[("d", false, Some("c/d/e"))]);
        check(&some, "c/d", &[("e", true, None)]);
        for directory in ["a/b", "a-b", "b", "c/d/e", "d", "0", "zz"] {
            check(&some, directory, &[]);
        }
        assert!(!listed(&["a"]).has_root());
    }

    #[test]
    fn names_that_leave_the_root_are_refused() {
        for (name, what) in [
            ("/a", "is not relative to path"),
            ("", "is not relative to path"),
            ("a/../b", "has a .. in it"),
            ("a\0", "has a NUL"),
        ] {
            let error = Listed::new(vec![name.to_owned()], false, false).expect_err(name);
            assert_eq!(error.sentence(), format!("name {name:?} {what}"));
        }
        assert!(Listed::new(vec!["a/..b".to_owned(), "...".to_owned()], false, false).is_ok());
    }
}
