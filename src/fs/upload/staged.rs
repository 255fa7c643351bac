//! A file that waits beside its target for longer than one request, and takes the name when it is told to.

use super::*;

/// Bytes on their way to a name, from any number of requests.
pub(in crate::fs) struct Staged {
    upload: Upload,
    beside: Beside,
}

impl Staged {
    /// Makes the file, without a name where the filesystem can; for helper threads.
    ///
    /// # Errors
    /// Those of [`write`]; `Malformed` where the target is no regular file, or is to be written in place.
    pub(in crate::fs) fn open(upload: Upload) -> Result<Self> {
        let refused =
            || Kind::Malformed.told("only a file that is replaced can be uploaded in parts");
        if upload.in_place {
            return Err(refused());
        }
        match Place::prepare(&upload)? {
            Place::Beside(beside) => Ok(Self { upload, beside }),
            Place::There(_) | Place::Special(_) => Err(refused()),
        }
    }

    /// The file, to read and to write.
    pub(in crate::fs) fn file(&self) -> &File {
        &self.beside.file
    }

    /// Where it goes.
    pub(in crate::fs) fn path(&self) -> &Path {
        &self.upload.path
    }

    /// What a sentence about the filesystem of the file names.
    pub(in crate::fs) fn place(&self) -> &Path {
        if self.beside.aside {
            &self.upload.spool_dir
        } else {
            &self.upload.path
        }
    }

    /// Gives the file its mode, its owner and the name, as they are to be now; for helper threads.
    ///
    /// # Errors
    /// Those of [`write`].
    pub(in crate::fs) fn publish(mut self) -> Result<()> {
        make_parent(&self.upload.path)?;
        let mut target = Target::find(&self.upload.path).map_err(unwritten)?;
        if target
            .there
            .is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile)
        {
            return Err(unwritten(Errno::ISDIR));
        }
        // A file that went meanwhile still says who may read its successor.
        target.there = target.there.or(self.beside.target.there);
        self.beside.target = target;
        self.beside.publish(&self.upload)
    }
}
