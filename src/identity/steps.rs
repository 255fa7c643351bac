//! The five steps of the repair (contract, section 1). Each may wait; each leaves the old state or the new one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::rand::{GetRandomFlags, getrandom};

use super::{Outcome, Step};

/// Makes every step, in the order in which they are told.
pub(super) fn all() -> Vec<Step> {
    let [machine, boot] = [fresh(), fresh()];
    vec![
        step(MACHINE, of_fresh(&machine, machine_id)),
        step(HOST, of_fresh(&machine, hostname)),
        step(BOOT, of_fresh(&boot, boot_id)),
        step(SEED, gone(RANDOM_SEED)),
        step(CREDENTIAL, gone(DBUS_MACHINE_ID)),
    ]
}

/// Every step, failed for one reason.
pub(super) fn all_failed(why: &str) -> Vec<Step> {
    let names = [MACHINE, HOST, BOOT, SEED, CREDENTIAL];
    names.map(|name| step(name, Err(why.to_owned()))).to_vec()
}

fn step(name: &'static str, made: Result<Outcome, String>) -> Step {
    Step {
        name,
        outcome: *made.as_ref().unwrap_or(&Outcome::Failed),
        error: made.err(),
    }
}

/// An id of 128 bits.
#[derive(Clone, Copy)]
struct Id(u128);

impl Id {
    /// 32 hexadecimal digits.
    fn plain(self) -> String {
        format!("{:032x}", self.0)
    }

    /// The same in groups of 8, 4, 4, 4 and 12.
    fn dashed(self) -> String {
        let plain = self.plain();
        let groups = [0..8, 8..12, 12..16, 16..20, 20..32].map(|group| &plain[group]);
        groups.join("-")
    }
}

/// A random id, with the marks of a random one (RFC 9562, section 5.4; machine-id(5) asks for them, too).
fn fresh() -> Result<Id, io::Error> {
    let mut bytes = [0; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    let random = u128::from_be_bytes(bytes);
    let unmarked = random & !(0xF << 76) & !(0x3 << 62);
    Ok(Id(unmarked | (0x4 << 76) | (0x2 << 62)))
}

fn of_fresh(
    id: &Result<Id, io::Error>,
    make: fn(Id) -> Result<Outcome, String>,
) -> Result<Outcome, String> {
    match id {
        Ok(id) => make(*id),
        Err(error) => Err(format!("no random numbers: {error}")),
    }
}

fn machine_id(id: Id) -> Result<Outcome, String> {
    let path = Path::new(MACHINE_ID);
    replace(path, &format!("{}\n", id.plain())).map_err(|error| about(path, &error))?;
    Ok(Outcome::Repaired)
}

fn hostname(id: Id) -> Result<Outcome, String> {
    let name = format!("microvm-{}", &id.plain()[..12]);
    let set = rustix::system::sethostname(name.as_bytes());
    set.map_err(|error| io::Error::from(error).to_string())?;
    Ok(Outcome::Repaired)
}

/// The kernel tells its own id in a file that nobody can write; another file is put in front of it.
fn boot_id(id: Id) -> Result<Outcome, String> {
    let (source, target) = (Path::new(OUR_BOOT_ID), Path::new(BOOT_ID));
    let failed = |error: io::Error| about(target, &error);
    let Some(there) = metadata(target).map_err(failed)? else {
        return Ok(Outcome::NotApplicable);
    };
    let place = |meta: &fs::Metadata| (meta.dev(), meta.ino());
    let ours = metadata(source).map_err(|error| about(source, &error))?;
    if ours.is_some_and(|ours| place(&ours) == place(&there)) {
        // An earlier daemon of this guest has put it there.
        unmount(target, UnmountFlags::DETACH).map_err(|error| failed(error.into()))?;
    }
    let text = format!("{}\n", id.dashed());
    replace(source, &text).map_err(|error| about(source, &error))?;
    if let Err(error) = mount_bind(source, target) {
        let _ = fs::remove_file(source);
        return Err(failed(error.into()));
    }
    Ok(Outcome::Repaired)
}

/// Removes a file that must not be shared; whoever needs it makes a new one.
fn gone(path: &str) -> Result<Outcome, String> {
    let path = Path::new(path);
    // Asked first, because a read-only file system refuses to remove even what is not there.
    match fs::symlink_metadata(path) {
        Err(error) if is_absence(&error) => return Ok(Outcome::NotApplicable),
        Err(error) => return Err(about(path, &error)),
        Ok(_) => {}
    }
    fs::remove_file(path).map_err(|error| about(path, &error))?;
    Ok(Outcome::Repaired)
}

/// Puts a file with this text, which everybody may read, where `path` says, as a whole.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory)?;
    let beside = directory.join(format!(".ringd-{:016x}", fresh()?.0 >> 64));
    let written = write_new(&beside, text).and_then(|()| match fs::rename(&beside, path) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => in_place(path, text),
        outcome => outcome,
    });
    // It is there only if it was not renamed.
    let _ = fs::remove_file(&beside);
    written
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())?;
    file.set_permissions(fs::Permissions::from_mode(READABLE))
}

/// Writes over a file that something is mounted on: its name cannot be given to another.
fn in_place(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::options().write(true).open(path)?;
    file.write_all(text.as_bytes())?;
    file.set_len(text.len() as u64)
}

/// What stands at `path`; `None` when nothing does.
fn metadata(path: &Path) -> io::Result<Option<fs::Metadata>> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_absence(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_absence(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}

fn about(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

const MACHINE: &str = "machine-id";
const HOST: &str = "hostname";
const BOOT: &str = "boot-id";
const SEED: &str = "random-seed";
const CREDENTIAL: &str = "cached-credential";

const MACHINE_ID: &str = "/etc/machine-id";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The file in front of it, where the reference has it.
const OUR_BOOT_ID: &str = "/run/agentd-boot-id";
/// What systemd feeds to the kernel at boot: shared, it is no secret.
const RANDOM_SEED: &str = "/var/lib/systemd/random-seed";
/// D-Bus's copy of the machine id.
const DBUS_MACHINE_ID: &str = "/var/lib/dbus/machine-id";
/// Permissions of both ids.
const READABLE: u32 = 0o444;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_random_and_says_so() {
        let ids = [fresh(), fresh()].map(|id| id.expect("the kernel gives random numbers"));
        assert_ne!(ids[0].0, ids[1].0);
        for id in ids {
            let (plain, dashed) = (id.plain(), id.dashed());
            assert!(plain.len() == 32 && dashed.len() == 36, "{plain} {dashed}");
            assert_eq!(dashed.replace('-', ""), plain);
            assert_eq!(&dashed[14..15], "4", "{dashed}");
            assert!("89ab".contains(&dashed[19..20]), "{dashed}");
        }
    }

    #[test]
    fn the_groups_are_those_of_a_uuid() {
        let id = Id(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        assert_eq!(id.dashed(), "01234567-89ab-cdef-0123-456789abcdef");
    }

    #[test]
    fn a_reason_reaches_every_step() {
        let steps = all_failed("why");
        assert_eq!(steps.len(), 5);
        for step in steps {
            assert_eq!(
                (step.outcome, step.error.as_deref()),
                (Outcome::Failed, Some("why"))
            );
        }
    }
}
