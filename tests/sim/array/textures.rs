//! Texture and surface objects on the software driver, through the raw calls and kernels. The codes are
//! those of an H200 with driver 580.

use crate::array::{FLOAT, LAYERED, SURFACE, array, shape, write_plane};
use crate::prelude::*;

const READ_AS_INTEGER: u32 = 1;
const NORMALIZED: u32 = 2;
const LINEAR: CUfilter_mode = CUfilter_mode::CU_TR_FILTER_MODE_LINEAR;
const IMAGE: &[u8] = b"\x7fimage of the kernels of texture tests\0";

/// Loads the module of the tests: `sample(object, x, y, result)` reads a texture, `fetch(object, index,
/// result)` linear memory, and `add(object, x, y)` adds one to a word of a surface.
fn kernels() -> CUmodule {
    kernel::register_image(
        IMAGE,
        &[("sample", &[8, 4, 4, 8]), ("fetch", &[8, 4, 8]), ("add", &[8, 4, 4])],
    );
    kernel::register("sample", |launch| {
        let at = [launch.value::<f32>(1)?, launch.value::<f32>(2)?, 0.0];
        let texel = launch.sample(0, at)?;
        launch.update::<f32>(3, 4, |channel, _| texel[channel] as f32)
    });
    kernel::register("fetch", |launch| {
        let texel = launch.fetch(0, launch.value::<i32>(1)?)?;
        launch.update::<f32>(2, 4, |channel, _| texel[channel] as f32)
    });
    kernel::register("add", |launch| {
        let x = launch.value::<u32>(1)? as usize;
        let y = launch.value::<u32>(2)? as usize;
        let before = launch.read_surface::<u32>(0, [x, y, 0])?;
        launch.write_surface(0, [x, y, 0], before + 1)
    });
    out!(cuModuleLoadData(IMAGE.as_ptr().cast()))
}

fn launch(bench: &Bench, module: CUmodule, name: &core::ffi::CStr, arguments: &[*const c_void]) {
    launch_threads(bench, module, name, 1, arguments);
}

fn launch_threads(
    bench: &Bench,
    module: CUmodule,
    name: &core::ffi::CStr,
    threads: u32,
    arguments: &[*const c_void],
) {
    let function: CUfunction = out!(cuModuleGetFunction(module, name.as_ptr()));
    let mut arguments: Vec<*mut c_void> = arguments.iter().map(|its| its.cast_mut()).collect();
    succeeds!(cuLaunchKernel(
        function,
        1,
        1,
        1,
        threads,
        1,
        1,
        0,
        bench.stream,
        arguments.as_mut_ptr(),
        null_mut()
    ));
}

fn argument<T>(value: &T) -> *const c_void {
    from_ref(value).cast()
}

fn sample(bench: &Bench, module: CUmodule, object: u64, x: f32, y: f32) -> [f32; 4] {
    let result = memory(16);
    let arguments = [argument(&object), argument(&x), argument(&y), argument(&result)];
    launch(bench, module, c"sample", &arguments);
    succeeds!(cuStreamSynchronize(bench.stream));
    let texel = read::<4>(result).map(f32::from_bits);
    free_memory(result);
    texel
}

fn of_array(array: CUarray) -> CUDA_RESOURCE_DESC {
    let mut resource = CUDA_RESOURCE_DESC::zeroed();
    resource.res.array.hArray = array;
    resource
}

fn of_memory(address: u64, format: u32, channels: u32, size: usize) -> CUDA_RESOURCE_DESC {
    let mut resource = CUDA_RESOURCE_DESC::zeroed();
    resource.resType = CUresourcetype::CU_RESOURCE_TYPE_LINEAR;
    resource.res.linear.devPtr = address;
    resource.res.linear.format = CUarray_format(format);
    resource.res.linear.numChannels = channels;
    resource.res.linear.sizeInBytes = size;
    resource
}

