//! A file that waits beside its target for longer than one request, and takes the name when it is told to.

use super::beside::Beside;
use super::*;

/// Bytes on their way to a name, from any number of requests.
pub(in crate::fs) struct Staged {
    upload: Arc<Upload>,
    beside: Box<Beside>,
}

/// A file that has all but what is to be brought to the disk yet.
pub(in crate::fs) struct Nearly {
    upload: Arc<Upload>,
    rest: Rest,
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
        if upload.path.is_dir() {
            return Err(Kind::Malformed.told("path is a directory"));
        }
        match Place::prepare(&upload)? {
            Place::Beside(beside) => Ok(Self {
                upload: Arc::new(upload),
                beside,
            }),
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

    /// Gives the file, of `length` bytes, its mode, its owner and the name, as they are to be now; for helper threads.
    ///
    /// # Errors
    /// Those of [`write`].
    pub(in crate::fs) fn finish(mut self, length: u64) -> Result<Nearly> {
        let mut target = place::find_making(&self.upload.path, &mut self.beside.above)?;
        if target.there.is_some_and(|stat| !is_regular(&stat)) {
            return Err(unwritten(Errno::ISDIR));
        }
        if self.upload.sync {
            self.beside.unsynced = place::directories(&target, &self.beside.above)?;
        }
        // A file that went meanwhile still says who may read its successor.
        target.there = target.there.or(self.beside.target.there);
        self.beside.target = target;
        if self.upload.sparse {
            sparse::dig(&self.beside.file, length).map_err(unmade)?;
        }
        let rest = finish(self.beside, &self.upload, length)?;
        Ok(Nearly {
            upload: self.upload,
            rest,
        })
    }
}

impl Nearly {
    /// Brings to the disk what is to be there, and answers with the version of the file.
    ///
    /// # Errors
    /// Those of [`write`].
    pub(in crate::fs) async fn conclude(self) -> Result<Version> {
        conclude(&self.upload, self.rest).await
    }
}
