//! The gate with made-up counts.

use super::*;

fn counts(instructions: &[(&str, u64)]) -> Counts {
    let instructions = instructions.iter();
    Counts {
        setting: Setting {
            rustc: "rustc 1.90.0".to_owned(),
            target: "x86_64-unknown-linux-gnu".to_owned(),
            libc: "glibc 2.36".to_owned(),
            valgrind: "valgrind-3.19.0".to_owned(),
            processor: "avx2".to_owned(),
        },
        instructions: instructions
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect(),
    }
}

fn check(now: &[(&str, u64)], failed: &[&str]) -> String {
    let before = counts(&[("head", 1000), ("tar", 20_000)]);
    let comparison = compare(&before, &counts(now));
    assert_eq!(comparison.failed(), failed, "{now:?}");
    comparison.to_string()
}

#[test]
fn what_was_counted_before_passes() {
    let told = check(&[("head", 1000), ("tar", 20_000)], &[]);
    assert_eq!(told.lines().count(), 2, "{told}");
    assert!(!told.contains("bless"), "{told}");
}

#[test]
fn just_under_three_percent_more_passes_and_just_over_fails() {
    check(&[("head", 1029), ("tar", 20_580)], &[]);
    check(&[("head", 1030), ("tar", 20_600)], &[]);
    let told = check(
        &[("head", 1031), ("tar", 20_620)],
        &["head (+3.10 %)", "tar (+3.10 %)"],
    );
    assert!(told.contains("dearer: it was 1000"), "{told}");
}

#[test]
fn a_bench_that_is_gone_fails() {
    let told = check(&[("head", 1000)], &["tar (gone)"]);
    assert!(told.contains("gone: it was 20000"), "{told}");
}

#[test]
fn a_new_bench_is_told_and_passes() {
    let told = check(&[("head", 1000), ("sse", 5), ("tar", 20_000)], &[]);
    assert!(told.contains("new"), "{told}");
    assert!(told.contains("--bless"), "{told}");
}

#[test]
fn what_became_cheaper_passes_with_the_advice_to_bless() {
    let told = check(&[("head", 900), ("tar", 20_000)], &[]);
    assert!(told.contains("-10.00 %  cheaper: it was 1000"), "{told}");
    assert!(told.contains("--bless"), "{told}");
}

#[test]
fn a_baseline_of_another_compiler_fails_nothing_and_says_so() {
    let before = counts(&[("head", 1000)]);
    let mut now = counts(&[("head", 2000)]);
    now.setting.rustc = "rustc 1.95.0".to_owned();
    let comparison = compare(&before, &now);
    assert!(comparison.failed().is_empty());
    let told = comparison.to_string();
    assert!(told.contains("+100.00 %"), "{told}");
    assert!(
        told.contains("another setting (rustc 1.95.0 instead of rustc 1.90.0)"),
        "{told}"
    );
}

#[test]
fn a_baseline_is_read_as_it_was_written() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("instructions.json");
    let written = counts(&[("head", 1000)]);
    written.write(&path)?;
    assert_eq!(Counts::read(&path)?, written);
    std::fs::write(&path, "{}")?;
    let error = Counts::read(&path).map_or_else(|error| error.to_string(), |_| String::new());
    assert!(
        error.ends_with("instructions.json is no baseline of instructions"),
        "{error}"
    );
    Ok(())
}