fn of_plane(address: u64, [width, height]: [usize; 2], pitch: usize) -> CUDA_RESOURCE_DESC {
    let mut resource = CUDA_RESOURCE_DESC::zeroed();
    resource.resType = CUresourcetype::CU_RESOURCE_TYPE_PITCH2D;
    resource.res.pitch2D.devPtr = address;
    resource.res.pitch2D.format = CUarray_format(FLOAT);
    resource.res.pitch2D.numChannels = 1;
    (resource.res.pitch2D.width, resource.res.pitch2D.height) = (width, height);
    resource.res.pitch2D.pitchInBytes = pitch;
    resource
}

fn sampler(mode: u32, filter: CUfilter_mode, flags: u32) -> CUDA_TEXTURE_DESC {
    CUDA_TEXTURE_DESC {
        addressMode: [CUaddress_mode(mode); 3],
        filterMode: filter,
        flags,
        borderColor: [8.0; 4],
        ..CUDA_TEXTURE_DESC::zeroed()
    }
}

fn point(mode: u32) -> CUDA_TEXTURE_DESC {
    sampler(mode, CUfilter_mode::CU_TR_FILTER_MODE_POINT, 0)
}

fn texture(resource: &CUDA_RESOURCE_DESC, sampler: &CUDA_TEXTURE_DESC) -> u64 {
    out!(cuTexObjectCreate(from_ref(resource), from_ref(sampler), null()))
}

fn texture_code(resource: &CUDA_RESOURCE_DESC, sampler: &CUDA_TEXTURE_DESC) -> CUresult {
    let mut object = 0;
    let (resource, sampler) = (from_ref(resource), from_ref(sampler));
    let code = code!(cuTexObjectCreate(&raw mut object, resource, sampler, null()));
    if code.is_success() {
        succeeds!(cuTexObjectDestroy(object));
    }
    code
}

#[test]
fn kernels_sample_arrays_with_filters_and_address_modes() {
    let bench = &in_child!(without_misuse());
    let module = kernels();
    let plane = array(FLOAT, 1, [2, 2, 0], 0);
    let values = [0f32, 1.0, 2.0, 3.0];
    write_plane(plane, 8, 2, values.as_ptr().cast());
    let read = |sampler: &CUDA_TEXTURE_DESC, x: f32, y: f32| {
        let object = texture(&of_array(plane), sampler);
        let [first, ..] = sample(bench, module, object, x, y);
        succeeds!(cuTexObjectDestroy(object));
        first
    };
    let clamp = point(1);
    assert_eq!(read(&clamp, 1.5, 0.5), 1.0);
    assert_eq!(read(&clamp, -3.0, 9.0), 2.0);
    assert_eq!(read(&point(3), -3.0, 0.5), 8.0);
    let linear = sampler(1, LINEAR, 0);
    assert_eq!(read(&linear, 1.0, 1.0), 1.5);
    assert_eq!(read(&linear, 0.75, 0.5), 0.25);
    let wrap = sampler(0, CUfilter_mode::CU_TR_FILTER_MODE_POINT, NORMALIZED);
    assert_eq!(read(&wrap, 1.75, 0.25), 1.0);
    let mirror = sampler(2, CUfilter_mode::CU_TR_FILTER_MODE_POINT, NORMALIZED);
    assert_eq!(read(&mirror, 1.25, 0.25), 1.0);
    succeeds!(cuArrayDestroy(plane));

    let bytes = array(1, 4, [1, 1, 0], 0);
    write_plane(bytes, 4, 1, [0u8, 51, 102, 255].as_ptr().cast());
    let fractions = texture(&of_array(bytes), &point(1));
    assert_eq!(sample(bench, module, fractions, 0.0, 0.0), [0.0, 0.2, 0.4, 1.0]);
    let mode = sampler(1, CUfilter_mode::CU_TR_FILTER_MODE_POINT, READ_AS_INTEGER);
    let integers = texture(&of_array(bytes), &mode);
    assert_eq!(sample(bench, module, integers, 0.0, 0.0), [0.0, 51.0, 102.0, 255.0]);
    succeeds!(cuTexObjectDestroy(fractions));
    succeeds!(cuTexObjectDestroy(integers));
    succeeds!(cuArrayDestroy(bytes));
    succeeds!(cuModuleUnload(module));
}

