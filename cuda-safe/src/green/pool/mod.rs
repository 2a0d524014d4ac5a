//! A pool that caches partitionings of a device for reuse.

mod cache;

use super::plan::{PartitionRequest, Plan};
use super::split_guard::{Overlap, SplitGuard, acquire};
use crate::call::{Invalid, Rejected, Result, debug_struct, fork, refuse_in_host_function};
use crate::context::Context;
use crate::device::Device;
use crate::release;
use crate::stream::{Stream, StreamOptions};
use crate::sync::{Condvar, Mutex, MutexGuard, lock};
use cache::{CachedPartition, Changes, PartitionCache};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// A pool of partitionings of a device. Each is created once and then reused, one at a time.
///
/// Creating and destroying green contexts takes milliseconds, and the driver does not free all of their
/// memory. A pool caches them together with their streams. Switching to a partitioning that was used
/// before creates nothing and does not block the host: the streams of the new partitioning wait on the
/// device for the work enqueued on the old one.
///
/// The pool owns the split of the device: while the pool is alive, other splits of the device fail with
/// an error that contains the pool's label.
///
/// ```no_run
/// use cuda_safe::Device;
/// use cuda_safe::green::{GreenPool, GreenPoolOptions, PartitionRequest, PartitionSize};
///
/// let pool = GreenPool::new(&Device::get(0)?, GreenPoolOptions::default())?;
/// for urgent in [16, 64, 16] {
///     let lease = pool.lease(&PartitionRequest {
///         sizes: vec![PartitionSize::Sms(urgent), PartitionSize::Rest],
///         ..Default::default()
///     })?;
///     let stream = lease[0].stream()?;
///     // Dropping the lease, its streams and their buffers returns the partitioning.
/// }
/// println!("{:?}", pool.stats());
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct GreenPool {
    inner: Arc<Inner>,
}

struct Inner {
    device: Device,
    label: String,
    state: Mutex<PoolState>,
    changed: Condvar,
    /// Locked only by the thread that is [switching](PoolState::switching), which may call the driver
    /// meanwhile. Dropping a lease, perhaps in a host function, never waits for this lock.
    cache: Mutex<PartitionCache>,
    #[allow(dead_code, reason = "held, not read")]
    split_guard: SplitGuard,
}

/// How often to check again, because a deferred release does not signal when it becomes possible.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The state that decides who may use the device.
#[derive(Default)]
struct PoolState {
    /// The number of parts that are leased.
    leased_parts: usize,
    /// Whether a thread is changing which partitioning is leased.
    switching: bool,
    stats: GreenPoolStats,
}

/// Options for [`GreenPool::new`].
///
/// Later versions may add fields: end each value with `..Default::default()`.
#[derive(Clone, Debug, Default)]
pub struct GreenPoolOptions {
    /// The maximum number of cached partitionings, and of cached splits of each of their parts. Above
    /// it, the least recently used one is destroyed without waiting. `None` sets no limit.
    pub max_partitionings: Option<usize>,
    /// A label for the use of the device. It appears in the error of a split that is refused.
    pub label: String,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// Counters of a pool. Returned by [`GreenPool::stats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GreenPoolStats {
    /// The number of leases.
    pub leases: u64,
    /// The number of leases of a partitioning other than the previous one.
    pub switches: u64,
    /// The number of parts that were [split](PooledPartition::split) again.
    pub splits: u64,
    /// The number of partitionings created, including splits of parts.
    pub created: u64,
    /// The number of partitionings destroyed, including splits of parts.
    pub destroyed: u64,
    /// The number of partitionings cached now, including splits of parts.
    pub cached: usize,
    /// The number of parts leased now.
    pub leased: usize,
}

impl GreenPoolStats {
    /// Counts the created and destroyed partitionings, whether or not the request succeeded.
    #[inline]
    fn count(&mut self, changes: Changes) {
        self.created += u64::from(changes.created);
        self.destroyed += changes.destroyed;
    }
}

/// A leased partitioning: its partitions in the order of the requested sizes. Returned by
/// [`GreenPool::lease`].
#[derive(Debug)]
pub struct Lease {
    partitions: Vec<PooledPartition>,
    plan: Plan,
}

