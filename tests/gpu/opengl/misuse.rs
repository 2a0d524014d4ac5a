//! Wrong uses: what this crate or the driver refuses, and what the driver accepts (measured, driver 580).

use super::shared::LEVELS;
use super::{Stage, stage};
use crate::common::{child, invalid};
use crate::or_skip;
use cuda_safe::array::ArrayShape;
use cuda_safe::external::{
    AccessHint, EglImage, OpenGlDevices, RegisteredBuffer, RegisteredImage, RegisteredImageOptions,
};
use cuda_safe::{CUresult, Device, Error, Invalid, Result};
use glow::HasContext;
use std::ptr::{null_mut, without_provenance_mut};

fn code<T>(done: Result<T>) -> Option<CUresult> {
    done.map(drop).expect_err("it is refused").code()
}

fn register(stage: &Stage, name: u32) -> Result<RegisteredBuffer> {
    // SAFETY: the driver refuses the name if there is no such buffer.
    unsafe { RegisteredBuffer::from_opengl(&stage.context, name, AccessHint::ReadWrite) }
}

#[test]
fn names_of_nothing_are_refused() {
    let stage = or_skip!(stage());
    // SAFETY: the context is current.
    let empty = unsafe { stage.opengl.gl.create_buffer() }.expect("a buffer").0.get();
    for (name, expected) in [
        (0, CUresult::CUDA_ERROR_INVALID_VALUE),
        (4711, CUresult::CUDA_ERROR_INVALID_HANDLE),
        (empty, CUresult::CUDA_ERROR_INVALID_HANDLE),
    ] {
        assert_eq!(code(register(&stage, name)), Some(expected), "{name}");
    }
    let options = RegisteredImageOptions::default();
    // SAFETY: there is no such texture.
    let made =
        unsafe { RegisteredImage::from_opengl(&stage.context, 4711, glow::TEXTURE_2D, options) };
    assert_eq!(code(made), Some(CUresult::CUDA_ERROR_INVALID_HANDLE));
    for (image, expected) in
        [(null_mut(), None), (without_provenance_mut(0x1234), Some(CUresult::CUDA_ERROR_UNKNOWN))]
    {
        // SAFETY: the driver refuses the image.
        let made = unsafe { EglImage::register(&stage.context, image, AccessHint::ReadWrite) };
        assert_eq!(code(made), expected);
    }
}

#[test]
fn a_context_of_opengl_is_needed() {
    child::in_child(&[], || {
        let stage = or_skip!(stage());
        let mut registered =
            register(&stage, stage.buffer(&[1, 2, 3, 4]).0.get()).expect("registered");
        stage.opengl.leave().expect("left");
        let expected = Some(CUresult::CUDA_ERROR_INVALID_GRAPHICS_CONTEXT);
        assert_eq!(code(Device::of_opengl(OpenGlDevices::All)), expected);
        assert_eq!(code(registered.map::<i32>(&stage.stream)), expected);
        drop(registered);
        assert_eq!(cuda_safe::leaked(), 1);
        stage.opengl.enter().expect("entered");
    });
}

#[test]
fn a_forgotten_mapping_stays() {
    let stage = or_skip!(stage());
    let mut registered = register(&stage, stage.buffer(&[1, 2]).0.get()).expect("registered");
    std::mem::forget(registered.map::<i32>(&stage.stream).expect("mapped"));
    let refused = code(registered.map::<i32>(&stage.stream));
    assert_eq!(refused, Some(CUresult::CUDA_ERROR_ALREADY_MAPPED));
    assert_eq!(
        code(registered.set_access(AccessHint::ReadOnly)),
        Some(CUresult::CUDA_ERROR_ALREADY_MAPPED)
    );
}

#[test]
fn a_buffer_is_registered_and_mapped_twice() {
    let stage = or_skip!(stage());
    let name = stage.buffer(&[1, 2]).0.get();
    let mut both = [0, 1].map(|_| register(&stage, name).expect("registered"));
    let [first, second] = both.each_mut().map(|its| its.map::<i32>(&stage.stream).expect("mapped"));
    assert_ne!(first.as_raw(), second.as_raw());
    assert_eq!(first.to_vec().expect("a copy"), [1, 2]);
    assert_eq!(second.to_vec().expect("a copy"), [1, 2]);
}

