//! Registered resources of OpenGL and EGL, which the software driver plays with files in memory.

use crate::prelude::*;
use cuda_safe::array::{Sampler, Surface, Texture};
use cuda_safe::external::{
    AccessHint, EglConsumer, EglImage, EglLocation, EglProducer, OpenGlDevices, RegisteredBuffer,
    RegisteredImage, RegisteredImageOptions,
};
use cuda_safe::{attempt_deferred_releases, set_report_hook};
use cuda_sim::external::{egl_image, opengl_buffer, opengl_texture};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Barrier, Mutex};

const SIZE: u64 = 4096;
const GL_TEXTURE_2D: u32 = 0x0DE1;

/// Starts the software driver. At the end the deferred releases are attempted.
fn stage() -> (AtEnd, Context, Stream) {
    let (end, context, stream) = on_stream();
    let drain = || (0..8).for_each(|_| attempt_deferred_releases());
    (end.after(drain), context, stream)
}

/// Makes and registers a buffer.
pub(crate) fn buffer(context: &Context) -> (File, RegisteredBuffer) {
    let file = opengl_buffer(5, SIZE).expect("a buffer");
    // SAFETY: the buffer exists.
    let made = unsafe { RegisteredBuffer::from_opengl(context, 5, AccessHint::ReadWrite) };
    (file, made.expect("registered"))
}

/// Describes an image of 4 x 4 texels with four bytes.
fn texels() -> CUDA_ARRAY3D_DESCRIPTOR {
    let mut texels = CUDA_ARRAY3D_DESCRIPTOR::zeroed();
    (texels.Width, texels.Height, texels.NumChannels) = (4, 4, 4);
    texels.Format = CUarray_format::CU_AD_FORMAT_UNSIGNED_INT8;
    texels.Flags = CUDA_ARRAY3D_SURFACE_LDST;
    texels
}

/// Makes and registers a texture with two levels.
fn image(context: &Context) -> (File, RegisteredImage) {
    let file = opengl_texture(6, texels(), 2).expect("a texture");
    let options =
        RegisteredImageOptions { surface: true, levels: 2, ..RegisteredImageOptions::default() };
    // SAFETY: the texture exists.
    let made = unsafe { RegisteredImage::from_opengl(context, 6, GL_TEXTURE_2D, options) };
    (file, made.expect("registered"))
}

fn word(file: &File) -> u32 {
    let mut word = [0; 4];
    file.read_exact_at(&mut word, 8).expect("a word");
    u32::from_le_bytes(word)
}

/// Connects a consumer to the stream of EGL whose frames are the image `0x77`.
fn consumer(context: &Context) -> EglConsumer {
    let stream = std::ptr::without_provenance_mut(0x77);
    // SAFETY: the stream exists, and has no other consumer.
    unsafe { EglConsumer::connect(context, stream, EglLocation::Device) }.expect("a consumer")
}

/// The functions that end registrations, mappings, frames and connections.
const ENDS: [&str; 4] = [
    "cuGraphicsUnmapResources",
    "cuGraphicsUnregisterResource",
    "cuEGLStreamConsumerReleaseFrame",
    "cuEGLStreamConsumerDisconnect",
];

/// Returns the calls of these functions.
fn ends(body: impl FnOnce()) -> Vec<&'static str> {
    let mut calls = calls(body);
    calls.retain(|call| ENDS.contains(call));
    calls
}

#[test]
fn a_mapped_buffer_shares_its_bytes() {
    let (_end, context, stream) = in_child!(stage());
    let (file, mut registered) = buffer(&context);
    assert_eq!(registered.context(), &context);
    file.write_all_at(&7u32.to_le_bytes(), 8).expect("written");
    let mut mapped = registered.map::<u32>(&stream).expect("mapped");
    assert_eq!((mapped.len(), mapped.stream()), (1024, &stream));
    assert_eq!(mapped.slice(..4).expect("a part").to_vec().expect("a copy"), [0, 0, 7, 0]);
    mapped.as_mut_slice().fill(9).expect("a fill");
    mapped.end().expect("unmapped");
    assert_eq!(word(&file), 9);
    registered.set_access(AccessHint::ReadOnly).expect("a hint");
    let mapped = registered.map::<[u8; 3]>(&stream).expect("mapped");
    assert_eq!(mapped.len(), 1365);
    assert_eq!(ends(|| drop(mapped)), ["cuGraphicsUnmapResources"]);
    assert_eq!(ends(|| drop(registered)), ["cuGraphicsUnregisterResource"]);
}

