//! Tests of the choice among names: the rules of gitignore(5), line by line.

use super::*;

fn filter(includes: &[&str], excludes: &[&str]) -> Filter {
    let owned = |list: &[&str]| {
        list.iter()
            .map(|text| (*text).to_owned())
            .collect::<Vec<_>>()
    };
    Filter::new(&owned(includes), &owned(excludes)).expect("the patterns are good")
}

impl Filter {
    /// Judges a name as a walk to it does, step by step.
    fn judge(&self, path: &[u8], is_dir: bool) -> Verdict {
        let mut verdict = self.root();
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        for (at, _) in slashes {
            verdict = self.judge_in(verdict, &path[..at], true);
            if verdict == Verdict::Skip {
                return verdict;
            }
        }
        self.judge_in(verdict, path, is_dir)
    }
}

/// Checks verdicts; a name that ends in a slash is a directory.
#[track_caller]
fn check(filter: &Filter, kept: &[&str], left: &[&str]) {
    let judge = |name: &str| match name.strip_suffix('/') {
        Some(dir) => filter.judge(dir.as_bytes(), true),
        None => filter.judge(name.as_bytes(), false),
    };
    for name in kept {
        assert_eq!(judge(name), Verdict::Keep, "{name}");
    }
    for name in left {
        assert_ne!(judge(name), Verdict::Keep, "{name}");
    }
}

/// Checks what one pattern matches, by leaving it out.
#[track_caller]
fn matches(pattern: &str, matched: &[&str], others: &[&str]) {
    check(&filter(&[], &[pattern]), others, matched);
}

#[test]
fn without_patterns_everything_is_kept() {
    let open = filter(&[], &[]);
    assert!(open.is_open());
    check(&open, &["a", "a/", "a/b/c"], &[]);
}

#[test]
fn a_pattern_without_a_slash_matches_at_every_depth() {
    matches(
        "*.o",
        &["a.o", "b/c.o", "b/d.o/e", ".o"],
        &["a.oo", "o", "b/"],
    );
    matches("foo", &["foo", "a/foo", "a/foo/b"], &["food", "a/fo"]);
}

#[test]
fn a_slash_at_the_start_or_inside_binds_a_pattern_to_the_root() {
    matches("/foo", &["foo", "foo/a"], &["a/foo"]);
    matches("a/foo", &["a/foo"], &["b/a/foo", "foo"]);
    matches("a/*.c", &["a/x.c"], &["a/b/x.c", "b/a/x.c"]);
}

#[test]
fn a_slash_at_the_end_matches_directories_only() {
    matches("foo/", &["foo/", "a/foo/", "a/foo/x"], &["foo", "a/foo"]);
    matches("a/foo/", &["a/foo/"], &["a/foo", "b/a/foo/"]);
}

#[test]
fn two_stars_match_any_number_of_components() {
    matches("**/foo", &["foo", "a/foo", "a/b/foo"], &["xfoo"]);
    matches("**/foo/bar", &["foo/bar", "a/foo/bar"], &["foo/a/bar"]);
    matches("abc/**", &["abc/x", "abc/x/y"], &["abc/", "x/abc/y"]);
    matches("a/**/b", &["a/b", "a/x/b", "a/x/y/b"], &["b", "x/a/b"]);
    matches("**", &["a", "a/"], &[]);
    matches("a**b", &["ab", "axxb", "c/ab"], &["a/b"]);
}

#[test]
fn stars_question_marks_and_classes_stop_at_a_slash() {
    matches("/a*b", &["ab", "axb"], &["a/b", "a/xb"]);
    matches("/a?b", &["axb"], &["a/b", "ab"]);
    matches("/a[!x]b", &["ayb"], &["a/b", "axb"]);
    matches("[a-c]1", &["a1", "x/c1"], &["d1"]);
    matches("[!a-c]1", &["d1"], &["a1"]);
    matches("[^a-c]1", &["d1"], &["a1"]);
    matches("[]x]", &["]", "x"], &["y"]);
    matches("[[:digit:]]", &["7"], &["x", ":"]);
    matches("*", &[".hidden", "a"], &[]);
}

#[test]
fn a_backslash_takes_the_meaning_from_the_next_letter() {
    matches(r"\!x", &["!x"], &["x"]);
    matches(r"\*", &["*"], &["a"]);
    matches(r"a\[b", &["a[b"], &["ab"]);
    matches("#a", &["#a"], &["a"]);
}

