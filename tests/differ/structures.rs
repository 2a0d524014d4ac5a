//! The structures that calls take by pointer.

use super::execute::{World, host};
use std::ffi::CString;

/// A structure at a fixed address, with what it points to.
pub(super) struct Structure {
    word: u64,
    /// The 32 bits that the driver has written, with this offset in words, for the transcript.
    shown: Option<usize>,
    words: Box<[u64]>,
    /// The name of the graph that the driver makes for a conditional node.
    body: Option<String>,
    #[allow(dead_code, reason = "held, not read")]
    parts: Vec<Box<[u64]>>,
    #[allow(dead_code, reason = "held, not read")]
    text: Option<CString>,
}

/// The images of `tests/kernels`.
const IMAGES: &[(&str, &str)] = &[
    ("vector", include_str!("../kernels/vector.ptx")),
    ("pattern", include_str!("../kernels/pattern.ptx")),
    ("globals", include_str!("../kernels/globals.ptx")),
    ("conditional", include_str!("../kernels/conditional.ptx")),
    ("garbage", "this is no image"),
];

impl Structure {
    /// Writes the structure `what`. Returns `None` if an object does not exist.
    pub(super) fn new(world: &World<'_>, what: &str, fields: &[&str]) -> Option<Self> {
        let number = |index: usize| fields.get(index).map_or(Some(0), |field| world.number(field));
        let mut its = Self {
            word: 0,
            shown: None,
            words: Box::default(),
            body: None,
            parts: Vec::new(),
            text: None,
        };
        match what {
            // By value, in one register.
            "place" => {
                its.word = (number(0)? & 0xffff_ffff) | number(1)? << 32;
                return Some(its);
            }
            "image" | "name" | "global" => {
                let text = match what {
                    "image" => IMAGES.iter().find(|(name, _)| *name == fields[0])?.1,
                    _ => fields[0],
                };
                let text = CString::new(text).ok()?;
                its.word = text.as_ptr().expose_provenance() as u64;
                its.text = Some(text);
                return Some(its);
            }
            "nodes" | "chain" if fields.is_empty() => return Some(its),
            "arguments" => {
                its.word = its.arguments(world, fields)?;
                return Some(its);
            }
            _ => {}
        }
        let words = match what {
            "mode" | "flag" | "nodes" | "chain" => vec![number(0)?],
            "count" => {
                its.shown = Some(0);
                vec![number(0)?]
            }
            "update" => {
                its.shown = Some(0);
                vec![0; 4]
            }
            "location" => vec![pair(number(0)?, number(1)?)],
            "hostnode" => vec![host(), 0],
            "access" => vec![pair(number(0)?, number(1)?), number(2)?],
            // The type of the allocation, of handles, and the location.
            "pool" => {
                let first = [pair(number(0)?, number(1)?), pair(number(2)?, number(3)?)];
                [&first[..], &[0; 9]].concat()
            }
            "physical" => {
                let first = [pair(number(0)?, number(1)?), pair(number(2)?, number(3)?)];
                [&first[..], &[0; 2]].concat()
            }
            "memset" => {
                vec![number(0)?, number(1)?, pair(number(2)?, number(3)?), number(4)?, number(5)?]
            }
            "kernelnode" => {
                let arguments = its.arguments(world, &fields[4..])?;
                let (function, grid, block) = (number(0)?, number(1)?, number(2)?);
                let sizes = [pair(grid, 1), pair(1, block), pair(1, 1), pair(number(3)?, 0)];
                [&[function][..], &sizes, &[arguments, 0, 0, 0]].concat()
            }
            "allocnode" => {
                // Pinned memory of device 0, without access by others; the last word is the address.
                let mut words = vec![pair(1, 0), pair(1, 0)];
                words.resize(11, 0);
                words.extend([0, 0, number(0)?, 0]);
                words
            }
            "conditional" => {
                const CONDITIONAL: u64 = 13;
                its.body = Some(fields[4].to_owned());
                let mut words = vec![CONDITIONAL, 0, number(0)?, pair(number(1)?, number(2)?)];
                words.extend([0, number(3)?]);
                words.resize(32, 0);
                words
            }
            "memops" => {
                let operation =
                    |kind: u64, flags: u64| Some([kind, number(1)?, number(2)?, flags, 0, 0]);
                let (wait, write) = match number(0)? {
                    32 => (1, 2),
                    _ => (4, 5),
                };
                const EQUAL: u64 = 1;
                [operation(write, 0)?, operation(wait, EQUAL)?].concat()
            }
            // The extents, the format, the number of channels, and the flags.
            "array" => vec![number(0)?, number(1)?, pair(number(2)?, number(3)?)],
            "array3d" => {
                let extents = [number(0)?, number(1)?, number(2)?];
                [&extents[..], &[pair(number(3)?, number(4)?), number(5)?]].concat()
            }
            "view" => {
                let mut words = vec![number(0)?, number(1)?, pair(number(2)?, number(3)?)];
                words.extend([number(4)?, number(5)?, number(6)?]);
                words.resize(18, 0);
                words
            }
            // The address modes, the filter mode and the flags.
            "sampling" => {
                let mut words = vec![pair(number(0)?, number(0)?), pair(number(0)?, number(1)?)];
                words.push(number(2)?);
                words.resize(13, 0);
                words
            }
            "copy2d" | "arrays2d" => {
                let (from, to) = (Place::new(world, fields, 0)?, Place::new(world, fields, 4)?);
                let (width, height) = (number(8)?, number(9)?);
                [from.part(&[from.pitch]), to.part(&[to.pitch]), vec![width, height]].concat()
            }
            "copy3d" | "arrays3d" => {
                let (from, to) = (Place::new(world, fields, 0)?, Place::new(world, fields, 4)?);
                let (width, height, depth) = (number(8)?, number(9)?, number(12)?);
                let from = from.part_3d(number(10)?);
                let to = to.part_3d(number(11)?);
                [from, to, vec![width, height, depth]].concat()
            }
            other => unreachable!("{other}"),
        };
        its.words = words.into_boxed_slice();
        its.word = its.words.as_mut_ptr().expose_provenance() as u64;
        Some(its)
    }

