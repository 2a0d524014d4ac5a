//! How many blocks and clusters of a kernel the device has room for.

use super::{Kernel, kernel_attribute};
use crate::call::call;
use crate::error::{Error, Result};
use crate::invalid::Invalid;
use crate::launch::{LaunchAttributes, LaunchConfig, List};
use crate::stream::{Stream, same_context};
use cuda_sys::{CUlaunchConfig, CUoccupancy_flags};
use std::cell::Cell;
use std::ffi::c_int;

/// The block for which most threads are at work, of [`Kernel::suggested_block`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct SuggestedBlock {
    /// Threads of a block.
    pub threads: u32,
    /// Blocks that fill the device.
    pub blocks: u32,
}

/// A question about occupancy. The default is for a kernel without dynamic shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OccupancyOptions {
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: usize,
    /// Threads of a block, at most; none: what the kernel and the device allow.
    pub max_threads: Option<u32>,
    /// `CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE`: on devices where caching of global loads costs
    /// occupancy, do not count on its being switched off.
    pub keep_caching: bool,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl OccupancyOptions {
    fn flags(keep_caching: bool) -> u32 {
        match keep_caching {
            false => CUoccupancy_flags::CU_OCCUPANCY_DEFAULT.0,
            true => CUoccupancy_flags::CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE.0,
        }
    }
}

