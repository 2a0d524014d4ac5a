//! Host memory that devices reach: pinned, registered, managed.

use super::Memory;
use cuda_sys::{CU_MEMHOSTALLOC_WRITECOMBINED, CUmemorytype, CUresult};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeSet;
use std::ptr::NonNull;

pub(crate) const PAGE: usize = 4096;

/// How far the device address of memory with an address of its own is above its host address: beyond
/// what processes get mapped, and with the host address below the addresses of device memory.
const DISJOINT: u64 = 0x0020_0000_0000_0000;

/// Whose host memory is, and what it may be used for.
#[derive(Debug)]
pub(crate) enum HostKind {
    /// Of `cuMemHostAlloc`.
    Pinned(#[allow(dead_code, reason = "held, not read")] Own),
    /// Somebody else's, of `cuMemHostRegister`.
    Registered,
    /// Of `cuMemAllocManaged`.
    Managed(#[allow(dead_code, reason = "held, not read")] Own, Managed),
}

/// Memory of the global allocator.
#[derive(Debug)]
pub(crate) struct Own {
    layout: Layout,
    start: NonNull<u8>,
}

// SAFETY: the memory is the allocator's and the map's of host memory, and is freed once.
unsafe impl Send for Own {}

/// What the driver keeps of managed memory.
#[derive(Debug)]
pub(crate) struct Managed {
    pub(crate) attached: Attached,
    pub(crate) pages: Vec<Page>,
}

/// Which work may touch managed memory, where the device and the host cannot touch it at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attached {
    /// All of it.
    Global,
    /// None: the host has the memory.
    Host,
    /// That of one stream.
    Stream(usize),
}

/// Advice for a page of managed memory. A location is its type and its id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) read_mostly: bool,
    pub(crate) preferred: Option<(u32, i32)>,
    pub(crate) accessed_by: BTreeSet<i32>,
    pub(crate) last_prefetch: Option<(u32, i32)>,
}

#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) kind: HostKind,
    pub(crate) context: usize,
    pub(crate) device: usize,
    pub(crate) flags: u32,
    pub(crate) len: usize,
    /// Of this memory and no other, ever.
    pub(crate) id: u64,
    /// How far its device address is above its host address.
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

/// What an address that a device uses is above the host's, and that.
fn host_address(address: u64) -> Option<(u64, usize)> {
    let distance = if address < DISJOINT { 0 } else { DISJOINT };
    Some((distance, usize::try_from(address - distance).ok()?))
}

impl Own {
    fn new(size: usize) -> Result<Self, CUresult> {
        let out_of_memory = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        // More than any test machine has is refused before the allocator might promise it.
        if size > 1 << 40 {
            return Err(out_of_memory);
        }
        let layout = Layout::from_size_align(size.max(1), PAGE).map_err(|_| out_of_memory)?;
        // SAFETY: the size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or(out_of_memory)?;
        Ok(Self { layout, start })
    }