#[test]
fn a_registered_kernel_samples_the_layers_of_an_array() {
    let bench = &in_child!(without_misuse());
    let module = kernels();
    let layers = array(FLOAT, 1, [2, 0, 3], LAYERED);
    let values = [0f32, 1.0, 2.0, 3.0, 4.0, 5.0];
    let mut copy = CUDA_MEMCPY3D::zeroed();
    copy.srcMemoryType = CUmemorytype::CU_MEMORYTYPE_HOST;
    (copy.srcHost, copy.srcPitch, copy.srcHeight) = (values.as_ptr().cast(), 8, 1);
    copy.dstMemoryType = CUmemorytype::CU_MEMORYTYPE_ARRAY;
    copy.dstArray = layers;
    (copy.WidthInBytes, copy.Height, copy.Depth) = (8, 1, 3);
    succeeds!(cuMemcpy3D_v2(&raw const copy));
    let object = texture(&of_array(layers), &point(1));
    let found = [0.0, 1.0, 2.0].map(|layer| sample(bench, module, object, 1.5, layer)[0]);
    assert_eq!(found, [1.0, 3.0, 5.0]);
    succeeds!(cuTexObjectDestroy(object));
    succeeds!(cuArrayDestroy(layers));
    succeeds!(cuModuleUnload(module));
}

#[test]
fn a_fetch_beyond_linear_memory_is_zero() {
    let bench = &in_child!(without_misuse());
    let module = kernels();
    let (device, result) = (memory(1024), memory(16));
    succeeds!(cuMemsetD32Async(device, 1.5f32.to_bits(), 4, bench.stream));
    let object = texture(&of_memory(device, FLOAT, 1, 16), &point(1));
    let fetched = [0, 3, 4, -1].map(|index: i32| {
        let arguments = [argument(&object), argument(&index), argument(&result)];
        launch(bench, module, c"fetch", &arguments);
        succeeds!(cuStreamSynchronize(bench.stream));
        f32::from_bits(read::<1>(result)[0])
    });
    assert_eq!(fetched, [1.5, 1.5, 0.0, 0.0]);
    succeeds!(cuTexObjectDestroy(object));
    succeeds!(cuModuleUnload(module));
}

#[test]
fn memory_has_the_extents_of_its_rows_and_columns() {
    const EXTENTS: &core::ffi::CStr = c".version 6.0\n.target sm_50\n.address_size 64
        .visible .entry extents(.param .u64 object, .param .u64 result) {
            .reg .b64 %d<3>; .reg .b32 %r<4>;
            ld.param.u64 %d1, [object]; ld.param.u64 %d2, [result];
            txq.width.b32 %r1, [%d1]; txq.height.b32 %r2, [%d1]; txq.depth.b32 %r3, [%d1];
            st.global.u32 [%d2], %r1; st.global.u32 [%d2+4], %r2; st.global.u32 [%d2+8], %r3;
            ret;
        }";
    let bench = &in_child!(without_misuse());
    let module: CUmodule = out!(cuModuleLoadData(EXTENTS.as_ptr().cast()));
    let (device, result) = (memory(1024), memory(16));
    let extents = |resource: &CUDA_RESOURCE_DESC| {
        let object = texture(resource, &point(1));
        launch(bench, module, c"extents", &[argument(&object), argument(&result)]);
        succeeds!(cuStreamSynchronize(bench.stream));
        succeeds!(cuTexObjectDestroy(object));
        read::<3>(result)
    };
    assert_eq!(extents(&of_memory(device, FLOAT, 1, 150)), [37, 0, 0]);
    assert_eq!(extents(&of_plane(device, [8, 4], 32)), [8, 4, 0]);
    succeeds!(cuModuleUnload(module));
}

#[test]
fn kernels_read_and_write_surfaces() {
    let bench = &in_child!(without_misuse());
    let module = kernels();
    let plane = array(3, 1, [2, 2, 0], SURFACE);
    write_plane(plane, 8, 2, [1u32, 2, 3, 4].as_ptr().cast());
    let resource = of_array(plane);
    let object: u64 = out!(cuSurfObjectCreate(&raw const resource));
    let (x, y) = (4u32, 1u32);
    launch(bench, module, c"add", &[argument(&object), argument(&x), argument(&y)]);
    succeeds!(cuStreamSynchronize(bench.stream));
    let shown: CUDA_RESOURCE_DESC = out!(cuSurfObjectGetResourceDesc(object));
    // SAFETY: the resource is an array.
    assert_eq!(unsafe { shown.res.array.hArray }, plane);
    let texels = texture(&resource, &point(1));
    assert_eq!(sample(bench, module, texels, 1.0, 1.0)[0], 5.0);
    succeeds!(cuTexObjectDestroy(texels));
    succeeds!(cuSurfObjectDestroy(object));
    succeeds!(cuArrayDestroy(plane));
    succeeds!(cuModuleUnload(module));
}

