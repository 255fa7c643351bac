//! Files that are downloaded and uploaded.

mod get;

use super::Scenario;

pub(super) const TABLE: &[Scenario] = &[Scenario {
    name: "get-1g",
    title: "a large file in the page cache is downloaded over one connection",
    run: |bench, out| Box::pin(get::large(bench, out)),
}];
