//! Surface objects.

use super::object::{Kind, Object};
use super::owned::{Array, ArrayMut, ArrayRef};
use super::sparse::SparseArray;
use super::texel::{Texel, check_texel};
use super::texture::of_part;
use super::texture_error;
use crate::call::{Rejected, Result, call, debug_struct};
use crate::stream::Stream;
use cuda_sys::{CUDA_RESOURCE_DESC, CUsurfObject};

/// A surface object: an array that kernels read and write. It owns the array or borrows it mutably, and is
/// an argument of kernels for a parameter of the type [`SurfaceObject`](super::SurfaceObject)
/// (`cudaSurfaceObject_t` in CUDA C++).
///
/// The array was created with the option [`surface`](super::ArrayOptions::surface). The object is bound to
/// the stream of the array, and so belongs to one context: a launch on another stream is an error.
///
/// An access outside of the surface is an error that ends the context, unless the kernel's instruction says
/// otherwise (the default boundary mode is trap). That no kernel makes one is a promise of an unsafe launch.
///
/// # Drop
/// Dropping does not block: the object is destroyed after the work on the stream, and in a later call of
/// this crate if that work is in progress. If the stream is [borrowed](Stream::borrow_raw), the drop waits.
///
/// ```no_run
/// use cuda_safe::array::{Array, ArrayOptions, ArrayShape, Surface, SurfaceObject};
/// use cuda_safe::{Context, Device, LaunchConfig, Module};
///
/// # let ptx = "";
/// let context = Context::primary(&Device::get(0)?)?;
/// let stream = context.stream()?;
/// let options = ArrayOptions {
///     surface: true,
///     ..Default::default()
/// };
/// let shape = ArrayShape::TwoD { width: 64, height: 32 };
/// let image = Array::<u32>::with(&stream, shape, options)?;
/// let mut surface = Surface::new(image)?;
/// // `ptx` has a kernel `paint(cudaSurfaceObject_t surface)`.
/// let paint = Module::from_ptx(&context, ptx)?
///     .kernel("paint")?
///     .typed::<(SurfaceObject,)>()?;
/// let config = LaunchConfig::linear(32, 64);
/// // SAFETY: `paint` accesses the 64 x 32 texels of the surface.
/// unsafe { paint.launch(&stream, config, (&mut surface,)) }?;
/// let texels = surface.into_target().to_vec()?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct Surface<S> {
    /// Declared before the array, so that it is dropped first.
    object: Object,
    target: S,
}

/// What a [`Surface`] accesses: `Array<T>`, `SparseArray<T>`, a mutable reference to one of these, or
/// [`ArrayMut<T>`](ArrayMut), such as a level of a mipmapped array. This trait is sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be written as a surface",
    note = "pass an array, a mutable reference to one, or a level of a mipmapped array: other memory has no \
            surfaces"
)]
pub trait SurfaceTarget: sealed::Target {}

mod sealed {
    use super::{ArrayRef, Texel};

    pub trait Target {
        type Texel: Texel;
        fn array(&self) -> ArrayRef<'_, Self::Texel>;
    }
}

macro_rules! targets {
    ($($target:ty: |$its:ident| $array:expr;)*) => {$(
        impl<T: Texel> sealed::Target for $target {
            type Texel = T;
            fn array(&self) -> ArrayRef<'_, T> {
                let $its = self;
                $array
            }
        }
        impl<T: Texel> SurfaceTarget for $target {}
    )*};
}

targets! {
    Array<T>: |its| its.as_ref();
    &mut Array<T>: |its| Array::as_ref(its);
    SparseArray<T>: |its| its.whole();
    &mut SparseArray<T>: |its| its.whole();
    ArrayMut<'_, T>: |its| its.as_ref();
}

impl<S: SurfaceTarget> Surface<S> {
    /// Creates a surface object of an array.
    ///
    /// Calls `cuSurfObjectCreate(&object, &resource)`.
    ///
    /// # Errors
    /// On an error, the target is dropped. [`try_new`](Self::try_new) returns it with the error.
    ///
    /// - [`Invalid::Texture`](crate::Invalid::Texture) if the array was created without the option
    ///   [`surface`](super::ArrayOptions::surface). (The driver accepts it.)
    /// - [`Invalid::Array`](crate::Invalid::Array) for a part of an array.
    /// - [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured).
    /// - `CUDA_ERROR_OUT_OF_MEMORY` if the context has too many objects.
    ///
    /// Since CUDA 5.0. Raw: [`cuSurfObjectCreate`](fn@cuda_sys::cuSurfObjectCreate),
    /// [`cuSurfObjectDestroy`](fn@cuda_sys::cuSurfObjectDestroy).
    #[doc(alias = "cuSurfObjectCreate", alias = "cuSurfObjectDestroy")]
    pub fn new(target: S) -> Result<Self> {
        Ok(Self::try_new(target)?)
    }

    /// Does the same as [`new`](Self::new), but returns the target with the error.
    ///
    /// # Errors
    /// See [`new`](Self::new).
    pub fn try_new(target: S) -> Result<Self, Rejected<S>> {
        check_texel::<S::Texel>();
        let array = target.array();
        let object = describe(&array).and_then(|resource| {
            let from = &raw const resource;
            Object::new(Kind::Surface, array.stream(), |place| {
                // SAFETY: the pointers refer to local variables. The array belongs to the current context,
                // and stays alive until the last use of the object.
                unsafe { call!(cuSurfObjectCreate(place, from)) }
            })
        });
        let (object, target) = Rejected::unless(object, target)?;
        Ok(Self { object, target })
    }
}

fn describe<T>(array: &ArrayRef<'_, T>) -> Result<CUDA_RESOURCE_DESC> {
    if !array.options().surface {
        let problem = "the array was created without ArrayOptions::surface";
        return Err(texture_error("the surface", problem));
    }
    of_part(array)
}

impl<S> Surface<S> {
    /// Returns the array.
    pub fn target(&self) -> &S {
        &self.target
    }

    /// Destroys the object after the work on the stream, and returns the array. Does not block.
    pub fn into_target(self) -> S {
        self.target
    }

    /// Returns the stream that the array is bound to.
    pub fn stream(&self) -> &Stream {
        self.object.stream()
    }

    /// Returns the raw handle: a number, which means this object only in its context. Do not destroy it.
    pub fn as_raw(&self) -> CUsurfObject {
        self.object.raw()
    }
}

debug_struct! {
    [S: std::fmt::Debug] Surface<S> |its| { raw: its.as_raw(), target: its.target, .. }
}
