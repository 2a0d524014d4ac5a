//! Bulk asynchronous copies.

use super::Problem;
use super::function::Decoder;
use super::memory::pending;
use super::words::{Words, bits};
use crate::program::{
    Address, Bank, Bulk, CopyGroup, Element, Op, Slot, Space, TensorAccess, TensorCopy,
    TensorReduction,
};
use crate::syntax::{Instruction, Operand, Type};

/// The modifier of a copy whose bytes a barrier counts.
const COUNTED: &str = "mbarrier::complete_tx::bytes";

/// The operands of a copy that are not taken yet.
struct Rest<'o, 'a> {
    operands: std::slice::Iter<'o, Operand<'a>>,
}

impl<'o, 'a> Rest<'o, 'a> {
    fn next(&mut self) -> Result<&'o Operand<'a>, Problem> {
        self.operands.next().ok_or_else(|| Problem::Invalid("an operand is missing".into()))
    }

    /// Takes the policy of caches, which is ignored, and checks that no operand is left.
    fn end(mut self, has_policy: bool) -> Result<(), Problem> {
        if has_policy {
            self.next()?;
        }
        match self.operands.next() {
            None => Ok(()),
            Some(_) => Problem::invalid("there are too many operands"),
        }
    }
}

/// Takes the state spaces of the target and of the source.
fn spaces(words: &mut Words<'_>) -> Result<[Space; 2], Problem> {
    let space_of = |word: &str| match word {
        "global" => Some(Space::Global),
        "shared::cta" | "shared::cluster" => Some(Space::Shared),
        _ => None,
    };
    let spaces: Vec<Space> = words.peek().iter().filter_map(|word| space_of(word)).collect();
    words.drop_all(|word| space_of(word).is_some());
    match spaces[..] {
        [Space::Global, Space::Global] => Problem::invalid("there is no copy within global memory"),
        [to, from] => Ok([to, from]),
        _ => Problem::invalid("a copy has a target and a source"),
    }
}

impl<'a> Decoder<'_, '_, 'a> {
    /// Decodes a bulk copy or an instruction on its groups. Copies are complete when they are issued.
    pub(super) fn copy_bulk(
        &mut self,
        its: &'a Instruction<'a>,
        words: &mut Words<'a>,
        is_reduction: bool,
    ) -> Result<(), Problem> {
        let operands = &its.operands;
        let is_newer = |word: &&&str| {
            ["tile::gather4", "tile::scatter4", "cp_mask", "ignore_oob"].contains(*word)
                || ["im2col::w", "cta_group"].iter().any(|prefix| word.starts_with(prefix))
        };
        if let Some(word) = words.peek().iter().find(is_newer) {
            return Problem::unsupported(format!("the modifier .{word}, which needs sm_100"));
        }
        if words.take("commit_group") {
            self.emit(Op::CopyGroup(CopyGroup::CommitBulk));
            return Ok(());
        }
        if words.take("wait_group") {
            let is_read = words.take("read");
            let pending = pending(operands);
            self.emit(Op::CopyGroup(CopyGroup::WaitBulk { pending, is_read }));
            return Ok(());
        }
        let has_policy = words.take("L2::cache_hint");
        let is_prefetch = words.take("prefetch");
        let mut rest = Rest { operands: operands.iter() };
        if words.take("tensor") {
            return self.copy_tensor(rest, words, (is_reduction, is_prefetch), has_policy);
        }
        if is_prefetch {
            words.drop_all(|word| matches!(word, "L2" | "global"));
            let from = self.address(rest.next()?, Space::Global)?;
            let size = self.source(rest.next()?, Type::U32)?;
            self.emit(Op::PrefetchBulk { from, size });
            return rest.end(has_policy);
        }
        let [to_space, from_space] = spaces(words)?;
        let has_barrier = words.take(COUNTED);
        let has_group = words.take("bulk_group");
        if has_barrier != (to_space == Space::Shared) || has_group == has_barrier {
            return Problem::invalid(
                "a barrier counts the bytes in shared memory, and a group has the others",
            );
        }
        let is_multicast = words.take("multicast::cluster");
        let reduce = match is_reduction {
            true => {
                let (function, ty) = self.atomic_function(words)?;
                Some((function, bits(ty) / 8))
            }
            false => None,
        };
        let to = self.address(rest.next()?, to_space)?;
        let from = self.address(rest.next()?, from_space)?;
        let size = self.source(rest.next()?, Type::U32)?;
        let barrier = match has_barrier {
            true => Some(self.address(rest.next()?, Space::Shared)?),
            false => None,
        };
        let multicast = self.multicast(&mut rest, is_multicast)?;
        self.emit(Op::CopyBulk(Box::new(Bulk { to, from, size, barrier, reduce, multicast })));
        rest.end(has_policy)
    }

    /// Returns the register with the mask of the blocks that a copy goes to.
    fn multicast(
        &mut self,
        rest: &mut Rest<'_, 'a>,
        is_multicast: bool,
    ) -> Result<Option<Slot>, Problem> {
        match is_multicast {
            true => self.source(rest.next()?, Type::U16).map(Some),
            false => Ok(None),
        }
    }

