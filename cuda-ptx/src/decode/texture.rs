//! Reads of textures, and accesses of surfaces.

use super::Problem;
use super::function::{Decoder, Symbol};
use super::words::{Words, bits, int};
use crate::program::{
    AtomicFunction, Element, LevelOf, Op, Sample, Slot, SurfaceAccess, SurfaceFunction, TexelPlace,
};
use crate::syntax::{Instruction, Operand, Type};
use crate::texture::Boundary;

/// The arrangement of texels that an instruction names.
#[derive(Clone, Copy)]
struct Geometry {
    axes: usize,
    is_layered: bool,
    is_cubemap: bool,
}

/// Takes the geometry.
fn geometry(words: &mut Words<'_>) -> Result<Geometry, Problem> {
    let names = ["1d", "2d", "3d", "a1d", "a2d", "cube", "acube", "2dms", "a2dms"];
    let name = words.one_of(&names);
    let (axes, is_cubemap) = match name {
        Some("1d" | "a1d") => (1, false),
        Some("2d" | "a2d") => (2, false),
        Some("3d") => (3, false),
        Some("cube" | "acube") => (3, true),
        Some(_) => return Problem::unsupported("a texture of several samples"),
        None => return Problem::invalid("the geometry is missing"),
    };
    let is_layered = name.is_some_and(|name| name.starts_with('a'));
    Ok(Geometry { axes, is_layered, is_cubemap })
}

fn boundary(words: &mut Words<'_>) -> Result<Boundary, Problem> {
    match words.one_of(&["trap", "clamp", "zero"]) {
        Some("trap") | None => Ok(Boundary::Trap),
        Some("clamp") => Ok(Boundary::Clamp),
        Some(_) => Ok(Boundary::Zero),
    }
}

