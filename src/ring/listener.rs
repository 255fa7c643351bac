//! Listening sockets: opening them, and accepting without losing a connection or leaking a descriptor.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::Fd;

/// A listening socket of any family; a Unix socket's file is removed when it is dropped.
pub struct Listener {
    fd: Fd,
    name: String,
    _file: Option<SocketFile>,
}

/// The file of a Unix socket that we have made.
struct SocketFile {
    path: PathBuf,
    inode: u64,
}

/// Connections that the kernel keeps for us while we are busy.
const BACKLOG: i32 = 1024;

impl Listener {
    /// Listens on a TCP address; port 0 lets the kernel choose.
    ///
    /// # Errors
    /// What socket, bind or listen say: the address is taken, or not ours.
    pub fn tcp(address: SocketAddr) -> io::Result<Self> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let fd = stream_socket(family)?;
        sockopt::set_socket_reuseaddr(&fd, true)?;
        rustix::net::bind(&fd, &address)?;
        rustix::net::listen(&fd, BACKLOG)?;
        let bound: SocketAddr = rustix::net::getsockname(&fd)?.try_into()?;
        Self::of(fd, format!("tcp://{bound}"))
    }

    /// Listens on a Unix socket at `path` with the permissions `mode`.
    ///
    /// A socket that nobody answers on is replaced.
    ///
    /// # Errors
    /// `AddrInUse` when somebody answers there, `AlreadyExists` when something else than a socket is there, and what
    /// the kernel says.
    pub fn unix(path: &Path, mode: u32) -> io::Result<Self> {
        make_room(path)?;
        let fd = stream_socket(AddressFamily::UNIX)?;
        rustix::net::bind(&fd, &SocketAddrUnix::new(path)?)?;
        // Nobody can connect before listen, so there is no moment at which the mode is not yet right.
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        rustix::net::listen(&fd, BACKLOG)?;
        let file = SocketFile {
            path: path.to_owned(),
            inode: fs::symlink_metadata(path)?.ino(),
        };
        let mut listener = Self::of(fd, format!("unix://{}", path.display()))?;
        listener._file = Some(file);
        Ok(listener)
    }

    /// Listens on a vsock port (vsock(7)); `u32::MAX` is every context id of this guest.
    ///
    /// # Errors
    /// What the kernel says: no vsock transport, or the port is taken.
    #[expect(unsafe_code, reason = "the address of vsock has no safe wrapper")]
    pub fn vsock(cid: u32, port: u32) -> io::Result<Self> {
        let fd = stream_socket(AddressFamily::VSOCK)?;
        // SAFETY: a zeroed address is valid; the pointer and the length describe it, and it outlives the call.
        let bound = unsafe {
            let mut address: libc::sockaddr_vm = std::mem::zeroed();
            address.svm_family = libc::sa_family_t::try_from(libc::AF_VSOCK).unwrap_or_default();
            address.svm_cid = cid;
            address.svm_port = port;
            let length = libc::socklen_t::try_from(size_of_val(&address)).unwrap_or_default();
            libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length)
        };
        if bound < 0 {
            return Err(io::Error::last_os_error());
        }
        rustix::net::listen(&fd, BACKLOG)?;
        let cid = match cid {
            u32::MAX => "any".to_owned(),
            number => number.to_string(),
        };
        Self::of(fd, format!("vsock://{cid}:{port}"))
    }

    /// Takes over a descriptor that the parent has opened and that listens (socket activation).
    ///
    /// # Errors
    /// The descriptor is not open, or not a listening socket.
    #[expect(
        unsafe_code,
        reason = "a descriptor named by number must be taken over"
    )]
    pub fn inherited(number: i32) -> io::Result<Self> {
        // SAFETY: F_GETFD touches no memory.
        if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is open; the operator has named it for us, so nobody else in the process owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(number) };
        if !sockopt::socket_acceptconn(&fd)? {
            return Err(io::Error::other("the descriptor is not a listening socket"));
        }
        Self::of(fd, format!("fd://{number}"))
    }

    /// The address in the notation of `--listen`, with the port that the kernel chose.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits for the next connection. Dropping the wait loses none.
    ///
    /// # Errors
    /// What accept(2) says about us, not the peer: no descriptor or no memory is left.
    pub async fn accept(&self) -> io::Result<OwnedFd> {
        loop {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::accept_with(&self.fd, flags) {
                Ok(fd) => return Ok(fd),
                Err(Errno::AGAIN) => self.fd.readable().await?,
                Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                    return Err(error.into());
                }
                Err(error @ (Errno::BADF | Errno::INVAL | Errno::NOTSOCK)) => {
                    return Err(error.into());
                }
                // The peer gave up before we got to it.
                Err(_) => {}
            }
        }
    }

    fn of(fd: OwnedFd, name: String) -> io::Result<Self> {
        Ok(Self {
            fd: Fd::new(fd)?,
            name,
            _file: None,
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another daemon may have replaced it meanwhile: then it is not ours to remove.
        let is_ours = fs::symlink_metadata(&self.path).is_ok_and(|meta| meta.ino() == self.inode);
        if is_ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn stream_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let fd = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    debug_assert!(fd.as_fd().as_raw_fd() > 2, "standard descriptors are taken");
    Ok(fd)
}

fn make_room(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(meta) if !meta.file_type().is_socket() => {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "something that is not a socket is there",
            ));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "another daemon answers there",
        )),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
    }
}
