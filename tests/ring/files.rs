//! Files: read, written and sent without stalling the thread.

use super::*;

#[test]
fn a_sender_whose_peer_always_reads_gives_way() {
    on_both(|| async {
        let (near, mut far) = UnixStream::pair().expect("a pair");
        let socket = Socket::new(OwnedFd::from(near), PATIENCE).expect("a socket");
        let reader = std::thread::spawn(move || {
            let mut scratch = vec![0; 1 << 20];
            while far.read(&mut scratch).is_ok_and(|count| count > 0) {}
        });
        let stop = Rc::new(Cell::new(false));
        let (told, ended) = (Rc::clone(&stop), Rc::new(Once::default()));
        let over = Rc::clone(&ended);
        ring::spawn("sender", async move {
            let source = temporary(&vec![1; 8 << 20]);
            let bytes = vec![2; 1 << 20];
            while !told.get() {
                socket
                    .send_file(&source, 0, 8 << 20, |_| ())
                    .await
                    .expect("sent");
                socket.send_all(&bytes, false).await.expect("sent");
            }
            over.set(());
        });
        for _ in 0..5 {
            sleep(Duration::from_millis(2)).await;
        }
        stop.set(true);
        ended.wait().await;
        pool::run(move || reader.join())
            .await
            .expect("a result")
            .expect("no panic");
    });
}

#[test]
fn a_deadline_too_far_away_never_comes() {
    assert!(!Deadline::after(Duration::MAX).has_passed());
    assert_eq!(Deadline::after(Duration::MAX), Deadline::NEVER);
    assert!(Deadline::after(Duration::ZERO).has_passed());
}

#[test]
fn an_inflow_is_copied_whole_and_a_refusal_stops_it() {
    on_both(|| async {
        let bytes: Vec<u8> = (0..20_000_000u32)
            .map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1])
            .collect();
        let target = temporary(b"");
        let mut checks = 0;
        let mut source = flow::Ready::new(bytes.clone());
        let count = copy::to_file(&mut source, &target, async || {
            checks += 1;
            Ok(())
        })
        .await
        .expect("copied");
        assert_eq!(count, bytes.len() as u64);
        assert_eq!(checks, 2, "free space is asked for every eight MiB");
        let mut back = Vec::with_capacity(bytes.len());
        while let (Ok(1..), grown) = file::read_at(
            &target,
            std::mem::take(&mut back),
            back.len() as u64,
            usize::MAX,
        )
        .await
        {
            back = grown;
            if back.len() == bytes.len() {
                break;
            }
        }
        assert!(back == bytes, "other bytes came back");
        let mut source = flow::Ready::new(bytes);
        let refused = copy::to_file(&mut source, &target, async || {
            Err(ringd::error::Kind::DiskFull.told("no"))
        });
        assert!(refused.await.is_err());
    });
}

#[test]
fn a_file_is_sent_whole_cached_or_not() {
    on_both(|| async {
        let bytes: Vec<u8> = (0..3_000_001u32).map(|n| n.to_le_bytes()[1]).collect();
        let source = temporary(&bytes);
        rustix::fs::fsync(&source).expect("syncs");
        rustix::fs::fadvise(&source, 0, None, rustix::fs::Advice::DontNeed)
            .expect("drops the cache");
        for _ in ["cold", "warm"] {
            let (near, mut far) = UnixStream::pair().expect("a pair");
            let socket = Socket::new(OwnedFd::from(near), PATIENCE).expect("a socket");
            let reader = std::thread::spawn(move || {
                let mut seen = Vec::new();
                far.read_to_end(&mut seen).map(|_| seen)
            });
            socket
                .send_file(&source, 1, 3_000_000, |_| ())
                .await
                .expect("sent");
            drop(socket);
            let seen = pool::run(move || reader.join()).await.expect("a result");
            let seen = seen.expect("no panic").expect("read");
            assert!(seen == bytes[1..], "other bytes arrived");
        }
    });
}

#[test]
fn a_file_that_is_shorter_than_promised_is_an_error() {
    on_both(|| async {
        let source = temporary(b"short");
        let (near, _far) = UnixStream::pair().expect("a pair");
        let socket = Socket::new(OwnedFd::from(near), PATIENCE).expect("a socket");
        assert!(socket.send_file(&source, 0, 6, |_| ()).await.is_err());
    });
}

#[test]
fn a_batch_reads_small_files_and_tells_what_is_missing() {
    on_both(|| async {
        let kind = std::thread::current().id();
        let folder =
            std::env::temp_dir().join(format!("ringd-batch-{}-{kind:?}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder");
        for number in 0..200 {
            std::fs::write(folder.join(number.to_string()), vec![b'x'; number]).expect("a file");
        }
        std::os::unix::fs::symlink("1", folder.join("link")).expect("a link");
        let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        let dir = rustix::fs::open(&folder, flags, rustix::fs::Mode::empty()).expect("opens");
        let dir = std::sync::Arc::new(dir);
        let wanted = |name: String, size| batch::Wanted {
            dir: std::sync::Arc::clone(&dir),
            name: std::ffi::CString::new(name).expect("no NUL"),
            size,
        };
        for start in [0, 64, 128] {
            let files = (start..start + 63).map(|n: usize| wanted(n.to_string(), n));
            let read = batch::read_files(files.collect()).await;
            for (number, bytes) in (start..).zip(read) {
                assert_eq!(bytes.expect("a file").len(), number);
            }
        }
        let odd = [
            wanted("absent".into(), 1),
            wanted("link".into(), 1),
            wanted("5".into(), 9),
            wanted("9".into(), 3),
        ];
        let read = batch::read_files(odd.into()).await;
        let told: Vec<_> = read
            .into_iter()
            .map(|bytes| bytes.map(|bytes| bytes.len()).ok())
            .collect();
        assert_eq!(told, [None, None, Some(5), Some(3)]);
        // Other tests of this process open and close their own meanwhile: only this folder's files are looked for.
        assert_eq!(open_below(&folder), 0, "descriptors were leaked");
        std::fs::remove_dir_all(&folder).expect("removed");
    });
}
