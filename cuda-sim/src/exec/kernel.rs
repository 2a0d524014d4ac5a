//! Kernels: host functions that are registered under a kernel's name.
//!
//! A kernel that is not registered runs by its PTX. A registered function takes the place of a kernel: of one that
//! has only machine code, that has instructions which do not run, or that a test wants to replace. The function
//! runs once for a launch, and computes the results of all threads.
//!
//! A function reads its arguments and the memory that they point to through checked accessors. An access
//! outside of an allocation, to freed memory, or to memory that is not yet allocated in stream order
//! fails as an illegal address, as on a GPU.
//!
//! ```
//! use cuda_sim::kernel;
//!
//! // __global__ void scale(int *x, int factor, int offset, unsigned n)
//! kernel::register("scale", |launch| {
//!     let (factor, offset) = (launch.value::<i32>(1)?, launch.value::<i32>(2)?);
//!     let n = launch.value::<u32>(3)?;
//!     launch.update::<i32>(0, n as usize, |_, x| x.wrapping_mul(factor).wrapping_add(offset))
//! });
//! ```
//!
//! One kernel is registered by default: `cuda_safe_record_sm(u32 *sms, u32 cycles)`, which
//! `cuda_safe::green::SmProbe` uses to find the SM of each block. Registering that name replaces it.

