//! What was promised, in terms of scenarios and their metrics.

/// One promise.
pub(super) struct Promise {
    pub(super) text: &'static str,
    /// What the name of our target has behind it.
    pub(super) variant: &'static str,
    pub(super) scenarios: &'static [&'static str],
    pub(super) metrics: &'static [&'static str],
    pub(super) rule: Rule,
}

/// How figures decide. The first metric of the first scenario counts, but where a rule takes more.
pub(super) enum Rule {
    /// The median of the ratios to a peer, round by round.
    Ratio { peer: &'static str, limit: f64 },
    /// The median over the rounds.
    Median(f64),
    /// The highest value of any round, of all metrics in all scenarios.
    Most(f64),
    /// A percentile of single requests.
    Percentile { percentile: f64, limit: f64 },
    /// The longest stall, in rounds that the host left alone.
    Stall(f64),
    /// Our metric at most `factor` times the second one of bare, and the third one of the second scenario.
    SpawnAndTrip { factor: f64 },
    /// At most `factor` times that of bare in the same round, and so many microseconds.
    SpawnAndMore { factor: f64, more_us: f64 },
    /// The size of the program.
    BinaryMib(f64),
}

impl Promise {
    const fn new(
        text: &'static str,
        scenarios: &'static [&'static str],
        metrics: &'static [&'static str],
        rule: Rule,
    ) -> Self {
        Self {
            text,
            variant: "",
            scenarios,
            metrics,
            rule,
        }
    }

    /// About our target under another name.
    const fn of(mut self, variant: &'static str) -> Self {
        self.variant = variant;
        self
    }
}

const fn ratio(peer: &'static str, limit: f64) -> Rule {
    Rule::Ratio { peer, limit }
}

pub(super) const STALL: &str = "longest health request meanwhile";
pub(super) const STOLEN: &str = "taken by the host meanwhile";

const CPU: &[&str] = &["CPU"];
const RATE: &[&str] = &["rate"];
const WALL: &[&str] = &["wall"];
const UNTIL_END: &[&str] = &["rate until health shows the end"];
const TOLD: &[&str] = &["rate of what was told"];
const GROWTH: &str = "peak RSS growth";
const SPOOL_OFF: &str = " spool=off";
const EXEC_P50: &str = "start to exit known, p50";
const EXEC_P50_SPIN: &str = "start to exit known, spinning client, p50";