/// A partition of a [`Lease`]. It returns to the pool when it, its streams and the objects bound to
/// them are dropped.
///
/// A graph that was captured on one of its streams, and an executable graph that was launched on one,
/// keep the stream alive. They keep the partition leased until they are dropped and their launches are
/// complete.
pub struct PooledPartition {
    lease: Arc<PartLease>,
}

/// A leased part, owned by the partition and its streams.
struct PartLease {
    pool: Arc<Inner>,
    partition: Arc<CachedPartition>,
    /// Whether each stream of the partition is in use.
    streams_in_use: Mutex<Vec<bool>>,
    /// The part that was split, if this is not a part of the device.
    parent: Option<Arc<Self>>,
}

/// Returns whether a stream belongs to a pool. A pool relies on knowing all work of its partitions.
#[inline]
pub(super) fn is_leased(stream: &Stream) -> bool {
    let owner = stream.owner();
    owner.is_some_and(|owner| owner.is::<Arc<PartLease>>())
}

impl PartLease {
    #[inline]
    fn lease_partition(
        pool: &Arc<Inner>,
        partition: Arc<CachedPartition>,
        parent: Option<&Arc<Self>>,
    ) -> PooledPartition {
        PooledPartition {
            lease: Arc::new(Self {
                pool: Arc::clone(pool),
                partition,
                streams_in_use: Mutex::default(),
                parent: parent.cloned(),
            }),
        }
    }
}

impl GreenPool {
    /// Creates an empty pool.
    ///
    /// # Errors
    /// [`Invalid::SplitInUse`] if the device is already split.
    #[inline]
    pub fn new(device: &Device, options: GreenPoolOptions) -> Result<Self> {
        let GreenPoolOptions { max_partitionings, label, _non_exhaustive: () } = options;
        release::drain();
        let split_guard = acquire(*device, &label, Overlap::Refuse, None)?;
        Ok(Self {
            inner: Arc::new(Inner {
                device: *device,
                label,
                state: Mutex::default(),
                changed: Condvar::new(),
                cache: Mutex::new(PartitionCache::new(max_partitionings)),
                split_guard,
            }),
        })
    }

    /// Returns the device.
    #[inline]
    pub fn device(&self) -> Device {
        self.inner.device
    }

