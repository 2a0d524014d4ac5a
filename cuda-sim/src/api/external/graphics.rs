//! Resources of OpenGL and EGL, which tests make ([`crate::external`]). A resource has its memory in a file, which a
//! mapping shares. Those of VDPAU and producers of streams of EGL are refused.
//!
//! The codes were measured on an H200 with driver 580. The played context of a resource of OpenGL is current in the thread
//! that made the resource.

use crate::api::array;
use crate::api::prelude::*;
use crate::state::array::Array;
use crate::state::external::graphics::{Mapped, Name, Played, Registered};
use cuda_sys::{
    CUGLDeviceList, CUeglColorFormat, CUeglFrame, CUeglFrameType, CUgraphicsResource,
    CUmipmappedArray, EGLImageKHR, EGLSyncKHR, GLenum, GLuint, Zeroable,
};

const NOT_SUPPORTED: CUresult = CUresult::CUDA_ERROR_NOT_SUPPORTED;

/// The flags of buffers: read only or write and discard. Images also have surfaces and gathers.
const ACCESS: c_uint = 3;
const OF_IMAGES: c_uint = 15;

/// Returns whether a resource is an image of EGL, which is mapped as long as it is registered.
fn is_egl(its: &Registered) -> bool {
    matches!(its.name, Name::EglImage(_))
}

fn register(
    world: &mut World,
    name: Name,
    flags: c_uint,
    known: c_uint,
) -> Answer<CUgraphicsResource> {
    let (context, device) = world.home()?;
    world.forbidden_in_capture()?;
    fail_if(flags & !known != 0 || flags & ACCESS == ACCESS, INVALID)?;
    let unknown = match name {
        Name::OpenGlBuffer(0) | Name::OpenGlImage(0) => INVALID,
        Name::OpenGlBuffer(_) | Name::OpenGlImage(_) => CUresult::CUDA_ERROR_INVALID_HANDLE,
        Name::EglImage(_) => CUresult::CUDA_ERROR_UNKNOWN,
    };
    let played = world.objects.externals.graphics.played.get(&name).cloned().ok_or(unknown)?;
    // Without a current context of OpenGL, the names of OpenGL have no meaning.
    played.check_thread().map_err(|_| INVALID)?;
    let registered = Registered { context, device, name, played, mapped: None };
    Ok(pointer(world.add_registered(registered)))
}

pub(crate) fn register_buffer(
    world: &mut World,
    buffer: GLuint,
    flags: c_uint,
) -> Answer<CUgraphicsResource> {
    register(world, Name::OpenGlBuffer(buffer), flags, ACCESS)
}

pub(crate) fn register_image(
    world: &mut World,
    image: GLuint,
    _target: GLenum,
    flags: c_uint,
) -> Answer<CUgraphicsResource> {
    register(world, Name::OpenGlImage(image), flags, OF_IMAGES)
}

pub(crate) fn register_egl(
    world: &mut World,
    image: EGLImageKHR,
    flags: c_uint,
) -> Answer<CUgraphicsResource> {
    let resource = register(world, Name::EglImage(image.addr()), flags, ACCESS)?;
    if let Err(code) = map_one(world, resource) {
        world.remove_registered(resource.addr());
        return Err(code);
    }
    Ok(resource)
}

/// Waits for the work on the resource.
pub(crate) fn unregister(world: &mut World, resource: CUgraphicsResource) -> Answer {
    let its = world.registered(resource.addr())?;
    its.played.check_thread()?;
    fail_if(its.mapped.is_some() && !is_egl(its), CUresult::CUDA_ERROR_ALREADY_MAPPED)?;
    world.run_all()?;
    world.remove_registered(resource.addr());
    Ok(())
}

pub(crate) fn set_flags(world: &mut World, resource: CUgraphicsResource, flags: c_uint) -> Answer {
    fail_if(flags >= ACCESS, INVALID)?;
    let its = world.registered(resource.addr())?;
    fail_if(its.mapped.is_some(), CUresult::CUDA_ERROR_ALREADY_MAPPED)
}

