//! Leases of the pool of green contexts, if it has the device.

use super::worker::{Item, Known, Worker};
use cuda_safe::green::{Partitioning, Wish};
use cuda_safe::{DeviceBuffer, Error, Invalid, Result};

pub(super) fn lease(worker: &mut Worker<'_>) -> Result<()> {
    let Some((pool, unit)) = &worker.arena.pool else {
        return Ok(());
    };
    let first = Wish::Sms(*unit);
    let second = match worker.below(2) {
        0 => Wish::Sms(*unit),
        _ => Wish::Rest,
    };
    let lease = match pool.try_lease(&Partitioning {
        wishes: vec![first, second],
        ..Partitioning::default()
    }) {
        Ok(lease) => lease,
        // Another thread has it.
        Err(Error::Invalid(why)) if matches!(*why, Invalid::PoolInUse { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    assert_eq!(lease.len(), 2);
    for partition in lease.into_partitions() {
        let elements = worker.numbers();
        let buffer = DeviceBuffer::from_slice(&partition.stream()?, &elements)?;
        // The partition is out until the buffer is dropped, by whichever thread.
        worker.keep(Item::Buffer(Known { buffer, elements }));
    }
    Ok(())
}
