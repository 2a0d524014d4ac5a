//! Operations of the lanes of a warp together.

use super::access::Context;
use super::fault::Raise;
use super::registers::{LANES, each_lane};
use super::warp::{Warp, lanes_of};
use crate::number::f32 as single;
use crate::program::{Redux, Shuffle, Together, Vote};

impl Warp {
    /// Executes an operation for the lanes `here`, which are all of the mask `members` that have not exited.
    pub(super) fn execute_together(
        &mut self,
        cx: &mut Context<'_, '_>,
        (here, members): (u32, u32),
        operation: &Together,
    ) -> Result<(), Raise> {
        let registers = &mut self.registers;
        match *operation {
            Together::Sync => {}
            Together::Matrix(ref matrix) => self.execute_matrix(cx, here, matrix)?,
            Together::Shuffle { kind, d, p, a, b, c } => {
                let a = registers.narrow[a as usize];
                let (b, c) = (registers.narrow[b as usize], registers.narrow[c as usize]);
                let mut valid = 0;
                let mut results = [0; LANES];
                each_lane(here, |lane| {
                    let (source, is_valid) = shuffle(kind, lane as u32, b[lane], c[lane]);
                    // A lane that does not take part gives 0.
                    results[lane] = match members >> source & 1 {
                        0 => 0,
                        _ => a[source as usize % LANES],
                    };
                    valid |= u32::from(is_valid) << lane;
                });
                if let Some(d) = d {
                    registers.set(here, d, |lane| results[lane]);
                }
                if let Some(p) = p {
                    registers.set_predicate(here, p, valid);
                }
            }
            Together::Vote { vote, d, a } => {
                let trues = registers.condition(a) & here;
                let lanes = match vote {
                    Vote::All => trues == here,
                    Vote::Any => trues != 0,
                    Vote::Uniform => trues == here || trues == 0,
                    Vote::Ballot => {
                        registers.set(here, d, |_| trues);
                        return Ok(());
                    }
                };
                registers.set_predicate(here, d, if lanes { here } else { 0 });
            }
            Together::MatchAny { bits, d, a } => {
                let values = values(registers, bits, a);
                let mut results = [0u32; LANES];
                each_lane(here, |lane| {
                    each_lane(here, |other| {
                        results[lane] |= u32::from(values[lane] == values[other]) << other;
                    });
                });
                registers.set(here, d, |lane| results[lane]);
            }
            Together::MatchAll { bits, d, p, a } => {
                let values = values(registers, bits, a);
                let first = values[here.trailing_zeros() as usize % LANES];
                let is_same = lanes_of(here).all(|lane| values[lane] == first);
                if let Some(d) = d {
                    registers.set(here, d, |_| if is_same { here } else { 0u32 });
                }
                if let Some(p) = p {
                    registers.set_predicate(here, p, if is_same { here } else { 0 });
                }
            }
            Together::Redux { function, d, a } => {
                let values = registers.narrow[a as usize];
                let of_lanes = lanes_of(here).map(|lane| values[lane]);
                let result = of_lanes.reduce(|a, b| redux(function, a, b));
                let result = match (function, result) {
                    (Redux::Float(_, true, _), Some(one)) => Some(one & 0x7fff_ffff),
                    (_, result) => result,
                };
                registers.set(here, d, |_| result.unwrap_or(0));
            }
            Together::Elect { d, p } => {
                let leader = (members & self.alive).trailing_zeros();
                if let Some(d) = d {
                    registers.set(here, d, |_| leader);
                }
                registers.set_predicate(here, p, 1u32.checked_shl(leader).unwrap_or(0));
            }
        }
        Ok(())
    }
}

fn values(registers: &super::registers::Registers, bits: u32, a: u32) -> [u64; LANES] {
    match bits {
        64 => registers.wide[a as usize],
        _ => registers.narrow[a as usize].map(u64::from),
    }
}

fn redux(function: Redux, a: u32, b: u32) -> u32 {
    use crate::program::Int;
    match function {
        Redux::And => a & b,
        Redux::Or => a | b,
        Redux::Xor => a ^ b,
        Redux::Add => a.wrapping_add(b),
        Redux::Min(Int::S32) => (a as i32).min(b as i32) as u32,
        Redux::Max(Int::S32) => (a as i32).max(b as i32) as u32,
        Redux::Min(_) => a.min(b),
        Redux::Max(_) => a.max(b),
        Redux::Float(is_max, is_abs, nan) => {
            let (a, b) = if is_abs { (a & 0x7fff_ffff, b & 0x7fff_ffff) } else { (a, b) };
            match is_max {
                true => single::max(a, b, false, nan, false),
                false => single::min(a, b, false, nan, false),
            }
        }
    }
}

/// Returns the lane whose value `shfl` reads, and whether it is in range.
pub(super) fn shuffle(kind: Shuffle, lane: u32, b: u32, c: u32) -> (u32, bool) {
    let b = b & 31;
    let (clamp, segment) = (c & 31, c >> 8 & 31);
    let most = lane & segment | clamp & !segment;
    let least = lane & segment;
    let (source, is_valid) = match kind {
        Shuffle::Up => {
            let source = lane.wrapping_sub(b);
            (source, source as i32 >= most as i32)
        }
        Shuffle::Down => (lane + b, lane + b <= most),
        Shuffle::Butterfly => (lane ^ b, lane ^ b <= most),
        Shuffle::Index => {
            let source = least | b & !segment;
            (source, source <= most)
        }
    };
    if is_valid { (source, true) } else { (lane, false) }
}
