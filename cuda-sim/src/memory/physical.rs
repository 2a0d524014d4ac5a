//! Physical memory, which `cuMemCreate` allocates and reservations map.

use super::multicast::Team;
use super::space::{self, Rights, Space};
use super::virtual_memory::GRANULARITY;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Start of the handles. They are like the handles of other objects, of a kind of their own.
const HANDLES: usize = 0x00c0_1f00_0000_0000;

/// A location: its type in C, and its id.
pub(crate) type Location = (u32, i32);

/// The properties that the program has requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Properties {
    pub(crate) location: Location,
    pub(crate) handle_types: u32,
    pub(crate) compression: u8,
    pub(crate) is_rdma_capable: bool,
    pub(crate) usage: u16,
}

/// Memory without an address.
#[derive(Debug)]
pub(crate) struct Physical {
    /// The handle that the program has got.
    pub(super) handle: usize,
    pub(crate) properties: Properties,
    pub(crate) size: u64,
    /// The file with the contents, and where they start.
    pub(super) file: Arc<File>,
    pub(super) offset: u64,
    /// Whether it was imported, from this process or another one.
    pub(crate) is_imported: bool,
    /// Number of times that the program must release the handle.
    pub(super) references: u32,
    /// Number of mappings, and of bindings to multicast objects.
    pub(super) mappings: u32,
    /// The starts of the mappings.
    mapped: BTreeSet<u64>,
    /// Where this driver accesses the contents of memory that a multicast object reaches. It is made with the first
    /// access.
    view: Option<Space>,
    /// `None` if it is not a multicast object.
    pub(crate) team: Option<Box<Team>>,
}

impl Physical {
    /// Returns the addresses on the host where this driver accesses memory that a multicast object reaches.
    pub(super) fn view(&self) -> Option<Range<u64>> {
        let start = self.view.as_ref()?.start() as u64;
        Some(start..start + self.size)
    }
}

/// The physical memory of the process.
#[derive(Debug, Default)]
pub(crate) struct PhysicalMemory {
    /// By handle. Memory whose handle was released is here while it is mapped.
    all: BTreeMap<usize, Physical>,
    last: usize,
    /// The file with the contents of memory that cannot be exported, and its size. Parts are not used
    /// twice. Memory that is allocated and mapped in one order then takes one mapping of the system,
    /// whose number is limited.
    common: Option<(Arc<File>, u64)>,
}

impl PhysicalMemory {
    /// Allocates memory. Returns its handle, or `None` if the system has no such files.
    pub(crate) fn create(&mut self, properties: Properties, size: u64) -> Option<usize> {
        let (file, offset) = if properties.handle_types == 0 {
            let (file, used) = match &mut self.common {
                Some(common) => common,
                none => none.insert((Arc::new(space::create_file(c"cuda-sim memory")?), 0)),
            };
            let offset = *used;
            file.set_len(offset + size).ok()?;
            *used += size;
            (file.clone(), offset)
        } else {
            // A descriptor names this memory and no other. The name says which device has it.
            let (_, device) = properties.location;
            let name = std::ffi::CString::new(format!("{}{device}", Self::NAME)).ok()?;
            let file = space::create_file(&name)?;
            file.set_len(size).ok()?;
            (Arc::new(file), 0)
        };
        Some(self.add(Physical {
            handle: 0,
            properties,
            size,
            file,
            offset,
            is_imported: false,
            references: 1,
            mappings: 0,
            mapped: BTreeSet::new(),
            view: None,
            team: None,
        }))
    }

    /// The name of a file with memory that can be exported, without the number of the device.
    pub(super) const NAME: &'static str = "cuda-sim memory of device ";

    fn add(&mut self, physical: Physical) -> usize {
        self.last += 1;
        let handle = HANDLES | self.last << 4;
        self.all.insert(handle, Physical { handle, ..physical });
        handle
    }

