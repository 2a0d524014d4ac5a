//! Device memory, whose addresses the host cannot dereference, with its contents; and host memory that
//! devices can access.

mod conditional;
mod contents;
mod endpoint;
mod external;
mod format;
mod graph;
mod host;
mod leaks;
mod multicast;
mod observed;
mod pages;
mod physical;
mod poison;
mod ranges;
mod region;
mod space;
mod texture;
mod totals;
mod virtual_memory;
mod written;

pub(crate) use contents::Contents;
pub(crate) use endpoint::Endpoint;
pub(crate) use external::{Content, External, Signal, create_memory, open};
pub(crate) use format::Format;
pub(crate) use host::{Attached, Host, HostKind, PAGE, pinned_byte};
pub use leaks::Leak;
pub(crate) use multicast::{Binding, Team};
pub(crate) use pages::{Page, Pages};
pub(crate) use physical::{Location, Properties};
pub(crate) use poison::Mark;
pub(crate) use space::{IS_SIMULATED as HAS_VIRTUAL_MEMORY, range_descriptor};
pub(crate) use texture::{Object, Texels};
pub(crate) use virtual_memory::{
    GRANULARITY, MapError, READ_WRITE, Use, device_of, domain_of, is_of_host,
};
pub(crate) use written::Known;

use crate::account::misuse;
use crate::checks::Checks;
use crate::races::AccessLog;
use cuda_sys::CUresult;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

/// Start of the device addresses. It is above the addresses that are mapped in a process, so an access
/// by the host faults.
const BASE: u64 = 0x0070_0000_0000_0000;
const ALIGNMENT: u64 = 512;
/// Unused space between allocations, so that an access past the end of one does not hit another.
const GAP: u64 = 512;
/// The value of bytes that were never written.
const UNINIT: u8 = 0xa5;
/// Preferred addresses of managed memory of pools. There is usually nothing else of a process, so these
/// addresses are not reused either.
#[cfg(target_pointer_width = "64")]
const MANAGED: usize = 0x2000_0000_0000;
#[cfg(not(target_pointer_width = "64"))]
const MANAGED: usize = 0;
/// A multiple of the page size of every system.
const MANAGED_ALIGNMENT: usize = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Allocated by `cuMemAlloc`.
    Plain,
    /// Allocated by `cuMemAllocAsync`. Usable when its stream has executed the allocation.
    Ordered {
        ready: bool,
        /// Whether a free was enqueued. It may not have run.
        freed: bool,
    },
}

#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) kind: Kind,
    pub(crate) context: usize,
    pub(crate) device: usize,
    pub(crate) bytes: Contents,
    /// The advice for the pages of managed memory, whose address the host can dereference.
    pub(crate) managed: Option<Pages>,
    /// A unique id that is never reused.
    pub(crate) id: u64,
    /// The memory pool of the allocation, if any.
    pub(crate) pool: Option<usize>,
    /// Whether a node of a graph has allocated it.
    pub(crate) is_of_graph: bool,
    /// Number of frees that were enqueued and have not run. More than one only for memory of a graph,
    /// which each launch allocates again at the same address.
    pub(crate) frees: u32,
    /// Whether synchronous calls wait even if they use device memory only (`SYNC_MEMOPS`).
    pub(crate) is_synchronous: bool,
    /// `None` if the device has allocated it.
    pub(crate) external: Option<External>,
}

