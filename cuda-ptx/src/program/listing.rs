//! The instructions of a program with their places in the text and the source, as a report on coverage lists them.

use super::{Image, Program};

/// An instruction of a [`Program`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Instruction<'a> {
    /// The instruction, for example `ld.global.u32`. Empty if `line` is zero.
    pub name: &'a str,
    /// The function with the instruction.
    pub function: &'a str,
    /// The line that declares the function.
    pub function_line: u32,
    /// The index of the module that defines the function, among those that were linked. It is the number of these
    /// modules for a function that the engine adds.
    pub module: usize,
    /// The line of the instruction in the text of the module, or zero for an operation that the engine adds to a
    /// function.
    pub line: u32,
    /// The file and line of the source, if the text has them (`.loc`).
    pub source: Option<(&'a str, u32)>,
}

impl Program {
    /// Returns the instructions of a kernel and of the functions that it may call, in the order of
    /// [`Launch::counts`](crate::Launch::counts). An instruction that the engine runs in several steps is in the list
    /// once for each step.
    pub fn instructions(&self, kernel: usize) -> impl Iterator<Item = Instruction<'_>> {
        let image = self.kernels.get(kernel).map(|kernel| &kernel.image);
        image.into_iter().flat_map(|image| self.list(image))
    }

    /// Returns the instructions of functions that no kernel calls. Some instructions of functions that a kernel calls are
    /// in the list too.
    pub fn uncalled(&self) -> impl Iterator<Item = Instruction<'_>> {
        self.uncalled.iter().flat_map(|image| self.list(image))
    }

    fn list<'a>(&'a self, image: &'a Image) -> impl Iterator<Item = Instruction<'a>> {
        (0..image.places.len()).map(|pc| self.describe(image, pc as u32))
    }

    /// Describes the instruction with this number in an image of the program.
    pub(crate) fn describe<'a>(&'a self, image: &'a Image, pc: u32) -> Instruction<'a> {
        let place = image.places.get(pc as usize).copied().unwrap_or_default();
        let functions = image.functions.iter().filter(|function| function.entry <= pc);
        let function = functions.max_by_key(|function| function.entry);
        let name = function.and_then(|its| self.functions.get(its.index));
        let file = (place.file as usize).checked_sub(1).and_then(|file| image.files.get(file));
        let mnemonic = image.mnemonics.get(place.mnemonic as usize);
        Instruction {
            name: mnemonic.filter(|_| place.line != 0).map_or("", String::as_str),
            function: name.map_or("", String::as_str),
            function_line: function.map_or(0, |its| its.line),
            module: function.map_or(0, |its| its.module),
            line: place.line,
            source: file.map(|file| (file.as_str(), place.source_line)),
        }
    }
}
