//! Bulk copies of bytes.

use super::access::Context;
use super::atomic::apply;
use super::fault::{FaultKind, Raise};
use super::registers::{LANES, Slot};
use super::warp::{Warp, lanes_of};
use crate::device::Access;
use crate::program::{
    Address, AtomicFunction, Bulk, CLUSTER_STEP, Float, Mbarrier, Order, Scope, Space,
};
use crate::tensor_map::UNIT;

/// The order of the completion of a copy to shared memory.
const COMPLETION: Order = Order { releases: true, ..Order::relaxed(Scope::Cluster) };

impl Warp {
    /// Copies bytes, or combines them with those at the destination. The barrier counts the bytes.
    pub(super) fn copy_bulk(
        &mut self,
        cx: &mut Context<'_, '_>,
        mask: u32,
        bulk: &Bulk,
    ) -> Result<(), Raise> {
        let (to, from) = (self.addresses(&bulk.to), self.addresses(&bulk.from));
        let sizes = self.registers.narrow[bulk.size as usize];
        for lane in lanes_of(mask) {
            let (to, from, size) = (to[lane], from[lane], sizes[lane]);
            check_aligned(lane, &[to, from], size)?;
            let is_between_blocks = bulk.from.space == Space::Shared && bulk.barrier.is_some();
            if is_between_blocks && !cx.launch.is_clustered {
                let text = "a copy between blocks needs a launch with clusters";
                return Err(Raise::new(FaultKind::IllegalInstruction, lane, text));
            }
            check_blocks(cx, lane, self.blocks(lane, bulk.multicast))?;
            for to in self.targets(lane, to, bulk.multicast) {
                self.copy_bytes(cx, lane, (to, from, size), bulk)?;
            }
            if let Some(barrier) = &bulk.barrier {
                self.complete_copy(cx, lane, (barrier, bulk.multicast), bulk.size)?;
            }
        }
        Ok(())
    }

    /// Checks the operands of a prefetch, which has no effect.
    pub(super) fn prefetch_bulk(&self, mask: u32, from: &Address, size: Slot) -> Result<(), Raise> {
        let (from, sizes) = (self.addresses(from), &self.registers.narrow[size as usize]);
        lanes_of(mask).try_for_each(|lane| check_aligned(lane, &[from[lane]], sizes[lane]))
    }

    fn copy_bytes(
        &mut self,
        cx: &mut Context<'_, '_>,
        lane: usize,
        (to, from, size): (u64, u64, u32),
        bulk: &Bulk,
    ) -> Result<(), Raise> {
        let (step, access) = bulk.reduce.map_or((8, Access::Write), |its| (its.1, Access::Atomic));
        for offset in (0..u64::from(size)).step_by(step as usize) {
            let source = (bulk.from.space, from.wrapping_add(offset));
            let source = self.place(cx, lane, source, u64::from(step), Access::Read)?;
            let value = self.read(cx, lane, source, step)?;
            let target = (bulk.to.space, to.wrapping_add(offset));
            let target = self.place(cx, lane, target, u64::from(step), access)?;
            match bulk.reduce {
                None => self.write(cx, lane, target, step, value)?,
                Some((function, _)) => {
                    self.update(cx, lane, target, step, |old, is_global| {
                        reduce(function, false, (old, value), is_global)
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Returns the mask of the blocks to which a lane copies, if the copy has one.
    pub(super) fn blocks(&self, lane: usize, multicast: Option<Slot>) -> Option<u16> {
        multicast.map(|mask| self.registers.narrow[mask as usize][lane] as u16)
    }

    /// Returns the addresses in shared memory to which a lane copies: with a mask of blocks, the same offset in each of
    /// them.
    pub(super) fn targets(&self, lane: usize, address: u64, multicast: Option<Slot>) -> Vec<u64> {
        let Some(blocks) = self.blocks(lane, multicast) else { return vec![address] };
        let blocks = (0..16).filter(|rank| blocks >> rank & 1 != 0);
        blocks.map(|rank| (rank + 1) * CLUSTER_STEP + address % CLUSTER_STEP).collect()
    }

    /// Tells the barrier of each target that a copy of a lane is complete. `bytes` is the register with their number.
    pub(super) fn complete_copy(
        &mut self,
        cx: &mut Context<'_, '_>,
        lane: usize,
        (barrier, multicast): (&Address, Option<Slot>),
        bytes: Slot,
    ) -> Result<(), Raise> {
        let barrier = self.addresses(barrier)[lane];
        for barrier in self.targets(lane, barrier, multicast) {
            let operation = (Mbarrier::CompleteTx { bytes }, COMPLETION);
            self.mbarrier(cx, 1 << lane, (Space::Shared, [barrier; LANES]), operation)?;
        }
        Ok(())
    }
}

/// Checks that the cluster has the blocks of a mask.
pub(super) fn check_blocks(
    cx: &Context<'_, '_>,
    lane: usize,
    mask: Option<u16>,
) -> Result<(), Raise> {
    let count = cx.shared.len();
    match mask {
        Some(mask) if u32::from(mask) >> count != 0 => {
            let text = format!("a copy to the blocks {mask:#x} of a cluster of {count}");
            Err(Raise::new(FaultKind::Trap, lane, text))
        }
        _ => Ok(()),
    }
}

/// Checks that the addresses and the size of a copy are multiples of 16.
fn check_aligned(lane: usize, addresses: &[u64], size: u32) -> Result<(), Raise> {
    let all = addresses.iter().fold(u64::from(size), |all, address| all | address);
    if all % UNIT == 0 {
        return Ok(());
    }
    let addresses: Vec<String> = addresses.iter().map(|its| format!("{its:#x}")).collect();
    let text = format!(
        "a bulk copy of {size} bytes at {}, which are not multiples of {UNIT}",
        addresses.join(" and ")
    );
    Err(Raise::new(FaultKind::MisalignedAddress, lane, text))
}

/// Returns the result of a reduction. Unlike atomic operations, those of bulk copies keep denormals in global memory,
/// unless the type of a tensor has none.
pub(super) fn reduce(
    function: AtomicFunction,
    is_ftz: bool,
    (old, value): (u64, u64),
    is_global: bool,
) -> u64 {
    let flushes = is_ftz || function != AtomicFunction::AddFloat(Float::F32);
    apply(function, old, value, 0, is_global && flushes)
}
