//! Files that are downloaded and uploaded.

mod cold;
mod exchanges;
mod get;
mod lines;
mod put;
mod ranges;
mod reader;
mod small;
mod upload;

use super::Scenario;
use small::{LARGE, MEDIUM, SMALL};

pub(super) const TABLE: &[Scenario] = &[
    Scenario {
        name: "get-4k",
        title: "files of 4 KiB in the page cache are downloaded over one connection",
        run: |bench, out| Box::pin(small::get(bench, out, SMALL, 1)),
    },
    Scenario {
        name: "get-4k-c16",
        title: "files of 4 KiB in the page cache are downloaded over 16 connections",
        run: |bench, out| Box::pin(small::get(bench, out, SMALL, 16)),
    },
    Scenario {
        name: "get-4k-c256",
        title: "files of 4 KiB in the page cache are downloaded over 256 connections",
        run: |bench, out| Box::pin(small::get(bench, out, SMALL, 256)),
    },
    Scenario {
        name: "get-64k",
        title: "files of 64 KiB in the page cache are downloaded over one connection",
        run: |bench, out| Box::pin(small::get(bench, out, MEDIUM, 1)),
    },
    Scenario {
        name: "get-64k-c16",
        title: "files of 64 KiB in the page cache are downloaded over 16 connections",
        run: |bench, out| Box::pin(small::get(bench, out, MEDIUM, 16)),
    },
    Scenario {
        name: "get-64k-c256",
        title: "files of 64 KiB in the page cache are downloaded over 256 connections",
        run: |bench, out| Box::pin(small::get(bench, out, MEDIUM, 256)),
    },
    Scenario {
        name: "get-64k-rate",
        title: "files of 64 KiB in the page cache are downloaded at a constant rate",
        run: |bench, out| Box::pin(small::get_at_rate(bench, out)),
    },
    Scenario {
        name: "get-64k-cold",
        title: "files of 64 KiB that are on the disk only are downloaded over one connection",
        run: |bench, out| Box::pin(cold::medium(bench, out)),
    },
    Scenario {
        name: "get-1m",
        title: "files of 1 MiB in the page cache are downloaded over one connection",
        run: |bench, out| Box::pin(small::get(bench, out, LARGE, 1)),
    },
    Scenario {
        name: "get-1m-c16",
        title: "files of 1 MiB in the page cache are downloaded over 16 connections",
        run: |bench, out| Box::pin(small::get(bench, out, LARGE, 16)),
    },
    Scenario {
        name: "get-1m-c256",
        title: "files of 1 MiB in the page cache are downloaded over 256 connections",
        run: |bench, out| Box::pin(small::get(bench, out, LARGE, 256)),
    },
    Scenario {
        name: "get-1g",
        title: "a large file in the page cache is downloaded over one connection",
        run: |bench, out| Box::pin(get::large(bench, out)),
    },
    Scenario {
        name: "get-1g-c16",
        title: "sixteen files that together are as large are downloaded over 16 connections at once",
        run: |bench, out| Box::pin(get::large_shared(bench, out)),
    },
    Scenario {
        name: "get-1g-cold",
        title: "a large file that is on the disk only is downloaded over one connection",
        run: |bench, out| Box::pin(cold::large(bench, out)),
    },
    Scenario {
        name: "put-4k",
        title: "new files of 4 KiB are uploaded over one connection",
        run: |bench, out| Box::pin(put::small(bench, out, SMALL, 1)),
    },
    Scenario {
        name: "put-4k-c16",
        title: "new files of 4 KiB are uploaded over 16 connections",
        run: |bench, out| Box::pin(put::small(bench, out, SMALL, 16)),
    },
    Scenario {
        name: "put-4k-c256",
        title: "new files of 4 KiB are uploaded over 256 connections",
        run: |bench, out| Box::pin(put::small(bench, out, SMALL, 256)),
    },
    Scenario {
        name: "put-64k",
        title: "new files of 64 KiB are uploaded over one connection",
        run: |bench, out| Box::pin(put::small(bench, out, MEDIUM, 1)),
    },
    Scenario {
        name: "put-64k-c16",
        title: "new files of 64 KiB are uploaded over 16 connections",
        run: |bench, out| Box::pin(put::small(bench, out, MEDIUM, 16)),
    },
    Scenario {
        name: "put-64k-c256",
        title: "new files of 64 KiB are uploaded over 256 connections",
        run: |bench, out| Box::pin(put::small(bench, out, MEDIUM, 256)),
    },
    Scenario {
        name: "put-1m",
        title: "new files of 1 MiB are uploaded over one connection",
        run: |bench, out| Box::pin(put::small(bench, out, LARGE, 1)),
    },
    Scenario {
        name: "put-1m-c16",
        title: "new files of 1 MiB are uploaded over 16 connections",
        run: |bench, out| Box::pin(put::small(bench, out, LARGE, 16)),
    },
    Scenario {
        name: "put-1m-c256",
        title: "new files of 1 MiB are uploaded over 256 connections",
        run: |bench, out| Box::pin(put::small(bench, out, LARGE, 256)),
    },
    Scenario {
        name: "put-1g",
        title: "a large new file is uploaded over one connection",
        run: |bench, out| Box::pin(put::large(bench, out)),
    },
    Scenario {
        name: "ranges-16",
        title: "a large file is downloaded in 16 ranges at once",
        run: |bench, out| Box::pin(ranges::ranges(bench, out)),
    },
    Scenario {
        name: "lines-last",
        title: "the last ten lines of a large file are read again and again",
        run: |bench, out| Box::pin(lines::last(bench, out)),
    },
    Scenario {
        name: "lines-window",
        title: "twenty windows of 100 lines are read, one behind the other, from the middle of a text on",
        run: |bench, out| Box::pin(lines::windows(bench, out)),
    },
];
