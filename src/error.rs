//! The one error type: a kind that callers branch on, a sentence that the client is told, a cause that we log.

use std::borrow::Cow;
use std::fmt;

/// What went wrong, as far as a caller must tell cases apart.
///
/// Rooms choose a kind; `doors/http/respond.rs` alone knows which status it becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The request does not have the shape that the operation takes.
    Malformed,
    /// A token is installed and the one presented is not it.
    Unauthorized,
    /// No token is installed yet.
    NotBootstrapped,
    /// Another token is installed already.
    TokenTaken,
    /// No exec is registered under this id.
    UnknownExec,
    /// No upload is known under this id.
    UnknownUpload,
    /// The bytes do not begin where the upload goes on.
    UploadOffset,
    /// Bytes of the upload are missing.
    UploadIncomplete,
    /// The upload is complete already.
    UploadCompleted,
    /// What is said about the length of the upload does not agree.
    InconsistentLength,
    /// The media type of the body is not the one that the operation takes.
    UnsupportedMedia,
    /// The user name or id is not known in the guest.
    UnknownUser,
    /// The group name is not known in the guest.
    UnknownGroup,
    /// The shell is not an executable of the guest.
    UnknownShell,
    /// This host cannot do what was asked for.
    Unsupported,
    /// The child process could not be started.
    SpawnFailed,
    /// The exec has not ended.
    StillRunning,
    /// The result was handed out before.
    AlreadyAcked,
    /// The exec was started without a standard input.
    StdinNotRequested,
    /// The standard input is closed for good.
    StdinClosed,
    /// The child did not read within the time limit.
    StdinWriteTimeout,
    /// The write is larger than one write may be.
    StdinWriteTooLarge,
    /// The write failed for another reason.
    StdinWriteFailed,
    /// The write begins behind bytes that are missing.
    StdinOffset,
    /// The exec was started without a terminal.
    NoTerminal,
    /// The terminal of the exec is closed for good.
    TerminalClosed,
    /// The file or directory does not exist.
    NotFound,
    /// Something has the name already.
    Exists,
    /// The directory holds something.
    NotEmpty,
    /// The thing is in use in a way that forbids the operation: a mount point, a running program.
    InUse,
    /// The file system does not permit it to this daemon.
    Denied,
    /// The thing is not as the request says it must be.
    PreconditionFailed,
    /// The range lies outside the file.
    RangeNotSatisfiable,
    /// A size or count limit is exceeded.
    TooLarge,
    /// The content coding of the body is not one that we decode.
    UnsupportedCoding,
    /// Free space is below the reserve, or the disk is full.
    DiskFull,
    /// The client stopped sending or receiving for too long.
    ClientStalled,
    /// The connection ended before the message did.
    ClientGone,
    /// A bound on work in progress is reached; the same request may succeed later.
    Busy,
    /// The operating system refused, or we have a defect.
    Internal,
}

/// An error on its way to the client.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    told: Cow<'static, str>,
    fields: Vec<(&'static str, String)>,
    cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The result of everything that can fail for a reason that a client is told.
pub type Result<T> = std::result::Result<T, Error>;

impl Kind {
    /// An error of this kind with the sentence that the client reads: lower case, naming the thing.
    pub fn told(self, sentence: impl Into<Cow<'static, str>>) -> Error {
        Error {
            kind: self,
            told: sentence.into(),
            fields: Vec::new(),
            cause: None,
        }
    }

    /// An error of this kind without a sentence (statuses whose body is empty by contract).
    pub fn bare(self) -> Error {
        self.told("")
    }
}

impl Error {
    /// Adds what the operating system or a library said; it goes to the log, not to the client.
    #[must_use]
    pub fn because(mut self, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.cause = Some(Box::new(cause));
        self
    }

    /// Adds a number that the client needs to go on, under the name it is told by.
    #[must_use]
    pub fn with_number(self, name: &'static str, value: u64) -> Self {
        self.with_field(name, value.to_string())
    }

    /// Adds what else the client needs to go on, under the name it is told by (lower case).
    #[must_use]
    pub fn with_field(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    /// What the client needs to go on, by name.
    pub fn fields(&self) -> &[(&'static str, String)] {
        &self.fields
    }

    /// What callers branch on.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What the client is told.
    pub fn sentence(&self) -> &str {
        &self.told
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.told)?;
        match &self.cause {
            Some(cause) => write!(f, " ({cause})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let cause = self.cause.as_deref()?;
        Some(cause)
    }
}
