//! The entries on disk.

use super::entry::{decode, encode};
use super::key::Key;
use crate::architecture::Target;
use crate::compiled::Compiled;
use crate::error::{Error, Result};
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The end of the name of an entry.
pub(super) const SUFFIX: &str = ".cunvrtc";

/// The start of the name of a file that is not complete yet.
const TEMPORARY: &str = ".writing-";

/// A file that is not complete after this time will never be: its process has ended.
const ABANDONED: Duration = Duration::from_secs(3600);

/// The time of the last use of an entry is written at most once in this time.
const USE_INTERVAL: Duration = Duration::from_secs(60);

/// A folder of entries.
#[derive(Debug)]
pub(super) struct Disk {
    folder: PathBuf,
    limit: u64,
    /// The user of this process, on Unix.
    owner: u32,
}

/// The result of looking for an entry.
pub(super) enum Found {
    Entry(Box<Compiled>),
    Damaged,
    Nothing,
}

impl Disk {
    /// Creates the folder if it does not exist, and checks that it can be used.
    #[inline]
    pub(super) fn open(folder: &Path, limit: u64) -> Result<Self> {
        let failed = |error: io::Error| refused(folder, error.to_string());
        create(folder).map_err(failed)?;
        // The folder is checked and used without links, so that a link cannot change in between.
        let folder = folder.canonicalize().map_err(failed)?;
        let mut disk = Self { folder, limit, owner: 0 };
        let failed = |error: io::Error| refused(&disk.folder, error.to_string());
        let probe = disk.temporary().map_err(failed)?;
        let probe = probe.as_file().metadata().map_err(failed)?;
        let metadata = disk.folder.metadata().map_err(failed)?;
        is_private(&metadata, &probe).map_err(|reason| refused(&disk.folder, reason))?;
        disk.owner = owner(&probe);
        Ok(disk)
    }

    #[inline]
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Reads an entry.
    #[inline]
    pub(super) fn read(&self, key: &Key, target: Target) -> Found {
        let path = self.folder.join(key.file_name());
        // An entry is a file. A link may lead to another folder, and opening a pipe waits for its writer.
        match path.symlink_metadata() {
            Err(_) => return Found::Nothing,
            Ok(metadata) if !metadata.is_file() || metadata.len() > self.limit => {
                return Found::Damaged;
            }
            Ok(_) => {}
        }
        let mut file = match File::open(&path) {
            Ok(file) => file,
            // Another process has removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Found::Nothing,
            Err(_) => return Found::Damaged,
        };
        // Another user who may write to a parent folder can exchange the folder, but cannot create files of this user.
        if file.metadata().map_or(true, |metadata| owner(&metadata) != self.owner) {
            return Found::Damaged;
        }
        let mut bytes = Vec::new();
        if let Err(_) | Ok(0) = Read::by_ref(&mut file).take(self.limit).read_to_end(&mut bytes) {
            return Found::Damaged;
        }
        let Some(compiled) = decode(key, target, &bytes) else {
            return Found::Damaged;
        };
        let used = file.metadata().and_then(|metadata| metadata.modified());
        let now = SystemTime::now();
        if used.is_ok_and(|used| now.duration_since(used).is_ok_and(|age| age > USE_INTERVAL)) {
            // Only the order in which entries are removed depends on it.
            let _ = File::options().write(true).open(&path).and_then(|file| file.set_modified(now));
        }
        Found::Entry(Box::new(compiled))
    }

    /// Writes an entry, which appears when it is complete, and removes others if the folder is too large.
    #[inline]
    pub(super) fn write(&self, key: &Key, compiled: &Compiled) -> io::Result<()> {
        let bytes = encode(key, compiled);
        if bytes.len() as u64 > self.limit {
            return Ok(());
        }
        let mut file = self.temporary()?;
        file.write_all(&bytes)?;
        file.persist(self.folder.join(key.file_name())).map_err(|error| error.error)?;
        self.trim();
        Ok(())
    }

    #[inline]
    fn temporary(&self) -> io::Result<tempfile::NamedTempFile> {
        tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(&self.folder)
    }

    /// Removes the entries that were not used for the longest time, until the size is at most the limit. Another
    /// process may do this at the same time: then a few more are removed.
    #[inline]
    fn trim(&self) {
        let mut entries = self.entries();
        let now = SystemTime::now();
        for (path, _, used) in self.files(|name| name.starts_with(TEMPORARY)) {
            if now.duration_since(used).is_ok_and(|age| age > ABANDONED) {
                let _ = fs::remove_file(path);
            }
        }
        let sizes = entries.iter().map(|(_, bytes, _)| *bytes);
        let mut bytes = sizes.fold(0, u64::saturating_add);
        entries.sort_by_key(|(_, _, used)| *used);
        for (path, size, _) in entries {
            if bytes <= self.limit {
                return;
            }
            // An entry that cannot be removed now, because it is being read on Windows, is removed later.
            let _ = fs::remove_file(path);
            bytes = bytes.saturating_sub(size);
        }
    }

    /// Removes all entries.
    #[inline]
    pub(super) fn clear(&self) -> Result<()> {
        for (path, ..) in self.entries() {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(refused(&self.folder, format!("{}: {error}", path.display())));
                }
                _ => {}
            }
        }
        Ok(())
    }

    #[inline]
    fn entries(&self) -> Vec<(PathBuf, u64, SystemTime)> {
        self.files(|name| name.ends_with(SUFFIX))
    }

    /// Returns the files with certain names, with their sizes and the times of their last use.
    fn files(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<(PathBuf, u64, SystemTime)> {
        let mut files = Vec::new();
        for file in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if !file.file_name().to_str().is_some_and(&is_wanted) {
                continue;
            }
            if let Ok(metadata) = file.metadata() {
                let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                files.push((file.path(), metadata.len(), used));
            }
        }
        files
    }
}

#[inline]
fn refused(folder: &Path, reason: String) -> Error {
    Error::Cache { folder: folder.to_owned(), reason }
}

#[cfg(unix)]
#[inline]
fn create(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(not(unix))]
#[inline]
fn create(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)
}

#[cfg(unix)]
#[inline]
fn owner(file: &Metadata) -> u32 {
    std::os::unix::fs::MetadataExt::uid(file)
}

#[cfg(not(unix))]
#[inline]
fn owner(_: &Metadata) -> u32 {
    0
}

/// Checks that only this user can write to a folder. `probe` is a file that this process has created.
#[cfg(unix)]
#[inline]
fn is_private(folder: &Metadata, probe: &Metadata) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt;
    if folder.uid() != probe.uid() {
        return Err(format!(
            "it belongs to the user {}, not to the user {} of this process",
            folder.uid(),
            probe.uid()
        ));
    }
    match folder.mode() & 0o022 {
        0 => Ok(()),
        _ => Err(format!(
            "other users may write to it (its mode is {:o}): chmod go-w",
            folder.mode() & 0o777
        )),
    }
}

/// The folders of users are private on Windows.
#[cfg(not(unix))]
#[inline]
fn is_private(_: &Metadata, _: &Metadata) -> Result<(), String> {
    Ok(())
}