    fn copy_tensor(
        &mut self,
        mut rest: Rest<'_, 'a>,
        words: &mut Words<'a>,
        (is_reduction, is_prefetch): (bool, bool),
        has_policy: bool,
    ) -> Result<(), Problem> {
        let rank = match words.one_of(&["1d", "2d", "3d", "4d", "5d"]) {
            Some(name) => usize::from(name.as_bytes()[0] - b'0'),
            None => return Problem::invalid("the number of dimensions is missing"),
        };
        let is_im2col = match words.one_of(&["tile", "im2col", "im2col_no_offs"]) {
            None | Some("tile") => false,
            Some(_) if rank < 3 => {
                return Problem::invalid("columns have three dimensions or more");
            }
            Some(_) => true,
        };
        let has_barrier = words.take(COUNTED);
        let has_group = words.take("bulk_group");
        let is_multicast = words.take("multicast::cluster");
        let function = match is_reduction {
            true => Some(reduction(words)?),
            false => None,
        };
        if is_prefetch {
            words.drop_all(|word| matches!(word, "L2" | "global"));
            let (map, coordinates) = self.tensor(rest.next()?, rank)?;
            let offsets = self.offsets(&mut rest, is_im2col, rank)?;
            let access = TensorAccess::Prefetch;
            self.emit(Op::CopyTensor(Box::new(TensorCopy { map, coordinates, offsets, access })));
            return rest.end(has_policy);
        }
        let [to, from] = spaces(words)?;
        let is_load = match (to, from) {
            (Space::Shared, Space::Global) => true,
            (Space::Global, Space::Shared) => false,
            _ => return Problem::invalid("a tensor is in global memory"),
        };
        if has_barrier != is_load || has_group == is_load || is_load && is_reduction {
            return Problem::invalid(
                "a barrier counts the bytes in shared memory, and a group has the others",
            );
        }
        let copy = if is_load {
            let to = self.address(rest.next()?, Space::Shared)?;
            let (map, coordinates) = self.tensor(rest.next()?, rank)?;
            let barrier = self.address(rest.next()?, Space::Shared)?;
            let offsets = self.offsets(&mut rest, is_im2col, rank)?;
            let multicast = self.multicast(&mut rest, is_multicast)?;
            let bytes = self.unused(Bank::Narrow);
            let access = TensorAccess::Load { to, barrier, bytes, multicast };
            TensorCopy { map, coordinates, offsets, access }
        } else {
            let (map, coordinates) = self.tensor(rest.next()?, rank)?;
            let from = self.address(rest.next()?, Space::Shared)?;
            // Stores have no offsets.
            let offsets = is_im2col.then(|| [].into());
            let access = TensorAccess::Store { from, function };
            TensorCopy { map, coordinates, offsets, access }
        };
        self.emit(Op::CopyTensor(Box::new(copy)));
        rest.end(has_policy)
    }

    /// Returns the address of a map and the registers of the coordinates.
    fn tensor(
        &mut self,
        operand: &Operand<'a>,
        rank: usize,
    ) -> Result<(Address, Box<[Slot]>), Problem> {
        let Operand::Address(address) = operand else {
            return Problem::invalid("an operand is not a tensor with coordinates");
        };
        let [coordinates] = &address.rest[..] else {
            return Problem::invalid("the coordinates are missing");
        };
        let map = self.address_of(&address.base, address.offset, Space::Generic)?;
        Ok((map, self.slots(coordinates, Type::S32, rank)?))
    }

    /// Returns the registers of the offsets of pixels, if the copy has them.
    fn offsets(
        &mut self,
        rest: &mut Rest<'_, 'a>,
        is_im2col: bool,
        rank: usize,
    ) -> Result<Option<Box<[Slot]>>, Problem> {
        match is_im2col {
            true => self.slots(rest.next()?, Type::U16, rank - 2).map(Some),
            false => Ok(None),
        }
    }

    /// Returns the registers of a vector of so many narrow elements.
    fn slots(
        &mut self,
        operand: &Operand<'a>,
        ty: Type,
        count: usize,
    ) -> Result<Box<[Slot]>, Problem> {
        let slots = self.elements(operand, ty)?.into_iter().map(|element| match element {
            Element::Narrow(slot) => Ok(slot),
            _ => Problem::invalid("an element of a vector has another size"),
        });
        let slots = slots.collect::<Result<Box<[Slot]>, Problem>>()?;
        match slots.len() == count {
            true => Ok(slots),
            false => Problem::invalid(format!("a vector does not have {count} elements")),
        }
    }
}

/// Takes the function of a reduction.
fn reduction(words: &mut Words<'_>) -> Result<TensorReduction, Problem> {
    Ok(match words.one_of(&["add", "min", "max", "inc", "dec", "and", "or", "xor"]) {
        Some("add") => TensorReduction::Add,
        Some("min") => TensorReduction::Min,
        Some("max") => TensorReduction::Max,
        Some("inc") => TensorReduction::Inc,
        Some("dec") => TensorReduction::Dec,
        Some("and") => TensorReduction::And,
        Some("or") => TensorReduction::Or,
        Some(_) => TensorReduction::Xor,
        None => return Problem::invalid("the function is missing"),
    })
}