    /// Returns the address of an array with the addresses of the arguments of a kernel.
    fn arguments(&mut self, world: &World<'_>, fields: &[&str]) -> Option<u64> {
        let values: Option<Vec<u64>> = fields.iter().map(|field| world.number(field)).collect();
        let values = values?.into_boxed_slice();
        let start = values.as_ptr().expose_provenance() as u64;
        let addresses: Box<[u64]> = (0..values.len() as u64).map(|i| start + 8 * i).collect();
        let word = addresses.as_ptr().expose_provenance() as u64;
        self.parts.extend([values, addresses]);
        Some(word)
    }

    /// Returns the value of the argument.
    pub(super) fn word(&self) -> u64 {
        self.word
    }

    /// Returns the name and the handle of the graph that the driver has made.
    pub(super) fn body(&self) -> Option<(&str, u64)> {
        let name = self.body.as_deref()?;
        let bodies = std::ptr::with_exposed_provenance::<u64>(self.words[4] as usize);
        // SAFETY: the driver has written the address of its array of graphs, or null.
        unsafe { bodies.as_ref() }.map(|graph| (name, *graph))
    }

    /// Returns what the driver has written, for the transcript.
    pub(super) fn result(&self) -> String {
        self.shown.map_or_else(String::new, |word| format!(" {}", self.words[word] as u32))
    }
}

/// One side of a copy.
struct Place {
    kind: u64,
    address: u64,
    pitch: u64,
    x: u64,
    y: u64,
}

impl Place {
    fn new(world: &World<'_>, fields: &[&str], at: usize) -> Option<Self> {
        let number = |index: usize| world.number(fields[at + index]);
        let kind = world.memory_type(fields[at]);
        Some(Self { kind, address: number(0)?, pitch: number(1)?, x: number(2)?, y: number(3)? })
    }

    /// The host address, the device address, and the array.
    fn places(&self) -> [u64; 3] {
        match self.kind {
            super::execute::HOST => [self.address, 0, 0],
            super::execute::ARRAY => [0, 0, self.address],
            _ => [0, self.address, 0],
        }
    }

    /// The words of a `CUDA_MEMCPY2D`: x, y, type, addresses, array, and `rest`.
    fn part(&self, rest: &[u64]) -> Vec<u64> {
        [&[self.x, self.y, self.kind][..], &self.places(), rest].concat()
    }

    /// The words of a `CUDA_MEMCPY3D`: x, y, z, level, type, addresses, array, reserved, pitch, height.
    fn part_3d(&self, height: u64) -> Vec<u64> {
        let start = [self.x, self.y, 0, 0, self.kind];
        [&start[..], &self.places(), &[0, self.pitch, height]].concat()
    }
}

/// Two fields of 32 bits in one word.
fn pair(low: u64, high: u64) -> u64 {
    (low & 0xffff_ffff) | high << 32
}
