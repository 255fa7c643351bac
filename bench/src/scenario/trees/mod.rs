//! Trees that travel as archives: packed and downloaded, uploaded and extracted.

mod extract;
mod guest;
mod member;
mod pack;
mod program;

use super::Scenario;
use crate::results::Metric;

pub(super) use guest::{Guest, put_archive, refuse_other};

pub(super) const TABLE: &[Scenario] = &[
    Scenario {
        name: "tar-get-20k",
        title: "a tree of small files in the page cache is downloaded as one archive",
        run: |bench, out| Box::pin(pack::small(bench, out)),
    },
    Scenario {
        name: "tar-get-20k-cold",
        title: "a tree of small files is downloaded as one archive after their pages were dropped",
        run: |bench, out| Box::pin(pack::cold(bench, out)),
    },
    Scenario {
        name: "tar-put-20k",
        title: "an archive of small files is extracted into a new directory",
        run: |bench, out| Box::pin(extract::small(bench, out)),
    },
    Scenario {
        name: "tar-get-1g",
        title: "a directory with one large file in the page cache is downloaded as an archive",
        run: |bench, out| Box::pin(member::packed(bench, out)),
    },
    Scenario {
        name: "tar-put-1g",
        title: "an archive of one large member is extracted into a new directory",
        run: |bench, out| Box::pin(member::extracted(bench, out)),
    },
    Scenario {
        name: "tar-get-100k",
        title: "a tree of very many entries, most of them empty files, is downloaded as one archive",
        run: |bench, out| Box::pin(pack::many(bench, out)),
    },
    Scenario {
        name: "tar-put-100k",
        title: "an archive of very many entries, most of them empty files, is extracted into a new directory",
        run: |bench, out| Box::pin(extract::many(bench, out)),
    },
    Scenario {
        name: "tar-get-deep",
        title: "a tree of 64 directories one inside the other is downloaded as one archive",
        run: |bench, out| Box::pin(pack::deep(bench, out)),
    },
    Scenario {
        name: "tar-put-deep",
        title: "an archive of 64 directories one inside the other is extracted into a new directory",
        run: |bench, out| Box::pin(extract::deep(bench, out)),
    },
];

const CPU_PER_FILE: Metric = Metric::low("CPU", "us/file").main();
const CPU_PER_ENTRY: Metric = Metric::low("CPU", "us/entry").main();
const WALL: Metric = Metric::low("wall", "ms");
