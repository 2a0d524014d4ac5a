//! Registered resources of OpenGL, EGL and VDPAU.

use crate::arguments::{Row, Stage, value};
use crate::prelude::*;
use cuda_safe::external::{
    AccessHint, EglConsumer, EglImage, EglLocation, EglProducer, OpenGlDevices, RegisteredBuffer,
    RegisteredImage, RegisteredImageOptions,
};
use cuda_sim::external::{egl_image, opengl_buffer, opengl_texture};

const GL_TEXTURE_2D: u32 = 0x0DE1;
const BUFFER: u32 = 11;
const TEXTURE: u32 = 12;
const IMAGE: usize = 0x13;

fn texels() -> CUDA_ARRAY3D_DESCRIPTOR {
    let mut texels = CUDA_ARRAY3D_DESCRIPTOR::zeroed();
    (texels.Width, texels.Height, texels.NumChannels) = (4, 4, 1);
    texels.Format = CUarray_format::CU_AD_FORMAT_FLOAT;
    texels
}

fn buffer(s: &Stage, access: AccessHint) -> Result<RegisteredBuffer> {
    opengl_buffer(BUFFER, 256).expect("a buffer");
    // SAFETY: the buffer exists.
    unsafe { RegisteredBuffer::from_opengl(&s.context, BUFFER, access) }
}

fn image(s: &Stage, options: RegisteredImageOptions) -> Result<RegisteredImage> {
    opengl_texture(TEXTURE, texels(), 2).expect("a texture");
    // SAFETY: the texture exists.
    unsafe { RegisteredImage::from_opengl(&s.context, TEXTURE, GL_TEXTURE_2D, options) }
}

/// Maps a buffer. Returns the resource.
fn mapped(s: &Stage) -> Result<CUgraphicsResource> {
    let mut buffer = buffer(s, AccessHint::ReadWrite)?;
    buffer.map::<u32>(&s.stream)?.end()?;
    Ok(buffer.as_raw())
}

/// Maps a level. Returns the resource.
fn level(s: &Stage) -> Result<CUgraphicsResource> {
    let options = RegisteredImageOptions { levels: 2, ..RegisteredImageOptions::default() };
    let mut image = image(s, options)?;
    image.map::<f32>(&s.stream, 0, 1)?.end()?;
    image.map_levels::<f32>(&s.stream)?.end()?;
    Ok(image.as_raw())
}

fn opengl() -> Vec<Row> {
    const OF_BUFFER: &str = "cuGraphicsGLRegisterBuffer";
    const OF_IMAGE: &str = "cuGraphicsGLRegisterImage";
    const HINT: &str = "cuGraphicsResourceSetMapFlags_v2";
    let plain = RegisteredImageOptions::default();
    let discard = RegisteredImageOptions { access: AccessHint::WriteDiscard, ..plain };
    let read = RegisteredImageOptions { access: AccessHint::ReadOnly, ..plain };
    let surface = RegisteredImageOptions { surface: true, ..plain };
    let gather = RegisteredImageOptions { texture_gather: true, ..plain };
    let flag = |name: &str, options, raw: u32| {
        let name = format!("CUgraphicsRegisterFlags::CU_GRAPHICS_REGISTER_FLAGS_{name}");
        let act = move |s: &Stage| image(s, options).map(drop);
        Row::new(&name, act, OF_IMAGE, value("flags"), raw)
    };
    let hint = |name: &str, access, raw: u32| {
        let name = format!("CUgraphicsMapResourceFlags::CU_GRAPHICS_MAP_RESOURCE_FLAGS_{name}");
        let act = move |s: &Stage| buffer(s, AccessHint::ReadWrite)?.set_access(access);
        Row::new(&name, act, HINT, value("flags"), raw)
    };
    let devices = |name: &str, list, raw: u32| {
        let name = format!("CUGLDeviceList::CU_GL_DEVICE_LIST_{name}");
        let act = move |s: &Stage| {
            buffer(s, AccessHint::ReadWrite)?;
            Device::of_opengl(list).map(drop)
        };
        Row::new(&name, act, "cuGLGetDevices_v2", value("list"), CUGLDeviceList(raw))
    };
    let told = |name, function, act: fn(&Stage) -> Result<CUgraphicsResource>| {
        Row::of(name, act).calls(function).with_told(value("resource"))
    };
    vec![
        Row::new(
            OF_BUFFER,
            |s| buffer(s, AccessHint::ReadOnly).map(drop),
            OF_BUFFER,
            value("buffer"),
            BUFFER,
        ),
        Row::new(OF_IMAGE, move |s| image(s, plain).map(drop), OF_IMAGE, value("image"), TEXTURE),
        flag("NONE", plain, 0),
        flag("READ_ONLY", read, 1),
        flag("WRITE_DISCARD", discard, 2),
        flag("SURFACE_LDST", surface, 4),
        flag("TEXTURE_GATHER", gather, 8),
        hint("NONE", AccessHint::ReadWrite, 0),
        hint("READ_ONLY", AccessHint::ReadOnly, 1),
        hint("WRITE_DISCARD", AccessHint::WriteDiscard, 2),
        Row::call(HINT, |s| buffer(s, AccessHint::ReadOnly)?.set_access(AccessHint::ReadOnly))
            .named("cuGraphicsResourceSetMapFlags"),
        devices("ALL", OpenGlDevices::All, 1),
        devices("CURRENT_FRAME", OpenGlDevices::CurrentFrame, 2),
        devices("NEXT_FRAME", OpenGlDevices::NextFrame, 3),
        Row::of("cuGraphicsMapResources", mapped)
            .calls("cuGraphicsMapResources")
            .with_told(value("resources")),
        Row::of("cuGraphicsUnmapResources", mapped)
            .calls("cuGraphicsUnmapResources")
            .with_told(value("resources")),
        told("cuGraphicsResourceGetMappedPointer", "cuGraphicsResourceGetMappedPointer_v2", mapped),
        told("cuGraphicsUnregisterResource", "cuGraphicsUnregisterResource", mapped),
        Row::new(
            "cuGraphicsSubResourceGetMappedArray",
            |s| level(s).map(drop),
            "cuGraphicsSubResourceGetMappedArray",
            value("level"),
            1_u32,
        ),
        told(
            "cuGraphicsResourceGetMappedMipmappedArray",
            "cuGraphicsResourceGetMappedMipmappedArray",
            level,
        ),
    ]
}