#[test]
fn levels_of_an_image_are_arrays() {
    let (_end, context, stream) = in_child!(stage());
    let (file, mut registered) = image(&context);
    let mut mapped = registered.map::<[u8; 4]>(&stream, 0, 0).expect("mapped");
    assert_eq!(mapped.shape(), ArrayShape::TwoD { width: 4, height: 4 });
    assert!(mapped.options().surface);
    mapped.as_mut().copy_from_slice(&[[1, 2, 3, 4]; 16]).expect("a copy");
    Surface::new(mapped.as_mut()).expect("a surface");
    mapped.end().expect("unmapped");
    assert_eq!(word(&file), 0x0403_0201);
    let second = registered.map::<[u8; 4]>(&stream, 0, 1).expect("mapped");
    assert_eq!(second.shape(), ArrayShape::TwoD { width: 2, height: 2 });
    drop(second);
    let mut levels = registered.map_levels::<[u8; 4]>(&stream).expect("mapped");
    assert_eq!(levels.levels(), 2);
    levels.level_mut(1).expect("a level").copy_from_slice(&[[9; 4]; 4]).expect("a copy");
    let sampler = Sampler { normalized_coordinates: true, ..Sampler::default() };
    Texture::new(&*levels, &sampler).expect("a texture");
}

#[test]
fn a_failed_mapping_is_ended() {
    let (_end, context, stream) = in_child!(stage());
    let (_file, mut registered) = image(&context);
    let refused = invalid(registered.map::<f32>(&stream, 0, 0));
    assert!(matches!(refused, Invalid::Array { .. }), "{refused}");
    let refused = invalid(registered.map::<[u8; 4]>(&stream, 0, 2));
    assert!(refused.to_string().contains("there is no level 2"), "{refused}");
    registered.map::<[u8; 4]>(&stream, 1, 0).map(drop).expect_err("no such face");
    registered.map_levels::<f32>(&stream).map(drop).expect_err("bytes");
    let other = Context::new(&context.device(), ContextFlags::SCHED_YIELD).expect("a context");
    let other = other.stream().expect("a stream");
    let refused = invalid(registered.map::<[u8; 4]>(&other, 0, 0));
    assert!(matches!(refused, Invalid::OtherContext { .. }), "{refused}");
    registered.map::<[u8; 4]>(&stream, 0, 0).map(drop).expect("it is not mapped");
    let (_file, mut registered) = buffer(&context);
    // The size of the buffer is measured after the mapping.
    let fault = fail("cuGraphicsResourceGetMappedPointer_v2", 1, CUresult::CUDA_ERROR_UNKNOWN);
    registered.map::<u32>(&stream).map(drop).expect_err("a fault");
    assert_eq!(fault.hits(), 1);
    registered.map::<u32>(&stream).map(drop).expect("it is not mapped");
}

#[test]
fn a_forgotten_mapping_stays() {
    let (_end, context) = in_child!(leaking());
    let stream = context.stream().expect("a stream");
    let (_file, mut registered) = buffer(&context);
    std::mem::forget(registered.map::<u32>(&stream).expect("mapped"));
    let error = registered.map::<u32>(&stream).map(drop).expect_err("it is mapped");
    assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_ALREADY_MAPPED));
    assert_eq!(ends(|| drop(registered)), [""; 0]);
    assert_eq!(alive().graphics_resources, 1);
}

#[test]
fn a_mapping_in_a_captured_stream_ends_after_the_capture() {
    let (_end, context, stream) = in_child!(stage());
    let (file, mut registered) = buffer(&context);
    let (_second_file, mut second) = {
        let file = opengl_buffer(8, SIZE).expect("a buffer");
        // SAFETY: the buffer exists.
        let made = unsafe { RegisteredBuffer::from_opengl(&context, 8, AccessHint::ReadWrite) };
        (file, made.expect("registered"))
    };
    let mut mapped = registered.map::<u32>(&stream).expect("mapped");
    mapped.as_mut_slice().fill(4).expect("a fill");
    let graph = stream.capture(Default::default(), |stream| {
        let refused = invalid(second.map::<u32>(stream));
        assert!(matches!(refused, Invalid::StreamIsCaptured), "{refused}");
        let refused = invalid(mapped.end());
        assert!(matches!(refused, Invalid::StreamIsCaptured), "{refused}");
        Ok::<_, Error>(())
    });
    graph.expect("a graph");
    // No context of OpenGL is current in another thread.
    std::thread::scope(|scope| scope.spawn(attempt_deferred_releases).join()).expect("no panic");
    assert_eq!((cuda_safe::leaked(), cuda_safe::deferred_releases()), (0, 1));
    let error = registered.map::<u32>(&stream);
    // The first attempt after the capture ends the mapping.
    drop(error.expect("mapped again"));
    stream.synchronize().expect("a wait");
    assert_eq!(word(&file), 4);
}

