//! Host memory that devices can access: pinned, registered and managed memory.

use super::pages::Pages;
use super::space::Space;
use super::{Memory, leaks};
use cuda_sys::{CU_MEMHOSTALLOC_WRITECOMBINED, CUmemorytype, CUresult};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU8;

pub(crate) const PAGE: usize = 4096;

/// The difference between the device address and the host address of memory for which they differ. The
/// result is above the addresses that are mapped in a process and below the addresses of device memory.
const DISJOINT: u64 = 0x0020_0000_0000_0000;

/// The kind of host memory, with the data of that kind.
#[derive(Debug)]
pub(crate) enum HostKind {
    /// Allocated by `cuMemHostAlloc`.
    Pinned(#[allow(dead_code, reason = "held, not read")] Own),
    /// Owned by the program and registered by `cuMemHostRegister`.
    Registered,
    /// Allocated by `cuMemAllocManaged`.
    Managed(#[allow(dead_code, reason = "held, not read")] Own, Managed),
}

/// Memory that the driver allocated, which is zero at first.
#[derive(Debug)]
pub(crate) struct Own(Place);

#[derive(Debug)]
enum Place {
    /// Memory of the global allocator.
    Small(Allocated),
    /// Pages take memory when they are written. The size may exceed the host's memory.
    Large(Space),
}

/// Memory of the global allocator that is aligned to pages.
#[derive(Debug)]
pub(super) struct Allocated {
    layout: Layout,
    start: NonNull<u8>,
}

// SAFETY: the memory is owned by this value, which is under the lock of the driver, and it is freed once.
unsafe impl Send for Allocated {}

/// The size from which memory is [`Place::Large`]. The allocator writes zeros to memory that is aligned to
/// pages.
const LARGE: usize = 1 << 20;

/// The state of managed memory.
#[derive(Debug)]
pub(crate) struct Managed {
    pub(crate) attached: Attached,
    pub(crate) pages: Pages,
}

/// The work that may access managed memory, on systems where the host and the device cannot access it at
/// the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attached {
    /// All work.
    Global,
    /// No work. The host accesses the memory.
    Host,
    /// The work of one stream.
    Stream(usize),
}

#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) kind: HostKind,
    pub(crate) context: usize,
    pub(crate) device: usize,
    pub(crate) flags: u32,
    pub(crate) len: usize,
    /// A unique id that is never reused.
    pub(crate) id: u64,
    /// The difference between its device address and its host address.
    pub(crate) distance: u64,
}

impl Host {
    pub(crate) fn managed(&mut self) -> Option<&mut Managed> {
        match &mut self.kind {
            HostKind::Managed(_, managed) => Some(managed),
            HostKind::Pinned(_) | HostKind::Registered => None,
        }
    }

    pub(crate) fn is_managed(&self) -> bool {
        matches!(self.kind, HostKind::Managed(..))
    }

    pub(crate) fn memory_type(&self) -> CUmemorytype {
        if self.is_managed() {
            CUmemorytype::CU_MEMORYTYPE_DEVICE
        } else {
            CUmemorytype::CU_MEMORYTYPE_HOST
        }
    }
}

/// Splits a device address into its difference to the host address, and the host address.
fn host_address(address: u64) -> Option<(u64, usize)> {
    let distance = if address < DISJOINT { 0 } else { DISJOINT };
    Some((distance, usize::try_from(address - distance).ok()?))
}

impl Own {
    fn new(size: usize) -> Result<Self, CUresult> {
        let out_of_memory = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        // A size that no test machine has is rejected here, because the allocator might overcommit.
        if size > 1 << 40 {
            return Err(out_of_memory);
        }
        if size >= LARGE {
            if let Some(space) = Space::of_zeros(0, size) {
                return Ok(Self(Place::Large(space)));
            }
        }
        let its = Allocated::zeroed(size).ok_or(out_of_memory)?;
        Ok(Self(Place::Small(its)))
    }

    fn address(&self) -> usize {
        match &self.0 {
            Place::Small(its) => its.address(),
            Place::Large(space) => space.start(),
        }
    }
}

impl Allocated {
    pub(super) fn zeroed(size: usize) -> Option<Self> {
        let layout = Layout::from_size_align(size.max(1), PAGE).ok()?;
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { layout, start })
    }

    pub(super) fn address(&self) -> usize {
        self.start.as_ptr().expose_provenance()
    }
}

