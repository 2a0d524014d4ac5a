//! Occupancy: how many blocks and clusters of a kernel fit on the device.

use crate::call::{Result, call, out};
use crate::launch::{LaunchAttributes, LaunchConfig, List};
use crate::module::{Kernel, kernel_attribute};
use crate::stream::{Stream, same_context};
use cuda_sys::{CUlaunchConfig, CUoccupancy_flags};
use std::cell::Cell;
use std::ffi::c_int;

/// The block size with the highest occupancy. Returned by [`Kernel::suggested_block`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct SuggestedBlock {
    /// The number of threads per block.
    pub threads: u32,
    /// The number of blocks that fill the device.
    pub blocks: u32,
}

/// Options for occupancy queries. The default is a kernel without dynamic shared memory.
///
/// Later versions may add fields: end each value with `..Default::default()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OccupancyOptions {
    /// The dynamic shared memory per block, in bytes.
    pub shared_bytes: usize,
    /// The maximum number of threads per block, or `None` for the limit of the kernel and the device.
    pub max_threads: Option<u32>,
    /// Whether caching of global loads stays enabled on devices where it reduces occupancy
    /// (`CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE`).
    pub keep_caching: bool,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl OccupancyOptions {
    #[inline]
    fn flags(keep_caching: bool) -> u32 {
        match keep_caching {
            false => CUoccupancy_flags::CU_OCCUPANCY_DEFAULT.0,
            true => CUoccupancy_flags::CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE.0,
        }
    }
}