/// No thread can end the mapping once the thread has ended that registered the buffer.
#[test]
fn a_mapping_is_leaked_and_reported_if_its_thread_ends_during_a_capture() {
    let (_end, context) = in_child!(leaking());
    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    set_report_hook(|report| SEEN.lock().expect("no panic").push(report.to_string()));
    let stream = context.stream().expect("a stream");
    let (mapped, drops) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        let owner = scope.spawn(|| {
            let (_file, mut registered) = buffer(&context);
            let mapping = registered.map::<u32>(&stream).expect("mapped");
            mapped.wait();
            drops.wait();
            drop(mapping);
        });
        mapped.wait();
        let graph = stream.capture(Default::default(), |_| {
            drops.wait();
            owner.join().expect("no panic");
            assert_eq!((cuda_safe::leaked(), cuda_safe::deferred_releases()), (0, 1));
            Ok::<_, Error>(())
        });
        graph.expect("a graph");
    });
    attempt_deferred_releases();
    assert_eq!((cuda_safe::leaked(), cuda_safe::deferred_releases()), (1, 0));
    let seen = SEEN.lock().expect("no panic");
    let [report] = &seen[..] else { panic!("{seen:?}") };
    assert!(report.starts_with("a mapped resource was not released: "), "{report}");
    assert!(report.contains("the thread has ended"), "{report}");
    assert_eq!(alive().graphics_resources, 1);
}

#[test]
fn a_context_of_opengl_is_current_in_one_thread() {
    let (_end, context, stream) = in_child!(stage());
    let (_file, mut registered) = buffer(&context);
    let raw = registered.as_raw();
    let elsewhere = |call: &(dyn Fn() -> CUresult + Sync)| {
        std::thread::scope(|scope| scope.spawn(call).join()).expect("no panic")
    };
    let (resource, on) = (raw.expose_provenance(), stream.as_raw().expose_provenance());
    let map = || {
        let mut resource = with_exposed_provenance_mut(resource);
        // SAFETY: the resource and the stream are alive.
        unsafe { cuGraphicsMapResources(1, &raw mut resource, with_exposed_provenance_mut(on)) }
    };
    let unmap = || {
        let mut resource = with_exposed_provenance_mut(resource);
        // SAFETY: the resource and the stream are alive.
        unsafe { cuGraphicsUnmapResources(1, &raw mut resource, with_exposed_provenance_mut(on)) }
    };
    let register = || {
        // SAFETY: the driver refuses the name.
        let made = unsafe { RegisteredBuffer::from_opengl(&context, 5, AccessHint::ReadOnly) };
        made.map(drop).expect_err("no context of OpenGL").code().expect("a code")
    };
    let unregister = || {
        // SAFETY: the driver refuses the call.
        unsafe { cuGraphicsUnregisterResource(with_exposed_provenance_mut(resource)) }
    };
    const REFUSED: CUresult = CUresult::CUDA_ERROR_INVALID_GRAPHICS_CONTEXT;
    assert_eq!(elsewhere(&map), REFUSED);
    assert_eq!(elsewhere(&register), CUresult::CUDA_ERROR_INVALID_VALUE);
    let mapped = registered.map::<u32>(&stream).expect("mapped");
    assert_eq!(elsewhere(&unmap), REFUSED);
    mapped.end().expect("unmapped");
    assert_eq!(elsewhere(&unregister), REFUSED);
}

#[test]
fn a_capture_of_another_stream_is_not_disturbed() {
    let (_end, context, stream) = in_child!(stage());
    let capturing = context.stream().expect("a stream");
    let graph = capturing.capture(Default::default(), |_| {
        let (_file, mut registered) = buffer(&context);
        registered.map::<u32>(&stream)?.as_mut_slice().fill(1)?;
        registered.map::<u32>(&stream)?.end()?;
        Ok::<_, Error>(())
    });
    graph.expect("a graph");
}

