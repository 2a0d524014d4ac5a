//! Barriers in shared memory.
//!
//! The 64 bits of a barrier are: the expected arrivals (20 bits), the pending arrivals (20 bits), the pending
//! bytes (21 bits, biased), and the phase (1 bit). The state that an arrival returns has the phase before it.

use super::access::{Context, Place};
use super::fault::{FaultKind, Raise};
use super::registers::{LANES, Slot};
use super::warp::{Warp, lanes_of};
use super::watch::Step;
use crate::device::Access;
use crate::program::{Mbarrier, Order, Space};

/// The bits of a count.
const COUNT: u64 = (1 << 20) - 1;
/// The number that stands for no pending bytes.
const BIAS: i64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) expected: u64,
    pub(super) pending: u64,
    pub(super) bytes: i64,
    pub(super) phase: u64,
}

impl State {
    fn unpack(bits: u64) -> Self {
        Self {
            expected: bits & COUNT,
            pending: bits >> 20 & COUNT,
            bytes: (bits >> 40 & 0x1f_ffff) as i64 - BIAS,
            phase: bits >> 62 & 1,
        }
    }

    fn pack(self) -> u64 {
        let bytes = (self.bytes + BIAS) as u64 & 0x1f_ffff;
        self.expected & COUNT | (self.pending & COUNT) << 20 | bytes << 40 | self.phase << 62
    }

    /// Begins the next phase if nothing is pending.
    fn complete(&mut self) {
        if self.pending == 0 && self.bytes == 0 {
            self.phase ^= 1;
            self.pending = self.expected;
        }
    }
}

impl Warp {
    pub(super) fn mbarrier(
        &mut self,
        cx: &mut Context<'_, '_>,
        mask: u32,
        (space, addresses): (Space, [u64; LANES]),
        (operation, order): (Mbarrier, Order),
    ) -> Result<(), Raise> {
        if let Mbarrier::PendingCount { d, state } = operation {
            let states = self.registers.wide[state as usize];
            self.registers.set(mask, d, |lane| State::unpack(states[lane]).pending as u32);
            return Ok(());
        }
        for lane in lanes_of(mask) {
            let place = (space, addresses[lane]);
            let place = self.place(cx, lane, place, 8, Access::Atomic)?;
            if !matches!(place, Place::Shared(..)) {
                let text = "a barrier is not in shared memory";
                return Err(Raise::new(FaultKind::InvalidAddressSpace, lane, text));
            }
            let mut state = State::unpack(self.read(cx, lane, place, 8)?);
            let mut wait = None;
            let phase = state.phase;
            if let (Some(watch), Place::Shared(rank, at)) = (&mut cx.watch, place) {
                let at = (rank, at as u32);
                watch.mbarrier(self, (cx.rank, cx.shared), (lane, at), (operation, order), &state);
            }
            let number =
                |slot: Slot, registers: &[[u32; LANES]]| u64::from(registers[slot as usize][lane]);
            let narrow = &self.registers.narrow;
            match operation {
                Mbarrier::Init { count } => {
                    let expected = number(count, narrow);
                    state = State { expected, pending: expected, bytes: 0, phase: 0 };
                }
                Mbarrier::Inval | Mbarrier::PendingCount { .. } => {}
                Mbarrier::ExpectTx { bytes } => {
                    state.bytes += number(bytes, narrow) as i64;
                }
                Mbarrier::CompleteTx { bytes } => {
                    state.bytes -= number(bytes, narrow) as i64;
                    state.complete();
                }
                Mbarrier::Arrive { state: d, count, expect, is_drop } => {
                    let before = state.pack();
                    if let Some(expect) = expect {
                        state.bytes += number(expect, narrow) as i64;
                    }
                    let count = count.map_or(1, |count| number(count, narrow));
                    if count > state.pending {
                        let text = format!(
                            "{count} arrivals at a barrier that expects {} more",
                            state.pending
                        );
                        return Err(Raise::new(FaultKind::Trap, lane, text));
                    }
                    if is_drop {
                        state.expected = state.expected.saturating_sub(count);
                    }
                    state.pending -= count;
                    state.complete();
                    if let Some(d) = d {
                        self.registers.wide[d as usize][lane] = before;
                    }
                }
                Mbarrier::TestWait { p, state: token } => {
                    let token = State::unpack(self.registers.wide[token as usize][lane]);
                    wait = Some((p, token.phase != state.phase));
                }
                Mbarrier::TestParity { p, parity } => {
                    wait = Some((p, number(parity, narrow) & 1 != state.phase));
                }
            }
            if let (Some(watch), Place::Shared(rank, at)) = (&mut cx.watch, place) {
                let step = match wait {
                    Some((_, is_over)) => Step::Wait { is_over },
                    None if matches!(operation, Mbarrier::Init { .. }) => Step::Init,
                    None => Step::Change {
                        completes: state.phase != phase,
                        of_copy: matches!(operation, Mbarrier::CompleteTx { .. }),
                    },
                };
                let at = (rank, at as u32);
                watch.mbarrier_step(self, (cx.rank, lane), at, order, step);
            }
            match wait {
                Some((p, is_over)) => {
                    self.registers.set_predicate(1 << lane, p, u32::from(is_over) << lane);
                }
                None => self.write(cx, lane, place, 8, state.pack())?,
            }
        }
        Ok(())
    }
}