impl Drop for Allocated {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout, and it is freed once, here.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// Running totals of host memory, so that no call has to scan it.
#[derive(Debug, Default)]
pub(super) struct Totals {
    /// Number of pinned, registered and managed ranges.
    counts: [usize; 3],
    /// Each context with the addresses of the host memory that was made in it.
    contexts: BTreeSet<(usize, usize)>,
}

impl Totals {
    fn count(&mut self, kind: &HostKind) -> &mut usize {
        &mut self.counts[match kind {
            HostKind::Pinned(_) => 0,
            HostKind::Registered => 1,
            HostKind::Managed(..) => 2,
        }]
    }
}

impl Memory {
    fn add_host(&mut self, address: usize, host: Host) {
        *self.host_totals.count(&host.kind) += 1;
        self.host_totals.contexts.insert((host.context, address));
        self.host.insert(address, host);
    }

    fn remove_host(&mut self, address: usize) {
        if let Some(host) = self.host.remove(&address) {
            self.forget_site_of(host.id);
            *self.host_totals.count(&host.kind) -= 1;
            self.host_totals.contexts.remove(&(host.context, address));
        }
    }

    /// Frees the host memory that was allocated or registered in a context.
    pub(super) fn forget_host_of_context(&mut self, context: usize) {
        let contexts = &self.host_totals.contexts;
        let its = contexts.range((context, 0)..=(context, usize::MAX));
        let its: Vec<usize> = its.map(|(_, address)| *address).collect();
        for address in its {
            if let Some(its) = self.host.get(&address) {
                self.end_site_of(its.id, leaks::kind_of_host(its), its.len as u64);
            }
            self.remove_host(address);
        }
    }

    /// Allocates the memory of `cuMemHostAlloc` in a context of a device.
    pub(crate) fn pin(
        &mut self,
        size: usize,
        flags: u32,
        (context, device): (usize, usize),
    ) -> Result<usize, CUresult> {
        let own = Own::new(size)?;
        let address = own.address();
        let id = self.new_id();
        let distance = self.distance(flags & CU_MEMHOSTALLOC_WRITECOMBINED != 0);
        let host =
            Host { kind: HostKind::Pinned(own), context, device, flags, len: size, id, distance };
        self.add_host(address, host);
        Ok(address)
    }

    /// Allocates the memory of `cuMemAllocManaged`.
    pub(crate) fn manage(
        &mut self,
        size: usize,
        attached: Attached,
        flags: u32,
        (context, device): (usize, usize),
    ) -> Result<usize, CUresult> {
        let own = Own::new(size)?;
        let address = own.address();
        let id = self.new_id();
        let managed = Managed { attached, pages: Pages::default() };
        let host = Host {
            kind: HostKind::Managed(own, managed),
            context,
            device,
            flags,
            len: size,
            id,
            distance: 0,
        };
        self.add_host(address, host);
        Ok(address)
    }

    /// Returns the address difference for memory whose device address may differ.
    fn distance(&self, may_be_disjoint: bool) -> u64 {
        if self.disjoint && may_be_disjoint { DISJOINT } else { 0 }
    }