use super::Call;
use crate::account::note_unregistered;
use crate::code::{Contents, KernelInfo};
use crate::memory::{Memory, Use};
use crate::races::Access;
use crate::thread;
use cuda_ptx::texture::{self, Boundary, Coordinates, Read, Texture};
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// A registered kernel. An error is reported as an illegal address, with this text.
pub(crate) type KernelFn = Arc<dyn Fn(&mut Launch<'_>) -> Result<(), String> + Send + Sync>;

static KERNELS: RwLock<BTreeMap<String, KernelFn>> = RwLock::new(BTreeMap::new());

/// Kernels that were replaced and that a launch may still use. The last reference to each is kept here,
/// so that no kernel is dropped while a lock of the driver is held: what a kernel owns may call the
/// driver.
static REPLACED: Mutex<Vec<KernelFn>> = Mutex::new(Vec::new());

/// Registers `body` as the kernel `name`. It runs when a kernel of that name is launched from any
/// module, even one that was loaded before.
///
/// `body` runs while the driver is locked. A driver call in it fails and is a [misuse](crate::misuses).
/// A panic in it has the same effect as an error: an illegal address.
pub fn register(
    name: &str,
    body: impl Fn(&mut Launch<'_>) -> Result<(), String> + Send + Sync + 'static,
) {
    let replaced = KERNELS
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(name.to_owned(), Arc::new(body));
    if let Some(replaced) = replaced {
        replaced_ones().push(replaced);
        drop_replaced();
    }
}

fn replaced_ones() -> MutexGuard<'static, Vec<KernelFn>> {
    REPLACED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Drops replaced kernels that no launch uses any more.
pub(crate) fn drop_replaced() {
    // A kernel runs while the driver is locked. The next driver call runs this function again.
    if thread::in_kernel() {
        return;
    }
    let unused: Vec<KernelFn> = {
        let mut replaced = replaced_ones();
        if replaced.is_empty() {
            return;
        }
        let all = std::mem::take(&mut *replaced).into_iter();
        let (unused, used) = all.partition(|body| Arc::strong_count(body) == 1);
        *replaced = used;
        unused
    };
    for body in unused {
        // The caller may be about to return to C, into which a panic must not unwind.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(body))) {
            // Leaked, because dropping the payload may panic again.
            std::mem::forget(payload);
        }
    }
}

/// Runs a kernel. A panic becomes its error, because it must not unwind into C.
pub(crate) fn run(body: &KernelFn, launch: &mut Launch<'_>) -> Result<(), String> {
    let done = catch_unwind(AssertUnwindSafe(|| thread::kernel(|| body(launch))));
    done.unwrap_or_else(|payload| {
        let text = payload
            .downcast::<String>()
            .map(|text| *text)
            .or_else(|other| other.downcast::<&str>().map(|text| (*text).to_owned()));
        Err(text.map_or_else(
            |other| {
                // Leaked, because dropping the payload may panic again, or call the driver, which is
                // locked.
                std::mem::forget(other);
                "panicked".to_owned()
            },
            |text| format!("panicked: {text}"),
        ))
    })
}

/// Binary images, with the names of their kernels and the sizes of the parameters.
static IMAGES: RwLock<Vec<(Vec<u8>, Contents)>> = RwLock::new(Vec::new());

/// Makes a binary image (a cubin or a fatbin) loadable. `kernels` lists its kernels by name, each with
/// the sizes of its parameters. Register the functions of the kernels with [`register`].
///
/// # Panics
/// The image is a prefix of an image that was registered before, or has such an image as a prefix. The
/// driver is not told the length of an image that a program loads, so the two could not be
/// distinguished. Registering the same image again replaces the first registration.
pub fn register_image(image: &[u8], kernels: &[(&str, &[usize])]) {
    let info = |(name, sizes): &(&str, &[usize])| {
        let mut offset = 0usize;
        let place = |size: &usize| {
            // A parameter that has the size of a number is aligned to that size.
            let at = offset.next_multiple_of((*size).clamp(1, 16).next_power_of_two());
            offset = at + size;
            (at, *size)
        };
        let params = sizes.iter().map(place).collect();
        KernelInfo::new(name, params)
    };
    add_image(
        image,
        Contents { kernels: kernels.iter().filter_map(info).collect(), ..Contents::default() },
    );
}

/// Makes an image loadable.
pub(crate) fn add_image(image: &[u8], contents: Contents) {
    let mut images = IMAGES.write().unwrap_or_else(PoisonError::into_inner);
    let begins = |its: &[u8]| its.starts_with(image) || image.starts_with(its);
    images.retain(|(its, _)| its != image);
    let unclear = images.iter().any(|(its, _)| begins(its));
    if !unclear {
        images.push((image.to_vec(), contents));
    }
    drop(images);
    assert!(!unclear, "one registered image is a prefix of another");
}

/// Returns the contents of the registered image whose bytes `byte` returns by their index.
pub(crate) fn find_image(mut byte: impl FnMut(usize) -> u8) -> Option<Contents> {
    let images = IMAGES.read().unwrap_or_else(PoisonError::into_inner);
    // Stops at the first different byte, so that no byte after the end of a shorter image is read.
    let mut same = |image: &[u8]| image.iter().enumerate().all(|(at, its)| byte(at) == *its);
    let found = images.iter().find(|(image, _)| same(image));
    found.map(|(_, contents)| contents.clone())
}

pub(crate) fn find(name: &str) -> Option<KernelFn> {
    let kernels = KERNELS.read().unwrap_or_else(PoisonError::into_inner);
    let registered = kernels.get(name).cloned();
    registered.or_else(|| match name {
        "cuda_safe_record_sm" => Some(Arc::new(record_sm)),
        _ => None,
    })
}

/// Returns the body of a kernel that is not registered, if such kernels do nothing.
pub(crate) fn that_does_nothing() -> KernelFn {
    Arc::new(|launch| {
        note_unregistered(launch.name());
        Ok(())
    })
}

/// The kernel of `cuda-safe` that records the SM on which each block runs.
fn record_sm(launch: &mut Launch<'_>) -> Result<(), String> {
    let blocks = launch.blocks();
    let sms: Vec<u32> = (0..blocks).map(|block| launch.sm_of_block(block)).collect();
    launch.update::<u32>(0, blocks, |block, _| sms[block])
}

/// A number type with the same representation on host and device.
pub trait Plain: Copy + sealed::Sealed + 'static {
    #[doc(hidden)]
    fn read(bytes: &[u8]) -> Option<Self>;
    #[doc(hidden)]
    fn write(self, bytes: &mut [u8]);
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! plain {
    ($($ty:ty)*) => {$(
        impl sealed::Sealed for $ty {}
        impl Plain for $ty {
            fn read(bytes: &[u8]) -> Option<Self> {
                Some(Self::from_ne_bytes(bytes.try_into().ok()?))
            }
            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_ne_bytes());
            }
        }
    )*};
}

plain!(u8 i8 u16 i16 u32 i32 u64 i64 usize isize f32 f64);

/// A launch of a kernel, with all of its blocks and threads. [`register`] passes it to the kernel.
pub struct Launch<'a> {
    memory: &'a mut Memory,
    call: &'a Call,
}

impl<'a> Launch<'a> {
    pub(crate) fn new(memory: &'a mut Memory, call: &'a Call) -> Self {
        Self { memory, call }
    }

    /// Returns the name of the kernel.
    pub fn name(&self) -> &str {
        &self.call.kernel.info.name
    }