#[test]
fn objects_check_alignment_formats_and_modes() {
    let _bench = in_child!(without_misuse());
    let device = memory(1 << 16);
    let good = CUresult::CUDA_SUCCESS;
    let clamp = point(1);
    for (resource, expected) in [
        (of_memory(device, FLOAT, 1, 64), good),
        (of_memory(device + 256, FLOAT, 1, 64), INVALID),
        (of_memory(0, FLOAT, 1, 64), INVALID),
        (of_memory(device, FLOAT, 3, 64), INVALID),
        (of_memory(device, 194, 4, 64), INVALID),
        (of_memory(device, FLOAT, 1, 1 << 40), INVALID),
        (of_plane(device, [8, 8], 32), good),
        (of_plane(device, [8, 8], 48), INVALID),
        (of_plane(device, [131_073, 1], 1 << 20), INVALID),
        (of_plane(device, [8, 65_001], 32), INVALID),
    ] {
        assert_eq!(texture_code(&resource, &clamp), expected);
    }
    let resource = of_memory(device, FLOAT, 1, 64);
    let refuse = |change: fn(&mut CUDA_TEXTURE_DESC)| {
        let mut sampler = point(1);
        change(&mut sampler);
        assert_eq!(texture_code(&resource, &sampler), INVALID);
    };
    refuse(|its| its.addressMode[1] = CUaddress_mode(4));
    refuse(|its| its.filterMode = CUfilter_mode(2));
    refuse(|its| its.flags = 0x8);
    refuse(|its| its.reserved[0] = 1);
    let mut object = 0;
    let flagged = CUDA_RESOURCE_DESC { flags: 1, ..resource };
    assert_eq!(texture_code(&flagged, &clamp), INVALID);
    let mut view = CUDA_RESOURCE_VIEW_DESC::zeroed();
    view.reserved[15] = 1;
    let (described, view) = (&raw const resource, &raw const view);
    refused!(INVALID, cuTexObjectCreate(&raw mut object, described, &raw const clamp, view));
    refused!(INVALID, cuSurfObjectCreate(&raw mut object, &raw const resource));
    refused!(INVALID, cuTexObjectCreate(&raw mut object, null(), &raw const clamp, null()));
}

#[test]
fn descriptions_are_returned_and_handles_count_from_one() {
    let bench = &in_child!(without_misuse());
    let plane = array(FLOAT, 1, [2, 2, 0], SURFACE);
    let resource = of_array(plane);
    let first = texture(&resource, &sampler(3, LINEAR, NORMALIZED));
    let second: u64 = out!(cuSurfObjectCreate(&raw const resource));
    assert_eq!([first, second], [1, 2]);
    let alive = cuda_sim::alive();
    assert_eq!((alive.textures, alive.surfaces), (1, 1));
    let shown: CUDA_TEXTURE_DESC = out!(cuTexObjectGetTextureDesc(first));
    assert_eq!((shown.flags, shown.filterMode), (NORMALIZED, LINEAR));
    let shown: CUDA_RESOURCE_DESC = out!(cuTexObjectGetResourceDesc(first));
    assert_eq!(shown.resType, CUresourcetype::CU_RESOURCE_TYPE_ARRAY);
    let mut view = Zeroable::zeroed();
    refused!(INVALID, cuTexObjectGetResourceViewDesc(&raw mut view, first));
    succeeds!(cuCtxSetCurrent(null_mut()));
    refused!(CUresult::CUDA_ERROR_INVALID_CONTEXT, cuTexObjectDestroy(first));
    succeeds!(cuCtxSetCurrent(bench.context));
    succeeds!(cuTexObjectDestroy(first));
    succeeds!(cuSurfObjectDestroy(second));
    succeeds!(cuArrayDestroy(plane));
    let descriptor = shape(FLOAT, 1, [8, 8, 0]);
    let mipmapped: CUmipmappedArray = out!(cuMipmappedArrayCreate(&raw const descriptor, 2));
    let mut resource = CUDA_RESOURCE_DESC::zeroed();
    resource.resType = CUresourcetype::CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    resource.res.mipmap.hMipmappedArray = mipmapped;
    assert!(texture_code(&resource, &point(1)).is_success());
    succeeds!(cuMipmappedArrayDestroy(mipmapped));
}