pub(super) const PROMISES: &[Promise] = &[
    Promise::new(
        "GET 1 GiB cached: CPU at most 1.5 x a bare send loop",
        &["get-1g"],
        CPU,
        ratio("bare", 1.5),
    ),
    Promise::new(
        "GET 1 GiB cached: CPU at most 1/8 of axum (4 KiB)",
        &["get-1g"],
        CPU,
        ratio("axum", 0.125),
    ),
    Promise::new(
        "GET 1 GiB cached: rate at least nginx sendfile's",
        &["get-1g"],
        RATE,
        ratio("nginx", 1.0),
    ),
    Promise::new(
        "PUT 1 GiB: CPU at most 1.15 x bare recv and pwrite",
        &["put-1g"],
        CPU,
        ratio("bare", 1.15),
    ),
    Promise::new(
        "PUT 1 GiB: CPU at most 1/3 of axum",
        &["put-1g"],
        CPU,
        ratio("axum", 1.0 / 3.0),
    ),
    Promise::new(
        "GET tar, small files: CPU at most 0.4 x axum",
        &["tar-get-20k"],
        CPU,
        ratio("axum", 0.4),
    ),
    Promise::new(
        "PUT tar, small files: CPU at most 0.6 x axum",
        &["tar-put-20k"],
        CPU,
        ratio("axum", 0.6),
    ),
    Promise::new(
        "PUT tar, small files, spool=off: CPU at most 0.5 x axum",
        &["tar-put-20k"],
        CPU,
        ratio("axum", 0.5),
    )
    .of(SPOOL_OFF),
    Promise::new(
        "PUT tar, small files: wall at most 0.9 x bsdtar",
        &["tar-put-20k"],
        WALL,
        ratio("bsdtar", 0.9),
    ),
    Promise::new(
        "GET tar, small files: CPU at most 0.9 x GNU tar",
        &["tar-get-20k"],
        CPU,
        ratio("gnu-tar", 0.9),
    ),
    Promise::new(
        "GET tar, small files, cold: wall at most a third of GNU tar's",
        &["tar-get-20k-cold"],
        WALL,
        ratio("gnu-tar", 1.0 / 3.0),
    ),
    Promise::new(
        "GET tar: first byte at most 5 ms after the time of a plain walk",
        &["tar-get-20k"],
        &["first byte after the time of a plain walk"],
        Rule::Median(5.0),
    ),
    Promise::new(
        "PUT tar, one large member: CPU at most 1.6 x PUT file",
        &["tar-put-1g"],
        &["CPU over PUT file"],
        Rule::Median(1.6),
    ),
    Promise::new(
        "PUT tar, one large member, spool=off: CPU at most 1.1 x PUT file",
        &["tar-put-1g"],
        &["CPU over PUT file"],
        Rule::Median(1.1),
    )
    .of(SPOOL_OFF),
    Promise::new(
        "GET files of 64 KiB over one connection: rate at least 3 x axum",
        &["get-64k"],
        RATE,
        ratio("axum", 3.0),
    ),
    Promise::new(
        "16 ranges: rate at least that of one stream",
        &["ranges-16"],
        &["rate of 16 ranges over that of one stream"],
        Rule::Median(1.0),
    ),
    Promise::new(
        "last ten lines of a large file: p99 at most 2 ms",
        &["lines-last"],
        &["latency"],
        Rule::Percentile {
            percentile: 99.0,
            limit: 2000.0,
        },
    ),
    Promise::new(
        "GET cold: no stall over 2 ms",
        &["get-1g-cold"],
        &[STALL, STOLEN],
        Rule::Stall(2.0),
    ),
    Promise::new(
        "RSS growth under 24 MiB for one large file and for 100,000 entries",
        &[
            "get-1g",
            "put-1g",
            "tar-get-1g",
            "tar-put-1g",
            "tar-get-100k",
            "tar-put-100k",
        ],
        &[GROWTH],
        Rule::Most(24.0),
    ),
    Promise::new(
        "RSS growth under 16 MiB during any transfer",
        &["memory"],
        &[
            "growth, GET file",
            "growth, PUT file",
            "growth, GET tar",
            "growth, PUT tar",
        ],
        Rule::Most(16.0),
    ),
    Promise::new(
        "idle RSS under 6 MiB",
        &["memory"],
        &["idle RSS"],
        Rule::Most(6.0),
    ),
    Promise::new("release binary under 4 MiB", &[], &[], Rule::BinaryMib(4.0)),
    Promise::new(
        "exec start and poll: p50 at most 2 x bare spawn and wait + one round trip",
        &["exec-poll", "health"],
        &[EXEC_P50, EXEC_P50, "p50"],
        Rule::SpawnAndTrip { factor: 2.0 },
    ),
    Promise::new(
        "exec start and poll, spinning client: the same",
        &["exec-poll", "health"],
        &[EXEC_P50_SPIN, EXEC_P50, "p50"],
        Rule::SpawnAndTrip { factor: 2.0 },
    ),
    Promise::new(
        "exec start and follow: p50 at most 1.25 x bare spawn and wait + 150 us",
        &["exec-stream"],
        &["start to exit event, p50"],
        Rule::SpawnAndMore {
            factor: 1.25,
            more_us: 150.0,
        },
    ),
    Promise::new(
        "exec start and follow, client with late ACKs: none over 35 ms",
        &["exec-stream"],
        &["over 35 ms, client with late ACKs"],
        Rule::Most(0.0),
    ),
    Promise::new(
        "exec storm: rate at least 0.8 x bare spawn and wait",
        &["exec-storm"],
        RATE,
        ratio("bare", 0.8),
    ),
    Promise::new(
        "exec storm: no zombie and no descriptor left",
        &["exec-storm"],
        &["zombies left", "descriptors left open"],
        Rule::Most(0.0),
    ),
    Promise::new(
        "capture, writes of 8 KiB, no follower: rate at least 2.5 x axum",
        &["capture-small"],
        UNTIL_END,
        ratio("axum", 2.5),
    ),
    Promise::new(
        "capture, writes of 64 KiB, no follower: rate at least 2.5 x axum",
        &["capture-large"],
        UNTIL_END,
        ratio("axum", 2.5),
    ),
    Promise::new(
        "capture, one SSE follower: rate at least 3 x axum",
        &["capture-events"],
        TOLD,
        ratio("axum", 3.0),
    ),
    Promise::new(
        "capture, one binary follower: at least 1.5 GiB/s",
        &["capture-frames"],
        TOLD,
        Rule::Median(1.5),
    ),
    Promise::new(
        "500 followers: CPU per line and follower at most 0.25 x axum",
        &["fanout-500"],
        &["CPU per line and follower"],
        ratio("axum", 0.25),
    ),
    Promise::new(
        "followers beside stalled ones: at most 10 % later",
        &["fanout-stalled"],
        &["time beside the stalled / time without them"],
        Rule::Median(1.1),
    ),
];