impl Kernel {
    /// `cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags`: how many blocks of `threads`
    /// threads one multiprocessor runs at a time; 0 where not even one fits.
    /// ([`OccupancyOptions::max_threads`] plays no part.)
    ///
    /// # Errors
    /// [`Invalid::LaunchConfig`] for a block without threads.
    ///
    /// Since CUDA 7.0. Raw:
    /// [`cuOccupancyMaxActiveBlocksPerMultiprocessor`](fn@cuda_sys::cuOccupancyMaxActiveBlocksPerMultiprocessor),
    /// [`cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags`](fn@cuda_sys::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags).
    #[doc(alias = "cuOccupancyMaxActiveBlocksPerMultiprocessor")]
    #[doc(alias = "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags")]
    pub fn max_active_blocks(&self, threads: u32, options: OccupancyOptions) -> Result<u32> {
        let OccupancyOptions {
            shared_bytes,
            max_threads: _,
            keep_caching,
            _non_exhaustive: (),
        } = options;
        let (threads, flags) = (count(threads)?, OccupancyOptions::flags(keep_caching));
        let mut blocks = 0;
        let (place, function) = (&raw mut blocks, self.as_raw());
        let _current = self.context().enter()?;
        // SAFETY: the function is alive and of the current context; the pointer is to a local.
        unsafe {
            call!(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
                place,
                function,
                threads,
                shared_bytes,
                flags
            ))
        }?;
        Ok(unsigned(blocks))
    }

    /// `cuOccupancyMaxPotentialBlockSizeWithFlags`: the block with which most threads are at work
    /// at a time, for a kernel whose blocks have the same dynamic shared memory whatever their
    /// size; and how many such blocks fill the device. (In a green context fewer do.)
    ///
    /// # Errors
    /// Those of the driver.
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
    pub fn suggested_block(&self, options: OccupancyOptions) -> Result<SuggestedBlock> {
        let limit = options.max_threads.unwrap_or(0);
        self.potential_block(None, limit, options)
    }

    /// As [`suggested_block`](Self::suggested_block), for a kernel whose dynamic shared memory
    /// depends on the size of the block: `shared_bytes(threads)` bytes.
    ///
    /// C's callback has no data of its own, and runs inside of the driver. So the function is asked
    /// before, outside: for every multiple of 32 threads that the kernel allows, and for the most
    /// it allows. ([`OccupancyOptions::shared_bytes`] plays no part.)
    ///
    /// # Errors
    /// Those of the driver.
    ///
    /// Since CUDA 7.0.
    pub fn suggested_block_with(
        &self,
        mut shared_bytes: impl FnMut(u32) -> usize,
        options: OccupancyOptions,
    ) -> Result<SuggestedBlock> {
        let most = self.attribute(kernel_attribute::MAX_THREADS_PER_BLOCK)?;
        let limit = options.max_threads.filter(|limit| *limit != 0);
        let limit = limit.unwrap_or(most).min(most);
        let sizes = (WARP..limit).step_by(WARP as usize).chain([limit]);
        let table: Vec<_> = sizes.map(|size| (size, shared_bytes(size))).collect();
        self.potential_block(Some(&table), limit, options)
    }

    fn potential_block(
        &self,
        table: Option<&[(u32, usize)]>,
        limit: u32,
        options: OccupancyOptions,
    ) -> Result<SuggestedBlock> {
        let OccupancyOptions {
            shared_bytes,
            max_threads: _,
            keep_caching,
            _non_exhaustive: (),
        } = options;
        let flags = OccupancyOptions::flags(keep_caching);
        let limit = c_int::try_from(limit).unwrap_or(c_int::MAX);
        let (mut blocks, mut threads) = (0, 0);
        let (grid, block) = (&raw mut blocks, &raw mut threads);
        let _current = self.context().enter()?;
        let asked = table.map(Asked::start);
        let shared_of = asked
            .is_some()
            .then_some(shared_bytes_of as unsafe extern "C" fn(c_int) -> usize);
        let function = self.as_raw();
        // SAFETY: the function is alive and of the current context; the pointers are to locals;
        // the callback looks into the table that `asked` keeps for this thread, if at all.
        unsafe {
            call!(cuOccupancyMaxPotentialBlockSizeWithFlags(
                grid,
                block,
                function,
                shared_of,
                shared_bytes,
                limit,
                flags
            ))
        }?;
        drop(asked);
        Ok(SuggestedBlock {
            threads: unsigned(threads),
            blocks: unsigned(blocks),
        })
    }

    /// `cuOccupancyAvailableDynamicSMemPerBlock(&bytes, kernel, blocks, threads)`: the dynamic
    /// shared memory, in bytes, that each of `blocks` blocks of `threads` threads may have on one
    /// multiprocessor.
    ///
    /// # Errors
    /// [`Invalid::LaunchConfig`] for no blocks, or blocks without threads;
    /// `CUDA_ERROR_INVALID_VALUE` where so many do not fit.
    ///
    /// Since CUDA 10.2. Raw:
    /// [`cuOccupancyAvailableDynamicSMemPerBlock`](fn@cuda_sys::cuOccupancyAvailableDynamicSMemPerBlock).
    #[doc(alias = "cuOccupancyAvailableDynamicSMemPerBlock")]
    pub fn available_shared_bytes(&self, blocks: u32, threads: u32) -> Result<usize> {
        let (blocks, threads) = (count(blocks)?, count(threads)?);
        let mut bytes = 0;
        let (place, function) = (&raw mut bytes, self.as_raw());
        let _current = self.context().enter()?;
        // SAFETY: the function is alive and of the current context; the pointer is to a local.
        unsafe {
            call!(cuOccupancyAvailableDynamicSMemPerBlock(
                place, function, blocks, threads
            ))
        }?;
        Ok(bytes)
    }

    /// `cuOccupancyMaxPotentialClusterSize(&blocks, kernel, &config)`: the most blocks that a
    /// cluster of such a launch may have; the size in `attributes` plays no part.
    ///
    /// More than every device allows only if the kernel is set to it
    /// ([`NON_PORTABLE_CLUSTER_SIZE_ALLOWED`](kernel_attribute::NON_PORTABLE_CLUSTER_SIZE_ALLOWED)).
    ///
    /// # Errors
    /// Those of a launch of that shape; devices without clusters (compute capability below 9.0).
    ///
    /// Since CUDA 11.7. Raw:
    /// [`cuOccupancyMaxPotentialClusterSize`](fn@cuda_sys::cuOccupancyMaxPotentialClusterSize).
    #[doc(alias = "cuOccupancyMaxPotentialClusterSize")]
    pub fn max_cluster_size(
        &self,
        config: LaunchConfig,
        attributes: &LaunchAttributes<'_>,
    ) -> Result<u32> {
        self.potential_cluster(None, config, attributes)
    }

    /// As [`max_cluster_size`](Self::max_cluster_size), for launches on a stream: one of a green
    /// context may have room for less, as it has fewer SMs, and perhaps not together. See
    /// [`GreenContext::max_cluster_size`](crate::green::GreenContext::max_cluster_size).
    ///
    /// # Errors
    /// As for [`max_cluster_size`](Self::max_cluster_size); a stream of another context.
    ///
    /// Since CUDA 11.7.
    pub fn max_cluster_size_on(
        &self,
        stream: &Stream,
        config: LaunchConfig,
        attributes: &LaunchAttributes<'_>,
    ) -> Result<u32> {
        same_context("the kernel", self.context(), stream.context())?;
        self.potential_cluster(Some(stream), config, attributes)
    }

    fn potential_cluster(
        &self,
        stream: Option<&Stream>,
        config: LaunchConfig,
        attributes: &LaunchAttributes<'_>,
    ) -> Result<u32> {
        let mut size = 0;
        let (place, function) = (&raw mut size, self.as_raw());
        self.with_config(stream, config, attributes, |config| {
            // SAFETY: the function is alive and of the current context, as is the stream, if there is
            // one; the configuration has the attributes that it counts, and the pointer is to a local.
            unsafe { call!(cuOccupancyMaxPotentialClusterSize(place, function, config)) }
        })?;
        Ok(unsigned(size))
    }

    /// `cuOccupancyMaxActiveClusters(&clusters, kernel, &config)`: how many clusters of such a
    /// launch the device runs at a time: an estimate, as other work may be in the way.
    ///
    /// # Errors
    /// As for [`max_cluster_size`](Self::max_cluster_size); no
    /// [cluster size](LaunchAttributes::cluster), where the kernel requires none itself.
    ///
    /// Since CUDA 11.7. Raw: [`cuOccupancyMaxActiveClusters`](fn@cuda_sys::cuOccupancyMaxActiveClusters).
    #[doc(alias = "cuOccupancyMaxActiveClusters")]
    pub fn max_active_clusters(
        &self,
        config: LaunchConfig,
        attributes: &LaunchAttributes<'_>,
    ) -> Result<u32> {
        let mut clusters = 0;
        let (place, function) = (&raw mut clusters, self.as_raw());
        self.with_config(None, config, attributes, |config| {
            // SAFETY: as above.
            unsafe { call!(cuOccupancyMaxActiveClusters(place, function, config)) }
        })?;
        Ok(unsigned(clusters))
    }

    fn with_config(
        &self,
        stream: Option<&Stream>,
        config: LaunchConfig,
        attributes: &LaunchAttributes<'_>,
        ask: impl FnOnce(*const CUlaunchConfig) -> Result<()>,
    ) -> Result<()> {
        config.check()?;
        let mut list = List::new();
        attributes.fill(&mut list, self.context())?;
        let config = list.config(config, stream.map_or(std::ptr::null_mut(), Stream::raw));
        let _current = self.context().enter()?;
        ask(&raw const config)
    }
}