    /// Returns the number of arguments.
    pub fn arguments(&self) -> usize {
        self.call.arguments.len()
    }

    /// Returns the number of blocks along x, y and z.
    pub fn grid(&self) -> [u32; 3] {
        self.call.grid
    }

    /// Returns the number of threads in a block along x, y and z.
    pub fn block(&self) -> [u32; 3] {
        self.call.block
    }

    /// Returns the size of a block's dynamic shared memory in bytes.
    pub fn shared_bytes(&self) -> u32 {
        self.call.shared
    }

    /// Returns the number of blocks in a cluster along x, y and z; `[1, 1, 1]` for a launch without
    /// clusters.
    pub fn cluster(&self) -> [u32; 3] {
        self.call.cluster
    }

    /// Returns whether the launch is cooperative, so that all blocks run at once and can wait for each
    /// other.
    pub fn is_cooperative(&self) -> bool {
        self.call.cooperative
    }

    /// Returns the total number of blocks in the grid.
    pub fn blocks(&self) -> usize {
        self.call.grid.iter().map(|extent| *extent as usize).fold(1, usize::saturating_mul)
    }

    /// Returns the SM on which a block runs. Blocks are assigned in turn to the SMs that the stream may
    /// use.
    pub fn sm_of_block(&self, block: usize) -> u32 {
        self.call.sms[block % self.call.sms.len()]
    }

    /// Returns the value of an argument.
    ///
    /// # Errors
    /// There is no such argument, or it has another size than `T`.
    pub fn value<T: Plain>(&self, argument: usize) -> Result<T, String> {
        let bytes = self.call.arguments.get(argument);
        bytes
            .and_then(|bytes| T::read(bytes))
            .ok_or_else(|| format!("argument {argument} has no {} bytes", size_of::<T>()))
    }

    /// Returns the bytes of an argument, for parameters that are structs.
    ///
    /// # Errors
    /// There is no such argument.
    pub fn value_bytes(&self, argument: usize) -> Result<&[u8], String> {
        let bytes = self.call.arguments.get(argument);
        bytes.map(Vec::as_slice).ok_or_else(|| format!("there is no argument {argument}"))
    }

    /// Returns the first `len` elements of the memory that an argument points to.
    ///
    /// # Errors
    /// The memory is shorter, not yet allocated, or freed.
    pub fn read<T: Plain>(&mut self, argument: usize, len: usize) -> Result<Vec<T>, String> {
        let address = self.value::<u64>(argument)?;
        self.read_at(address, len)
    }

    /// Updates the first `len` elements of the memory that an argument points to. `f` gets the index and
    /// the value of an element and returns the new value.
    ///
    /// # Errors
    /// See [`read`](Self::read).
    pub fn update<T: Plain>(
        &mut self,
        argument: usize,
        len: usize,
        f: impl FnMut(usize, T) -> T,
    ) -> Result<(), String> {
        let address = self.value::<u64>(argument)?;
        self.update_at(address, len, f)
    }

    /// Returns `len` elements at an address, which may come from a struct that is an argument, or from
    /// memory.
    ///
    /// # Errors
    /// See [`read`](Self::read).
    pub fn read_at<T: Plain>(&mut self, address: u64, len: usize) -> Result<Vec<T>, String> {
        let bytes = self.bytes_at::<T>(address, len, Use::Read)?;
        Ok(bytes.chunks_exact(size_of::<T>()).filter_map(T::read).collect())
    }

    /// Updates `len` elements at an address. See [`update`](Self::update).
    ///
    /// # Errors
    /// See [`read`](Self::read).
    pub fn update_at<T: Plain>(
        &mut self,
        address: u64,
        len: usize,
        mut f: impl FnMut(usize, T) -> T,
    ) -> Result<(), String> {
        let bytes = self.bytes_at::<T>(address, len, Use::Write)?;
        for (index, element) in bytes.chunks_exact_mut(size_of::<T>()).enumerate() {
            if let Some(before) = T::read(element) {
                f(index, before).write(element);
            }
        }
        Ok(())
    }

