//! Partitionings of a device that are kept and handed out again.

mod parked;

use super::claim::{Claim, Overlap, claim};
use super::partition::Partitioning;
use super::plan::Plan;
use crate::context::Context;
use crate::device::Device;
use crate::error::{Error, Rejected, Result};
use crate::fork;
use crate::invalid::Invalid;
use crate::release;
use crate::stream::{Stream, StreamOptions, refuse_inside};
use crate::sync::{Condvar, Mutex, MutexGuard};
use parked::{Did, Parked, PartSet};
use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Partitionings of a device, made once each and handed out again and again, one at a time.
///
/// Making and destroying green contexts costs milliseconds, and the driver does not give all of
/// their memory back; a pool keeps them with their streams. Switching from one partitioning to
/// another that was used before creates nothing and waits for nothing on the host: streams of the
/// new one wait on the device for the work that was given to the old one.
///
/// The device is the pool's: other splits of it are refused, with the pool's label, while it lives.
///
/// ```no_run
/// use cuda_safe::Device;
/// use cuda_safe::green::{GreenPool, GreenPoolOptions, Partitioning, Wish};
///
/// let pool = GreenPool::new(&Device::get(0)?, GreenPoolOptions::default())?;
/// for urgent in [16, 64, 16] {
///     let lease = pool.lease(&Partitioning {
///         wishes: vec![Wish::Sms(urgent), Wish::Rest],
///         ..Default::default()
///     })?;
///     let stream = lease[0].stream()?;
///     // The partitioning is back when the lease, its streams and their buffers are dropped.
/// }
/// println!("{:?}", pool.figures());
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct GreenPool {
    inner: Arc<Inner>,
}

struct Inner {
    device: Device,
    label: String,
    gate: Mutex<Gate>,
    changed: Condvar,
    /// Of whoever is [switching](Gate::switching), who may call the driver meanwhile: the drop of a
    /// lease, perhaps in a host function, never waits for this.
    parked: Mutex<Parked>,
    #[allow(dead_code, reason = "held, not read")]
    claim: Claim,
}

/// Releases that wait tell nobody when they become possible.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Who has the device.
#[derive(Default)]
struct Gate {
    /// Parts that are handed out.
    out: usize,
    /// Somebody is changing what is handed out.
    switching: bool,
    figures: GreenPoolFigures,
}

/// How a pool is made.
#[derive(Clone, Debug, Default)]
pub struct GreenPoolOptions {
    /// Partitionings that are kept at most, and splits of each of their parts; of more, the one that
    /// was not used for longest is destroyed, without a wait. None: as many as
    /// there are.
    pub max_partitionings: Option<usize>,
    /// What the device is used for: what a split is told that is refused.
    pub label: String,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// What a pool did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GreenPoolFigures {
    /// Leases.
    pub leases: u64,
    /// Leases of another partitioning than the one before.
    pub switches: u64,
    /// Parts that were [split](PooledPartition::split) again.
    pub splits: u64,
    /// Partitionings that were made, splits of parts among them, as below.
    pub made: u64,
    /// Partitionings that were destroyed.
    pub destroyed: u64,
    /// Partitionings that are kept now.
    pub kept: usize,
    /// Parts that are handed out now.
    pub out: usize,
}

impl GreenPoolFigures {
    /// What there is more and less, whatever came of the request.
    fn count(&mut self, did: Did) {
        self.made += u64::from(did.made);
        self.destroyed += did.destroyed;
    }
}

/// A partitioning that is handed out: its partitions in the order of the wishes; of
/// [`GreenPool::lease`].
#[derive(Debug)]
pub struct Lease {
    partitions: Vec<PooledPartition>,
    plan: Plan,
}

/// A partition of a [`Lease`]. It is back in the pool when this, its streams and what is bound to
/// them are dropped.
pub struct PooledPartition {
    lease: Arc<PartLease>,
}

/// One part that is out: held by the partition and by its streams.
struct PartLease {
    pool: Arc<Inner>,
    set: Arc<PartSet>,
    /// Which of the set's streams are taken.
    taken: Mutex<Vec<bool>>,
    /// What it is a part of, if not the device.
    whole: Option<Arc<Self>>,
}

/// Whether a stream is a pool's, which counts on knowing all work of its partitions.
pub(super) fn is_leased(stream: &Stream) -> bool {
    let owner = stream.owner();
    owner.is_some_and(|owner| owner.is::<Arc<PartLease>>())
}

impl PartLease {
    fn hand_out(
        pool: &Arc<Inner>,
        set: Arc<PartSet>,
        whole: Option<&Arc<Self>>,
    ) -> PooledPartition {
        PooledPartition {
            lease: Arc::new(Self {
                pool: Arc::clone(pool),
                set,
                taken: Mutex::default(),
                whole: whole.cloned(),
            }),
        }
    }
}