    /// Imports the memory of an exported file. Returns `None` if it is another file.
    #[cfg(target_os = "linux")]
    pub(crate) fn import(&mut self, descriptor: core::ffi::c_int) -> Option<usize> {
        let (name, file) = space::open_file(descriptor)?;
        let device = name.strip_prefix(Self::NAME)?.split(' ').next()?;
        let device = device.parse().ok()?;
        let size = file.metadata().ok()?.len();
        Some(self.add(Physical {
            handle: 0,
            properties: Properties {
                location: (cuda_sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE.0, device),
                handle_types: 0,
                compression: 0,
                is_rdma_capable: false,
                usage: 0,
            },
            size,
            file: Arc::new(file),
            offset: 0,
            is_imported: true,
            references: 1,
            mappings: 0,
            mapped: BTreeSet::new(),
            view: None,
            team: None,
        }))
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn import(&mut self, _: core::ffi::c_int) -> Option<usize> {
        None
    }

    /// Returns a new descriptor of memory.
    #[cfg(target_os = "linux")]
    pub(crate) fn export(&self, handle: usize) -> Option<core::ffi::c_int> {
        use std::os::fd::IntoRawFd;
        let file = self.get(handle)?.file.try_clone().ok()?;
        Some(file.into_raw_fd())
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn export(&self, _: usize) -> Option<core::ffi::c_int> {
        None
    }

    /// Reads memory that may have no address.
    pub(super) fn read(&self, handle: usize, start: u64, bytes: &mut [u8]) -> Result<(), String> {
        self.access(handle, start, |file, at| space::read(file, at, bytes))
    }

    /// Writes memory that may have no address.
    pub(super) fn write(&self, handle: usize, start: u64, bytes: &[u8]) -> Result<(), String> {
        self.access(handle, start, |file, at| space::write(file, at, bytes))
    }

    fn access(
        &self,
        handle: usize,
        start: u64,
        access: impl FnOnce(&File, u64) -> io::Result<()>,
    ) -> Result<(), String> {
        let its = self.kept(handle);
        let its = its.ok_or("physical memory that was released")?;
        access(&its.file, its.offset + start).map_err(|error| error.to_string())
    }

    /// Returns the memory of a handle that was not released.
    pub(crate) fn get(&self, handle: usize) -> Option<&Physical> {
        self.all.get(&handle).filter(|its| its.references != 0)
    }

    pub(super) fn get_mut(&mut self, handle: usize) -> Option<&mut Physical> {
        let its = self.all.get_mut(&handle);
        its.filter(|its| its.references != 0)
    }

    /// Returns memory, also if only a mapping keeps it.
    pub(crate) fn kept(&self, handle: usize) -> Option<&Physical> {
        self.all.get(&handle)
    }

    /// Returns whether a handle was once valid.
    pub(crate) fn was_released(&self, handle: usize) -> bool {
        let range = HANDLES | 1 << 4..=HANDLES | self.last << 4;
        range.contains(&handle) && handle % 16 == 0 && self.get(handle).is_none()
    }

    pub(crate) fn retain(&mut self, handle: usize) {
        if let Some(its) = self.all.get_mut(&handle) {
            its.references += 1;
        }
    }

    /// Releases a handle once. Returns the memory if nothing keeps it.
    pub(crate) fn release(&mut self, handle: usize) -> Option<Physical> {
        if let Some(its) = self.all.get_mut(&handle) {
            its.references = its.references.saturating_sub(1);
        }
        self.free_unused(handle)
    }

    pub(super) fn add_mapping(&mut self, handle: usize) {
        if let Some(its) = self.all.get_mut(&handle) {
            its.mappings += 1;
        }
    }

    /// Notes that memory is mapped at an address.
    pub(super) fn map(&mut self, handle: usize, address: u64) {
        self.add_mapping(handle);
        if let Some(its) = self.all.get_mut(&handle) {
            its.mapped.insert(address);
        }
    }

    /// Notes that a mapping at an address was removed. Returns the memory if nothing keeps it.
    pub(super) fn unmap(&mut self, handle: usize, address: u64) -> Option<Physical> {
        if let Some(its) = self.all.get_mut(&handle) {
            its.mapped.remove(&address);
        }
        self.remove_mapping(handle)
    }

    /// Returns the address of a byte of memory, and its address on the host. Memory that is not mapped has only the
    /// latter. Returns `None` if the system has no room.
    pub(super) fn place(&mut self, handle: usize, offset: u64) -> Option<(u64, usize)> {
        let its = self.all.get_mut(&handle)?;
        let view = match &mut its.view {
            Some(view) => view,
            none => {
                let len = usize::try_from(its.size).ok()?;
                let alignment = usize::try_from(GRANULARITY).ok()?;
                let mut view = Space::reserve(0, len, alignment)?;
                let contents = (&*its.file, its.offset);
                view.map(0, len, Rights::ReadWrite, contents).then_some(())?;
                none.insert(view)
            }
        };
        let host = view.start() + usize::try_from(offset).ok()?;
        let address = its.mapped.first().map_or(host as u64, |start| start + offset);
        Some((address, host))
    }

    /// Returns the addresses of [`place`](Self::place) on the host, for memory that contains one of them.
    pub(super) fn view_around(&self, address: u64) -> Option<Range<u64>> {
        let views = self.all.values().filter_map(Physical::view);
        let mut views = views.filter(|its| its.contains(&address));
        views.next()
    }

    pub(super) fn remove_mapping(&mut self, handle: usize) -> Option<Physical> {
        if let Some(its) = self.all.get_mut(&handle) {
            its.mappings = its.mappings.saturating_sub(1);
        }
        self.free_unused(handle)
    }

    fn free_unused(&mut self, handle: usize) -> Option<Physical> {
        let its = self.all.get(&handle)?;
        if its.references != 0 || its.mappings != 0 {
            return None;
        }
        let its = self.all.remove(&handle)?;
        if self.common.as_ref().is_some_and(|(file, _)| Arc::ptr_eq(file, &its.file)) {
            space::punch(&its.file, its.offset, its.size);
        }
        Some(its)
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }
}