#[test]
fn handles_are_passed_on() {
    let (_end, context) = in_child!(leaking());
    let stream = context.stream().expect("a stream");
    let (_file, registered) = buffer(&context);
    let raw = registered.as_raw();
    assert_eq!(registered.into_raw(), raw);
    // SAFETY: the resource is a buffer of this context, and is not owned.
    let mut registered = unsafe { RegisteredBuffer::from_raw(raw, &context) }.expect("a handle");
    registered.map::<u32>(&stream).map(drop).expect("mapped");
    let (_file, image) = image(&context);
    let raw = image.into_raw();
    // SAFETY: as above.
    unsafe { RegisteredImage::from_raw(raw, 2, &context) }.expect("a handle");
    drop(registered);
    assert_eq!(alive().graphics_resources, 0);
    // SAFETY: the handle is refused.
    let refused = invalid(unsafe { RegisteredBuffer::from_raw(null_mut(), &context) });
    assert!(matches!(refused, Invalid::Handle { .. }), "{refused}");
}

#[test]
fn an_image_of_egl_is_an_array_as_long_as_it_is_registered() {
    let (_end, context, stream) = in_child!(stage());
    let file = egl_image(0x77, texels()).expect("an image");
    file.write_all_at(&[1, 2, 3, 4], 8).expect("written");
    let raw = std::ptr::without_provenance_mut(0x77);
    // SAFETY: the image exists, and the test orders its accesses.
    let registered = unsafe { EglImage::register(&context, raw, AccessHint::ReadWrite) };
    let registered = registered.expect("registered");
    let frame = registered.clone().frame().expect("a frame");
    assert_eq!((frame.width(), frame.height(), frame.pitch()), (4, 4, 0));
    assert_eq!((frame.planes(), frame.channels(), frame.is_pitched()), (1, 4, false));
    assert_eq!(frame.format(), CUarray_format::CU_AD_FORMAT_UNSIGNED_INT8);
    assert_eq!(frame.color_format(), CUeglColorFormat::CU_EGL_COLOR_FORMAT_ABGR);
    assert_eq!(frame.as_raw().depth, 0);
    // SAFETY: as above.
    let mut array = unsafe { frame.array::<[u8; 4]>(0, &stream) }.expect("an array");
    assert_eq!(array.to_vec().expect("a copy")[2], [1, 2, 3, 4]);
    // SAFETY: the frame has no such plane.
    let refused = invalid(unsafe { frame.array::<[u8; 4]>(1, &stream) });
    assert!(matches!(refused, Invalid::Handle { .. }), "{refused}");
    // SAFETY: the frame has no ranges.
    let refused = invalid(unsafe { frame.range::<u8>(0, 4, &stream) });
    assert!(matches!(refused, Invalid::Handle { .. }), "{refused}");
    array.copy_from_slice(&[[5; 4]; 16]).expect("a copy");
    assert_eq!(ends(|| drop((registered, frame))), [""; 0]);
    assert_eq!(ends(|| drop(array)), ["cuGraphicsUnregisterResource"]);
    assert_eq!(word(&file), 0x0505_0505);
}

/// The end of the use cannot wait for the work on a borrowed stream that is captured, nor be deferred.
#[test]
fn a_leaked_use_of_an_image_of_egl_keeps_the_registration() {
    let (_end, context) = in_child!(leaking());
    let owner = context.stream().expect("a stream");
    // SAFETY: the owner outlives the borrowed stream.
    let stream = unsafe { Stream::borrow_raw(owner.as_raw(), &context) }.expect("a stream");
    let _file = egl_image(0x77, texels()).expect("an image");
    let raw = std::ptr::without_provenance_mut(0x77);
    // SAFETY: the image exists, and nothing else accesses it.
    let registered = unsafe { EglImage::register(&context, raw, AccessHint::ReadWrite) };
    let registered = registered.expect("registered");
    let frame = registered.frame().expect("a frame");
    // SAFETY: as above.
    let array = unsafe { frame.array::<[u8; 4]>(0, &stream) }.expect("an array");
    let capture = stream.begin_capture(CaptureMode::Relaxed).expect("begins");
    assert_eq!(ends(|| drop((array, frame, registered))), [""; 0]);
    drop(capture);
    assert_eq!((cuda_safe::leaked(), cuda_safe::deferred_releases()), (1, 0));
    assert_eq!(alive().graphics_resources, 1);
}

#[test]
fn a_frame_that_a_capture_keeps_is_returned_before_the_consumer_disconnects() {
    let (_end, context, stream) = in_child!(stage());
    let _file = egl_image(0x77, texels()).expect("an image");
    let mut consumer = consumer(&context);
    let frame = consumer.acquire(&stream, None).expect("a frame");
    assert_eq!(frame.memory().expect("its memory").width, 4);
    let capture = stream.begin_capture(CaptureMode::Relaxed).expect("begins");
    assert_eq!(ends(|| drop(frame)), [""; 0]);
    assert_eq!(ends(|| drop(consumer)), [""; 0]);
    drop(capture);
    let both = ["cuEGLStreamConsumerReleaseFrame", "cuEGLStreamConsumerDisconnect"];
    assert_eq!(ends(attempt_deferred_releases), both);
}