impl<'a> Decoder<'_, '_, 'a> {
    /// Decodes an instruction on a texture or surface. Returns whether it is one.
    pub(super) fn texture(
        &mut self,
        its: &'a Instruction<'a>,
        words: &mut Words<'a>,
    ) -> Result<bool, Problem> {
        let operands = &its.operands;
        match its.opcode().as_bytes() {
            b"tex" => self.sample(operands, words, None)?,
            b"tld4" => {
                let channel = match words.one_of(&["r", "g", "b", "a"]) {
                    Some("r") => 0,
                    Some("g") => 1,
                    Some("b") => 2,
                    Some(_) => 3,
                    None => return Problem::invalid("the channel is missing"),
                };
                self.sample(operands, words, Some(channel))?;
            }
            b"suld" | b"sust" | b"sured" => self.surface(its, words)?,
            b"txq" | b"suq" => self.query(operands, words, its.opcode() == "suq")?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns the register of a handle.
    fn handle(&mut self, operand: &Operand<'a>) -> Result<Slot, Problem> {
        if let Operand::Name(name) = operand {
            let is_register = matches!(self.symbol(name), Some(Symbol::Register { .. }));
            if !is_register && (self.symbol(name).is_some() || self.global(name).is_some()) {
                return Problem::unsupported("a texture or surface reference");
            }
        }
        self.source(operand, Type::B64)
    }

    /// Returns the registers of a vector of 32-bit operands.
    fn words_of(&mut self, operand: &Operand<'a>) -> Result<Vec<Slot>, Problem> {
        let elements = self.elements(operand, Type::B32)?;
        let slots = elements.into_iter().map(|element| match element {
            Element::Narrow(slot) => Ok(slot),
            _ => Problem::invalid("a coordinate does not have 32 bits"),
        });
        slots.collect()
    }

    /// Returns the registers of coordinates along the axes. More registers are not used.
    fn axes(&mut self, operand: &Operand<'a>, axes: usize) -> Result<[Slot; 3], Problem> {
        let slots = self.words_of(operand)?;
        if slots.len() < axes {
            return Problem::invalid("a coordinate is missing");
        }
        Ok(std::array::from_fn(|axis| slots[axis.min(axes - 1)]))
    }

    /// Returns the place in brackets: a handle with its coordinates.
    fn texel_place(
        &mut self,
        operand: &Operand<'a>,
        geometry: Geometry,
    ) -> Result<TexelPlace, Problem> {
        let Operand::Address(address) = operand else {
            return Problem::invalid("an operand is not a texture or surface with coordinates");
        };
        let coordinates = match &address.rest[..] {
            [coordinates] => coordinates,
            [_, _] => return Problem::unsupported("a sampler of its own"),
            _ => return Problem::invalid("the coordinates are missing"),
        };
        let object = self.handle(&address.base)?;
        let Geometry { axes, is_layered, is_cubemap } = geometry;
        let mut slots = self.words_of(coordinates)?;
        let first = usize::from(is_layered);
        if slots.len() < first + axes {
            return Problem::invalid("a coordinate is missing");
        }
        let layer = is_layered.then(|| slots.remove(0));
        let at = std::array::from_fn(|axis| slots[axis.min(axes - 1)]);
        Ok(TexelPlace { object, layer, axes, at, is_cubemap })
    }

    fn sample(
        &mut self,
        operands: &'a [Operand<'a>],
        words: &mut Words<'a>,
        gather: Option<usize>,
    ) -> Result<(), Problem> {
        let level = words.one_of(&["base", "level", "grad"]);
        let geometry = geometry(words)?;
        let is_pair = words.one_of(&["v2", "v4"]) == Some("v2");
        let ty = words.ty()?;
        let is_index = words.ty()? == Type::S32;
        let (elements, resident) = match self.operand(operands, 0)? {
            Operand::Pair(vector, p) => (vector.as_ref(), Some(self.target(p, Type::Pred)?)),
            vector => (vector, None),
        };
        let of_register = if ty == Type::F16x2 { Type::B32 } else { ty };
        let d = self.elements(elements, of_register)?;
        if is_pair != (ty == Type::F16x2) || d.len() != if is_pair { 2 } else { 4 } {
            return Problem::invalid("the result does not have four channels");
        }
        let place = self.texel_place(self.operand(operands, 1)?, geometry)?;
        let mut rest = operands.iter().skip(2);
        let level = match level {
            Some("level") => {
                let slots = self.words_of(rest.next().unwrap_or(&Operand::Discard))?;
                LevelOf::Slot(*slots.first().ok_or(Problem::Invalid("no level".into()))?)
            }
            Some("grad") => {
                let mut next = || {
                    let operand = rest.next().unwrap_or(&Operand::Discard);
                    self.axes(operand, geometry.axes)
                };
                LevelOf::Gradient([next()?, next()?])
            }
            _ => LevelOf::Base,
        };
        let offset = match rest.next() {
            Some(offset @ Operand::Vector(_)) => {
                Some(self.axes(offset, if geometry.is_cubemap { 2 } else { geometry.axes })?)
            }
            Some(_) => return Problem::unsupported("a comparison of depths"),
            None => None,
        };
        if rest.next().is_some() {
            return Problem::unsupported("a comparison of depths");
        }
        let bits = if matches!(ty, Type::F16 | Type::F16x2) { 16 } else { 32 };
        let d = d.into_boxed_slice();
        let sample = Sample { place, is_index, level, offset, gather, bits, d, resident };
        self.emit(Op::Sample(Box::new(sample)));
        Ok(())
    }

    fn surface(&mut self, its: &'a Instruction<'a>, words: &mut Words<'a>) -> Result<(), Problem> {
        let is_formatted = match words.one_of(&["b", "p"]) {
            Some("b") => false,
            Some(_) => true,
            None => return Problem::invalid("`.b` or `.p` is missing"),
        };
        let operation = match its.opcode() {
            "sured" => words.one_of(&["add", "min", "max", "and", "or"]),
            _ => None,
        };
        let geometry = geometry(words)?;
        words.drop_all(|word| matches!(word, "ca" | "cg" | "cs" | "cv" | "wb" | "wt"));
        words.one_of(&["v2", "v4"]);
        let ty = words.ty()?;
        let boundary = boundary(words)?;
        let function = match (its.opcode(), operation) {
            ("suld", _) => SurfaceFunction::Load,
            ("sust", _) => SurfaceFunction::Store,
            (_, Some("add")) => SurfaceFunction::Reduce(AtomicFunction::Add(int(ty))),
            (_, Some("min")) => SurfaceFunction::Reduce(AtomicFunction::Min(int(ty))),
            (_, Some("max")) => SurfaceFunction::Reduce(AtomicFunction::Max(int(ty))),
            (_, Some("and")) => SurfaceFunction::Reduce(AtomicFunction::And),
            (_, Some("or")) => SurfaceFunction::Reduce(AtomicFunction::Or),
            _ => return Problem::invalid("the operation is missing"),
        };
        let (value, place) = match function {
            SurfaceFunction::Load => (0, 1),
            _ => (1, 0),
        };
        let elements = self.elements(self.operand(&its.operands, value)?, ty)?;
        let size = bits(ty).div_ceil(8);
        let count = elements.len();
        if size > 8 || size * count as u32 > 16 || !count.is_power_of_two() {
            return Problem::invalid(
                "an access has 1, 2 or 4 elements of at most 64 bits, and at most 128 bits",
            );
        }
        let place = self.texel_place(self.operand(&its.operands, place)?, geometry)?;
        let elements = elements.into_boxed_slice();
        let access = SurfaceAccess { place, function, is_formatted, boundary, size, elements };
        self.emit(Op::Surface(Box::new(access)));
        Ok(())
    }

    fn query(
        &mut self,
        operands: &'a [Operand<'a>],
        words: &mut Words<'a>,
        is_surface: bool,
    ) -> Result<(), Problem> {
        let has_level = words.take("level");
        let name = words.one_of(&[
            "width",
            "height",
            "depth",
            "channel_data_type",
            "channel_order",
            "normalized_coords",
            "force_unnormalized_coords",
            "array_size",
            "num_mipmap_levels",
            "num_samples",
            "filter_mode",
            "addr_mode_0",
            "addr_mode_1",
            "addr_mode_2",
            "memory_layout",
        ]);
        let axis = match name {
            Some("width") => 0,
            Some("height") => 1,
            Some("depth") => 2,
            Some(_) => {
                return Problem::unsupported("a query of a property other than the extent");
            }
            None => return Problem::invalid("the property is missing"),
        };
        let ty = words.ty()?;
        let Operand::Address(address) = self.operand(operands, 1)? else {
            return Problem::invalid("an operand is not a texture or surface");
        };
        let object = self.handle(&address.base)?;
        let level = match has_level {
            true => Some(self.source(self.operand(operands, 2)?, Type::B32)?),
            false => None,
        };
        let d = self.target(self.operand(operands, 0)?, ty)?;
        self.emit(Op::Query { is_surface, axis, object, level, d });
        Ok(())
    }
}