#[test]
fn captures_are_not_disturbed() {
    let stage = or_skip!(stage());
    let capturing = stage.context.stream().expect("a stream");
    let name = stage.buffer(&[1, 2]).0.get();
    let graph = capturing.capture(Default::default(), |captured| {
        let mut registered = register(&stage, name)?;
        let refused = invalid(registered.map::<i32>(captured));
        assert!(matches!(refused, Invalid::StreamIsCaptured), "{refused}");
        registered.map::<i32>(&stage.stream)?.end()?;
        Ok::<_, Error>(())
    });
    graph.expect("a graph");
}

#[test]
fn a_registration_keeps_the_memory_of_a_deleted_buffer() {
    let stage = or_skip!(stage());
    let buffer = stage.buffer(&[1, 2]);
    let mut registered = register(&stage, buffer.0.get()).expect("registered");
    // SAFETY: the context is current.
    unsafe { stage.opengl.gl.delete_buffer(buffer) };
    stage.opengl.finish();
    let mapped = registered.map::<i32>(&stage.stream).expect("mapped");
    assert_eq!(mapped.to_vec().expect("a copy"), [1, 2]);
}

/// In a process of its own: calls of other tests that wait for all work would delay the end of the mapping.
#[test]
fn the_end_of_a_registration_waits_for_the_work_of_its_mappings() {
    child::in_child(&[], unregister_busy);
}

fn unregister_busy() {
    let stage = or_skip!(stage());
    let buffer = stage.buffer(&[0; 4]);
    // Work that takes longer than the calls: 500 fills of 256 MiB.
    // SAFETY: the context is current, and the buffer is bound.
    unsafe {
        stage.opengl.gl.buffer_data_size(
            glow::SHADER_STORAGE_BUFFER,
            256 << 20,
            glow::DYNAMIC_COPY,
        );
    }
    let mut registered = register(&stage, buffer.0.get()).expect("registered");
    let mut mapped = registered.map::<i32>(&stage.stream).expect("mapped");
    for number in 0..500 {
        mapped.as_mut_slice().fill(number).expect("a fill");
    }
    mapped.end().expect("enqueued");
    assert!(!stage.stream.is_complete().expect("a query"));
    drop(registered);
    assert!(stage.stream.is_complete().expect("a query"));
}

#[test]
fn levels_that_a_texture_does_not_have_are_refused() {
    let stage = or_skip!(stage());
    let texels = 100f32.to_ne_bytes().repeat(64 * 32);
    let texture = stage.texture(glow::R32F, (glow::RED, glow::FLOAT), &texels);
    let mut registered = stage.register_texture(texture, false);
    let last = LEVELS - 1;
    registered.map::<f32>(&stage.stream, 0, last).and_then(|its| its.end()).expect("mapped");
    let refused = invalid(registered.map::<f32>(&stage.stream, 0, LEVELS));
    assert!(matches!(refused, Invalid::Array { .. }), "{refused}");
    // The driver maps each level that a texture of this extent could have.
    let options = RegisteredImageOptions { levels: 7, ..RegisteredImageOptions::default() };
    let (name, target) = (texture.0.get(), glow::TEXTURE_2D);
    // SAFETY: the promise about the levels is broken on purpose. No texel is accessed.
    let more = unsafe { RegisteredImage::from_opengl(&stage.context, name, target, options) };
    let mut more = more.expect("registered");
    let small = more.map::<f32>(&stage.stream, 0, 6).expect("accepted");
    assert_eq!(small.shape(), ArrayShape::TwoD { width: 1, height: 1 });
}

#[test]
fn another_thread_has_no_context() {
    let _stage = or_skip!(stage());
    let other = std::thread::spawn(|| code(Device::of_opengl(OpenGlDevices::All)));
    let expected = Some(CUresult::CUDA_ERROR_INVALID_GRAPHICS_CONTEXT);
    assert_eq!(other.join().expect("no panic"), expected);
}