/// The return of a frame cannot be deferred if its stream is borrowed.
#[test]
fn a_leaked_frame_keeps_the_connection() {
    let (_end, context) = in_child!(leaking());
    let owner = context.stream().expect("a stream");
    // SAFETY: the owner outlives the borrowed stream.
    let stream = unsafe { Stream::borrow_raw(owner.as_raw(), &context) }.expect("a stream");
    let _file = egl_image(0x77, texels()).expect("an image");
    let mut consumer = consumer(&context);
    let frame = consumer.acquire(&stream, None).expect("a frame");
    let capture = stream.begin_capture(CaptureMode::Relaxed).expect("begins");
    assert_eq!(ends(|| drop(frame)), [""; 0]);
    assert_eq!(ends(|| drop(consumer)), [""; 0]);
    drop(capture);
    assert_eq!((cuda_safe::leaked(), alive().graphics_resources), (1, 1));
}

#[test]
fn unknown_resources_are_refused() {
    let (_end, context, _stream) = in_child!(stage());
    let devices = Device::of_opengl(OpenGlDevices::All).expect_err("no context of OpenGL");
    assert_eq!(devices.code(), Some(CUresult::CUDA_ERROR_INVALID_GRAPHICS_CONTEXT));
    // SAFETY: the driver refuses the name.
    let made = unsafe { RegisteredBuffer::from_opengl(&context, 9, AccessHint::WriteDiscard) };
    made.map(drop).expect_err("no such buffer");
    // SAFETY: the handle is refused.
    let made = unsafe { EglImage::register(&context, null_mut(), AccessHint::ReadOnly) };
    assert!(matches!(invalid(made), Invalid::Handle { .. }));
    opengl_buffer(9, 16).expect("a buffer");
    assert_eq!(
        Device::of_opengl(OpenGlDevices::CurrentFrame).expect("devices"),
        [context.device()]
    );
}

#[test]
fn what_is_not_played_is_not_supported() {
    let (_end, context, _stream) = in_child!(stage());
    let code = |error: Error| error.code();
    let expected = Some(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    let stream = std::ptr::without_provenance_mut(1);
    // SAFETY: the driver refuses the stream.
    let made = unsafe { EglConsumer::connect(&context, stream, EglLocation::Device) };
    assert_eq!(made.map(drop).map_err(code), Err(expected));
    // SAFETY: as above.
    let made = unsafe { EglProducer::connect(&context, stream, 4, 4) };
    assert_eq!(made.map(drop).map_err(code), Err(expected));
    // SAFETY: the driver refuses the object.
    let made = unsafe { Event::from_egl_sync(&context, null_mut()) };
    assert_eq!(made.map(drop).map_err(code), Err(expected));
    unsafe extern "C" fn find(_: u32, _: u32, _: *mut *mut c_void) -> c_int {
        1
    }
    // SAFETY: the driver refuses the device.
    let found = unsafe { Device::of_vdpau(1, Some(find)) };
    assert_eq!(found.map(drop).map_err(code), Err(expected));
    let flags = ContextFlags::empty();
    // SAFETY: as above.
    let made = unsafe { Context::with_vdpau(&context.device(), flags, 1, Some(find)) };
    assert_eq!(made.map(drop).map_err(code), Err(expected));
    let access = AccessHint::ReadOnly;
    // SAFETY: the driver refuses the surface.
    let made = unsafe { RegisteredImage::from_vdpau_video(&context, 1, access) };
    assert_eq!(made.map(drop).map_err(code), Err(expected));
    // SAFETY: as above.
    let made = unsafe { RegisteredImage::from_vdpau_output(&context, 1, access) };
    assert_eq!(made.map(drop).map_err(code), Err(expected));
}

#[test]
fn a_use_after_the_mapping_is_a_misuse() {
    let (context, stream) = in_child!({
        start(Profile::h200());
        let context = context();
        let stream = context.stream().expect("a stream");
        (context, stream)
    });
    let (_file, mut registered) = buffer(&context);
    let mapped = registered.map::<u32>(&stream).expect("mapped");
    let address = mapped.as_raw();
    mapped.end().expect("unmapped");
    // SAFETY: the address is refused, or the work is reported.
    let code = unsafe { cuMemsetD8Async(address, 1, 16, stream.as_raw()) };
    let _ = stream.synchronize();
    assert!(code != CUresult::CUDA_SUCCESS || !cuda_sim::misuses().is_empty());
}