    /// Leases a partitioning. Blocks until all parts of the previous lease are returned.
    ///
    /// A thread that holds a part itself, or has forgotten one, blocks indefinitely. So does a thread that
    /// holds an [`ExecutableGraph`](crate::ExecutableGraph) that was launched on a stream of a part. The
    /// pool's label
    /// and overlap setting replace those of the request.
    ///
    /// The numbers of SMs are in [`Lease::plan`]. [`SmResource::plan`](super::SmResource::plan) of
    /// [`SmResource::of_device`](super::SmResource::of_device) returns them before anything is leased.
    ///
    /// # Errors
    /// See [`SmResource::partition`](super::SmResource::partition) and
    /// [`GreenContext::new`](super::GreenContext::new) for a partitioning that was not used before;
    /// [`Error::InHostFunction`](crate::Error::InHostFunction).
    #[inline]
    pub fn lease(&self, partitioning: &PartitionRequest) -> Result<Lease> {
        refuse_in_host_function()?;
        loop {
            // An object whose release is deferred may be the last one to hold a part.
            release::drain();
            let state = self.inner.state()?;
            let is_free = state.leased_parts == 0 && !state.switching;
            if is_free {
                return self.switch(state, partitioning);
            }
            let changed = self.inner.changed.wait_timeout(state, POLL_INTERVAL);
            drop(changed.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Leases a partitioning without blocking. See [`lease`](Self::lease).
    ///
    /// # Errors
    /// [`Invalid::PoolInUse`] if parts of the previous lease are still in use, or another thread is
    /// switching. See also [`lease`](Self::lease).
    #[inline]
    pub fn try_lease(&self, partitioning: &PartitionRequest) -> Result<Lease> {
        refuse_in_host_function()?;
        release::drain();
        let state = self.inner.state()?;
        if state.leased_parts != 0 || state.switching {
            return Err(Invalid::PoolInUse {
                holder: self.inner.label.clone(),
                parts: state.leased_parts,
            }
            .into());
        }
        self.switch(state, partitioning)
    }

    #[inline]
    fn switch(
        &self,
        mut state: MutexGuard<'_, PoolState>,
        partitioning: &PartitionRequest,
    ) -> Result<Lease> {
        state.switching = true;
        drop(state);
        // The drop of this guard ends the switch on every path, so that other threads can proceed.
        let switching = SwitchGuard(&self.inner);
        let mut changes = Changes::default();
        let result = {
            let mut cache = self.inner.cache();
            let label = &self.inner.label;
            cache.lease(self.inner.device, label, partitioning, &mut changes)
        };
        self.inner.state()?.stats.count(changes);
        let (plan, leased_partitions) = result?;
        let lease = |partition| PartLease::lease_partition(&self.inner, partition, None);
        let partitions: Vec<PooledPartition> = leased_partitions.into_iter().map(lease).collect();
        {
            let mut state = self.inner.state()?;
            state.leased_parts = partitions.len();
            state.stats.leases += 1;
            state.stats.switches += u64::from(changes.switched);
        }
        drop(switching);
        Ok(Lease { partitions, plan })
    }

    /// Destroys cached partitionings until at most `keep` are left, least recently used first. The most
    /// recently used one is always kept, because it may be leased.
    ///
    /// The splits of their parts are destroyed with them.
    ///
    /// # Errors
    /// [`Invalid::PoolInUse`] while another thread is switching; [`Error::InHostFunction`](crate::Error::InHostFunction).
    #[inline]
    pub fn trim(&self, keep: usize) -> Result<()> {
        refuse_in_host_function()?;
        let mut state = self.inner.state()?;
        if state.switching {
            return Err(Invalid::PoolInUse {
                holder: self.inner.label.clone(),
                parts: state.leased_parts,
            }
            .into());
        }
        state.switching = true;
        drop(state);
        let switching = SwitchGuard(&self.inner);
        let destroyed = self.inner.cache().trim(keep);
        self.inner.state()?.stats.destroyed += destroyed;
        drop(switching);
        Ok(())
    }

    /// Returns the counters of the pool.
    ///
    /// # Errors
    /// [`Error::Forked`](crate::Error::Forked).
    #[inline]
    pub fn stats(&self) -> Result<GreenPoolStats> {
        let state = self.inner.state()?;
        let GreenPoolStats { created, destroyed, .. } = state.stats;
        Ok(GreenPoolStats {
            cached: usize::try_from(created.saturating_sub(destroyed)).unwrap_or(usize::MAX),
            leased: state.leased_parts,
            ..state.stats
        })
    }
}

/// The exclusive right to call the driver for a pool.
struct SwitchGuard<'a>(&'a Inner);

impl Drop for SwitchGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Ok(mut state) = self.0.state() {
            state.switching = false;
            self.0.changed.notify_all();
        }
    }
}

impl Inner {
    #[inline]
    fn state(&self) -> Result<MutexGuard<'_, PoolState>> {
        fork::refuse_in_child()?;
        Ok(lock(&self.state))
    }

    #[inline]
    fn cache(&self) -> MutexGuard<'_, PartitionCache> {
        lock(&self.cache)
    }
}

impl Drop for PartLease {
    #[inline]
    fn drop(&mut self) {
        if self.parent.is_some() {
            // The whole part is counted as leased, not its splits.
            return;
        }
        if let Ok(mut state) = self.pool.state() {
            state.leased_parts = state.leased_parts.saturating_sub(1);
            if state.leased_parts == 0 {
                self.pool.changed.notify_all();
            }
        }
    }
}

impl Lease {
    /// Returns the plan of the partitions.
    #[inline]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the partitions as separate objects.
    #[inline]
    pub fn into_partitions(self) -> Vec<PooledPartition> {
        self.partitions
    }
}

impl std::ops::Deref for Lease {
    type Target = [PooledPartition];

    #[inline]
    fn deref(&self) -> &[PooledPartition] {
        &self.partitions
    }
}

impl PooledPartition {
    /// Returns the number of SMs of the partition, as reported by the driver.
    #[inline]
    pub fn sm_count(&self) -> u32 {
        self.lease.partition.green.sm_count()
    }

    /// Returns the device's primary context. Memory and kernels used on this partition belong to it.
    #[inline]
    pub fn context(&self) -> &Context {
        self.lease.partition.green.context()
    }

