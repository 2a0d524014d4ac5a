//! Communicators.

use crate::abort::Abort;
use crate::call::{Progress, int, nccl};
use crate::config::Config;
use crate::error::{Invalid, Result};
use crate::shared::{Owner, Shared, outside_captures};
use crate::sys::{self, ncclComm, ncclComm_t};
use crate::unique_id::UniqueId;
use crate::version::NcclVersion;
use cuda_safe::{Context, Stream};
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

/// The oldest library with which a communicator is created. In older ones, ranks of a process write to the buffers of
/// each other with the number of elements of the sender, also if the buffers are not registered.
const OLDEST: NcclVersion = NcclVersion::new(2, 23, 0);

/// One rank of a group of GPUs that work together.
///
/// The operations of a communicator are work on its [stream](Self::stream). A call enqueues the operation and returns.
/// All ranks must call the same operations in the same order. The first operations can wait for the other ranks
/// during the call, because connections are created then.
///
/// A communicator keeps its stream and the primary context alive. It can move to another thread, but only one thread
/// can use it at a time. [`Abort`] is the handle for other threads. NCCL does not support that two threads use two
/// communicators of one device at the same time in different orders: the operations may wait for each other forever.
///
/// # Drop
/// A drop waits until the work of the stream is complete and then destroys the communicator (`ncclCommDestroy`). If
/// another rank is missing, that wait ends with an [abort](Abort::abort). A drop while the thread panics aborts the
/// communicator, since the other ranks may wait for calls that are not made. After an abort, a drop does nothing. In a
/// host function, and while the stream is captured, another thread does this.
pub struct Communicator {
    pub(crate) shared: Arc<Shared>,
    pub(crate) owner: Arc<Owner>,
    rank: u32,
    ranks: u32,
    /// The type is not `Sync`.
    not_sync: PhantomData<Cell<()>>,
}

/// Finds the primary context that NCCL uses with a stream.
#[inline]
pub(crate) fn primary_of(stream: &Stream) -> Result<Context> {
    let context = stream.context();
    let primary = Context::primary(&context.device())?;
    match primary == *context {
        true => Ok(primary),
        false => Err(Invalid::NotPrimary { context: context.to_string() }.into()),
    }
}

/// A communicator that is being created: NCCL writes the handle, at the latest when the creation is complete, perhaps in
/// a thread of its own.
pub(crate) struct Place {
    raw: Box<AtomicPtr<ncclComm>>,
}

impl Place {
    #[inline]
    pub(crate) fn new() -> Self {
        Self { raw: Box::default() }
    }

    /// Returns the address of the place. It does not move until the value is dropped.
    #[inline]
    pub(crate) fn address(&self) -> *mut ncclComm_t {
        self.raw.as_ptr()
    }

    /// Returns the handle, which is null before NCCL has written it.
    #[inline]
    pub(crate) fn raw(&self) -> ncclComm_t {
        self.raw.load(Ordering::Acquire)
    }

    /// Leaks the place after a failure, since a thread of NCCL may still write it. NCCL frees the communicator.
    #[inline]
    pub(crate) fn leak(self) {
        let _ = Box::leak(self.raw);
    }
}

impl Communicator {
    /// Creates the communicator of one of `ranks` ranks. Calls `ncclCommInitRankConfig`.
    ///
    /// All ranks must call it with the same id and number of ranks, each with its own rank and device, in any
    /// processes and threads. Waits for the other ranks. To create the communicators of several devices on one thread,
    /// use [`init_all`](Self::init_all).
    ///
    /// # Errors
    /// [`Invalid::NotPrimary`]; [`Invalid::Rank`]; [`Invalid::OldLibrary`]; [`Error::Timeout`](crate::Error::Timeout);
    /// errors of NCCL and the driver.
    ///
    /// Raw: [`ncclCommInitRankConfig`](fn@crate::sys::ncclCommInitRankConfig).
    #[doc(alias = "ncclCommInitRankConfig", alias = "ncclCommInitRank")]
    #[inline]
    pub fn init(
        stream: &Stream,
        id: &UniqueId,
        rank: u32,
        ranks: u32,
        config: &Config,
    ) -> Result<Self> {
        let mut all = Self::init_ranks(&[(stream, rank)], id, ranks, config)?;
        Ok(all.remove(0))
    }