fn map_one(world: &mut World, resource: CUgraphicsResource) -> Answer {
    let its = world.registered(resource.addr())?;
    let (context, device, played) = (its.context, its.device, its.played.clone());
    let mapped = match played.image {
        None => {
            let address = map_file(world, &played, 0, played.size, context, device)?;
            // No allocation of the program.
            world.objects.memory.add_variable(address);
            Mapped::Buffer(address)
        }
        Some((descriptor, levels)) => {
            let format = array::check(&descriptor)?;
            let mut offset = 0;
            let made = array::make_mipmapped(world, descriptor, levels, |world, descriptor| {
                let mut its = Array { context, descriptor, format, storage: 0, is_level: true };
                let size = its.size() as u64;
                its.storage = map_file(world, &played, offset, size, context, device)?;
                offset += size;
                Ok(world.add_array(its))
            });
            Mapped::Image(made?.addr())
        }
    };
    world.registered(resource.addr())?.mapped = Some(mapped);
    Ok(())
}

fn map_file(
    world: &mut World,
    played: &Played,
    offset: u64,
    size: u64,
    context: usize,
    device: usize,
) -> Answer<u64> {
    let size = usize::try_from(size).map_err(|_| INVALID)?;
    let mapped = world.objects.memory.map_file((&played.file, offset), size, context, device);
    mapped.ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
}

/// Reads the handles of resources.
fn list(resources: *mut CUgraphicsResource, count: c_uint) -> Answer<Vec<CUgraphicsResource>> {
    fail_if(count == 0 || resources.is_null(), INVALID)?;
    // SAFETY: the caller passes `count` handles.
    Ok(unsafe { std::slice::from_raw_parts(resources, count as usize) }.to_vec())
}

/// Reads the handles of resources that are mapped or unmapped on a stream, and checks all of them before one changes.
fn checked(
    world: &mut World,
    count: c_uint,
    resources: *mut CUgraphicsResource,
    stream: CUstream,
    check: impl Fn(&Registered) -> Answer,
) -> Answer<Vec<CUgraphicsResource>> {
    let list = list(resources, count)?;
    let stream = world.stream(stream.addr())?;
    world.forbidden_on_capturing(stream)?;
    world.forbidden_in_capture()?;
    for resource in &list {
        let its = world.registered(resource.addr())?;
        fail_if(is_egl(its), CUresult::CUDA_ERROR_UNKNOWN)?;
        its.played.check_thread()?;
        check(its)?;
    }
    Ok(list)
}

pub(crate) fn map(
    world: &mut World,
    count: c_uint,
    resources: *mut CUgraphicsResource,
    stream: CUstream,
) -> Answer {
    let list = checked(world, count, resources, stream, |its| {
        fail_if(its.mapped.is_some(), CUresult::CUDA_ERROR_ALREADY_MAPPED)
    })?;
    list.into_iter().try_for_each(|resource| map_one(world, resource))
}

/// Waits for the work of the stream.
pub(crate) fn unmap(
    world: &mut World,
    count: c_uint,
    resources: *mut CUgraphicsResource,
    stream: CUstream,
) -> Answer {
    let list = checked(world, count, resources, stream, |its| {
        fail_if(its.mapped.is_none(), CUresult::CUDA_ERROR_NOT_MAPPED)
    })?;
    world.wait_for(|world| {
        let stream = world.stream(stream.addr())?;
        Ok(world.last_to_wait_for(stream))
    })?;
    for resource in list {
        if let Some(mapped) = world.registered(resource.addr())?.mapped.take() {
            world.remove_mapped(mapped);
        }
    }
    Ok(())
}

fn mapped(world: &mut World, resource: CUgraphicsResource) -> Answer<Mapped> {
    let its = world.registered(resource.addr())?;
    its.mapped.ok_or(CUresult::CUDA_ERROR_NOT_MAPPED)
}

pub(crate) fn mapped_pointer(
    world: &mut World,
    address: Out<CUdeviceptr>,
    size: Out<usize>,
    resource: CUgraphicsResource,
) -> Answer {
    let Mapped::Buffer(start) = mapped(world, resource)? else {
        return Err(CUresult::CUDA_ERROR_NOT_MAPPED_AS_POINTER);
    };
    let bytes = world.registered(resource.addr())?.played.size;
    size.set(usize::try_from(bytes).map_err(|_| INVALID)?);
    address.put(start)
}