fn of_egl(s: &Stage) -> Result<CUgraphicsResource> {
    egl_image(IMAGE, texels()).expect("an image");
    let raw = std::ptr::without_provenance_mut(IMAGE);
    // SAFETY: the image exists.
    let image = unsafe { EglImage::register(&s.context, raw, AccessHint::ReadOnly) }?;
    image.frame()?;
    Ok(image.as_raw())
}

/// Acquires a frame and returns it.
fn frame(s: &Stage) -> Result<()> {
    egl_image(IMAGE, texels()).expect("an image");
    let stream = std::ptr::without_provenance_mut(IMAGE);
    // SAFETY: the stream exists, and has no other consumer.
    let mut consumer = unsafe { EglConsumer::connect(&s.context, stream, EglLocation::Device) }?;
    consumer.acquire(&s.stream, None).map(drop)
}

/// Images and streams of EGL. The software driver has no producers.
fn egl() -> Vec<Row> {
    const CONNECT: &str = "cuEGLStreamConsumerConnectWithFlags";
    let consumer = |name: &str, location: EglLocation, raw: u32| {
        let act = move |s: &Stage| {
            let stream = std::ptr::without_provenance_mut(1);
            // SAFETY: the driver refuses the stream.
            unsafe { EglConsumer::connect(&s.context, stream, location) }.map(drop)
        };
        Row::new(name, act, CONNECT, value("flags"), raw).refused()
    };
    let location =
        |name: &str| format!("CUeglResourceLocationFlags::CU_EGL_RESOURCE_LOCATION_{name}");
    let register = "cuGraphicsEGLRegisterImage";
    vec![
        Row::new(register, |s| of_egl(s).map(drop), register, value("flags"), 1_u32),
        Row::of("cuGraphicsResourceGetMappedEglFrame", of_egl)
            .calls("cuGraphicsResourceGetMappedEglFrame")
            .with_told(value("resource")),
        consumer(&location("SYSMEM"), EglLocation::System, 0),
        consumer(&location("VIDMEM"), EglLocation::Device, 1),
        consumer(CONNECT, EglLocation::Device, 1),
        Row::call("cuEGLStreamConsumerAcquireFrame", frame),
        Row::call("cuEGLStreamConsumerReleaseFrame", frame),
        Row::call("cuEGLStreamConsumerDisconnect", frame),
        Row::call("cuEGLStreamProducerConnect", |s| {
            let stream = std::ptr::without_provenance_mut(1);
            // SAFETY: the driver refuses the stream.
            unsafe { EglProducer::connect(&s.context, stream, 64, 64) }
        })
        .refused(),
        Row::call("cuEventCreateFromEGLSync", |s| {
            // SAFETY: the driver refuses the object.
            unsafe { Event::from_egl_sync(&s.context, null_mut()) }
        })
        .refused(),
    ]
}

/// VDPAU, which the software driver does not have.
fn vdpau() -> Vec<Row> {
    let access = AccessHint::ReadOnly;
    vec![
        Row::call("cuVDPAUGetDevice", |_| {
            // SAFETY: the driver refuses the device.
            unsafe { Device::of_vdpau(1, None) }
        })
        .refused(),
        Row::call("cuVDPAUCtxCreate_v2", |s| {
            // SAFETY: as above.
            unsafe { Context::with_vdpau(&s.device, ContextFlags::SCHED_YIELD, 1, None) }
        })
        .refused(),
        Row::call("cuGraphicsVDPAURegisterVideoSurface", move |s| {
            // SAFETY: the driver refuses the surface.
            unsafe { RegisteredImage::from_vdpau_video(&s.context, 1, access) }
        })
        .refused(),
        Row::call("cuGraphicsVDPAURegisterOutputSurface", move |s| {
            // SAFETY: as above.
            unsafe { RegisteredImage::from_vdpau_output(&s.context, 1, access) }
        })
        .refused(),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = opengl();
    rows.extend(egl());
    rows.extend(vdpau());
    rows
}
