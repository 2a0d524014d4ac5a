//! Kernels: functions on the host, registered by name.
//!
//! A kernel sees its arguments and the memory that they point to, checked: an access outside of an
//! allocation, or to memory that was freed or not yet allocated in the order of the streams, is an
//! illegal address, as on a GPU.
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
//! One is there without being registered: `cuda_safe_record_sm(u32 *sms, u32 cycles)`, with which
//! `cuda_safe::green::SmProbe` finds out where blocks run. Registering that name replaces it.

use crate::exec::Call;
use crate::memory::Memory;
use crate::objects::{Contents, KernelInfo};
use crate::thread;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// A registered kernel. An error is an illegal address, with these words in the report.
pub(crate) type KernelFn = Arc<dyn Fn(&mut Launch<'_>) -> Result<(), String> + Send + Sync>;

static KERNELS: RwLock<BTreeMap<String, KernelFn>> = RwLock::new(BTreeMap::new());

/// Those that others replaced: a launch may still have them. This keeps the last of each, so that
/// none is dropped under a lock of the driver's; what it owns may call the driver.
static REPLACED: Mutex<Vec<KernelFn>> = Mutex::new(Vec::new());

/// Makes `body` what runs when a kernel of that name is launched, in modules loaded before or
/// after.
///
/// It runs while the driver is locked: a call of the driver in it is refused, and a
/// [mistake](crate::mistakes). A panic in it is an illegal address, as an error is.
pub fn register(
    name: &str,
    body: impl Fn(&mut Launch<'_>) -> Result<(), String> + Send + Sync + 'static,
) {
    let replaced = KERNELS
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(name.to_owned(), Arc::new(body));
    replaced_ones().extend(replaced);
    drop_replaced();
}

fn replaced_ones() -> MutexGuard<'static, Vec<KernelFn>> {
    REPLACED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Drops what was replaced and no launch has any more.
pub(crate) fn drop_replaced() {
    // A kernel runs under the lock; the next call comes here again.
    if thread::in_kernel() {
        return;
    }
    let unused: Vec<KernelFn> = {
        let mut replaced = replaced_ones();
        let all = std::mem::take(&mut *replaced).into_iter();
        let (unused, used) = all.partition(|body| Arc::strong_count(body) == 1);
        *replaced = used;
        unused
    };
    for body in unused {
        // This may be on the way back to C, into which nothing may unwind.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(body))) {
            // It may panic once more when it is dropped.
            std::mem::forget(payload);
        }
    }
}

/// Runs a kernel. A panic is its error: it must not unwind into C.
pub(crate) fn run(body: &KernelFn, launch: &mut Launch<'_>) -> Result<(), String> {
    let done = catch_unwind(AssertUnwindSafe(|| thread::kernel(|| body(launch))));
    done.unwrap_or_else(|payload| {
        let text = payload
            .downcast::<String>()
            .map(|text| *text)
            .or_else(|other| other.downcast::<&str>().map(|text| (*text).to_owned()));
        Err(text.map_or_else(
            |other| {
                // It may panic once more when it is dropped, or call the driver, which is locked.
                std::mem::forget(other);
                "panicked".to_owned()
            },
            |text| format!("panicked: {text}"),
        ))
    })
}

/// Binary images by their bytes: the names of their kernels, and the sizes of their parameters.
static IMAGES: RwLock<Vec<(Vec<u8>, Contents)>> = RwLock::new(Vec::new());

/// Makes a cubin or fatbin loadable, which is code for a GPU: its kernels by name, each with the
/// sizes of its parameters. (What they do is for [`register`].)
///
/// # Panics
/// The image is the beginning of one that was registered before, or the other way round: nobody
/// says how long a loaded image is, so they could not be told apart. (The same one again takes the
/// place of the first.)
pub fn register_image(image: &[u8], kernels: &[(&str, &[usize])]) {
    let info = |(name, sizes): &(&str, &[usize])| {
        let mut offset = 0usize;
        let place = |size: &usize| {
            // Parameters of the sizes of numbers are aligned to them.
            let at = offset.next_multiple_of((*size).clamp(1, 16).next_power_of_two());
            offset = at + size;
            (at, *size)
        };
        let params = sizes.iter().map(place).collect();
        KernelInfo::new(name, params)
    };
    add_image(
        image,
        Contents {
            kernels: kernels.iter().filter_map(info).collect(),
            ..Contents::default()
        },
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
    assert!(!unclear, "one image is the beginning of another");
}

/// What is in a registered image whose bytes are those that `byte` gives, one after another.
pub(crate) fn find_image(mut byte: impl FnMut(usize) -> u8) -> Option<Contents> {
    let images = IMAGES.read().unwrap_or_else(PoisonError::into_inner);
    // Stops at the first other byte, so that nothing behind a shorter image is read.
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

/// The kernel of `cuda-safe`'s own: which SM each block runs on.
fn record_sm(launch: &mut Launch<'_>) -> Result<(), String> {
    let blocks = launch.blocks();
    let sms: Vec<u32> = (0..blocks).map(|block| launch.sm_of_block(block)).collect();
    launch.update::<u32>(0, blocks, |block, _| sms[block])
}

/// A number that has the same bytes on host and device.
pub trait Plain: Copy + sealed::Sealed {
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

/// One launch of a kernel, all of its blocks and threads together.
pub struct Launch<'a> {
    memory: &'a mut Memory,
    call: &'a Call,
}

impl<'a> Launch<'a> {
    pub(crate) fn new(memory: &'a mut Memory, call: &'a Call) -> Self {
        Self { memory, call }
    }

    /// Blocks along x, y, z.
    pub fn grid(&self) -> [u32; 3] {
        self.call.grid
    }

    /// Threads of a block along x, y, z.
    pub fn block(&self) -> [u32; 3] {
        self.call.block
    }

    /// Dynamic shared memory of a block, in bytes.
    pub fn shared_bytes(&self) -> u32 {
        self.call.shared
    }

    /// Blocks of a cluster along x, y, z; ones where the launch has no clusters.
    pub fn cluster(&self) -> [u32; 3] {
        self.call.cluster
    }

    /// Whether all blocks run at once, so that they can wait for each other.
    pub fn is_cooperative(&self) -> bool {
        self.call.cooperative
    }

    /// Blocks in the grid.
    pub fn blocks(&self) -> usize {
        self.call
            .grid
            .iter()
            .map(|extent| *extent as usize)
            .fold(1, usize::saturating_mul)
    }

    /// The SM that a block runs on: those that the stream may use, in turn.
    pub fn sm_of_block(&self, block: usize) -> u32 {
        self.call.sms[block % self.call.sms.len()]
    }

    /// An argument by its value.
    ///
    /// # Errors
    /// There is no such argument, or it has another size.
    pub fn value<T: Plain>(&self, argument: usize) -> Result<T, String> {
        let bytes = self.call.arguments.get(argument);
        bytes
            .and_then(|bytes| T::read(bytes))
            .ok_or_else(|| format!("argument {argument} has no {} bytes", size_of::<T>()))
    }

    /// The first `len` elements of the memory that an argument points to.
    ///
    /// # Errors
    /// The memory is not so long, not yet allocated, or freed.
    pub fn read<T: Plain>(&mut self, argument: usize, len: usize) -> Result<Vec<T>, String> {
        let bytes = self.bytes::<T>(argument, len)?;
        Ok(bytes
            .chunks_exact(size_of::<T>())
            .filter_map(T::read)
            .collect())
    }

    /// Sets the first `len` elements of the memory that an argument points to, each from its
    /// number and what it was.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn update<T: Plain>(
        &mut self,
        argument: usize,
        len: usize,
        mut f: impl FnMut(usize, T) -> T,
    ) -> Result<(), String> {
        let bytes = self.bytes::<T>(argument, len)?;
        for (index, element) in bytes.chunks_exact_mut(size_of::<T>()).enumerate() {
            if let Some(before) = T::read(element) {
                f(index, before).write(element);
            }
        }
        Ok(())
    }

    /// The first `len` elements of a variable of the kernel's module.
    ///
    /// # Errors
    /// There is no such variable, or it is not so long.
    pub fn read_variable<T: Plain>(&mut self, name: &str, len: usize) -> Result<Vec<T>, String> {
        let bytes = self.variable(name, len.saturating_mul(size_of::<T>()))?;
        Ok(bytes
            .chunks_exact(size_of::<T>())
            .filter_map(T::read)
            .collect())
    }

    /// Sets the first `len` elements of a variable of the kernel's module, each from its number and
    /// what it was.
    ///
    /// # Errors
    /// As for [`read_variable`](Self::read_variable).
    pub fn update_variable<T: Plain>(
        &mut self,
        name: &str,
        len: usize,
        mut f: impl FnMut(usize, T) -> T,
    ) -> Result<(), String> {
        let bytes = self.variable(name, len.saturating_mul(size_of::<T>()))?;
        for (index, element) in bytes.chunks_exact_mut(size_of::<T>()).enumerate() {
            if let Some(before) = T::read(element) {
                f(index, before).write(element);
            }
        }
        Ok(())
    }

    fn variable(&mut self, name: &str, size: usize) -> Result<&mut [u8], String> {
        let mut all = self.call.kernel.variables.iter();
        let found = all.find(|(its, ..)| its == name);
        let (_, address, _) = found.ok_or_else(|| format!("there is no variable \"{name}\""))?;
        self.memory.bytes(*address, size)
    }

    fn bytes<T: Plain>(&mut self, argument: usize, len: usize) -> Result<&mut [u8], String> {
        let address = self.value::<u64>(argument)?;
        if len == 0 {
            return Ok(&mut []);
        }
        // So many that their bytes cannot be counted are not there either.
        let size = len.saturating_mul(size_of::<T>());
        let Call {
            context, device, ..
        } = *self.call;
        self.memory.check_reach(address, context, device)?;
        self.memory.bytes(address, size)
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