    fn address(&self) -> usize {
        self.start.as_ptr().expose_provenance()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, and goes once.
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
            *self.host_totals.count(&host.kind) -= 1;
            self.host_totals.contexts.remove(&(host.context, address));
        }
    }

    /// Frees the host memory that was made in a context.
    pub(super) fn forget_host_of_context(&mut self, context: usize) {
        let contexts = &self.host_totals.contexts;
        let its = contexts.range((context, 0)..=(context, usize::MAX));
        let its: Vec<usize> = its.map(|(_, address)| *address).collect();
        for address in its {
            self.remove_host(address);
        }
    }

    /// Memory of `cuMemHostAlloc`, in a context of a device.
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
        let host = Host {
            kind: HostKind::Pinned(own),
            context,
            device,
            flags,
            len: size,
            id,
            distance,
        };
        self.add_host(address, host);
        Ok(address)
    }

    /// Memory of `cuMemAllocManaged`.
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
        let managed = Managed {
            attached,
            pages: vec![Page::default(); size.div_ceil(PAGE)],
        };
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

    /// The distance of device addresses for memory that may have some of its own.
    fn distance(&self, may_be_disjoint: bool) -> u64 {
        if self.disjoint && may_be_disjoint {
            DISJOINT
        } else {
            0
        }
    }

    /// Takes somebody's memory for pinned, unless a part of it is known already.
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
        let id = self.new_id();
        let distance = self.distance(true);
        let host = Host {
            kind: HostKind::Registered,
            context,
            device,
            flags,
            len,
            id,
            distance,
        };
        self.add_host(address, host);
        Ok(())
    }

    /// Forgets host memory that starts there and is of that kind; frees it if it is the driver's.
    pub(crate) fn forget_host(
        &mut self,
        address: usize,
        is_its: impl Fn(&HostKind) -> bool,
    ) -> bool {
        if self
            .host
            .get(&address)
            .is_some_and(|host| is_its(&host.kind))
        {
            self.remove_host(address);
            return true;
        }
        false
    }

    /// The host memory that holds an address, and where it starts.
    pub(crate) fn host_at(&self, address: usize) -> Option<(usize, &Host)> {
        let (start, host) = self.host.range(..=address).next_back()?;
        (address - start < host.len).then_some((*start, host))
    }

    pub(crate) fn host_at_mut(&mut self, address: usize) -> Option<(usize, &mut Host)> {
        let (start, host) = self.host.range_mut(..=address).next_back()?;
        (address - start < host.len).then_some((*start, host))
    }

    /// The host address behind an address that a device uses, if host memory is there for so long.
    pub(crate) fn host_reached(&self, address: u64, len: usize) -> Option<usize> {
        let (distance, address) = host_address(address)?;
        let (start, host) = self.host.range(..=address).next_back()?;
        let fits = (address - start).saturating_add(len) <= host.len;
        (fits && host.distance == distance).then_some(address)
    }

    /// The host memory around an address that either the host or a device uses, and its host address.
    pub(crate) fn host_around(&self, address: u64) -> Option<(usize, usize, &Host)> {
        let (distance, address) = host_address(address)?;
        let (start, host) = self.host_at(address)?;
        (distance == 0 || host.distance == distance).then_some((start, address, host))
    }

    /// Whether host memory is the driver's to reach from there on for so long.
    pub(crate) fn is_pinned(&self, address: usize, len: usize) -> bool {
        let below = self.host.range(..=address).next_back();
        below.is_some_and(|(start, host)| (address - start).saturating_add(len) <= host.len)
    }

    /// The bytes of host memory at an address that a device uses, for the stream that runs now.
    pub(super) fn host_bytes(&mut self, device: u64, len: usize) -> Result<&mut [u8], String> {
        let stream = self.running;
        let wrong = |what: &str| Err(format!("{len} bytes at {device:#x} {what}"));
        let (distance, address) = host_address(device).unwrap_or_default();
        let Some((start, host)) = self.host_at_mut(address) else {
            return wrong("are nobody's, or were freed");
        };
        if host.distance != distance {
            return wrong("are host memory that devices reach at another address");
        }
        if (address - start).saturating_add(len) > host.len {
            return wrong("go past the end of the host memory there");
        }
        match host.managed().map(|managed| managed.attached) {
            Some(Attached::Host) => {
                return wrong("are managed memory that the host has at that time");
            }
            Some(Attached::Stream(its)) if its != stream => {
                return wrong("are managed memory that is attached to another stream");
            }
            _ => {}
        }
        let bytes = core::ptr::with_exposed_provenance_mut(address);
        // SAFETY: the memory is alive: it leaves the map, under the lock that is held, before it is
        // freed, and registered memory is kept by whoever registered it. While a device uses memory
        // its host is to leave it alone.
        Ok(unsafe { core::slice::from_raw_parts_mut(bytes, len) })
    }

    pub(crate) fn attach(&mut self, address: usize, attached: Attached) {
        let managed = self
            .host_at_mut(address)
            .and_then(|(_, host)| host.managed());
        if let Some(managed) = managed {
            managed.attached = attached;
        }
    }

    /// How much host memory there is: pinned, registered, managed.
    pub(crate) fn host_counts(&self) -> [usize; 3] {
        self.host_totals.counts
    }
}