    /// Updates elements as [`update`](Self::update) does. The [detection of races](mod@crate::races) takes
    /// the updates for atomic operations: kernels that run at the same time may make them.
    ///
    /// # Errors
    /// See [`read`](Self::read).
    pub fn update_atomically<T: Plain>(
        &mut self,
        argument: usize,
        len: usize,
        f: impl FnMut(usize, T) -> T,
    ) -> Result<(), String> {
        let mode = |memory: &mut Memory, its| {
            if let Some(log) = &mut memory.accesses {
                log.mode = its;
            }
        };
        mode(self.memory, Some(Access::Atomic));
        let done = self.update(argument, len, f);
        mode(self.memory, None);
        done
    }

    /// Returns the address of a variable of the kernel's module, and its size in bytes, or `None` if there
    /// is no such variable.
    pub fn variable_range(&self, name: &str) -> Option<(u64, usize)> {
        self.call.kernel.variables.as_ref()?.find(name, false)
    }

    /// Returns the first `len` elements of a variable of the kernel's module.
    ///
    /// # Errors
    /// There is no such variable, or it is shorter.
    pub fn read_variable<T: Plain>(&mut self, name: &str, len: usize) -> Result<Vec<T>, String> {
        let bytes = self.variable(name, len.saturating_mul(size_of::<T>()), Use::Read)?;
        Ok(bytes.chunks_exact(size_of::<T>()).filter_map(T::read).collect())
    }

    /// Updates the first `len` elements of a variable of the kernel's module. `f` gets the index and the
    /// value of an element and returns the new value.
    ///
    /// # Errors
    /// See [`read_variable`](Self::read_variable).
    pub fn update_variable<T: Plain>(
        &mut self,
        name: &str,
        len: usize,
        mut f: impl FnMut(usize, T) -> T,
    ) -> Result<(), String> {
        let bytes = self.variable(name, len.saturating_mul(size_of::<T>()), Use::Write)?;
        for (index, element) in bytes.chunks_exact_mut(size_of::<T>()).enumerate() {
            if let Some(before) = T::read(element) {
                f(index, before).write(element);
            }
        }
        Ok(())
    }

    /// Sets the value of a conditional handle, as `cudaGraphSetConditional` does on a device. A kernel of
    /// the handle's graph gets the handle as an argument.
    ///
    /// # Errors
    /// The kernel was not launched by the graph of the handle. A GPU reports an illegal address.
    pub fn set_conditional(&mut self, handle: u64, value: u32) -> Result<(), String> {
        let executable = self.call.executable;
        self.memory.set_conditional(handle, value, executable)
    }

    /// Launches an executable graph, as `cudaGraphLaunch` does on a device in a fire-and-forget stream.
    /// The graph was instantiated for launches from the device and uploaded, and its handle is an
    /// argument of the kernel. The launch of the kernel's own graph is complete when the launched graph
    /// is. Unverified (from documentation).
    ///
    /// # Errors
    /// The kernel is not part of a graph, or the graph cannot be launched from a device.
    pub fn launch_graph(&mut self, executable: u64) -> Result<(), String> {
        self.memory.launch_graph(self.call.executable, executable)
    }

    /// Reads a texture object at coordinates, with the object's filter and address modes. Coordinates that
    /// the texture does not have are ignored. The weights of a linear filter have 8 bits, as on a GPU.
    /// A mipmapped texture is read at its first level. Returns the channels; those that the format lacks
    /// are zero.
    ///
    /// # Errors
    /// The argument is no texture object of the kernel's context, or its memory was freed.
    pub fn sample(&mut self, argument: usize, at: [f32; 3]) -> Result<[f64; 4], String> {
        let texture = self.texture(argument)?;
        let texels = &texture.texels;
        let extent = texels.levels.first().map_or([0; 3], |level| level.extent);
        let is_cubemap = texels.is_cubemap;
        let axes = match extent {
            _ if is_cubemap => 3,
            [_, 0, 0] => 1,
            [_, _, 0] => 2,
            _ => 3,
        };
        // The layer of a cubemap has no coordinate here.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
        let layer = at.get(if extent[1] == 0 { 1 } else { 2 }).map(|at| at.round() as u32);
        let layer = layer.filter(|_| texels.layers > 0 && !is_cubemap);
        let read = Read::new(axes, Coordinates::Number(at));
        self.read_texture(&texture, &Read { is_cubemap, layer, ..read })
    }

    /// Reads a texel of a texture object of linear memory by its index, as `tex1Dfetch` does. Outside of
    /// the object the result is zero.
    ///
    /// # Errors
    /// See [`sample`](Self::sample).
    pub fn fetch(&mut self, argument: usize, at: i32) -> Result<[f64; 4], String> {
        let texture = self.texture(argument)?;
        self.read_texture(&texture, &Read::new(1, Coordinates::Index([at, 0, 0])))
    }

