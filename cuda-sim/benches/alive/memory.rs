//! Device memory, host memory, mappings and arrays.

use crate::calls::{
    array, call, fill, free, free_ordered, free_pinned, function, memory, module, number, ordered,
    pinned, stream, synchronize,
};
use crate::measure::{Measure, pick};
use core::ptr::{null, null_mut, with_exposed_provenance_mut};
use cuda_sys::{
    CUDA_RESOURCE_DESC, CUDA_TEXTURE_DESC, CUaddress_mode, CUdeviceptr, CUmemAccess_flags,
    CUmemAccessDesc, CUmemAllocationProp, CUmemAllocationType, CUmemLocationType, CUmemorytype,
    CUpointer_attribute, CUresourcetype, Zeroable,
};
use std::cell::Cell;

fn type_of(address: CUdeviceptr) {
    let mut kind = CUmemorytype::CU_MEMORYTYPE_HOST;
    let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    call!(cuPointerGetAttribute((&raw mut kind).cast(), attribute, address));
}

pub(crate) fn measure(measure: &Measure) {
    allocations(measure);
    stream_ordered(measure);
    mappings(measure);
    host(measure);
    arrays(measure);
}

/// The number of allocations that the kernel `touch` accesses.
const TOUCHED: usize = 32;

/// The PTX of a kernel whose threads add one to a number, each in its own allocation.
const TOUCH: &core::ffi::CStr = c".version 7.0
.target sm_70
.address_size 64
.visible .entry touch(.param .align 8 .b8 places[256]) {
    .reg .b32 %r<3>; .reg .b64 %rd<5>;
    mov.u32 %r1, %tid.x; mul.wide.u32 %rd1, %r1, 8; mov.b64 %rd2, places; add.s64 %rd3, %rd2, %rd1;
    ld.param.u64 %rd4, [%rd3];
    ld.global.u32 %r2, [%rd4]; add.u32 %r2, %r2, 1; st.global.u32 [%rd4], %r2;
    ret;
}
";

fn allocations(measure: &Measure) {
    let own = stream();
    let loaded = module(TOUCH);
    let touch = function(loaded, c"touch");
    let mut bytes = [0_u8; 64];
    let bytes = bytes.as_mut_ptr();
    measure.kind(
        "allocations",
        1_000_000,
        |_| memory(64),
        &mut [
            ("allocate, free", &mut |_, _| free(memory(64))),
            ("memset", &mut |all, at| {
                call!(cuMemsetD8_v2(pick(all, at), 1, 64));
            }),
            ("memset in a stream, wait", &mut |all, at| {
                fill(pick(all, at), own);
                synchronize(own);
            }),
            ("copy from the host", &mut |all, at| {
                call!(cuMemcpyHtoD_v2(pick(all, at), bytes.cast_const().cast(), 64));
            }),
            ("copy to the host", &mut |all, at| {
                call!(cuMemcpyDtoH_v2(bytes.cast(), pick(all, at), 64));
            }),
            ("copy, wait", &mut |all, at| {
                call!(cuMemcpyDtoDAsync_v2(pick(all, at), pick(all, at + 1), 64, own));
                synchronize(own);
            }),
            ("access in a kernel, wait", &mut |all, at| {
                let mut places: [CUdeviceptr; TOUCHED] =
                    std::array::from_fn(|lane| pick(all, at + lane));
                let mut params = [(&raw mut places).cast()];
                let (params, extra) = (params.as_mut_ptr(), null_mut());
                let threads = TOUCHED as u32;
                call!(cuLaunchKernel(touch, 1, 1, 1, threads, 1, 1, 0, own, params, extra));
                synchronize(own);
            }),
            ("pointer attribute", &mut |all, at| type_of(pick(all, at))),
            ("address range", &mut |all, at| {
                let (mut start, mut size) = (0, 0);
                call!(cuMemGetAddressRange_v2(&raw mut start, &raw mut size, pick(all, at) + 7));
            }),
            ("free memory", &mut |_, _| {
                let (mut free, mut total) = (0, 0);
                call!(cuMemGetInfo_v2(&raw mut free, &raw mut total));
            }),
        ],
        |all| all.into_iter().for_each(free),
    );
    call!(cuModuleUnload(loaded));
    call!(cuStreamDestroy_v2(own));
}

fn stream_ordered(measure: &Measure) {
    let own = stream();
    let is_first = Cell::new(true);
    let settle = || {
        if is_first.replace(false) {
            synchronize(own);
        }
    };
    measure.kind(
        "stream-ordered allocations",
        1_000_000,
        |_| ordered(64, own),
        &mut [
            ("allocate, free, wait", &mut |_, _| {
                settle();
                free_ordered(ordered(64, own), own);
                synchronize(own);
            }),
            ("memset, wait", &mut |all, at| {
                fill(pick(all, at), own);
                synchronize(own);
            }),
            ("pointer attribute", &mut |all, at| type_of(pick(all, at))),
        ],
        |all| {
            all.into_iter().for_each(|its| free_ordered(its, own));
            synchronize(own);
            is_first.set(true);
        },
    );
    call!(cuStreamDestroy_v2(own));
}

/// The smallest size of a mapping.
const GRANULARITY: usize = 2 << 20;