const WARP: u32 = 32;

/// A number of the driver's that is never below 0.
fn unsigned(number: c_int) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// Blocks or threads, as the driver counts. More than it can count is more than it allows.
fn count(number: u32) -> Result<c_int> {
    if number == 0 {
        return Err(Error::from(Invalid::LaunchConfig {
            grid: [1; 3],
            block: [0, 1, 1],
        }));
    }
    Ok(c_int::try_from(number).unwrap_or(c_int::MAX))
}

/// Sizes of blocks, ascending, with the shared memory of each.
type Table = [(u32, usize)];

thread_local! {
    /// What the callback is to answer on this thread.
    static ASKED: Cell<Option<*const Table>> = const { Cell::new(None) };
}

/// The table of one call of the driver.
struct Asked<'a> {
    before: Option<*const Table>,
    #[allow(dead_code, reason = "borrowed, not read")]
    table: &'a Table,
}

impl<'a> Asked<'a> {
    fn start(table: &'a Table) -> Self {
        let before = ASKED.try_with(|asked| asked.replace(Some(table)));
        let before = before.unwrap_or(None);
        Self { before, table }
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let _ = ASKED.try_with(|asked| asked.set(self.before));
    }
}

/// What the driver calls: the shared memory of a block, or of the next larger one that was asked
/// about.
///
/// # Safety
/// None: it is the type of C's callback.
unsafe extern "C" fn shared_bytes_of(threads: c_int) -> usize {
    let Some(table) = ASKED.try_with(Cell::get).ok().flatten() else {
        return 0;
    };
    // SAFETY: an `Asked` of this thread is alive, and with it its borrow of the table.
    let table = unsafe { &*table };
    let threads = unsigned(threads);
    let found = table.iter().find(|(size, _)| *size >= threads);
    found.or(table.last()).map_or(0, |(_, bytes)| *bytes)
}