#[test]
fn braces_and_commas_are_letters() {
    matches("{a,b}", &["{a,b}"], &["a", "b"]);
    matches("[{]x}", &["{x}"], &["x"]);
}

#[test]
fn names_are_bytes() {
    let filter = filter(&[], &["caf?"]);
    assert_eq!(filter.judge(b"caf\xe9", false), Verdict::Skip);
    assert_eq!(filter.judge(b"caf\n", false), Verdict::Skip);
    assert_eq!(filter.judge(b"\xff", false), Verdict::Keep);
    matches("ü*", &["über"], &["uber"]);
}

#[test]
fn the_last_pattern_that_matches_decides() {
    let some = filter(&[], &["*.log", "!keep.log", "/deep/keep.log"]);
    check(
        &some,
        &["keep.log", "a/keep.log"],
        &["a.log", "deep/keep.log"],
    );
}

#[test]
fn nothing_comes_back_from_an_excluded_directory() {
    check(&filter(&[], &["a/", "!a/b"]), &["b"], &["a/", "a/b"]);
    check(&filter(&[], &["a/*", "!a/b"]), &["a/", "a/b"], &["a/c"]);
}

#[test]
fn what_is_included_comes_with_all_below_it() {
    let some = filter(&["/src/", "*.md"], &[]);
    check(
        &some,
        &["src/", "src/a", "src/b/c.o", "x/y.md"],
        &["src", "x/", "x/src/", "a"],
    );
}

#[test]
fn an_included_directory_can_be_cut() {
    let some = filter(&["src/", "!src/gen/", "*.rs"], &[]);
    check(
        &some,
        &["src/a", "src/gen/x.rs"],
        &["src/gen/", "src/gen/x.c"],
    );
    assert_eq!(some.judge(b"src/gen", true), Verdict::Descend);
}

#[test]
fn exclude_wins() {
    let some = filter(&["src/", "*.o"], &["*.o", "tmp/"]);
    check(
        &some,
        &["src/a"],
        &["src/a.o", "src/tmp/", "src/tmp/a", "a.o"],
    );
    assert_eq!(some.judge(b"src/tmp/x", true), Verdict::Skip);
}

#[test]
fn directories_that_lead_nowhere_are_not_entered() {
    #[track_caller]
    fn check(patterns: &[&str], entered: &[&str], left: &[&str]) {
        let filter = filter(patterns, &[]);
        assert_eq!(filter.root(), Verdict::Descend);
        for name in entered {
            assert_eq!(
                filter.judge(name.as_bytes(), true),
                Verdict::Descend,
                "{name}"
            );
        }
        for name in left {
            assert_eq!(filter.judge(name.as_bytes(), true), Verdict::Skip, "{name}");
        }
    }
    check(
        &["/a/b*/c"],
        &["a", "a/b", "a/bb"],
        &["b", "a/c", "a/b/d", "x/a"],
    );
    check(&["/f"], &[], &["a", "a/f"]);
    check(&["a/**/b"], &["a", "a/x", "a/x/y"], &["b", "x/a"]);
    check(&["a/**"], &["a"], &["b"]);
    check(&["*.c"], &["a", "a/b"], &[]);
    check(&["**/x/y"], &["a", "a/b"], &[]);
    check(&["a/b", "c/d/e"], &["a", "c", "c/d"], &["d", "c/e"]);
    check(&["a/b", "!c/d/e"], &["a"], &["c"]);
    check(
        &["1/2/3/4/5/6/7/8/9/10/11"],
        &["1/2", "1/2/3/4/5/6/7/8/9"],
        &["2"],
    );
}

#[test]
fn a_pattern_that_is_none_is_named() {
    #[track_caller]
    fn check(includes: &[&str], excludes: &[&str], expected: &str) {
        let owned = |list: &[&str]| {
            list.iter()
                .map(|text| (*text).to_owned())
                .collect::<Vec<_>>()
        };
        let error = Filter::new(&owned(includes), &owned(excludes)).expect_err(expected);
        assert_eq!(
            (error.kind(), error.sentence()),
            (Kind::Malformed, expected)
        );
    }
    check(&["a", "[b"], &[], "include pattern \"[b\" is no glob");
    check(&[], &["a\\"], "exclude pattern \"a\\\\\" is no glob");
    check(&["a[/]b"], &[], "include pattern \"a[/]b\" is no glob");
    check(&[], &["[z-a]"], "exclude pattern \"[z-a]\" is no glob");
    let nothing = "has an empty component, or one that is . or .., and can match nothing";
    for text in ["", "/", "!", "a//b", "./a", "a/../b", "//"] {
        check(&[text], &[], &format!("include pattern {text:?} {nothing}"));
    }
    check(
        &["[\\]]"],
        &[],
        "include pattern \"[\\\\]]\" has a backslash in a class, which is not known here",
    );
    let only = "include has patterns with ! only, which choose nothing; use exclude to leave out";
    check(&["!a", "!b"], &[], only);
    let long = "x".repeat(1025);
    check(
        &[],
        &[&long],
        &format!("exclude pattern {long:?} is longer than 1024 bytes"),
    );
    check(&["a"; 257], &[], "include is given more than 256 times");
    let long = "x".repeat(1000);
    let many = "include and exclude have more than 16384 bytes together";
    check(&[long.as_str(); 10], &[long.as_str(); 7], many);
}

