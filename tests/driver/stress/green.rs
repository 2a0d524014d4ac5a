//! Leases of the pool of green contexts, if it has the device.

use super::worker::{Item, Known, Worker};
use cuda_safe::green::{PartitionRequest, PartitionSize};
use cuda_safe::{DeviceBuffer, Error, Invalid, Result};

pub(super) fn lease(worker: &mut Worker<'_>) -> Result<()> {
    let Some((pool, unit)) = &worker.arena.pool else {
        return Ok(());
    };
    let first = PartitionSize::Sms(*unit);
    let second = match worker.below(2) {
        0 => PartitionSize::Sms(*unit),
        _ => PartitionSize::Rest,
    };
    let lease = match pool
        .try_lease(&PartitionRequest { sizes: vec![first, second], ..PartitionRequest::default() })
    {
        Ok(lease) => lease,
        // Another thread has the lease.
        Err(Error::Invalid(why)) if matches!(*why, Invalid::PoolInUse { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    assert_eq!(lease.len(), 2);
    for partition in lease.into_partitions() {
        let elements = worker.numbers();
        let buffer = DeviceBuffer::from_slice(&partition.stream()?, &elements)?;
        // The partition stays leased until a thread drops the buffer.
        worker.keep(Item::Buffer(Known { buffer, elements }));
    }
    Ok(())
}
