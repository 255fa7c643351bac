//! Extraction touches nothing outside of its root, also while somebody else changes the tree (wish 20).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::{CWD, RenameFlags};

use crate::archive::{Member, archive, dir, file, hard_link, symlink as link};
use crate::daemon::Daemon;
use crate::driver::Driver;
use crate::request::{Request, tar_at};
use crate::scratch::noise;
use crate::trees::{exact, same};

both![
    a_directory_that_becomes_a_link_meanwhile_leads_nowhere,
    a_file_that_becomes_a_link_meanwhile_is_not_followed,
    hostile_archives_of_every_kind_stay_inside,
];

const WAYS: [&str; 2] = ["", "&spool=off"];
const ROUNDS: usize = 40;

fn a_directory_that_becomes_a_link_meanwhile_leads_nowhere(driver: Driver) {
    let daemon = Daemon::ready(driver);
    sentinel(&daemon.path("outside"));
    fs::create_dir_all(daemon.path("root/d/e")).expect("ours");
    symlink(daemon.path("outside"), daemon.path("root/link")).expect("ours");
    let before = exact(&daemon.path("outside"));
    let mut members = vec![dir("d"), dir("d/e").mode(0o700).mtime(1)];
    for number in 0..60 {
        members.push(file(format!("d/e/f{number}"), noise(600)).mode(0o600));
        members.push(file(format!("d/secret{}", number % 3), "overwritten").mode(0));
        members.push(dir(format!("d/dir{}", number % 3)).mode(0));
        members.push(link(format!("d/l{number}"), "e"));
        members.push(hard_link(format!("d/h{number}"), format!("d/e/f{number}")));
    }
    members.push(file("d/e/large", noise(2 << 20)));
    let body = archive(members);
    swapping(&daemon.path("root/d"), &daemon.path("root/link"), || {
        extract_often(&daemon, &body);
    });
    same("outside", &exact(&daemon.path("outside")), &before);
}

fn a_file_that_becomes_a_link_meanwhile_is_not_followed(driver: Driver) {
    let daemon = Daemon::ready(driver);
    sentinel(&daemon.path("outside"));
    fs::create_dir(daemon.path("root")).expect("ours");
    fs::write(daemon.path("root/f"), "old").expect("ours");
    symlink(daemon.path("outside/secret0"), daemon.path("root/link")).expect("ours");
    let before = exact(&daemon.path("outside"));
    let mut members: Vec<Member> = (0..200)
        .map(|number| file("f", noise(100 + number)).mode(0o400).mtime(5))
        .collect();
    members.push(file("f", noise(2 << 20)));
    members.push(hard_link("h", "f"));
    members.push(file("h", "through the other name"));
    let body = archive(members);
    swapping(&daemon.path("root/f"), &daemon.path("root/link"), || {
        extract_often(&daemon, &body);
        // A hard link to the link must not open a way either.
        let _ = fs::remove_file(daemon.path("root/h"));
        extract_often(&daemon, &body);
    });
    same("outside", &exact(&daemon.path("outside")), &before);
}

fn hostile_archives_of_every_kind_stay_inside(driver: Driver) {
    let daemon = Daemon::ready(driver);
    sentinel(&daemon.path("outside"));
    let before = exact(&daemon.path("outside"));
    let mut random = Random(0x2545_F491_4F6C_DD1D);
    for round in 0..150 {
        let root = daemon.path("root");
        fs::create_dir(&root).expect("ours");
        if round % 2 == 0 {
            symlink("../outside", root.join("a")).expect("ours");
            symlink(daemon.path("outside/secret0"), root.join("b")).expect("ours");
        }
        let members: Vec<Member> = (0..random.below(12)).map(|_| random.member()).collect();
        let was = exact(&root);
        let strip = random.below(3);
        for way in WAYS {
            let target = format!("{}&strip={strip}{way}", tar_at(&root));
            let request = Request::put(target).bearer().body(archive(members.clone()));
            let reply = daemon.call(&request);
            same("outside", &exact(&daemon.path("outside")), &before);
            if reply.status != 204 && way.is_empty() {
                same("a refusal", &exact(&root), &was);
            }
        }
        let left: Vec<String> = crate::scratch::names(&daemon.path(""));
        assert_eq!(left, ["outside", "root"], "round {round}");
        fs::remove_dir_all(&root).expect("ours");
    }
}

/// Something to lose.
fn sentinel(outside: &Path) {
    fs::create_dir(outside).expect("ours");
    for number in 0..3 {
        fs::write(outside.join(format!("secret{number}")), "secret").expect("ours");
        fs::create_dir(outside.join(format!("dir{number}"))).expect("ours");
    }
    fs::create_dir(outside.join("e")).expect("ours");
    fs::write(outside.join("e/f1"), "secret").expect("ours");
}

/// Extracts the archive again and again, in both ways; whether it is refused depends on who comes first.
#[track_caller]
fn extract_often(daemon: &Daemon, body: &[u8]) {
    let mut connection = daemon.connect();
    for round in 0..ROUNDS {
        let target = format!("{}{}", tar_at(daemon.path("root")), WAYS[round % 2]);
        let reply = connection.call(&Request::put(target).bearer().body(body));
        assert!([204, 400, 500].contains(&reply.status), "{reply:?}");
        if reply.field("connection") == Some("close") {
            connection = daemon.connect();
        }
    }
}

/// Lets the two names change places without a pause while `work` is done.
fn swapping(one: &Path, other: &Path, work: impl FnOnce()) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                // The extraction may have replaced one of them, and then there is nothing to swap for a moment.
                let _ = rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE);
            }
        });
        // The other thread ends whatever happens here.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        over.store(true, Ordering::Relaxed);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Numbers that look random and are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        let index = usize::try_from(self.below(64)).expect("small");
        words[index % words.len()]
    }

    fn name(&mut self) -> String {
        let parts = [
            "a", "b", "c", "a", "b", "c", "..", ".", "", "secret0", "dir0", "e",
        ];
        let count = 1 + self.below(4);
        let mut name: Vec<&str> = (0..count).map(|_| self.pick(&parts)).collect();
        if self.below(12) == 0 {
            name.insert(0, "");
        }
        name.join("/")
    }

    fn member(&mut self) -> Member {
        let name = self.name();
        match self.below(9) {
            0..=2 => {
                let length = usize::try_from(self.below(2000)).expect("small");
                file(name, noise(length)).mode(0o600).mtime(1)
            }
            3 => dir(name).mode(0o700).mtime(2),
            4 | 5 => link(name, self.name()),
            6 | 7 => hard_link(name, self.name()),
            _ => file(name, noise(1_100_000)).mode(0),
        }
    }
}
