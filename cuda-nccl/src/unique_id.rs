//! The ids of communicators, and their exchange.

use crate::call::nccl;
use crate::error::{Error, Invalid, Result};
use crate::launch::Launch;
use crate::shared::Patience;
use crate::sys::{self, ncclUniqueId};
use std::fmt;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

/// The id of a communicator that is being created. One rank creates it, and passes its bytes to the others.
///
/// The id contains an address of its creator, to which the other ranks connect.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct UniqueId([u8; sys::NCCL_UNIQUE_ID_BYTES as usize]);

impl UniqueId {
    /// The length of an id.
    pub const BYTES: usize = sys::NCCL_UNIQUE_ID_BYTES as usize;

    /// Creates an id. Calls `ncclGetUniqueId`.
    ///
    /// The process must stay alive until all ranks have created their communicators.
    ///
    /// # Errors
    /// Errors of NCCL.
    ///
    /// Raw: [`ncclGetUniqueId`](fn@crate::sys::ncclGetUniqueId).
    #[doc(alias = "ncclGetUniqueId")]
    #[inline]
    pub fn new() -> Result<Self> {
        let mut id = ncclUniqueId::default();
        // SAFETY: the pointer is valid for a write.
        unsafe { nccl!(ncclGetUniqueId(&raw mut id)) }?;
        Ok(Self::of_raw(id))
    }

    /// Returns the bytes, which another rank passes to [`from_bytes`](Self::from_bytes).
    #[inline]
    pub fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// Returns the id with these bytes.
    #[inline]
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    #[inline]
    pub(crate) fn of_raw(id: ncclUniqueId) -> Self {
        Self(id.internal.map(|byte| byte.to_ne_bytes()[0]))
    }

    #[inline]
    pub(crate) fn raw(&self) -> ncclUniqueId {
        ncclUniqueId { internal: self.0.map(|byte| core::ffi::c_char::from_ne_bytes([byte])) }
    }

    /// Passes an id from rank 0 to the others through a file that all of them can access. Each rank calls it.
    ///
    /// Rank 0 creates the id and the file, which appears at once with its contents. The other ranks wait for the file.
    /// No file with this name may be left from an earlier run. A rank may remove it when its communicator has been
    /// created.
    ///
    /// # Errors
    /// [`Error::Exchange`] if the file cannot be written or read, or does not appear in time; errors of NCCL.
    pub fn through_file(path: impl AsRef<Path>, rank: u32, timeout: Duration) -> Result<Self> {
        let path = path.as_ref();
        let failed = |reason: String| Error::Exchange { place: path.display().to_string(), reason };
        if rank == 0 {
            let id = Self::new()?;
            let partial = path.with_extension("partial");
            let written = fs::write(&partial, id.0).and_then(|()| fs::rename(&partial, path));
            written.map_err(|error| failed(error.to_string()))?;
            return Ok(id);
        }
        let mut patience = Patience::new(Some(timeout));
        loop {
            match fs::read(path) {
                Ok(bytes) => return Self::try_from(&bytes[..]),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(error.to_string())),
            }
            if !patience.pause() {
                return Err(failed(format!("rank 0 has not created the file within {timeout:?}")));
            }
        }
    }

    /// Passes an id from rank 0 to the others through a connection to the address of rank 0. Each rank calls it.
    ///
    /// Rank 0 listens at [`Launch::address`] until all others have asked, or the time of
    /// [`Launch::timeout`] is over. Everyone who can connect can read the id, as for the connections of NCCL itself.
    ///
    /// # Errors
    /// [`Error::Exchange`] if rank 0 does not listen or not all ranks connect in time; errors of NCCL.
    #[inline]
    pub fn exchange(launch: &Launch) -> Result<Self> {
        if launch.world_size == 1 {
            return Self::new();
        }
        let failed = |reason: String| Error::Exchange { place: launch.address.clone(), reason };
        if launch.rank == 0 {
            let id = Self::new()?;
            id.serve(launch).map_err(|error| failed(error.to_string()))?;
            return Ok(id);
        }
        let mut patience = Patience::new(Some(launch.timeout));
        loop {
            let reason = match ask(&launch.address, launch.timeout) {
                Ok(id) => return Ok(Self(id)),
                Err(error) => error.to_string(),
            };
            if !patience.pause() {
                return Err(failed(format!(
                    "rank 0 has not answered in {:?}: {reason}",
                    launch.timeout
                )));
            }
        }
    }

    /// Sends the id to all other ranks. Each connects once.
    #[inline]
    fn serve(&self, launch: &Launch) -> std::io::Result<()> {
        let listener = TcpListener::bind(&launch.address)?;
        listener.set_nonblocking(true)?;
        let mut patience = Patience::new(Some(launch.timeout));
        let mut waiting = launch.world_size - 1;
        while waiting > 0 {
            match listener.accept() {
                Ok((mut peer, _)) => {
                    peer.set_nonblocking(false)?;
                    peer.set_write_timeout(Some(launch.timeout))?;
                    // A rank whose connection breaks connects again.
                    if peer.write_all(&self.0).is_ok() {
                        waiting -= 1;
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    if !patience.pause() {
                        return Err(std::io::Error::other(format!(
                            "{waiting} ranks have not connected in {:?}",
                            launch.timeout
                        )));
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Reads the id of rank 0.
#[inline]
fn ask(address: &str, timeout: Duration) -> std::io::Result<[u8; UniqueId::BYTES]> {
    let address = address.to_socket_addrs()?.next();
    let address = address.ok_or_else(|| std::io::Error::other("the name has no address"))?;
    let mut rank_0 = TcpStream::connect_timeout(&address, timeout)?;
    rank_0.set_read_timeout(Some(timeout))?;
    let mut id = [0; UniqueId::BYTES];
    rank_0.read_exact(&mut id)?;
    Ok(id)
}

impl TryFrom<&[u8]> for UniqueId {
    type Error = Error;

    #[inline]
    fn try_from(bytes: &[u8]) -> Result<Self> {
        let id = bytes.try_into().map_err(|_| Invalid::IdBytes { len: bytes.len() })?;
        Ok(Self(id))
    }
}

impl fmt::Debug for UniqueId {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UniqueId(")?;
        self.0.iter().take(16).try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("..)")
    }
}