#[test]
fn an_array_of_another_context_is_refused() {
    let bench = &in_child!(without_misuse());
    let plane = array(FLOAT, 1, [2, 2, 0], 0);
    let other = out!(cuCtxCreate_v4(null_mut(), 0, 0));
    let refused = texture_code(&of_array(plane), &point(1));
    assert_eq!(refused, CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    succeeds!(cuCtxDestroy_v2(other));
    succeeds!(cuCtxSetCurrent(bench.context));
    succeeds!(cuArrayDestroy(plane));
}

/// Creates an object that a real driver accepts although it is wrong.
#[track_caller]
fn accepted(words: &'static str, resource: impl FnOnce(u64) -> CUDA_RESOURCE_DESC, flags: u32) {
    let _bench = in_child!(misused(words));
    let resource = resource(memory(1024));
    let filter = if flags == READ_AS_INTEGER { LINEAR } else { CUfilter_mode(0) };
    assert!(texture_code(&resource, &sampler(1, filter, flags)).is_success());
}

#[test]
fn linear_memory_without_a_whole_element_is_reported() {
    accepted("no whole element", |device| of_memory(device, FLOAT, 1, 3), 0);
}

#[test]
fn linear_memory_beyond_its_allocation_is_reported() {
    accepted("not in one allocation", |device| of_memory(device, FLOAT, 1, 2048), 0);
}

#[test]
fn rows_beyond_their_allocation_are_reported() {
    accepted("not in one allocation", |device| of_plane(device, [8, 33], 32), 0);
}

#[test]
fn rows_that_overlap_are_reported() {
    accepted("rows that overlap", |device| of_plane(device, [16, 2], 32), 0);
}

#[test]
fn a_linear_filter_of_integers_is_reported() {
    accepted(
        "integers with a linear filter",
        |device| of_memory(device, 1, 1, 64),
        READ_AS_INTEGER,
    );
}

#[test]
fn an_anisotropy_above_16_is_reported() {
    let _bench = in_child!(misused("an anisotropy above 16"));
    let resource = of_memory(memory(64), FLOAT, 1, 64);
    for (greatest, misuses) in [(0, 0), (16, 0), (17, 1)] {
        let texture = CUDA_TEXTURE_DESC { maxAnisotropy: greatest, ..point(1) };
        assert!(texture_code(&resource, &texture).is_success());
        assert_eq!(cuda_sim::misuses().len(), misuses, "{greatest}");
    }
}

#[test]
fn a_surface_of_an_array_that_is_not_made_for_it_is_reported() {
    let _bench = in_child!(misused("without SURFACE_LDST"));
    let resource = of_array(array(FLOAT, 1, [2, 2, 0], 0));
    let object: u64 = out!(cuSurfObjectCreate(&raw const resource));
    succeeds!(cuSurfObjectDestroy(object));
}

#[test]
fn destroying_an_object_twice_is_reported() {
    let _bench = in_child!(misused("not a texture object"));
    let object = texture(&of_memory(memory(64), FLOAT, 1, 64), &point(1));
    succeeds!(cuTexObjectDestroy(object));
    succeeds!(cuTexObjectDestroy(object));
}

#[test]
fn sampling_after_the_array_was_destroyed_is_fatal() {
    let bench = &in_child!(misused("not allocated, or were freed"));
    let module = kernels();
    let plane = array(FLOAT, 1, [2, 2, 0], 0);
    let object = texture(&of_array(plane), &point(1));
    succeeds!(cuArrayDestroy(plane));
    let (x, result) = (0f32, memory(16));
    let arguments = [argument(&object), argument(&x), argument(&x), argument(&result)];
    launch(bench, module, c"sample", &arguments);
    refused!(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(bench.stream));
}

#[test]
fn sampling_a_destroyed_object_is_reported() {
    let bench = &in_child!(misused("is not a texture object of the kernel's context"));
    let module = kernels();
    let result = memory(1024);
    let object = texture(&of_memory(result, FLOAT, 1, 64), &point(1));
    succeeds!(cuTexObjectDestroy(object));
    let x = 0f32;
    let arguments = [argument(&object), argument(&x), argument(&x), argument(&result)];
    launch(bench, module, c"sample", &arguments);
    assert!(!code!(cuStreamSynchronize(bench.stream)).is_success());
}

#[test]
fn a_surface_access_outside_is_fatal() {
    let bench = &in_child!(misused("outside of a surface"));
    let module = kernels();
    let resource = of_array(array(3, 1, [2, 2, 0], SURFACE));
    let object: u64 = out!(cuSurfObjectCreate(&raw const resource));
    let (x, y) = (8u32, 0u32);
    launch(bench, module, c"add", &[argument(&object), argument(&x), argument(&y)]);
    assert!(!code!(cuStreamSynchronize(bench.stream)).is_success());
}

/// Loads a kernel of tests/kernels, which runs by its PTX.
fn ptx(kernel: &str) -> CUmodule {
    let text = common::alone(include_str!("../../kernels/texture.ptx"), kernel);
    let text = CString::new(&*text).expect("no NUL");
    out!(cuModuleLoadData(text.as_ptr().cast()))
}

/// Launches the kernel `fetch`, which reads an element of linear memory.
fn fetch_one(bench: &Bench, object: u64) {
    let (first, result, count) = (0i32, memory(16), 1u32);
    let arguments = [argument(&object), argument(&first), argument(&result), argument(&count)];
    launch(bench, ptx("fetch"), c"fetch", &arguments);
}

#[test]
fn the_report_of_a_destroyed_texture_names_the_instruction() {
    let bench = &in_child!(misused(
        "0x1 is not a texture object of the kernel's context, or was destroyed; a real driver reads or writes \
         other memory: `tex.1d.v4.f32.s32` at line 203 of the PTX, kernel `fetch`"
    ));
    let object = texture(&of_memory(memory(1024), FLOAT, 1, 64), &point(1));
    succeeds!(cuTexObjectDestroy(object));
    fetch_one(bench, object);
    refused!(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(bench.stream));
}

#[test]
fn a_surface_that_a_kernel_reads_as_a_texture_is_reported() {
    let bench = &in_child!(misused("0x1 is not a texture object of the kernel's context"));
    let resource = of_array(array(FLOAT, 1, [8, 0, 0], SURFACE));
    fetch_one(bench, out!(cuSurfObjectCreate(&raw const resource)));
    refused!(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(bench.stream));
}

#[test]
fn a_texture_of_memory_that_was_freed_is_reported() {
    let bench = &in_child!(misused("`tex.1d.v4.f32.s32` at line 203"));
    let device = memory(1024);
    let object = texture(&of_memory(device, FLOAT, 1, 64), &point(1));
    free_memory(device);
    fetch_one(bench, object);
    refused!(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(bench.stream));
}

#[test]
fn the_report_of_an_access_outside_of_a_surface_names_the_bytes() {
    let bench = &in_child!(misused(
        "4 bytes at (8, 0, 0) are outside of a surface of 8 bytes, 2 rows and 1 slices: `suld.b.2d.b32.trap` at \
         line 235 of the PTX, kernel `add_to_surface`, block (0, 0, 0), thread (2, 0, 0)"
    ));
    let resource = of_array(array(3, 1, [2, 2, 0], SURFACE));
    let object: u64 = out!(cuSurfObjectCreate(&raw const resource));
    let (width, height, by) = (3u32, 1u32, 1u32);
    let arguments = [argument(&object), argument(&width), argument(&height), argument(&by)];
    launch_threads(bench, ptx("add_to_surface"), c"add_to_surface", 3, &arguments);
    refused!(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(bench.stream));
}