impl GreenPool {
    /// A pool without partitionings.
    ///
    /// # Errors
    /// [`Invalid::SplitInUse`]: the device is split already.
    pub fn new(device: &Device, options: GreenPoolOptions) -> Result<Self> {
        let GreenPoolOptions {
            max_partitionings,
            label,
            _non_exhaustive: (),
        } = options;
        release::drain();
        let claim = claim(*device, &label, Overlap::Refuse, None)?;
        Ok(Self {
            inner: Arc::new(Inner {
                device: *device,
                label,
                gate: Mutex::default(),
                changed: Condvar::new(),
                parked: Mutex::new(Parked::new(max_partitionings)),
                claim,
            }),
        })
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.inner.device
    }

    /// Hands out a partitioning, when all parts of the last one are back: waits for that. (A thread
    /// that has a part itself, or has forgotten one, waits for ever.) Its label and overlap are the
    /// pool's.
    ///
    /// # Errors
    /// As for [`SmResource::partition`](super::SmResource::partition) and
    /// [`GreenContext::new`](super::GreenContext::new), for one that was not used before;
    /// [`Error::InHostFunction`].
    pub fn lease(&self, partitioning: &Partitioning) -> Result<Lease> {
        refuse_inside()?;
        loop {
            // What waits for its release may be the last to hold a part.
            release::drain();
            let gate = self.inner.gate()?;
            let is_free = gate.out == 0 && !gate.switching;
            if is_free {
                return self.switch(gate, partitioning);
            }
            let changed = self.inner.changed.wait_timeout(gate, LOOK_AGAIN);
            drop(changed.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// As [`lease`](Self::lease), without a wait.
    ///
    /// # Errors
    /// [`Invalid::PoolInUse`] if parts of the last partitioning are out.
    pub fn try_lease(&self, partitioning: &Partitioning) -> Result<Lease> {
        refuse_inside()?;
        release::drain();
        let gate = self.inner.gate()?;
        if gate.out != 0 || gate.switching {
            return Err(Invalid::PoolInUse {
                holder: self.inner.label.clone(),
                parts: gate.out,
            }
            .into());
        }
        self.switch(gate, partitioning)
    }

    fn switch(&self, mut gate: MutexGuard<'_, Gate>, partitioning: &Partitioning) -> Result<Lease> {
        gate.switching = true;
        drop(gate);
        // Whatever happens, others get their turn.
        let switching = Switching(&self.inner);
        let mut did = Did::default();
        let handed = {
            let mut parked = self.inner.parked();
            let label = &self.inner.label;
            parked.hand_out(self.inner.device, label, partitioning, &mut did)
        };
        self.inner.gate()?.figures.count(did);
        let (plan, sets) = handed?;
        let lease = |set| PartLease::hand_out(&self.inner, set, None);
        let partitions: Vec<PooledPartition> = sets.into_iter().map(lease).collect();
        {
            let mut gate = self.inner.gate()?;
            gate.out = partitions.len();
            gate.figures.leases += 1;
            gate.figures.switches += u64::from(did.switched);
        }
        drop(switching);
        Ok(Lease { partitions, plan })
    }

    /// Destroys partitionings until `keep` are left: those that were not used for longest, and not
    /// the one that is out. The splits of their parts are destroyed with them.
    ///
    /// # Errors
    /// [`Invalid::PoolInUse`] while somebody is switching; [`Error::InHostFunction`].
    pub fn trim(&self, keep: usize) -> Result<()> {
        refuse_inside()?;
        let mut gate = self.inner.gate()?;
        if gate.switching {
            return Err(Invalid::PoolInUse {
                holder: self.inner.label.clone(),
                parts: gate.out,
            }
            .into());
        }
        gate.switching = true;
        drop(gate);
        let switching = Switching(&self.inner);
        let destroyed = self.inner.parked().trim(keep);
        self.inner.gate()?.figures.destroyed += destroyed;
        drop(switching);
        Ok(())
    }

    /// What the pool did up to now.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn figures(&self) -> Result<GreenPoolFigures> {
        let gate = self.inner.gate()?;
        let GreenPoolFigures {
            made, destroyed, ..
        } = gate.figures;
        Ok(GreenPoolFigures {
            kept: usize::try_from(made.saturating_sub(destroyed)).unwrap_or(usize::MAX),
            out: gate.out,
            ..gate.figures
        })
    }
}

/// The right to call the driver for a pool.
struct Switching<'a>(&'a Inner);

impl Drop for Switching<'_> {
    fn drop(&mut self) {
        if let Ok(mut gate) = self.0.gate() {
            gate.switching = false;
            self.0.changed.notify_all();
        }
    }
}