    /// Creates the communicators of several devices of this process, one for each stream, in the order of the ranks.
    ///
    /// Each stream must belong to another device. Calls `ncclCommInitRankConfig` for each, in a group.
    ///
    /// # Errors
    /// See [`init`](Self::init). [`Invalid::Empty`] without streams.
    ///
    /// ```no_run
    /// use cuda_nccl::{Communicator, Config, ReduceOp, group};
    /// use cuda_safe::{Context, Device, DeviceBuffer};
    ///
    /// let devices = Device::all()?;
    /// let streams = devices.iter().map(|device| Context::primary(device)?.stream());
    /// let streams = streams.collect::<Result<Vec<_>, _>>()?;
    /// let communicators = Communicator::init_all(&streams, &Config::default())?;
    /// let buffers = streams.iter().map(|stream| DeviceBuffer::from_slice(stream, &[1.0_f32; 100]));
    /// let mut buffers = buffers.collect::<Result<Vec<_>, _>>()?;
    /// // One operation on all GPUs. Without a group, the first call could wait for the others.
    /// group(|group| {
    ///     for (communicator, buffer) in communicators.iter().zip(&mut buffers) {
    ///         group.all_reduce_in_place(communicator, buffer, ReduceOp::Sum)?;
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<_, cuda_nccl::Error>(())
    /// ```
    #[doc(alias = "ncclCommInitAll")]
    #[inline]
    pub fn init_all(streams: &[Stream], config: &Config) -> Result<Vec<Self>> {
        let ranks = u32::try_from(streams.len())
            .map_err(|_| Invalid::TooLarge { what: "the number of ranks", value: u64::MAX })?;
        let members: Vec<(&Stream, u32)> = streams.iter().zip(0..ranks).collect();
        Self::init_ranks(&members, &UniqueId::new()?, ranks, config)
    }

    /// Creates the communicators of several ranks of this thread.
    #[inline]
    fn init_ranks(
        members: &[(&Stream, u32)],
        id: &UniqueId,
        ranks: u32,
        config: &Config,
    ) -> Result<Vec<Self>> {
        let version = crate::version()?;
        if version < OLDEST {
            return Err(Invalid::OldLibrary { version, oldest: OLDEST }.into());
        }
        let count = int("the number of ranks", ranks)?;
        let mut starting = Vec::new();
        for (stream, rank) in members {
            if *rank >= ranks {
                return Err(Invalid::Rank { what: "the rank", rank: *rank, ranks }.into());
            }
            starting.push((primary_of(stream)?, Place::new()));
        }
        let Some((first, _)) = starting.first() else {
            return Err(Invalid::Empty { what: "the list of streams" }.into());
        };
        let (first, mut raw_config) = (first.clone(), config.raw()?);
        let id = id.raw();
        let mut begun = Ok(Progress::Complete);
        let ended = outside_captures(|| {
            first.with_current(|_| {
                // SAFETY: the group ends below, and only calls of NCCL are made until then.
                unsafe { nccl!(ncclGroupStart()) }?;
                for ((primary, new), (_, rank)) in starting.iter().zip(members) {
                    let (place, rank, config) =
                        (new.address(), *rank as i32, &raw mut raw_config.raw);
                    // SAFETY: the place stays valid until the creation has ended, and NCCL copies the configuration.
                    let init =
                        || unsafe { nccl!(ncclCommInitRankConfig(place, count, id, rank, config)) };
                    begun =
                        primary.with_current(|_| init()).unwrap_or_else(|error| Err(error.into()));
                    if begun.is_err() {
                        break;
                    }
                }
                // SAFETY: the group was started above.
                unsafe { nccl!(ncclGroupEnd()) }
            })?
        });
        if let Err(error) = begun.and(ended) {
            starting.into_iter().for_each(|(_, new)| new.leak());
            return Err(error);
        }
        let communicators: Vec<Self> = starting
            .into_iter()
            .zip(members)
            .map(|((primary, new), (stream, rank))| {
                let home = (&primary, *stream);
                Self::of(Shared::new(new.raw(), home, config.interruptible), (*rank, ranks))
            })
            .collect();
        let created = communicators.iter().try_for_each(|its| its.created(config.timeout));
        if let Err(error) = created {
            // The others may still be in creation.
            communicators.iter().for_each(|its| _ = its.shared.abort());
            return Err(error);
        }
        Ok(communicators)
    }