    /// Registers memory of the program, unless a part of it is already known.
    pub(crate) fn register(
        &mut self,
        address: usize,
        len: usize,
        flags: u32,
        (context, device): (usize, usize),
    ) -> Result<(), CUresult> {
        let below = self.host.range(..address.saturating_add(len)).next_back();
        if below.is_some_and(|(start, host)| start + host.len > address) {
            return Err(CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        }
        let end = address.saturating_add(len) as u64;
        let below = self.device.range(..end).next_back();
        let is_known = |(start, its): (&u64, &super::Allocation)| {
            its.managed.is_some() && start + its.bytes.len() as u64 > address as u64
        };
        if below.is_some_and(is_known) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let id = self.new_id();
        let distance = self.distance(true);
        let host = Host { kind: HostKind::Registered, context, device, flags, len, id, distance };
        self.add_host(address, host);
        Ok(())
    }

    /// Removes host memory that starts at `address` and for which `is_its` holds, and frees it if the
    /// driver allocated it. Returns whether there was such memory.
    pub(crate) fn forget_host(
        &mut self,
        address: usize,
        is_its: impl Fn(&HostKind) -> bool,
    ) -> bool {
        if self.host.get(&address).is_some_and(|host| is_its(&host.kind)) {
            self.remove_host(address);
            return true;
        }
        false
    }

    /// Returns the start of the host memory that contains an address, and the memory.
    pub(crate) fn host_at(&self, address: usize) -> Option<(usize, &Host)> {
        let (start, host) = self.host.range(..=address).next_back()?;
        (address - start < host.len).then_some((*start, host))
    }

    pub(crate) fn host_at_mut(&mut self, address: usize) -> Option<(usize, &mut Host)> {
        let (start, host) = self.host.range_mut(..=address).next_back()?;
        (address - start < host.len).then_some((*start, host))
    }

    /// Returns the host address for a device address, if host memory contains `len` bytes from there.
    pub(crate) fn host_reached(&self, address: u64, len: usize) -> Option<usize> {
        let (distance, address) = host_address(address)?;
        let (start, host) = self.host.range(..=address).next_back()?;
        let fits = (address - start).saturating_add(len) <= host.len;
        (fits && host.distance == distance).then_some(address)
    }

    /// Returns the start of the host memory that contains a host or device address, the host address,
    /// and the memory.
    pub(crate) fn host_around(&self, address: u64) -> Option<(usize, usize, &Host)> {
        let (distance, address) = host_address(address)?;
        let (start, host) = self.host_at(address)?;
        (distance == 0 || host.distance == distance).then_some((start, address, host))
    }

    /// Returns whether the driver can access `len` bytes of host memory from `address` on.
    pub(crate) fn is_pinned(&self, address: usize, len: usize) -> bool {
        let below = self.host.range(..=address).next_back();
        below.is_some_and(|(start, host)| (address - start).saturating_add(len) <= host.len)
            || self.is_managed_of_pool(address as u64, len)
    }

    /// Returns whether `len` bytes are in one allocation of managed memory of a pool.
    pub(crate) fn is_managed_of_pool(&self, address: u64, len: usize) -> bool {
        self.containing(address).is_some_and(|(start, its)| {
            let room = its.bytes.len() as u64 - (address - start);
            its.managed.is_some() && len as u64 <= room
        })
    }

    /// Returns the bytes of host memory at a device address, for the stream whose operation is running.
    pub(super) fn host_bytes(&mut self, device: u64, len: usize) -> Result<&mut [u8], String> {
        let address = self.host_place(device, len)?;
        let bytes = core::ptr::with_exposed_provenance_mut(address);
        // SAFETY: the memory is alive. Memory that the driver allocated is removed from the map before
        // it is freed, under the lock that is held here, and the program that registered memory keeps it
        // alive. The program must not access the memory on the host while a device uses it.
        Ok(unsafe { core::slice::from_raw_parts_mut(bytes, len) })
    }

    /// Returns the address on the host of bytes of host memory, if a device may use them now.
    pub(super) fn host_place(&mut self, device: u64, len: usize) -> Result<usize, String> {
        let stream = self.running;
        let wrong = |what: &str| Err(format!("{len} bytes at {device:#x} {what}"));
        let (distance, address) = host_address(device).unwrap_or_default();
        let Some((start, host)) = self.host_at_mut(address) else {
            return wrong("are not allocated, or were freed");
        };
        if host.distance != distance {
            return wrong("are host memory that has another address on devices");
        }
        if (address - start).saturating_add(len) > host.len {
            return wrong("go past the end of the host memory there");
        }
        match host.managed().map(|managed| managed.attached) {
            Some(Attached::Host) => {
                return wrong("are managed memory that is attached to the host at that time");
            }
            Some(Attached::Stream(its)) if its != stream => {
                return wrong("are managed memory that is attached to another stream");
            }
            _ => {}
        }
        Ok(address)
    }

    pub(crate) fn attach(&mut self, address: usize, attached: Attached) {
        let managed = self.host_at_mut(address).and_then(|(_, host)| host.managed());
        if let Some(managed) = managed {
            managed.attached = attached;
        }
    }

    /// Returns the numbers of pinned, registered and managed ranges.
    pub(crate) fn host_counts(&self) -> [usize; 3] {
        self.host_totals.counts
    }
}

/// Returns a byte of pinned memory as a device accesses it. The host may access the byte at the same
/// time, for example after a wait that failed; each byte then has either its old or its new value. The
/// host's accesses are not atomic. By Rust's rules such a program has a data race, as it has with a real
/// device; this function only keeps the accesses of this crate well-defined.
///
/// # Safety
/// The byte is in an allocation of the map of pinned memory, and the driver's lock is held while the
/// byte is used. Pinned memory is freed under that lock.
pub(crate) unsafe fn pinned_byte<'a>(address: usize) -> &'a AtomicU8 {
    let byte = core::ptr::with_exposed_provenance_mut(address);
    // SAFETY: the caller guarantees that the byte is alive, and any address is aligned for a byte.
    unsafe { AtomicU8::from_ptr(byte) }
}