impl Kernel {
    /// Returns how many blocks of `threads` threads run on one SM at the same time, or 0 if not even
    /// one fits. Calls `cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags`.
    ///
    /// [`OccupancyOptions::max_threads`] has no effect.
    ///
    /// # Errors
    /// [`Invalid::LaunchConfig`](crate::Invalid::LaunchConfig) if `threads` is zero.
    ///
    /// Since CUDA 7.0. Raw:
    /// [`cuOccupancyMaxActiveBlocksPerMultiprocessor`](fn@cuda_sys::cuOccupancyMaxActiveBlocksPerMultiprocessor),
    /// [`cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags`](fn@cuda_sys::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags).
    #[doc(alias = "cuOccupancyMaxActiveBlocksPerMultiprocessor")]
    #[doc(alias = "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags")]
    #[inline]
    pub fn max_active_blocks(&self, threads: u32, options: OccupancyOptions) -> Result<u32> {
        let OccupancyOptions { shared_bytes, max_threads: _, keep_caching, _non_exhaustive: () } =
            options;
        LaunchConfig::linear(1, threads).check()?;
        let (threads, flags) = (number(threads), OccupancyOptions::flags(keep_caching));
        let function = self.as_raw();
        let _current = self.context().enter()?;
        // SAFETY: the function is alive and belongs to the current context, and `out` passes a valid pointer.
        let blocks = out(|place| unsafe {
            call!(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
                place,
                function,
                threads,
                shared_bytes,
                flags
            ))
        })?;
        Ok(unsigned(blocks))
    }

    /// Returns the block size with the highest occupancy, and the number of such blocks that fill the
    /// device. Calls `cuOccupancyMaxPotentialBlockSizeWithFlags`.
    ///
    /// This is for a kernel whose dynamic shared memory does not depend on the block size. In a green
    /// context, fewer blocks fill the partition.
    ///
    /// # Errors
    /// Errors of the driver.
    ///
    /// Since CUDA 7.0. Raw:
    /// [`cuOccupancyMaxPotentialBlockSize`](fn@cuda_sys::cuOccupancyMaxPotentialBlockSize),
    /// [`cuOccupancyMaxPotentialBlockSizeWithFlags`](fn@cuda_sys::cuOccupancyMaxPotentialBlockSizeWithFlags).
    ///
    /// ```no_run
    /// use cuda_safe::LaunchConfig;
    ///
    /// # let context = cuda_safe::Context::primary(&cuda_safe::Device::get(0)?)?;
    /// # let kernel = cuda_safe::Module::from_ptx(&context, "")?.kernel("nothing")?;
    /// let block = kernel.suggested_block(Default::default())?.threads;
    /// let config = LaunchConfig::for_elements(1 << 20, block)?;
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[doc(alias = "cuOccupancyMaxPotentialBlockSize")]
    #[doc(alias = "cuOccupancyMaxPotentialBlockSizeWithFlags")]
    #[inline]
    pub fn suggested_block(&self, options: OccupancyOptions) -> Result<SuggestedBlock> {
        let limit = options.max_threads.unwrap_or(0);
        self.potential_block(None, limit, options)
    }

    /// Returns the block size with the highest occupancy for a kernel whose dynamic shared memory
    /// depends on the block size. See [`suggested_block`](Self::suggested_block).
    ///
    /// `shared_bytes` returns the dynamic shared memory in bytes for a number of threads. C's callback
    /// has no user data and runs inside the driver. Therefore `shared_bytes` is called before the
    /// driver call, for every multiple of 32 threads that the kernel allows and for the maximum.
    /// [`OccupancyOptions::shared_bytes`] has no effect.
    ///
    /// # Errors
    /// Errors of the driver.
    ///
    /// Since CUDA 7.0.
    pub fn suggested_block_with(
        &self,
        mut shared_bytes: impl FnMut(u32) -> usize,
        options: OccupancyOptions,
    ) -> Result<SuggestedBlock> {
        let max = self.attribute(kernel_attribute::MAX_THREADS_PER_BLOCK)?;
        let limit = options.max_threads.filter(|limit| *limit != 0);
        let limit = limit.unwrap_or(max).min(max);
        let sizes = (WARP..limit).step_by(WARP as usize).chain([limit]);
        let table: Vec<_> = sizes.map(|size| (size, shared_bytes(size))).collect();
        self.potential_block(Some(&table), limit, options)
    }

    #[inline]
    fn potential_block(
        &self,
        table: Option<&[(u32, usize)]>,
        limit: u32,
        options: OccupancyOptions,
    ) -> Result<SuggestedBlock> {
        let OccupancyOptions { shared_bytes, max_threads: _, keep_caching, _non_exhaustive: () } =
            options;
        let flags = OccupancyOptions::flags(keep_caching);
        let limit = c_int::try_from(limit).unwrap_or(c_int::MAX);
        let (mut blocks, mut threads) = (0, 0);
        let (grid, block) = (&raw mut blocks, &raw mut threads);
        let _current = self.context().enter()?;
        let guard = table.map(TableGuard::start);
        let callback =
            guard.is_some().then_some(shared_bytes_of as unsafe extern "C" fn(c_int) -> usize);
        let function = self.as_raw();
        // SAFETY: the function is alive and belongs to the current context, and the pointers refer to
        // local variables. The callback only reads the table that `guard` keeps for this thread, if
        // there is one.
        unsafe {
            call!(cuOccupancyMaxPotentialBlockSizeWithFlags(
                grid,
                block,
                function,
                callback,
                shared_bytes,
                limit,
                flags
            ))
        }?;
        drop(guard);
        Ok(SuggestedBlock { threads: unsigned(threads), blocks: unsigned(blocks) })
    }

    /// Returns the dynamic shared memory, in bytes, that is available to each of `blocks` blocks of
    /// `threads` threads on one SM. Calls `cuOccupancyAvailableDynamicSMemPerBlock`.
    ///
    /// # Errors
    /// [`Invalid::LaunchConfig`](crate::Invalid::LaunchConfig) if `blocks` or `threads` is zero;
    /// `CUDA_ERROR_INVALID_VALUE` if that many do not fit.
    ///
    /// Since CUDA 10.2. Raw:
    /// [`cuOccupancyAvailableDynamicSMemPerBlock`](fn@cuda_sys::cuOccupancyAvailableDynamicSMemPerBlock).
    #[doc(alias = "cuOccupancyAvailableDynamicSMemPerBlock")]
    #[inline]
    pub fn available_shared_bytes(&self, blocks: u32, threads: u32) -> Result<usize> {
        LaunchConfig::linear(blocks, threads).check()?;
        let (blocks, threads) = (number(blocks), number(threads));
        let function = self.as_raw();
        let _current = self.context().enter()?;
        // SAFETY: the function is alive and belongs to the current context, and `out` passes a valid pointer.
        out(|place| unsafe {
            call!(cuOccupancyAvailableDynamicSMemPerBlock(place, function, blocks, threads))
        })
    }

    /// Returns the largest cluster size, in blocks, for a launch with this configuration. Calls
    /// `cuOccupancyMaxPotentialClusterSize`.
    ///
    /// The cluster size in `attributes` has no effect. Sizes above the portable maximum require the
    /// kernel attribute
    /// [`NON_PORTABLE_CLUSTER_SIZE_ALLOWED`](kernel_attribute::NON_PORTABLE_CLUSTER_SIZE_ALLOWED).
    ///
    /// # Errors
    /// Errors of a launch with this configuration; the device does not support clusters (compute
    /// capability below 9.0).
    ///
    /// Since CUDA 11.7. Raw:
    /// [`cuOccupancyMaxPotentialClusterSize`](fn@cuda_sys::cuOccupancyMaxPotentialClusterSize).
    #[doc(alias = "cuOccupancyMaxPotentialClusterSize")]
    #[inline]
    pub fn max_cluster_size(
        &self,
        config: LaunchConfig,
        attributes: &LaunchAttributes<'_>,
    ) -> Result<u32> {
        self.potential_cluster(None, config, attributes)
    }

    /// Returns the largest cluster size, in blocks, for a launch on a stream. See
    /// [`max_cluster_size`](Self::max_cluster_size).
    ///
    /// A stream of a green context may support only smaller clusters, because the partition has fewer
    /// SMs, which may not be co-scheduled. See
    /// [`GreenContext::max_cluster_size`](crate::green::GreenContext::max_cluster_size).
    ///
    /// # Errors
    /// See [`max_cluster_size`](Self::max_cluster_size). It is also an error if the stream belongs to
    /// another context.
    ///
    /// Since CUDA 11.7.
    #[inline]
    pub fn max_cluster_size_on(
        &self,
        stream: &Stream,
        config: LaunchConfig,
        attributes: &LaunchAttributes<'_>,
    ) -> Result<u32> {
        same_context("the kernel", self.context(), stream.context())?;
        self.potential_cluster(Some(stream), config, attributes)
    }

    #[inline]
    fn potential_cluster(
        &self,
        stream: Option<&Stream>,
        config: LaunchConfig,
        attributes: &LaunchAttributes<'_>,
    ) -> Result<u32> {
        let function = self.as_raw();
        self.with_config(stream, config, attributes, |place, config| {
            // SAFETY: the function and the stream, if there is one, are alive and belong to the current
            // context. The configuration has as many attributes as it counts, and `with_config` passes
            // a valid pointer.
            unsafe { call!(cuOccupancyMaxPotentialClusterSize(place, function, config)) }
        })
    }

    /// Returns how many clusters of a launch run on the device at the same time. Calls
    /// `cuOccupancyMaxActiveClusters`.
    ///
    /// This is an estimate, because other work may occupy the device.
    ///
    /// # Errors
    /// See [`max_cluster_size`](Self::max_cluster_size). It is also an error if `attributes` has no
    /// [cluster size](LaunchAttributes::cluster) and the kernel does not require one itself.
    ///
    /// Since CUDA 11.7. Raw: [`cuOccupancyMaxActiveClusters`](fn@cuda_sys::cuOccupancyMaxActiveClusters).
    #[doc(alias = "cuOccupancyMaxActiveClusters")]
    #[inline]
    pub fn max_active_clusters(
        &self,
        config: LaunchConfig,
        attributes: &LaunchAttributes<'_>,
    ) -> Result<u32> {
        let function = self.as_raw();
        self.with_config(None, config, attributes, |place, config| {
            // SAFETY: the function is alive and belongs to the current context. The configuration has
            // as many attributes as it counts, and `with_config` passes a valid pointer.
            unsafe { call!(cuOccupancyMaxActiveClusters(place, function, config)) }
        })
    }

    /// Returns the number that a query about a launch writes through its pointer.
    fn with_config(
        &self,
        stream: Option<&Stream>,
        config: LaunchConfig,
        attributes: &LaunchAttributes<'_>,
        query: impl FnOnce(*mut c_int, *const CUlaunchConfig) -> Result<()>,
    ) -> Result<u32> {
        config.check()?;
        let mut list = List::new();
        attributes.fill(&mut list, self.context())?;
        let config = list.config(config, stream.map_or(std::ptr::null_mut(), Stream::raw));
        let _current = self.context().enter()?;
        out(|place| query(place, &raw const config)).map(unsigned)
    }
}