impl Allocation {
    fn new(kind: Kind, (context, device): (usize, usize), bytes: Contents, id: u64) -> Self {
        Self {
            kind,
            context,
            device,
            bytes,
            managed: None,
            id,
            pool: None,
            is_of_graph: false,
            frees: 0,
            is_synchronous: false,
            external: None,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Memory {
    next: u64,
    /// The bytes of addresses that managed memory of pools has used.
    next_managed: usize,
    device: BTreeMap<u64, Allocation>,
    host: BTreeMap<usize, Host>,
    /// The addresses in `device` that are variables of modules.
    variables: BTreeSet<u64>,
    /// Pairs of a context whose kernels may use another context's synchronous memory, and that context.
    pub(crate) peers: BTreeSet<(usize, usize)>,
    /// Pairs of a memory pool and a device whose kernels may use its memory.
    pub(crate) pool_access: BTreeSet<(usize, usize)>,
    totals: totals::Totals,
    host_totals: host::Totals,
    last_id: u64,
    /// Whether registered and write-combined memory has a device address that differs from its host
    /// address.
    pub(crate) disjoint: bool,
    /// The stream whose operation is running.
    pub(crate) running: usize,
    /// The operation that is running.
    pub(crate) running_operation: Option<u64>,
    /// The driver function that enqueued it.
    pub(crate) running_function: &'static str,
    pub(crate) virtual_memory: virtual_memory::VirtualMemory,
    pub(crate) endpoints: endpoint::Endpoints,
    /// Texture and surface objects.
    pub(crate) objects: texture::Objects,
    /// The allocations of `malloc` in kernels, and those that the running kernel has freed.
    heap: BTreeSet<u64>,
    dead: BTreeSet<u64>,
    /// The seed of the driver, which orders the blocks of kernels.
    pub(crate) seed: u64,
    /// The interleavings of kernels, in a schedule of the explorer.
    pub(crate) interleavings: Option<Interleavings>,
    /// The checks of kernels.
    pub(crate) checks: Checks,
    /// The executable graphs that kernels may launch.
    pub(crate) device_launchable: BTreeSet<usize>,
    /// Launches by the kernel that has just run: the executable graph of the kernel, and the launched
    /// one.
    pub(crate) device_launches: Vec<(usize, usize)>,
    conditionals: conditional::Conditionals,
    graph: graph::GraphMemory,
    /// The accesses so far, if races are detected.
    pub(crate) accesses: Option<Box<AccessLog>>,
    /// Whether operations may use stream-ordered memory before its allocation has run.
    pub(crate) lenient: bool,
    /// Where the memory was allocated that is alive, if leaks are reported by place.
    pub(crate) sites: Option<Box<leaks::Sites>>,
    poisons: poison::Poisons,
    /// The words of external semaphores, with their types.
    signals: BTreeMap<u64, external::Signal>,
}

/// Numbers of interleavings, or of none for schedules in which nothing is preempted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interleavings(pub(crate) Option<u64>);

impl Interleavings {
    /// Returns the number for the next kernel.
    pub(crate) fn next(&mut self) -> Option<u64> {
        // The seeds of schedules are consecutive.
        self.0.as_mut().map(|number| {
            *number = number.wrapping_add(1 << 32);
            *number
        })
    }
}

impl Memory {
    /// Allocates `size` bytes on `device`, whose allocations may have `limit` bytes in total.
    pub(crate) fn allocate(
        &mut self,
        size: usize,
        kind: Kind,
        context: usize,
        device: usize,
        limit: u64,
    ) -> Result<u64, CUresult> {
        let size = size as u64;
        // A test of NVIDIA's cuda.core allocates no bytes from a pool.
        if size == 0 && kind == Kind::Plain {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        if self.used(device).saturating_add(size) > limit {
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        let bytes = self.new_contents(size).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let address = BASE + self.next;
        // Addresses are never reused, so the use of a stale address can be detected.
        self.next += (size + GAP).next_multiple_of(ALIGNMENT);
        let id = self.new_id();
        self.insert(address, Allocation::new(kind, (context, device), bytes, id));
        Ok(address)
    }

    /// Allocates managed memory of a pool. It takes no memory of a device, because it can be in memory of the
    /// host.
    pub(crate) fn allocate_managed(
        &mut self,
        size: usize,
        pages: Pages,
        context: usize,
        device: usize,
    ) -> Result<u64, CUresult> {
        let hint = MANAGED + self.next_managed;
        let bytes = Contents::for_host(size as u64, hint);
        let bytes = bytes.ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let address = bytes.address() as u64;
        if bytes.address() == hint {
            // The next allocation is not adjacent.
            self.next_managed += (size + 1).next_multiple_of(MANAGED_ALIGNMENT);
        }
        let id = self.new_id();
        let kind = Kind::Ordered { ready: false, freed: false };
        let allocation = Allocation::new(kind, (context, device), bytes, id);
        // Measured: managed memory has the setting `SYNC_MEMOPS` until it is turned off.
        self.insert(
            address,
            Allocation { managed: Some(pages), is_synchronous: true, ..allocation },
        );
        Ok(address)
    }

    fn insert(&mut self, address: u64, allocation: Allocation) {
        self.totals.add(address, &allocation);
        self.device.insert(address, allocation);
    }

    /// Returns an id that is never reused.
    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Returns the id of an allocation that the current call makes.
    fn new_id(&mut self) -> u64 {
        let id = self.next_id();
        self.note_site_of(id);
        id
    }

    pub(crate) fn free(&mut self, address: u64) -> Option<Allocation> {
        let allocation = self.device.remove(&address)?;
        self.forget_site_of(allocation.id);
        self.clear_poison(address..address + allocation.bytes.len() as u64);
        self.totals.remove(address, &allocation);
        self.signals.remove(&address);
        if self.variables.remove(&address) && allocation.external.is_none() {
            self.totals.remove_variable(allocation.bytes.len());
        }
        if allocation.is_of_graph {
            self.forget_live(allocation.device, allocation.bytes.len() as u64);
        }
        Some(allocation)
    }

    /// Assigns an allocation to a memory pool.
    pub(crate) fn set_pool(&mut self, address: u64, pool: usize) {
        if let Some(allocation) = self.device.get_mut(&address) {
            self.totals.remove(address, allocation);
            allocation.pool = Some(pool);
            self.totals.add(address, allocation);
        }
    }

    /// Returns the allocated bytes of a device.
    pub(crate) fn used(&self, device: usize) -> u64 {
        self.totals.of_device(device)
    }

    /// Returns the allocated bytes of all devices.
    pub(crate) fn device_bytes(&self) -> u64 {
        self.totals.without_variables()
    }

    /// Returns whether an address cannot be one of the host.
    pub(crate) fn is_of_device(&self, address: u64) -> bool {
        address >= 1 << 47
    }

    /// Returns whether an address is one of device memory or managed memory. The memory of an allocation node
    /// is device memory before the graph is launched.
    pub(crate) fn is_on_device(&self, address: u64) -> bool {
        self.containing(address).is_some()
            || self.is_virtual(address)
            || self.is_reserved(address, 1)
            || self.is_managed(address)
    }

    /// Returns the address on the host of host memory that is not managed, which may be named by its address on
    /// devices. Returns `None` for an address of a device, also if its memory was freed.
    pub(crate) fn on_host(&self, address: u64) -> Option<usize> {
        match self.host_around(address) {
            Some((_, host, its)) => (!its.is_managed()).then_some(host),
            None if self.is_on_device(address) || self.is_of_device(address) => None,
            None => usize::try_from(address).ok(),
        }
    }

    /// Returns whether an address is one of memory of `cuMemAllocManaged`.
    pub(crate) fn is_managed(&self, address: u64) -> bool {
        let host = self.host_around(address);
        host.is_some_and(|(_, _, host)| host.is_managed())
    }

    pub(crate) fn starts_at(&mut self, address: u64) -> Option<&mut Allocation> {
        self.device.get_mut(&address)
    }

    /// Returns the start of the allocation that contains an address, and the allocation.
    pub(crate) fn containing(&self, address: u64) -> Option<(u64, &Allocation)> {
        let (start, allocation) = self.device.range(..=address).next_back()?;
        (address - start < allocation.bytes.len() as u64).then_some((*start, allocation))
    }

    /// Returns the bytes at an address to read them, if all of them are in one allocation, or in adjacent
    /// mappings, and may be used now.
    pub(crate) fn bytes(&mut self, address: u64, len: usize) -> Result<&mut [u8], String> {
        self.bytes_for(address, len, Use::Read)
    }

    /// The same to write them.
    pub(crate) fn target(&mut self, address: u64, len: usize) -> Result<&mut [u8], String> {
        self.bytes_for(address, len, Use::Write)
    }

    pub(crate) fn bytes_for(
        &mut self,
        address: u64,
        len: usize,
        wanted: Use,
    ) -> Result<&mut [u8], String> {
        self.note_access(address, len, wanted.into());
        self.check_poison(address, len)?;
        if address < BASE && self.containing(address).is_none() {
            if self.is_virtual(address) {
                let found = self.virtual_bytes(address, len, wanted);
                return found.unwrap_or_else(|| Err(format!("{address:#x} is not mapped")));
            }
            return self.host_bytes(address, len);
        }
        let (start, offset) = self.device_place(address, len)?;
        if wanted == Use::Write {
            self.note_written(start, offset..offset + len);
        }
        let Some(allocation) = self.device.get_mut(&start) else {
            return Err(format!("{len} bytes at {address:#x} are not allocated"));
        };
        if allocation.managed.is_some() {
            let first = core::ptr::with_exposed_provenance_mut(allocation.bytes.address() + offset);
            // SAFETY: these bytes are in the allocation, as checked above, which the result borrows. The
            // program must not access them on the host while a device uses them, but may access others.
            return Ok(unsafe { core::slice::from_raw_parts_mut(first, len) });
        }
        Ok(&mut allocation.bytes[offset..offset + len])
    }

    /// Returns the start of the allocation that contains some bytes, and their offset, if they may be used now.
    fn device_place(&self, address: u64, len: usize) -> Result<(u64, usize), String> {
        let wrong = |what: &str| Err(format!("{len} bytes at {address:#x} {what}"));
        let Some((start, allocation)) = self.device.range(..=address).next_back() else {
            return wrong("are not allocated");
        };
        let offset = usize::try_from(address - start).unwrap_or(usize::MAX);
        if let Kind::Ordered { ready: false, .. } = allocation.kind {
            const WHAT: &str = "are used before their stream has executed the allocation";
            if !self.lenient {
                return wrong(WHAT);
            }
            misuse(format!("{len} bytes at {address:#x} {WHAT}"));
        }
        if allocation.external == Some(External::Destroyed) {
            misuse(format!(
                "{len} bytes at {address:#x} are used after their external memory was destroyed"
            ));
        }
        let size = allocation.bytes.len();
        let end = offset.saturating_add(len);
        if offset >= size && len != 0 {
            return wrong(&format!(
                "are not allocated, or were freed; {} bytes before them is the end of an allocation of {size} \
                 bytes at {start:#x}",
                offset - size
            ));
        }
        if end > size {
            return wrong(&format!(
                "go past the end of an allocation of {size} bytes at {start:#x}"
            ));
        }
        Ok((*start, offset))
    }

    /// Fails for memory of another device that kernels of `context` cannot access, and for `len` bytes of
    /// a reservation that the device may not use.
    pub(crate) fn check_reach(
        &self,
        (address, len): (u64, usize),
        context: usize,
        device: usize,
        wanted: Use,
    ) -> Result<(), String> {
        if self.is_virtual(address) {
            let location = virtual_memory::location_of(device);
            return self.check_virtual(address, len, Some(location), wanted);
        }
        let Some((_, allocation)) = self.containing(address) else {
            return Ok(());
        };
        let allowed = match allocation.pool {
            Some(pool) => self.pool_access.contains(&(pool, device)),
            None => self.peers.contains(&(context, allocation.context)),
        };
        if allocation.device == device || allowed || allocation.managed.is_some() {
            return Ok(());
        }
        Err(format!(
            "{address:#x} is memory of device {}, which kernels of device {device} may not use",
            allocation.device
        ))
    }

    /// Returns a word of 4 or 8 bytes of device or pinned memory, if it may be used now.
    pub(crate) fn word(&self, address: u64, size: usize) -> Option<u64> {
        self.check_poison(address, size).ok()?;
        let mut word = [0; 8];
        if let Some(host) = self.host_reached(address, size) {
            for (offset, byte) in word[..size].iter_mut().enumerate() {
                // SAFETY: the byte is in pinned memory, as checked above, and the lock is held.
                let source = unsafe { pinned_byte(host + offset) };
                *byte = source.load(Ordering::Relaxed);
            }
        } else if self.is_virtual(address) {
            word[..size].copy_from_slice(self.virtual_bytes_to_read(address, size)?);
        } else {
            let (start, allocation) = self.containing(address)?;
            if let Kind::Ordered { ready: false, .. } = allocation.kind {
                return None;
            }
            let offset = usize::try_from(address - start).ok()?;
            word[..size].copy_from_slice(allocation.bytes.get(offset..offset + size)?);
        }
        Some(u64::from_le_bytes(word))
    }

    pub(crate) fn device_count(&self) -> usize {
        self.device.len() - self.variables.len() - self.totals.managed()
    }

    /// Returns the number of allocations of managed memory.
    pub(crate) fn managed_count(&self) -> usize {
        self.host_counts()[2] + self.totals.managed()
    }

    /// Returns the advice for the pages of managed memory of a pool that contains a whole range and for
    /// which no free was enqueued, with the start of the memory.
    pub(crate) fn pages_of_pool(&mut self, address: u64, len: usize) -> Option<(u64, &mut Pages)> {
        if !self.is_managed_of_pool(address, len) {
            return None;
        }
        let (start, allocation) = self.device.range_mut(..=address).next_back()?;
        let is_freed = matches!(allocation.kind, Kind::Ordered { freed: true, .. });
        let pages = allocation.managed.as_mut().filter(|_| !is_freed);
        pages.map(|pages| (*start, pages))
    }

    /// Marks an allocation as a variable of a module or as the texels of an array, which are not counted and
    /// which the program cannot free.
    pub(crate) fn add_variable(&mut self, address: u64) {
        if let Some(allocation) = self.device.get(&address) {
            if self.variables.insert(address) && allocation.external.is_none() {
                self.totals.add_variable(allocation.bytes.len());
            }
        }
    }

    pub(crate) fn is_variable(&self, address: u64) -> bool {
        self.variables.contains(&address)
    }

    /// Returns the allocated bytes of a memory pool.
    pub(crate) fn used_of_pool(&self, pool: usize) -> u64 {
        self.totals.of_pool(pool)
    }

    /// Frees the memory of a context that is destroyed.
    pub(crate) fn free_of_context(&mut self, context: usize) {
        let is_plain = |address: &u64| {
            let allocation = self.device.get(address);
            allocation.is_some_and(|its| its.kind == Kind::Plain)
        };
        let its: Vec<u64> = self.totals.of_context(context).filter(is_plain).collect();
        for address in its {
            if let Some(its) = self.device.get(&address).filter(|_| !self.is_variable(address)) {
                self.end_site_of(its.id, leaks::kind_of(its), its.bytes.len() as u64);
            }
            self.free(address);
        }
        self.peers.retain(|(from, to)| *from != context && *to != context);
        // Pinned memory is freed too, portable or not (unverified, from documentation).
        self.forget_host_of_context(context);
    }
}