#[test]
fn the_largest_lists_are_read_and_matched() {
    let long: Vec<_> = (0..16)
        .map(|at| format!("{at}{}", "*a".repeat(480)))
        .collect();
    let long: Vec<_> = long.iter().map(String::as_str).collect();
    let name = "a".repeat(255);
    check(&filter(&long, &[]), &[], &[&name]);
    let deep: Vec<_> = (0..16)
        .map(|at| format!("/{at}{}", "/*a*b".repeat(190)))
        .collect();
    let deep: Vec<_> = deep.iter().map(String::as_str).collect();
    check(&filter(&deep, &[]), &[], &[&name]);
    check(
        &filter(&["*a*b"; 256], &["c*?d"; 256]),
        &["aab", "a/xab"],
        &["a/b", "cad"],
    );
}

/// What git leaves out of the same tree; `None` where it is not installed.
fn ignored_by_git(
    root: &std::path::Path,
    patterns: &[String],
    names: &[String],
) -> Option<Vec<String>> {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command
            .current_dir(root)
            .args(["-c", "core.excludesFile=/dev/null"])
            .args(arguments);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command
    };
    if !root.join(".git").exists() {
        let made = git(&["init", "-q"]).status().ok()?;
        assert!(made.success(), "a repository can be made");
    }
    std::fs::write(root.join(".git/info/exclude"), patterns.join("\n")).expect("it is ours");
    let mut asked = git(&["check-ignore", "--no-index", "-z", "--stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("git was there");
    let mut input = asked.stdin.take().expect("it is piped");
    input
        .write_all(names.join("\0").as_bytes())
        .expect("git reads");
    drop(input);
    let told = asked.wait_with_output().expect("git ends");
    let text = String::from_utf8(told.stdout).expect("the names are ASCII");
    Some(text.split_terminator('\0').map(str::to_owned).collect())
}

#[test]
fn excluding_agrees_with_git() {
    let dir = super::super::testing::Dir::new();
    let mut names = Vec::new();
    for one in ["a", "b", "ab"] {
        for two in ["a", "b.c", "ba"] {
            let path = format!("{one}/{two}");
            std::fs::create_dir_all(dir.path().join(&path)).expect("it is fresh");
            for three in ["a", "c", "ab"] {
                names.push(format!("{path}/{three}"));
                std::fs::write(dir.path().join(&path).join(three), "").expect("it is fresh");
            }
            names.push(path);
        }
        names.push(one.to_owned());
    }
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut below = |limit: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % limit as u64).expect("it is small")
    };
    // Two stars beside a letter are one, the manual says; git itself is not sure of that, so they are not compared.
    let parts = [
        "a", "b", "ab", "*", "a*", "?", "[ab]", "[!a]", "**", "*.c", "b*", "c", "\\a",
    ];
    for _ in 0..300 {
        let patterns: Vec<String> = (0..=below(3))
            .map(|_| {
                let inner: Vec<_> = (0..=below(3)).map(|_| parts[below(parts.len())]).collect();
                let sign = ["", "", "", "!"][below(4)];
                let start = ["", "", "/"][below(3)];
                let end = ["", "", "/"][below(3)];
                format!("{sign}{start}{}{end}", inner.join("/"))
            })
            .collect();
        let Some(ignored) = ignored_by_git(dir.path(), &patterns, &names) else {
            return;
        };
        let filter = Filter::new(&[], &patterns).expect("the patterns are good");
        for name in &names {
            let is_dir = dir.path().join(name).is_dir();
            let left = filter.judge(name.as_bytes(), is_dir) == Verdict::Skip;
            assert_eq!(left, ignored.contains(name), "{name} by {patterns:?}");
        }
    }
}