const WARP: u32 = 32;

/// Converts a number from the driver that is never negative.
#[inline]
fn unsigned(number: c_int) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// Converts a number of blocks or threads to the driver's type. A number above the range of the type
/// exceeds what the driver allows.
#[inline]
fn number(count: u32) -> c_int {
    c_int::try_from(count).unwrap_or(c_int::MAX)
}

/// Block sizes in ascending order, each with its dynamic shared memory in bytes.
type SharedBytesTable = [(u32, usize)];

thread_local! {
    /// The table from which the callback answers on this thread.
    static CURRENT_TABLE: Cell<Option<*const SharedBytesTable>> = const { Cell::new(None) };
}

/// Sets the table for one driver call, and restores the previous one on drop.
struct TableGuard<'a> {
    previous: Option<*const SharedBytesTable>,
    #[allow(dead_code, reason = "borrowed, not read")]
    table: &'a SharedBytesTable,
}

impl<'a> TableGuard<'a> {
    #[inline]
    fn start(table: &'a SharedBytesTable) -> Self {
        let previous = CURRENT_TABLE.try_with(|current| current.replace(Some(table)));
        let previous = previous.unwrap_or(None);
        Self { previous, table }
    }
}

impl Drop for TableGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        let _ = CURRENT_TABLE.try_with(|current| current.set(self.previous));
    }
}

/// The callback for the driver. Returns the shared memory of a block size in the table, or of the next
/// larger one.
///
/// # Safety
/// There are no conditions; `unsafe` is part of the type of C's callback.
#[inline]
unsafe extern "C" fn shared_bytes_of(threads: c_int) -> usize {
    let Some(table) = CURRENT_TABLE.try_with(Cell::get).ok().flatten() else { return 0 };
    // SAFETY: a `TableGuard` on this thread is alive, and with it the borrow of the table.
    let table = unsafe { &*table };
    let threads = unsigned(threads);
    let row = table.iter().find(|(size, _)| *size >= threads);
    row.or(table.last()).map_or(0, |(_, bytes)| *bytes)
}