    /// Returns a stream of this partition with priority 0, cached or new.
    ///
    /// # Errors
    /// See [`GreenContext::stream_with`](super::GreenContext::stream_with).
    #[inline]
    pub fn stream(&self) -> Result<Stream> {
        self.stream_with(StreamOptions::default())
    }

    /// Returns a stream of this partition: a cached one that this lease does not use yet, or a new one.
    ///
    /// The stream belongs to the pool and returns to it with the lease, including settings such as
    /// [`Stream::set_priority`]. It does not expose its green context, and
    /// [`GreenContext::of_stream`](super::GreenContext::of_stream) refuses it.
    ///
    /// # Errors
    /// See [`GreenContext::stream_with`](super::GreenContext::stream_with).
    #[inline]
    pub fn stream_with(&self, options: StreamOptions) -> Result<Stream> {
        fork::refuse_in_child()?;
        let stream = self.lease.partition.stream(options, &self.lease.streams_in_use)?;
        Ok(Stream::leased(&stream, Arc::clone(&self.lease)))
    }

    /// Splits the partition again and caches the split.
    ///
    /// This works as [`GreenPool::lease`] does for the device: the second time, nothing is created. The
    /// streams of the smaller partitions wait for the work of the whole partition. When the whole
    /// partition is leased next time, its streams wait for the work of the smaller ones. The whole
    /// partition counts as leased while one of the smaller ones is.
    ///
    /// # Errors
    /// [`Invalid::PartitionInUse`] if the partition has streams; [`Error::InHostFunction`](crate::Error::InHostFunction). See also
    /// [`SmResource::partition`](super::SmResource::partition) and
    /// [`GreenContext::new`](super::GreenContext::new) for a split that was not used before.
    ///
    /// On an error, the partition is dropped and returns to the pool. [`try_split`](Self::try_split)
    /// returns it with the error.
    ///
    /// ```no_run
    /// use cuda_safe::Device;
    /// use cuda_safe::green::{GreenPool, GreenPoolOptions, PartitionRequest, PartitionSize};
    ///
    /// let pool = GreenPool::new(&Device::get(0)?, GreenPoolOptions::default())?;
    /// let lease = pool.lease(&PartitionRequest {
    ///     sizes: vec![PartitionSize::Sms(64), PartitionSize::Rest],
    ///     ..Default::default()
    /// })?;
    /// let mut partitions = lease.into_partitions();
    /// let quarters = partitions.remove(0).split(&PartitionRequest {
    ///     sizes: vec![PartitionSize::Percent(25); 4],
    ///     ..Default::default()
    /// })?;
    /// let stream = quarters[3].stream()?;
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[inline]
    pub fn split(self, partitioning: &PartitionRequest) -> Result<Lease> {
        Ok(self.try_split(partitioning)?)
    }

    /// Does the same as [`split`](Self::split), but returns the partition with the error.
    ///
    /// # Errors
    /// See [`split`](Self::split).
    #[inline]
    pub fn try_split(self, partitioning: &PartitionRequest) -> Result<Lease, Rejected<Self>> {
        let ((plan, leased), part) = Rejected::unless(self.divide(partitioning), self)?;
        let parent = &part.lease;
        let lease = |partition| PartLease::lease_partition(&parent.pool, partition, Some(parent));
        Ok(Lease { partitions: leased.into_iter().map(lease).collect(), plan })
    }

    #[inline]
    fn divide(&self, partitioning: &PartitionRequest) -> Result<(Plan, Vec<Arc<CachedPartition>>)> {
        refuse_in_host_function()?;
        fork::refuse_in_child()?;
        let pool = &self.lease.pool;
        // An object whose release is deferred may be the last one to hold a stream.
        release::drain();
        // The streams of the partition hold the lease, and no other thread can request a stream.
        if Arc::strong_count(&self.lease) != 1 {
            let holder = pool.label.clone();
            return Err(Invalid::PartitionInUse { holder }.into());
        }
        let mut changes = Changes::default();
        let partition = &self.lease.partition;
        let result = partition.split(&pool.label, partitioning, &mut changes);
        let mut state = pool.state()?;
        state.stats.count(changes);
        state.stats.splits += u64::from(result.is_ok());
        result
    }
}

debug_struct! { GreenPool |its| { device: its.inner.device, label: its.inner.label, .. } }

debug_struct! { PooledPartition |its| { green: its.lease.partition.green } }