fn mappings(measure: &Measure) {
    let most = measure.most_mappings();
    let own = stream();
    let mut properties = CUmemAllocationProp::zeroed();
    properties.type_ = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    let access = CUmemAccessDesc {
        location: properties.location,
        flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    let mut reserved = 0;
    // Twice the size, so that addresses are mapped that were not mapped before.
    let all_bytes = 2 * most * GRANULARITY;
    call!(cuMemAddressReserve(&raw mut reserved, all_bytes, 0, 0, 0));
    let map = |place: usize| {
        let address = reserved + (place * GRANULARITY) as u64;
        let mut memory = 0;
        call!(cuMemCreate(&raw mut memory, GRANULARITY, &raw const properties, 0));
        call!(cuMemMap(address, GRANULARITY, 0, memory, 0));
        call!(cuMemSetAccess(address, GRANULARITY, &raw const access, 1));
        call!(cuMemRelease(memory));
        address
    };
    let unmap = |address| {
        call!(cuMemUnmap(address, GRANULARITY));
    };
    measure.kind(
        "mappings",
        most,
        map,
        &mut [
            ("map, unmap", &mut |_, at| unmap(map(most + at % most))),
            ("unmap, map", &mut |all, at| {
                let address = pick(all, at);
                unmap(address);
                map(((address - reserved) as usize) / GRANULARITY);
            }),
            ("memset, wait", &mut |all, at| {
                fill(all[at % 10], own);
                synchronize(own);
            }),
            ("pointer attribute", &mut |all, at| type_of(pick(all, at))),
        ],
        |all| all.into_iter().for_each(unmap),
    );
    call!(cuMemAddressFree(reserved, all_bytes));
    measure.kind(
        "reservations",
        10_000,
        |_| {
            let mut start = 0;
            call!(cuMemAddressReserve(&raw mut start, GRANULARITY, 0, 0, 0));
            start
        },
        &mut [("reserve, free", &mut |_, _| {
            let mut start = 0;
            call!(cuMemAddressReserve(&raw mut start, GRANULARITY, 0, 0, 0));
            call!(cuMemAddressFree(start, GRANULARITY));
        })],
        |all| {
            for start in all {
                call!(cuMemAddressFree(start, GRANULARITY));
            }
        },
    );
    call!(cuStreamDestroy_v2(own));
}

fn host(measure: &Measure) {
    let own = stream();
    let target = memory(64);
    let copy = |from: usize| {
        call!(cuMemcpyHtoDAsync_v2(target, with_exposed_provenance_mut(from), 64, own));
        synchronize(own);
    };
    measure.kind(
        "pinned allocations",
        100_000,
        |_| number(pinned(64)),
        &mut [
            ("allocate, free", &mut |_, _| free_pinned(pinned(64))),
            ("copy, wait", &mut |all, at| copy(pick(all, at))),
            ("pointer attribute", &mut |all, at| type_of(pick(all, at) as u64)),
        ],
        |all| {
            for start in all {
                free_pinned(with_exposed_provenance_mut(start));
            }
        },
    );
    let mut memory = vec![0_u8; 64 * 1_000_001];
    let start = number(memory.as_mut_ptr().cast());
    let register = |place: usize| {
        let at = start + 64 * place;
        call!(cuMemHostRegister_v2(with_exposed_provenance_mut(at), 64, 0));
        at
    };
    let unregister = |at: usize| {
        call!(cuMemHostUnregister(with_exposed_provenance_mut(at)));
    };
    measure.kind(
        "registered ranges",
        1_000_000,
        register,
        &mut [
            ("register, unregister", &mut |_, _| unregister(register(1_000_000))),
            ("copy, wait", &mut |all, at| copy(pick(all, at))),
            ("pointer attribute", &mut |all, at| type_of(pick(all, at) as u64)),
        ],
        |all| all.into_iter().for_each(unregister),
    );
    free(target);
    call!(cuStreamDestroy_v2(own));
}

fn arrays(measure: &Measure) {
    let bytes = [0_u8; 64];
    let bytes = bytes.as_ptr();
    let destroy = |array| {
        call!(cuArrayDestroy(array));
    };
    measure.kind(
        "arrays",
        100_000,
        |_| array(64, 1),
        &mut [
            ("create, destroy", &mut |_, _| destroy(array(64, 1))),
            ("copy from the host", &mut |all, at| {
                call!(cuMemcpyHtoA_v2(pick(all, at), 0, bytes.cast(), 64));
            }),
        ],
        |all| all.into_iter().for_each(destroy),
    );
    let texels = array(64, 1);
    let mut resource = CUDA_RESOURCE_DESC::zeroed();
    resource.resType = CUresourcetype::CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = texels;
    let mut sampler = CUDA_TEXTURE_DESC::zeroed();
    sampler.addressMode = [CUaddress_mode::CU_TR_ADDRESS_MODE_CLAMP; 3];
    let texture = || {
        let mut texture = 0;
        let (resource, sampler) = (&raw const resource, &raw const sampler);
        call!(cuTexObjectCreate(&raw mut texture, resource, sampler, null()));
        texture
    };
    let destroy = |texture| {
        call!(cuTexObjectDestroy(texture));
    };
    measure.kind(
        "textures",
        100_000,
        |_| texture(),
        &mut [("create, destroy", &mut |_, _| destroy(texture()))],
        |all| all.into_iter().for_each(destroy),
    );
    call!(cuArrayDestroy(texels));
}