    fn texture(&self, argument: usize) -> Result<Arc<Texture>, String> {
        let object = self.value::<u64>(argument)?;
        self.memory.texture(self.call.context, object)
    }

    fn read_texture(&mut self, texture: &Texture, read: &Read) -> Result<[f64; 4], String> {
        let memory = &mut *self.memory;
        let channels = texture.read(read, &mut |address, len| memory.texel(address, len))?;
        Ok(channels.map(|bits| match texture.texels.format.number {
            texture::Number::Unsigned => f64::from(bits),
            texture::Number::Signed => f64::from(bits as i32),
            _ => f64::from(f32::from_bits(bits)),
        }))
    }

    /// Reads a value from a surface object. As in CUDA C++, the first coordinate is in bytes.
    ///
    /// # Errors
    /// The argument is no surface object of the kernel's context, its memory was freed, or the coordinates
    /// are outside of it.
    pub fn read_surface<T: Plain>(&mut self, argument: usize, at: [usize; 3]) -> Result<T, String> {
        let address = self.surface_address(argument, at, size_of::<T>())?;
        let bytes = self.memory.bytes_for(address, size_of::<T>(), Use::Read)?;
        T::read(bytes).ok_or_else(|| "no such value".to_owned())
    }

    /// Writes a value to a surface object. See [`read_surface`](Self::read_surface).
    ///
    /// # Errors
    /// See [`read_surface`](Self::read_surface).
    pub fn write_surface<T: Plain>(
        &mut self,
        argument: usize,
        at: [usize; 3],
        value: T,
    ) -> Result<(), String> {
        let address = self.surface_address(argument, at, size_of::<T>())?;
        value.write(self.memory.bytes_for(address, size_of::<T>(), Use::Write)?);
        Ok(())
    }

    fn surface_address(&self, argument: usize, at: [usize; 3], size: usize) -> Result<u64, String> {
        let object = self.value::<u64>(argument)?;
        let texels = self.memory.surface(self.call.context, object)?;
        let at = at.map(|at| i32::try_from(at).unwrap_or(i32::MAX));
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        let place = texels.place(at, size, Boundary::Trap)?;
        place.ok_or_else(|| "no such place".to_owned())
    }

    /// Updates the first `len` elements of the multicast mapping that an argument points to, as the
    /// `multimem` instructions do. `f` gets the index of an element and its value on each device, and
    /// returns the value that is stored on all of them.
    ///
    /// # Errors
    /// The memory is not a mapping of a multicast object that the device may access, or not bound on every device of it.
    pub fn update_multicast<T: Plain>(
        &mut self,
        argument: usize,
        len: usize,
        mut f: impl FnMut(usize, &[T]) -> T,
    ) -> Result<(), String> {
        let start = self.value::<u64>(argument)?;
        let size = size_of::<T>();
        for index in 0..len {
            let address = start + (index * size) as u64;
            let found = self.memory.read_multicast((address, size), self.call.device)?;
            let values: Vec<T> = found.iter().filter_map(|its| T::read(its)).collect();
            let mut written = vec![0; size];
            f(index, &values).write(&mut written);
            self.memory.write_multicast(address, &written, self.call.device)?;
        }
        Ok(())
    }

    fn variable(&mut self, name: &str, size: usize, wanted: Use) -> Result<&mut [u8], String> {
        let found = self.variable_range(name);
        let (address, _) = found.ok_or_else(|| format!("there is no variable \"{name}\""))?;
        self.memory.bytes_for(address, size, wanted)
    }

    fn bytes_at<T: Plain>(
        &mut self,
        address: u64,
        len: usize,
        wanted: Use,
    ) -> Result<&mut [u8], String> {
        if len == 0 {
            return Ok(&mut []);
        }
        // If the number of bytes overflows, the memory is not that long either.
        let size = len.saturating_mul(size_of::<T>());
        let Call { context, device, .. } = *self.call;
        let range = (address, size);
        self.memory.check_reach(range, context, device, wanted)?;
        self.memory.bytes_for(address, size, wanted)
    }
}

impl fmt::Debug for Launch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launch")
            .field("kernel", &self.call.kernel.info.name)
            .field("grid", &self.call.grid)
            .field("block", &self.call.block)
            .finish_non_exhaustive()
    }
}
