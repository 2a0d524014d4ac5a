//! Arrays in memory that consists of several mappings, like PyTorch's expandable segments.

use crate::common;
use crate::or_skip;
use cuda_safe::interop::{ArrayInterface, Kind, Layout, StreamSync, TypeString};
use cuda_safe::sys::{
    self, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags,
    CUmemAllocationProp, CUmemAllocationType, CUmemLocationType, CUresult,
};
use cuda_safe::{Context, Error, Invalid};

#[track_caller]
fn succeeds(code: CUresult) {
    assert_eq!(code, CUresult::CUDA_SUCCESS);
}

/// Reserved addresses for four parts, the third of which has no memory.
struct Reserved {
    start: u64,
    part: usize,
    handles: Vec<u64>,
}

impl Reserved {
    fn new(ordinal: i32) -> Self {
        let mut prop = CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            ..CUmemAllocationProp::default()
        };
        prop.location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        prop.location.__bindgen_anon_1.id = ordinal;
        let least = CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        let (mut part, mut start) = (0, 0);
        // SAFETY: the pointers refer to local variables.
        succeeds(unsafe {
            sys::cuMemGetAllocationGranularity(&raw mut part, &raw const prop, least)
        });
        // SAFETY: as above.
        succeeds(unsafe { sys::cuMemAddressReserve(&raw mut start, 4 * part, 0, 0, 0) });
        let mut access = CUmemAccessDesc {
            flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            ..CUmemAccessDesc::default()
        };
        access.location = prop.location;
        let mut handles = Vec::new();
        for number in [0, 1, 3] {
            let at = start + number * part as u64;
            let mut handle = 0;
            // SAFETY: as above.
            succeeds(unsafe { sys::cuMemCreate(&raw mut handle, part, &raw const prop, 0) });
            // SAFETY: these addresses belong to the reservation, and nothing is mapped there.
            succeeds(unsafe { sys::cuMemMap(at, part, 0, handle, 0) });
            // SAFETY: the addresses are mapped, and the pointer refers to a local variable.
            succeeds(unsafe { sys::cuMemSetAccess(at, part, &raw const access, 1) });
            handles.push(handle);
        }
        Self { start, part, handles }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        for (number, handle) in [0, 1, 3].into_iter().zip(&self.handles) {
            let at = self.start + number * self.part as u64;
            // SAFETY: nothing uses the memory any more.
            succeeds(unsafe { sys::cuMemUnmap(at, self.part) });
            // SAFETY: this value owns the allocation, which is not mapped any more.
            succeeds(unsafe { sys::cuMemRelease(*handle) });
        }
        // SAFETY: nothing is mapped there any more.
        succeeds(unsafe { sys::cuMemAddressFree(self.start, 4 * self.part) });
    }
}

#[test]
fn an_array_across_mappings_is_imported_and_one_across_a_hole_is_refused() {
    let device = or_skip!(common::real_gpu());
    let context = Context::primary(&device).expect("a context");
    let stream = context.stream().expect("a stream");
    let reserved = Reserved::new(i32::try_from(device.ordinal()).expect("a number"));
    let (start, part) = (reserved.start, reserved.part as u64);
    for number in 0..2 {
        let info = context.pointer_info(start + number * part).expect("an answer");
        let range = context.address_range(start + number * part);
        println!("part {number} of {part:#x} from {start:#x}: {range:?}, {info:?}");
    }
    let byte = TypeString::native(Kind::Uint, 1).expect("u1");
    let import = |at: u64, len: u64, step: isize| {
        let len = usize::try_from(len).expect("a length");
        let layout = Layout::strided(&[len], &[step], 1).expect("a layout");
        let array = ArrayInterface::new(byte, layout, at).expect("an interface");
        // SAFETY: the memory outlives the import, and no other work uses it.
        unsafe { array.import_untyped(&stream, StreamSync::Synchronize, ()) }
    };
    // Within one mapping, across two, and reversed.
    for (at, len, step) in [
        (start, part, 1),
        (start + 100, part, 1),
        (start, 2 * part, 1),
        (start + 2 * part - 1, 2 * part, -1),
        (start + 3 * part, part, 1),
    ] {
        let imported = import(at, len, step);
        drop(imported.unwrap_or_else(|error| panic!("{at:#x}, {len:#x}, {step}: {error}")));
    }
    // The driver does not know the addresses in the hole, just like pageable host memory.
    let known = context.pointer_info(start + 2 * part);
    assert!(known.expect("an answer").is_none());
    assert!(import(start + 2 * part, 8, 1).is_ok());
    // Into the hole, across it, and out of the reservation.
    for (at, len, step) in [
        (start, 2 * part + 1, 1),
        (start + part, 3 * part, 1),
        (start + 3 * part, part + 1, 1),
        (start + 3 * part, 2, -1),
    ] {
        match import(at, len, step) {
            Err(Error::Invalid(invalid))
                if matches!(*invalid, Invalid::ArrayInterface { key: "data", .. }) =>
            {
                println!("refused: {invalid}");
            }
            other => panic!("{at:#x}, {len:#x}, {step}: {other:?}"),
        }
    }
}