pub(crate) fn mapped_mipmapped(
    world: &mut World,
    resource: CUgraphicsResource,
) -> Answer<CUmipmappedArray> {
    match mapped(world, resource)? {
        Mapped::Image(array) => Ok(pointer(array)),
        Mapped::Buffer(_) => Err(CUresult::CUDA_ERROR_NOT_MAPPED_AS_ARRAY),
    }
}

pub(crate) fn mapped_array(
    world: &mut World,
    resource: CUgraphicsResource,
    index: c_uint,
    level: c_uint,
) -> Answer<CUarray> {
    let array = mapped_mipmapped(world, resource)?;
    fail_if(index != 0, INVALID)?;
    array::level(world, array, level)
}

/// Index and level are not checked.
pub(crate) fn mapped_egl(
    world: &mut World,
    resource: CUgraphicsResource,
    _index: c_uint,
    _level: c_uint,
) -> Answer<CUeglFrame> {
    let array = mapped_array(world, resource, 0, 0)?;
    let descriptor = world.array(array.addr())?.descriptor;
    let mut frame = CUeglFrame::zeroed();
    frame.frame.pArray = [array, pointer(0), pointer(0)];
    let number = |number| c_uint::try_from(number).map_err(|_| INVALID);
    (frame.width, frame.height) = (number(descriptor.Width)?, number(descriptor.Height)?);
    (frame.depth, frame.planeCount) = (number(descriptor.Depth)?, 1);
    frame.numChannels = descriptor.NumChannels;
    frame.frameType = CUeglFrameType::CU_EGL_FRAME_TYPE_ARRAY;
    frame.eglColorFormat = match descriptor.NumChannels {
        1 => CUeglColorFormat::CU_EGL_COLOR_FORMAT_R,
        2 => CUeglColorFormat::CU_EGL_COLOR_FORMAT_RG,
        _ => CUeglColorFormat::CU_EGL_COLOR_FORMAT_ABGR,
    };
    frame.cuFormat = descriptor.Format;
    Ok(frame)
}

/// Returns all devices if a test has made a resource of OpenGL in this thread.
pub(crate) fn opengl_devices(
    world: &mut World,
    found: Out<c_uint>,
    devices: *mut CUdevice,
    most: c_uint,
    list: CUGLDeviceList,
) -> Answer {
    fail_if(!(1..=3).contains(&list.0), INVALID)?;
    let is_here = |its: &Played| its.thread == Some(crate::thread::id());
    if !world.objects.externals.graphics.played.values().any(is_here) {
        return Err(CUresult::CUDA_ERROR_INVALID_GRAPHICS_CONTEXT);
    }
    let count = c_uint::try_from(world.settings.profile.devices).unwrap_or(c_uint::MAX);
    found.set(count);
    for ordinal in 0..count.min(most) {
        fail_if(devices.is_null(), INVALID)?;
        // SAFETY: the caller passes an array of this length.
        let place = unsafe { devices.add(ordinal as usize) };
        // SAFETY: as above.
        unsafe { place.write(ordinal as CUdevice) };
    }
    Ok(())
}

pub(crate) fn egl_sync(
    world: &mut World,
    _event: Out<CUevent>,
    _sync: EGLSyncKHR,
    _flags: c_uint,
) -> Answer {
    world.home()?;
    Err(NOT_SUPPORTED)
}

/// The connections to streams of EGL. Each frame of a stream is the image of EGL with the same number. The answers are
/// unverified (from documentation).
pub(crate) mod streams {
    use super::{NOT_SUPPORTED, register_egl, unregister};
    use crate::api::prelude::*;
    use crate::state::external::graphics::Name;
    use cuda_sys::{CUeglFrame, CUeglStreamConnection, CUgraphicsResource, EGLStreamKHR, EGLint};

