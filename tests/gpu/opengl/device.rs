//! A context of OpenGL without a display, on the device of CUDA.

use glow::HasContext;
use khronos_egl as egl;
use std::ffi::c_void;
use std::num::NonZeroU32;

type Egl = egl::DynamicInstance<egl::EGL1_5>;
pub(super) type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

const PLATFORM_DEVICE: egl::Enum = 0x313F;
const CUDA_DEVICE: i32 = 0x323A;
const GL_TEXTURE_2D: egl::Enum = 0x30B1;

/// A context that is current in the thread that created it.
pub(super) struct OpenGl {
    pub(super) gl: glow::Context,
    egl: Egl,
    display: egl::Display,
    context: egl::Context,
}

impl OpenGl {
    /// Creates a context on the device with this ordinal of CUDA, and makes it current.
    pub(super) fn open(ordinal: u32) -> Result<Self> {
        // SAFETY: the library is that of EGL.
        let egl = unsafe { Egl::load_required() }?;
        let device = device(&egl, ordinal)?;
        let none = [egl::ATTRIB_NONE];
        // SAFETY: the device is one of EGL, and the list ends with `NONE`.
        let display = unsafe { egl.get_platform_display(PLATFORM_DEVICE, device, &none) }?;
        egl.initialize(display)?;
        egl.bind_api(egl::OPENGL_API)?;
        let kind =
            [egl::RENDERABLE_TYPE, egl::OPENGL_BIT, egl::SURFACE_TYPE, egl::PBUFFER_BIT, egl::NONE];
        let config = egl.choose_first_config(display, &kind)?.ok_or("no configuration")?;
        let version = [egl::CONTEXT_MAJOR_VERSION, 4, egl::CONTEXT_MINOR_VERSION, 5, egl::NONE];
        let context = egl.create_context(display, config, None, &version)?;
        egl.make_current(display, None, None, Some(context))?;
        let find = |name: &str| match egl.get_proc_address(name) {
            Some(function) => function as *const c_void,
            None => std::ptr::null(),
        };
        // SAFETY: the functions are those of the current context.
        let gl = unsafe { glow::Context::from_loader_function(find) };
        Ok(Self { gl, egl, display, context })
    }

    /// Ends that the context is current in this thread.
    pub(super) fn leave(&self) -> Result<()> {
        Ok(self.egl.make_current(self.display, None, None, None)?)
    }

    /// Makes the context current in this thread.
    pub(super) fn enter(&self) -> Result<()> {
        Ok(self.egl.make_current(self.display, None, None, Some(self.context))?)
    }

    /// Creates an image of EGL that shares the first level of a texture.
    pub(super) fn image(&self, texture: NonZeroU32) -> Result<*mut c_void> {
        // SAFETY: a name of a texture is passed as a pointer.
        let buffer = unsafe {
            egl::ClientBuffer::from_ptr(std::ptr::without_provenance_mut(texture.get() as usize))
        };
        let none = [egl::ATTRIB_NONE];
        let image =
            self.egl.create_image(self.display, self.context, GL_TEXTURE_2D, buffer, &none)?;
        Ok(image.as_ptr())
    }

    /// Makes the bound texture share an image of EGL.
    pub(super) fn target(&self, image: *mut c_void) {
        type Target = unsafe extern "system" fn(u32, *mut c_void);
        let function = self.egl.get_proc_address("glEGLImageTargetTexture2DOES").expect("there");
        // SAFETY: the function has this type.
        let function: Target = unsafe { std::mem::transmute(function) };
        // SAFETY: the context is current, and the image exists.
        unsafe { function(0x0DE1, image) };
    }

    /// Waits for all commands.
    pub(super) fn finish(&self) {
        // SAFETY: the context is current.
        unsafe { self.gl.finish() };
    }
}

/// Returns the device of EGL that is the device of CUDA.
fn device(egl: &Egl, ordinal: u32) -> Result<*mut c_void> {
    type Query = unsafe extern "system" fn(i32, *mut *mut c_void, *mut i32) -> u32;
    type Attribute = unsafe extern "system" fn(*mut c_void, i32, *mut isize) -> u32;
    let query = egl.get_proc_address("eglQueryDevicesEXT").ok_or("no eglQueryDevicesEXT")?;
    // SAFETY: the function has this type.
    let query: Query = unsafe { std::mem::transmute(query) };
    let attribute = egl.get_proc_address("eglQueryDeviceAttribEXT");
    let attribute = attribute.ok_or("no eglQueryDeviceAttribEXT")?;
    // SAFETY: the function has this type.
    let attribute: Attribute = unsafe { std::mem::transmute(attribute) };
    let (mut devices, mut count) = ([std::ptr::null_mut(); 32], 0);
    // SAFETY: the pointers refer to variables, and the array has this many elements.
    unsafe { query(32, devices.as_mut_ptr(), &raw mut count) };
    let found = devices.into_iter().take(count as usize).find(|device| {
        let mut its = -1;
        // SAFETY: the device is one of EGL, and the pointer refers to a variable.
        let known = unsafe { attribute(*device, CUDA_DEVICE, &raw mut its) };
        known == 1 && its == ordinal as isize
    });
    Ok(found.ok_or_else(|| format!("EGL has {count} devices, none of which is that of CUDA"))?)
}