impl Inner {
    fn gate(&self) -> Result<MutexGuard<'_, Gate>> {
        // There a thread that is no more may have the lock.
        if fork::in_child() {
            return Err(Error::Forked);
        }
        Ok(self.gate.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn parked(&self) -> MutexGuard<'_, Parked> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PartLease {
    fn drop(&mut self) {
        if self.whole.is_some() {
            // It is the whole that is out.
            return;
        }
        if let Ok(mut gate) = self.pool.gate() {
            gate.out = gate.out.saturating_sub(1);
            if gate.out == 0 {
                self.pool.changed.notify_all();
            }
        }
    }
}

impl Lease {
    /// What the partitions have.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The partitions, each for itself.
    pub fn into_partitions(self) -> Vec<PooledPartition> {
        self.partitions
    }
}

impl std::ops::Deref for Lease {
    type Target = [PooledPartition];

    fn deref(&self) -> &[PooledPartition] {
        &self.partitions
    }
}

impl PooledPartition {
    /// How many SMs the partition has, as the driver counts.
    pub fn sm_count(&self) -> u32 {
        self.lease.set.green.sm_count()
    }

    /// The device's primary context, which memory and kernels belong to.
    pub fn context(&self) -> &Context {
        self.lease.set.green.context()
    }

    /// A stream of this partition, of priority 0: one that is kept, or a new one.
    ///
    /// # Errors
    /// As for [`GreenContext::stream_with`](super::GreenContext::stream_with).
    pub fn stream(&self) -> Result<Stream> {
        self.stream_with(StreamOptions::default())
    }

    /// A stream of this partition: one that is kept and not taken in this lease, or a new one. It is
    /// the pool's, and goes back to it with the lease, with what it was set to
    /// ([`Stream::set_priority`] and its kin); it does not tell its green context, and
    /// [`GreenContext::of_stream`](super::GreenContext::of_stream) refuses it.
    ///
    /// # Errors
    /// As for [`GreenContext::stream_with`](super::GreenContext::stream_with).
    pub fn stream_with(&self, options: StreamOptions) -> Result<Stream> {
        // There a thread that is no more may have a lock.
        if fork::in_child() {
            return Err(Error::Forked);
        }
        let stream = self.lease.set.stream(options, &self.lease.taken)?;
        Ok(Stream::leased(&stream, Arc::clone(&self.lease)))
    }

    /// Splits the partition again, as the device is split by [`GreenPool::lease`], and keeps what that
    /// makes: the second time nothing is created. The streams of the smaller partitions come behind the
    /// work of the whole, and the other way round when the whole is handed out the next time. It is out
    /// for as long as one of the smaller ones is.
    ///
    /// # Errors
    /// With the partition given back: [`Invalid::PartitionInUse`] if it has streams; as for
    /// [`SmResource::partition`](super::SmResource::partition) and
    /// [`GreenContext::new`](super::GreenContext::new), for a split that was not used before;
    /// [`Error::InHostFunction`].
    ///
    /// ```no_run
    /// use cuda_safe::Device;
    /// use cuda_safe::green::{GreenPool, GreenPoolOptions, Partitioning, Wish};
    ///
    /// let pool = GreenPool::new(&Device::get(0)?, GreenPoolOptions::default())?;
    /// let lease = pool.lease(&Partitioning {
    ///     wishes: vec![Wish::Sms(64), Wish::Rest],
    ///     ..Default::default()
    /// })?;
    /// let mut partitions = lease.into_partitions();
    /// let quarters = partitions.remove(0).split(&Partitioning {
    ///     wishes: vec![Wish::Percent(25); 4],
    ///     ..Default::default()
    /// })?;
    /// let stream = quarters[3].stream()?;
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    pub fn split(self, partitioning: &Partitioning) -> Result<Lease, Rejected<Self>> {
        match self.try_split(partitioning) {
            Ok((plan, sets)) => {
                let whole = &self.lease;
                let part = |set| PartLease::hand_out(&whole.pool, set, Some(whole));
                let partitions = sets.into_iter().map(part).collect();
                Ok(Lease { partitions, plan })
            }
            Err(error) => Err(Rejected::new(error, self)),
        }
    }

    fn try_split(&self, partitioning: &Partitioning) -> Result<(Plan, Vec<Arc<PartSet>>)> {
        refuse_inside()?;
        // There a thread that is no more may have a lock.
        if fork::in_child() {
            return Err(Error::Forked);
        }
        let pool = &self.lease.pool;
        // What waits for its release may be the last to hold a stream.
        release::drain();
        // Its streams hold it; nobody else can ask for one.
        if Arc::strong_count(&self.lease) != 1 {
            let holder = pool.label.clone();
            return Err(Invalid::PartitionInUse { holder }.into());
        }
        let mut did = Did::default();
        let set = &self.lease.set;
        let handed = set.split(&pool.label, partitioning, &mut did);
        let mut gate = pool.gate()?;
        gate.figures.count(did);
        gate.figures.splits += u64::from(handed.is_ok());
        handed
    }
}

impl fmt::Debug for GreenPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GreenPool")
            .field("device", &self.inner.device)
            .field("label", &self.inner.label)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for PooledPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledPartition")
            .field("green", &self.lease.set.green)
            .finish()
    }
}
