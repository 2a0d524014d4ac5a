//! Memory of other APIs, which is a file in memory, and the words of their semaphores.

use super::physical::PhysicalMemory;
use super::{ALIGNMENT, Allocation, BASE, Contents, GAP, Kind, Memory, space};
use crate::account::misuse;
use core::ffi::c_int;
use std::fs::File;

/// The state of the external memory of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum External {
    Alive,
    /// The mapping keeps the memory, but must not be used.
    Destroyed,
}

/// The type of a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// A word of 32 bits that is 1 or 0.
    Binary,
    /// A word of 64 bits that grows.
    Timeline,
}

impl Signal {
    /// The name of the file of a semaphore.
    const fn name(self) -> &'static core::ffi::CStr {
        match self {
            Self::Binary => c"cuda-sim binary semaphore",
            Self::Timeline => c"cuda-sim timeline semaphore",
        }
    }

    /// The size of the word.
    pub(crate) const fn size(self) -> usize {
        match self {
            Self::Binary => 4,
            Self::Timeline => 8,
        }
    }

    /// Creates the file of a semaphore.
    pub(crate) fn create(self, value: u64) -> Option<File> {
        let file = space::create_file(self.name())?;
        space::write(&file, 0, &value.to_le_bytes()).ok()?;
        Some(file)
    }
}

/// Creates a file that plays memory of another API.
pub(crate) fn create_memory(size: u64) -> Option<File> {
    let file = space::create_file(c"memory of another API")?;
    file.set_len(size).ok()?;
    Some(file)
}

/// What a file in memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Memory of this driver.
    Own,
    /// Memory of another API, which starts at this offset in the file.
    Other(u64),
    Semaphore(Signal),
}

/// The name of the files with which Mesa's software Vulkan exports memory. The memory follows a header.
const MESA: &str = "llvmpipe memory fd";

/// Returns where the memory starts in a file of Mesa. The header begins with a size and this offset (measured, Mesa
/// 22.3).
fn start_of_mesa(file: &File) -> Option<u64> {
    let mut offset = [0; 8];
    space::read(file, 8, &mut offset).ok()?;
    Some(u64::from_le_bytes(offset))
}

/// Returns what a descriptor refers to, and its file. Returns `None` if that is no file in memory.
pub(crate) fn open(descriptor: c_int) -> Option<(Content, File)> {
    let (name, file) = space::open_file(descriptor)?;
    let is = |signal: Signal| signal.name().to_str().is_ok_and(|its| name.starts_with(its));
    let content = if name.starts_with(PhysicalMemory::NAME) {
        Content::Own
    } else if is(Signal::Binary) {
        Content::Semaphore(Signal::Binary)
    } else if is(Signal::Timeline) {
        Content::Semaphore(Signal::Timeline)
    } else if name.starts_with(MESA) {
        Content::Other(start_of_mesa(&file)?)
    } else {
        Content::Other(0)
    };
    Some((content, file))
}

impl Memory {
    /// Maps a part of a file at a new address. Returns `None` if the system cannot map it.
    pub(crate) fn map_file(
        &mut self,
        (file, offset): (&File, u64),
        size: usize,
        context: usize,
        device: usize,
    ) -> Option<u64> {
        let bytes = Contents::of_file(file, offset, size)?;
        // The address is aligned as the part of the file is.
        let address = BASE + self.next + offset % ALIGNMENT;
        self.next += (offset % ALIGNMENT + size as u64 + GAP).next_multiple_of(ALIGNMENT);
        let id = self.new_id();
        let allocation = Allocation::new(Kind::Plain, (context, device), bytes, id);
        self.insert(address, Allocation { external: Some(External::Alive), ..allocation });
        Some(address)
    }

    /// Maps the word of a semaphore.
    pub(crate) fn map_signal(
        &mut self,
        file: &File,
        signal: Signal,
        context: usize,
        device: usize,
    ) -> Option<u64> {
        let address = self.map_file((file, 0), signal.size(), context, device)?;
        self.add_variable(address);
        self.signals.insert(address, signal);
        Some(address)
    }

    /// Notes that external memory was destroyed that is mapped at an address.
    pub(crate) fn external_is_destroyed(&mut self, address: u64) {
        if let Some(its) = self.device.get_mut(&address) {
            its.external = its.external.map(|_| External::Destroyed);
        }
    }

    /// Returns whether an address is that of a semaphore.
    pub(crate) fn is_signal(&self, address: u64) -> bool {
        self.signals.contains_key(&address)
    }

    /// Reports a signal that its semaphore does not permit. The reset of a binary semaphore by a wait is none.
    pub(crate) fn check_signal(&self, address: u64, bytes: &[u8]) {
        let Some(signal) = self.signals.get(&address) else { return };
        let before = self.word(address, signal.size()).unwrap_or(0);
        let value = bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
        match signal {
            Signal::Binary if value != 0 && before != 0 => {
                misuse("a binary semaphore is signaled twice without a wait");
            }
            Signal::Timeline if value <= before => misuse(format!(
                "a timeline semaphore is signaled with {value}, although it has reached {before}"
            )),
            _ => {}
        }
    }
}
