//! Where the work of the tenants runs.

use crate::error::{Error, Result};
use cuda_safe::device::attribute;
use cuda_safe::green::{
    GreenPool, GreenPoolOptions, Lease, PartitionRequest, PartitionSize, PooledPartition, SmProbe,
};
use cuda_safe::{Context, Device, Stream};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// Where the work of the tenants runs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Plan {
    /// All tenants share all SMs.
    Shared,
    /// Each tenant has a partition of its own. The sizes are proportional to these weights, one for each
    /// tenant, as closely as the driver can split the device. A driver for CUDA 12.4 creates partitions
    /// of one size.
    Weights(Vec<u32>),
}

/// The result of a change of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Switch {
    /// The number of SMs of each tenant.
    pub sms: Vec<u32>,
    /// How long the change waited for the requests that were being served.
    pub drain: Duration,
    /// How long the change took after that.
    pub split: Duration,
}

/// The streams of the tenants, and the right to change them.
#[derive(Debug)]
pub(crate) struct Placement {
    tenants: usize,
    context: Context,
    device_sms: u32,
    pool: GreenPool,
    /// The plan in use. Locked by one change at a time, so that no lock is taken twice.
    plan: Mutex<Plan>,
    /// A thread that serves a request reads this while it does so. The writer therefore waits for all of
    /// them, and the requests that follow wait for the writer.
    streams: RwLock<Streams>,
}

/// The streams of one plan. No stream if a plan failed and the previous one could not be restored.
#[derive(Debug, Default)]
struct Streams {
    // Dropped before the lease, which returns to the pool when its streams are dropped.
    streams: Vec<Stream>,
    sms: Vec<u32>,
    #[allow(dead_code, reason = "held, not read")]
    lease: Option<Lease>,
}

/// The stream of a tenant. While it exists, the plan does not change.
#[derive(Debug)]
pub(crate) struct Placed<'a> {
    streams: RwLockReadGuard<'a, Streams>,
    tenant: usize,
}

impl Placed<'_> {
    pub(crate) fn stream(&self) -> Result<&Stream> {
        self.streams.streams.get(self.tenant).ok_or(Error::NoPlan)
    }
}

impl Placement {
    pub(crate) fn new(device: &Device, tenants: usize) -> Result<Self> {
        // A pool keeps partitionings, because creating a green context is slow, and destroying it does
        // not free all of its memory.
        let options = GreenPoolOptions {
            max_partitionings: Some(8),
            label: "the server".to_owned(),
            ..Default::default()
        };
        let placement = Self {
            tenants,
            context: Context::primary(device)?,
            device_sms: device.attribute(attribute::MULTIPROCESSOR_COUNT)?,
            pool: GreenPool::new(device, options)?,
            plan: Mutex::new(Plan::Shared),
            streams: RwLock::default(),
        };
        *placement.write() = placement.create(&Plan::Shared)?;
        Ok(placement)
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Returns the stream of a tenant, and keeps the plan until the returned value is dropped.
    pub(crate) fn of_tenant(&self, tenant: usize) -> Placed<'_> {
        let streams = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        Placed { streams, tenant }
    }

    pub(crate) fn apply(&self, new: &Plan) -> Result<Switch> {
        if let Plan::Weights(weights) = new {
            if weights.len() != self.tenants || weights.contains(&0) {
                return Err(Error::Weights { weights: weights.clone(), tenants: self.tenants });
            }
        }
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        let start = Instant::now();
        let mut streams = self.write();
        let drained = Instant::now();
        // The pool leases one partitioning at a time, so the old one is returned first.
        *streams = Streams::default();
        match self.create(new) {
            Ok(created) => *streams = created,
            Err(error) => {
                *streams = self.create(&plan).unwrap_or_default();
                return Err(error);
            }
        }
        plan.clone_from(new);
        Ok(Switch { sms: streams.sms.clone(), drain: drained - start, split: drained.elapsed() })
    }

    fn create(&self, plan: &Plan) -> Result<Streams> {
        let Plan::Weights(weights) = plan else {
            let streams: Result<_, _> = (0..self.tenants).map(|_| self.context.stream()).collect();
            return Ok(Streams {
                streams: streams?,
                sms: vec![self.device_sms; self.tenants],
                lease: None,
            });
        };
        // Does not block: the previous lease was returned, or an object of it has leaked.
        let lease = self.pool.try_lease(&PartitionRequest {
            sizes: weights.iter().copied().map(PartitionSize::Weight).collect(),
            ..Default::default()
        })?;
        let streams: Result<_, _> = lease.iter().map(PooledPartition::stream).collect();
        Ok(Streams {
            streams: streams?,
            sms: lease.iter().map(PooledPartition::sm_count).collect(),
            lease: Some(lease),
        })
    }

    /// Runs a probe on the partitions, and returns the SMs on which each tenant's work runs.
    pub(crate) fn probe(&self) -> Result<Vec<BTreeSet<u32>>> {
        let probe = SmProbe::new(&self.context)?;
        // Requests would keep SMs from the probe.
        let streams = self.write();
        let sms = streams.streams.iter().map(|stream| Ok(probe.sms(stream)?));
        sms.collect()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Streams> {
        self.streams.write().unwrap_or_else(PoisonError::into_inner)
    }
}