    pub(crate) fn connect_consumer(
        world: &mut World,
        connection: Out<CUeglStreamConnection>,
        stream: EGLStreamKHR,
    ) -> Answer {
        world.home()?;
        fail_if(stream.is_null(), CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        let its = &mut world.objects.externals.graphics;
        let number = stream.addr();
        fail_if(!its.played.contains_key(&Name::EglImage(number)), NOT_SUPPORTED)?;
        connection.put(pointer(its.consumers.insert(number)))
    }

    pub(crate) fn connect_consumer_at(
        world: &mut World,
        connection: Out<CUeglStreamConnection>,
        stream: EGLStreamKHR,
        _flags: c_uint,
    ) -> Answer {
        connect_consumer(world, connection, stream)
    }

    pub(crate) fn connect_producer(
        world: &mut World,
        _connection: Out<CUeglStreamConnection>,
        stream: EGLStreamKHR,
        _width: EGLint,
        _height: EGLint,
    ) -> Answer {
        world.home()?;
        fail_if(stream.is_null(), CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        Err(NOT_SUPPORTED)
    }

    /// There is no connection of a producer.
    fn not_connected(world: &mut World) -> Answer {
        world.home()?;
        Err(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// Reads the handle at a pointer.
    fn at<T>(place: *mut *mut T) -> Answer<usize> {
        fail_if(place.is_null(), CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        // SAFETY: the caller passes a pointer to a handle.
        Ok(unsafe { place.read() }.addr())
    }

    pub(crate) fn disconnect_consumer(
        world: &mut World,
        connection: *mut CUeglStreamConnection,
    ) -> Answer {
        let handle = at(connection)?;
        world.consumer(handle)?;
        world.objects.externals.graphics.consumers.remove(handle);
        Ok(())
    }

    pub(crate) fn disconnect_producer(
        world: &mut World,
        _connection: *mut CUeglStreamConnection,
    ) -> Answer {
        not_connected(world)
    }

    pub(crate) fn acquire(
        world: &mut World,
        connection: *mut CUeglStreamConnection,
        resource: Out<CUgraphicsResource>,
        _stream: *mut CUstream,
        _timeout: c_uint,
    ) -> Answer {
        let image = world.consumer(at(connection)?)?;
        resource.put(register_egl(world, pointer(image), 0)?)
    }

    /// Waits for the work on the stream.
    pub(crate) fn release(
        world: &mut World,
        connection: *mut CUeglStreamConnection,
        resource: CUgraphicsResource,
        stream: *mut CUstream,
    ) -> Answer {
        world.consumer(at(connection)?)?;
        let on = world.stream(at(stream)?)?;
        world.forbidden_on_capturing(on)?;
        unregister(world, resource)
    }

    pub(crate) fn present(
        world: &mut World,
        _connection: *mut CUeglStreamConnection,
        _frame: CUeglFrame,
        _stream: *mut CUstream,
    ) -> Answer {
        not_connected(world)
    }

    pub(crate) fn returned(
        world: &mut World,
        _connection: *mut CUeglStreamConnection,
        _frame: Out<CUeglFrame>,
        _stream: *mut CUstream,
    ) -> Answer {
        not_connected(world)
    }
}

/// VDPAU.
pub(crate) mod vdpau {
    use super::NOT_SUPPORTED;
    use crate::api::prelude::*;
    use cuda_sys::{CUgraphicsResource, VdpDevice, VdpGetProcAddress};

    pub(crate) fn device(
        _world: &mut World,
        _device: Out<CUdevice>,
        _vdpau: VdpDevice,
        get_proc_address: VdpGetProcAddress,
    ) -> Answer {
        fail_if(get_proc_address.is_none(), INVALID)?;
        Err(NOT_SUPPORTED)
    }

    pub(crate) fn create(
        world: &mut World,
        _context: Out<CUcontext>,
        _flags: c_uint,
        device: CUdevice,
        _vdpau: VdpDevice,
        _get_proc_address: VdpGetProcAddress,
    ) -> Answer {
        world.device(device)?;
        Err(NOT_SUPPORTED)
    }

    pub(crate) fn register(
        world: &mut World,
        _resource: Out<CUgraphicsResource>,
        _surface: u32,
        _flags: c_uint,
    ) -> Answer {
        world.home()?;
        Err(NOT_SUPPORTED)
    }
}