    #[inline]
    pub(crate) fn of(shared: Shared, (rank, ranks): (u32, u32)) -> Self {
        let shared = Arc::new(shared);
        let owner = Arc::new(Owner(Arc::clone(&shared)));
        Self { shared, owner, rank, ranks, not_sync: PhantomData }
    }

    /// Waits until the creation is complete. `NCCL_COMM_BLOCKING=0` in the environment makes the call return before,
    /// whatever the configuration says.
    #[inline]
    pub(crate) fn created(&self, timeout: Option<Duration>) -> Result<()> {
        let mut handle = self.shared.lock()?;
        self.shared.wait(&mut handle, timeout)
    }

    /// Takes ownership of a communicator. It is destroyed as one that was created by this crate.
    ///
    /// # Errors
    /// [`Invalid::NotPrimary`]; errors of NCCL.
    ///
    /// # Safety
    /// `raw` is a communicator of the device of the stream, whose creation is complete. No other code uses or destroys
    /// it.
    #[inline]
    pub unsafe fn from_raw(raw: ncclComm_t, stream: &Stream) -> Result<Self> {
        let primary = primary_of(stream)?;
        // SAFETY: the caller promises that the communicator is alive, and that its creation is complete.
        let place = unsafe { place_of(raw) }?;
        Ok(Self::of(Shared::new(raw, (&primary, stream), true), place))
    }

    /// Makes a raw call with the handle, with the primary context current. No other thread can abort the communicator
    /// meanwhile.
    ///
    /// # Errors
    /// [`Error::Aborted`](crate::Error::Aborted); errors of the driver.
    ///
    /// ```no_run
    /// # use cuda_nccl::{Communicator, sys};
    /// # fn show(communicator: &Communicator) -> cuda_nccl::Result<()> {
    /// let mut device = 0;
    /// communicator.with_raw(|raw| {
    ///     // SAFETY: the communicator is alive, and the pointer is valid for a write.
    ///     unsafe { sys::ncclCommCuDevice(raw, &raw mut device) }
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclCommCuDevice")]
    #[inline]
    pub fn with_raw<R>(&self, call: impl FnOnce(sys::ncclComm_t) -> R) -> Result<R> {
        let handle = self.shared.lock()?;
        let raw = handle.raw();
        Ok(self.shared.primary.with_current(|_| call(raw))?)
    }

    /// Returns the rank, from 0 on.
    #[doc(alias = "ncclCommUserRank")]
    #[inline]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the number of ranks.
    #[doc(alias = "ncclCommCount")]
    #[inline]
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Returns the stream on which the operations run. Buffers must be bound to it.
    #[inline]
    pub fn stream(&self) -> &Stream {
        &self.shared.stream
    }

    /// Returns a handle to abort the communicator from any thread.
    #[inline]
    pub fn abort_handle(&self) -> Abort {
        Abort { shared: Arc::clone(&self.shared) }
    }

    /// Returns the error that has occurred in the work of the communicator, if any. Calls `ncclCommGetAsyncError`.
    ///
    /// If this returns no error after a wait for the stream, the operations before the wait are complete and were not
    /// aborted.
    ///
    /// # Errors
    /// [`Error::Aborted`](crate::Error::Aborted); the error that has occurred.
    ///
    /// Raw: [`ncclCommGetAsyncError`](fn@crate::sys::ncclCommGetAsyncError).
    #[doc(alias = "ncclCommGetAsyncError")]
    #[inline]
    pub fn check(&self) -> Result<()> {
        self.shared.poll().unwrap_or(Ok(()))
    }
}

/// Returns the rank of a communicator and the number of ranks.
///
/// # Safety
/// The communicator is alive, and its creation is complete.
#[inline]
pub(crate) unsafe fn place_of(raw: ncclComm_t) -> Result<(u32, u32)> {
    let (mut rank, mut ranks) = (0, 0);
    // SAFETY: the caller promises that the communicator is alive, and the pointer is valid for a write.
    unsafe { nccl!(ncclCommUserRank(raw, &raw mut rank)) }?;
    // SAFETY: as above.
    unsafe { nccl!(ncclCommCount(raw, &raw mut ranks)) }?;
    Ok((rank.unsigned_abs(), ranks.unsigned_abs()))
}

impl fmt::Debug for Communicator {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Communicator")
            .field("rank", &self.rank())
            .field("ranks", &self.ranks())
            .field("stream", self.stream())
            .finish()
    }
}
