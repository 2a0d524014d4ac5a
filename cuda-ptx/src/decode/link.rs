//! Symbols of modules, and the images of kernels.

use super::function::Decoder;
use super::words::bits;
use crate::map::Map;
use crate::program::{
    Bank, Constant, FUNCTION_STEP, FUNCTION_WINDOW, FunctionInfo, Image, Intrinsic, Kernel,
    LinkError, Op, Param, Program, Relocation, Slot, Target, Variable,
};
use crate::syntax::{
    Function, Immediate, Initializer, Item, Linkage, Module, Position, Space, Type,
    Variable as Declared, parse,
};
use std::collections::HashSet;

/// What a name at the top level of a module refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Global {
    /// The function with this index.
    Function(usize),
    /// A function of the driver, and the index of its prototype.
    Intrinsic(Intrinsic, usize),
    /// The variable with this index, in global or constant memory.
    Variable(usize),
    /// The variable in shared memory with this index.
    Shared(usize),
    /// A texture, sampler or surface.
    Texture,
    /// A symbol that no module defines.
    Undefined,
}

/// All symbols of the modules.
pub(super) struct Symbols<'a> {
    /// The names that each module sees.
    pub(super) names: Vec<Map<&'a str, Global>>,
    /// The functions, with the index of their module.
    pub(super) functions: Vec<(usize, &'a Function<'a>)>,
    pub(super) shared: Vec<&'a Declared<'a>>,
    /// The source files of each module, by their index.
    pub(super) files: Vec<Map<u32, &'a str>>,
    /// The functions whose address is a value somewhere.
    pub(super) addressed: Vec<usize>,
}

/// Returns the number of bytes of a variable without its dimensions.
fn element_size(its: &Declared<'_>) -> u64 {
    u64::from(bits(its.ty).div_ceil(8)) * u64::from(its.vector.max(1))
}

/// Returns the number of bytes and the alignment of a variable.
pub(super) fn layout(its: &Declared<'_>) -> (u64, u64) {
    let element = element_size(its).max(1);
    let mut count = 1u64;
    for (at, dimension) in its.dimensions.iter().enumerate() {
        let extent = match (dimension, &its.initializer) {
            (Some(extent), _) => *extent,
            (None, Some(Initializer::List(values))) if at == 0 => values.len() as u64,
            (None, _) => 0,
        };
        count = count.saturating_mul(extent);
    }
    let align = its.align.unwrap_or_else(|| element.next_power_of_two().min(16));
    (element.saturating_mul(count), align.clamp(1, 1 << 20).next_power_of_two())
}

/// Returns the offset and size of each variable in a structure that starts at `at`, and its end.
pub(super) fn place(list: &[Declared<'_>], mut at: u64) -> (Vec<(u32, u32)>, u64) {
    let mut places = Vec::new();
    for its in list {
        let (size, align) = layout(its);
        at = round_up(at, align);
        places.push((clamp(at), clamp(size)));
        at = at.saturating_add(size);
    }
    (places, at)
}

/// The largest size of the static shared memory of a kernel, in bytes.
const MOST_SHARED: u64 = 48 << 10;
/// The largest size of the parameters of a kernel since PTX 8.1, in bytes.
const MOST_PARAMS: u64 = 32_764;

/// Returns the next multiple of an alignment. A larger number than 64 bits hold becomes the largest one.
pub(super) fn round_up(at: u64, align: u64) -> u64 {
    at.checked_next_multiple_of(align).unwrap_or(u64::MAX)
}

pub(super) fn clamp(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

pub(super) fn intrinsic(name: &str) -> Option<Intrinsic> {
    Some(match name {
        "vprintf" => Intrinsic::Vprintf,
        "__assertfail" => Intrinsic::Assertfail,
        "malloc" => Intrinsic::Malloc,
        "free" => Intrinsic::Free,
        "cudaCGGetIntrinsicHandle" => Intrinsic::GridHandle,
        "cudaGraphLaunch" => Intrinsic::GraphLaunch,
        "cudaGraphSetConditional" => Intrinsic::GraphSetConditional,
        _ => return None,
    })
}

struct Linker<'a> {
    symbols: Symbols<'a>,
    variables: Vec<Variable>,
    /// The symbols that other modules see: what they are, and whether they may be replaced.
    exported: Map<&'a str, (Global, bool)>,
    /// The modules and declarations of variables with an initial value.
    initialized: Vec<(usize, usize, &'a Declared<'a>)>,
}

fn error(module: usize, position: Position, text: impl Into<String>) -> LinkError {
    LinkError { module, position, text: text.into() }
}

impl<'a> Linker<'a> {
    fn define(
        &mut self,
        module: usize,
        (name, linkage, position): (&'a str, Linkage, Position),
        global: Global,
    ) -> Result<(), LinkError> {
        let names = &mut self.symbols.names[module];
        if linkage != Linkage::Internal {
            let is_weak = matches!(linkage, Linkage::Weak | Linkage::Common);
            match self.exported.get(name) {
                Some((first, _)) if is_weak => {
                    names.insert(name, *first);
                    return Ok(());
                }
                Some((_, false)) => {
                    return Err(error(module, position, format!("`{name}` is defined twice")));
                }
                _ => drop(self.exported.insert(name, (global, is_weak))),
            }
        }
        if names.insert(name, global).is_some_and(|before| before != global) {
            return Err(error(module, position, format!("`{name}` is defined twice")));
        }
        Ok(())
    }

    fn variable(&mut self, module: usize, its: &'a Declared<'a>) -> Result<(), LinkError> {
        if its.linkage == Linkage::Extern && its.space != Space::Shared {
            return Ok(());
        }
        let global = match (its.space, its.ty) {
            (_, Type::TexRef | Type::SamplerRef | Type::SurfRef) | (Space::Texture, _) => {
                Global::Texture
            }
            (Space::Shared, _) => {
                self.symbols.shared.push(its);
                let global = Global::Shared(self.symbols.shared.len() - 1);
                // Dynamic shared memory is declared as external, and defined by each launch.
                if its.linkage == Linkage::Extern {
                    self.symbols.names[module].insert(its.name, global);
                    return Ok(());
                }
                global
            }
            _ => {
                let (size, align) = layout(its);
                self.variables.push(Variable {
                    name: its.name.to_owned(),
                    size,
                    align,
                    is_const: its.space == Space::Const,
                    is_managed: its.is_managed,
                    initial: Vec::new(),
                    relocations: Vec::new(),
                });
                let index = self.variables.len() - 1;
                self.initialized.push((module, index, its));
                Global::Variable(index)
            }
        };
        self.define(module, (its.name, its.linkage, its.position), global)
    }

    fn initialize(
        &mut self,
        module: usize,
        index: usize,
        its: &'a Declared<'a>,
    ) -> Result<(), LinkError> {
        let Some(value) = &its.initializer else { return Ok(()) };
        let size = usize::try_from(self.variables[index].size).unwrap_or(usize::MAX);
        let element = bits(its.ty).div_ceil(8).max(1);
        let mut bytes = Vec::new();
        let mut relocations = Vec::new();
        let mut offset = 0u64;
        let mut stack = vec![value];
        while let Some(value) = stack.pop() {
            let at = usize::try_from(offset).unwrap_or(usize::MAX);
            match value {
                // The compiler fills the variable in the order of the values, however they are nested.
                Initializer::List(values) => {
                    stack.extend(values.iter().rev());
                    continue;
                }
                // Only samplers and textures have named values.
                Initializer::Field { .. } => {}
                Initializer::Value(value) => {
                    let value = immediate(*value, its.ty).to_le_bytes();
                    let end = at.saturating_add(element.min(8) as usize);
                    if end > size {
                        return Err(error(module, its.position, "too many initial values"));
                    }
                    if bytes.len() < end {
                        bytes.resize(end, 0);
                    }
                    bytes[at..end].copy_from_slice(&value[..end - at]);
                }
                Initializer::Address { symbol, offset: addend, is_generic, mask } => {
                    let unknown =
                        || error(module, its.position, format!("`{symbol}` is not defined"));
                    let global = self.symbols.names[module].get(symbol).ok_or_else(unknown)?;
                    let target = match global {
                        Global::Variable(index) => Target::Variable(*index),
                        Global::Function(index) => {
                            self.symbols.addressed.push(*index);
                            Target::Fixed(FUNCTION_WINDOW + FUNCTION_STEP * *index as u64)
                        }
                        _ => {
                            return Err(error(
                                module,
                                its.position,
                                format!("the address of `{symbol}` is no constant"),
                            ));
                        }
                    };
                    let _ = is_generic;
                    let shift = mask.map_or(0, |mask| mask.trailing_zeros().min(56));
                    relocations.push(Relocation {
                        offset,
                        size: element.min(8),
                        target,
                        addend: *addend,
                        shift,
                    });
                    let end = at.saturating_add(element.min(8) as usize);
                    if end > size {
                        return Err(error(module, its.position, "too many initial values"));
                    }
                    if bytes.len() < end {
                        bytes.resize(end, 0);
                    }
                }
            }
            offset += u64::from(element);
        }
        self.variables[index].initial = bytes;
        self.variables[index].relocations = relocations;
        Ok(())
    }
}

/// Returns the bits of a constant in a type.
pub(super) fn immediate(value: Immediate, ty: Type) -> u64 {
    match (value, ty) {
        (Immediate::Integer { bits: value, .. }, Type::F32) => {
            u64::from((value as i64 as f32).to_bits())
        }
        (Immediate::Integer { bits: value, .. }, Type::F64) => (value as i64 as f64).to_bits(),
        (Immediate::Integer { bits: value, .. }, ty) => match bits(ty) {
            1 => u64::from(value != 0),
            size @ 2..64 => value & ((1 << size) - 1),
            _ => value,
        },
        (Immediate::Single(value), _) => u64::from(value),
        (Immediate::Double(value), ty) if bits(ty) == 32 => u64::from((value as f32).to_bits()),
        (Immediate::Double(value), _) => value.to_bits(),
    }
}

/// The function of [`GRID`].
pub(super) const SYNCHRONIZE: &str = "cudaCGSynchronize";
/// The module that defines it.
const GRID: &str = include_str!("grid.ptx");

/// Returns whether modules declare a function that none of them defines.
fn lacks(modules: &[Module<'_>], name: &str) -> bool {
    let functions = || {
        let items = modules.iter().flat_map(|module| &module.items);
        items.filter_map(|item| match item {
            Item::Function(its) if its.name == name => Some(its),
            _ => None,
        })
    };
    functions().next().is_some() && functions().all(|its| its.body.is_none())
}

/// Links modules and decodes their kernels.
pub(super) fn link(modules: &[Module<'_>]) -> Result<Program, LinkError> {
    let added = if lacks(modules, SYNCHRONIZE) { parse(GRID).ok() } else { None };
    let modules: Vec<&Module<'_>> = modules.iter().chain(&added).collect();
    let mut linker = Linker {
        symbols: Symbols {
            names: vec![Map::default(); modules.len()],
            functions: Vec::new(),
            shared: Vec::new(),
            files: vec![Map::default(); modules.len()],
            addressed: Vec::new(),
        },
        variables: Vec::new(),
        exported: Map::default(),
        initialized: Vec::new(),
    };
    for (at, module) in modules.iter().enumerate() {
        for item in &module.items {
            match item {
                Item::Variable(its) => linker.variable(at, its)?,
                Item::Function(its) if its.body.is_some() => {
                    linker.symbols.functions.push((at, its));
                    let global = Global::Function(linker.symbols.functions.len() - 1);
                    linker.define(at, (its.name, its.linkage, its.position), global)?;
                }
                Item::File(file) => drop(linker.symbols.files[at].insert(file.index, file.name)),
                _ => {}
            }
        }
    }
    let mut undefined = Vec::new();
    for (at, module) in modules.iter().enumerate() {
        for item in &module.items {
            let (name, prototype) = match item {
                Item::Function(its) if its.body.is_none() => (its.name, Some(its)),
                Item::Variable(its) if its.linkage == Linkage::Extern => (its.name, None),
                Item::Alias { name, function } => {
                    let names = &mut linker.symbols.names[at];
                    if let Some(global) = names.get(function).copied() {
                        names.insert(name, global);
                    }
                    continue;
                }
                _ => continue,
            };
            if linker.symbols.names[at].contains_key(name) {
                continue;
            }
            let exported = linker.exported.get(name).map(|(global, _)| *global);
            let global = match (exported, prototype) {
                (Some(global), _) => global,
                (None, Some(prototype)) => match intrinsic(name) {
                    Some(its) => {
                        linker.symbols.functions.push((at, prototype));
                        Global::Intrinsic(its, linker.symbols.functions.len() - 1)
                    }
                    None if prototype.linkage == Linkage::Extern => Global::Undefined,
                    // A prototype of a function that nothing calls is no error.
                    None => continue,
                },
                (None, None) => Global::Undefined,
            };
            if global == Global::Undefined {
                undefined.push(name.to_owned());
            }
            linker.symbols.names[at].insert(name, global);
        }
    }
    for (module, index, its) in std::mem::take(&mut linker.initialized) {
        linker.initialize(module, index, its)?;
    }
    let Linker { mut symbols, variables, .. } = linker;
    find_addressed(&mut symbols);
    let mut kernels = Vec::new();
    let entries = symbols.functions.iter().enumerate().filter(|(_, (_, its))| its.is_entry);
    for (index, (module, its)) in entries {
        let (places, end) = place(&its.params, 0);
        if end > MOST_PARAMS {
            let text = format!("the kernel has more than {MOST_PARAMS} bytes of parameters");
            return Err(error(*module, its.position, text));
        }
        let (image, shared) = Builder::new(&symbols).build(index)?;
        kernels.push(Kernel {
            name: its.name.to_owned(),
            params: places
                .into_iter()
                .map(|(offset, size)| Param { offset: offset as usize, size: size as usize })
                .collect(),
            shared,
            local: image.functions.first().map_or(0, |its| its.local),
            cluster: cluster(its),
            max_threads: max_threads(its),
            param_bytes: usize::try_from(end).unwrap_or(usize::MAX),
            depends_on_order: image.depends_on_order(),
            image,
        });
    }
    // The code of functions that no kernel calls is checked, and not kept. Most stand before their callers.
    let mut uncalled = Vec::new();
    let mut reached: HashSet<usize> = HashSet::new();
    for kernel in &kernels {
        reached.extend(kernel.image.functions.iter().map(|its| its.index));
    }
    for (index, (_, its)) in symbols.functions.iter().enumerate().rev() {
        if its.body.is_some() && reached.insert(index) {
            let (image, _) = Builder::new(&symbols).build(index)?;
            let called: Vec<usize> = image.functions.iter().map(|its| its.index).collect();
            uncalled.push(image.listing());
            reached.extend(called);
        }
    }
    let functions = symbols.functions.iter().map(|(_, its)| its.name.to_owned()).collect();
    Ok(Program { kernels, variables, functions, undefined, uncalled })
}

/// Returns the number of threads of a block that a kernel allows at most.
fn max_threads(its: &Function<'_>) -> Option<u32> {
    let its = its.directives.iter().find(|its| matches!(its.name, "maxntid" | "reqntid"))?;
    Some(clamp(its.numbers.iter().copied().fold(1, u64::saturating_mul)))
}

/// Returns the blocks of a cluster that a kernel requires.
fn cluster(its: &Function<'_>) -> Option<[u32; 3]> {
    let its = its.directives.iter().find(|its| its.name == "reqnctapercluster")?;
    Some(std::array::from_fn(|axis| clamp(its.numbers.get(axis).copied().unwrap_or(1).max(1))))
}

/// Finds functions whose address an instruction moves into a register.
fn find_addressed(symbols: &mut Symbols<'_>) {
    use crate::syntax::{Operand, Statement};
    let mut found = Vec::new();
    for (module, function) in &symbols.functions {
        let mut blocks: Vec<&[Statement<'_>]> = function.body.as_deref().into_iter().collect();
        while let Some(statements) = blocks.pop() {
            for statement in statements {
                match statement {
                    Statement::Block(inner) => blocks.push(inner),
                    Statement::Instruction(its) if its.mnemonic.starts_with("mov") => {
                        if let Some(Operand::Name(name)) = its.operands.get(1) {
                            if let Some(Global::Function(index)) = symbols.names[*module].get(name)
                            {
                                found.push(*index);
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
    }
    symbols.addressed.extend(found);
    symbols.addressed.sort_unstable();
    symbols.addressed.dedup();
}

/// Builds the image of a kernel.
pub(super) struct Builder<'s, 'a> {
    pub(super) symbols: &'s Symbols<'a>,
    pub(super) image: Image,
    constants: Map<(Bank, Constant), Slot>,
    mnemonics: Map<&'a str, u32>,
    files: Map<(usize, u32), u32>,
    /// The functions of the image, by their index in the program, and those that are not decoded.
    functions: Map<usize, u32>,
    waiting: Vec<usize>,
    /// The offsets of variables in static shared memory.
    shared: Map<usize, u32>,
    shared_end: u64,
    /// The calls: the caller and the callee.
    calls: Vec<(u32, u32)>,
    has_indirect: Vec<u32>,
    pub(super) current: u32,
}

impl<'s, 'a> Builder<'s, 'a> {
    fn new(symbols: &'s Symbols<'a>) -> Self {
        Self {
            symbols,
            image: Image::default(),
            constants: Map::default(),
            mnemonics: Map::default(),
            files: Map::default(),
            functions: Map::default(),
            waiting: Vec::new(),
            shared: Map::default(),
            shared_end: 0,
            calls: Vec::new(),
            has_indirect: Vec::new(),
            current: 0,
        }
    }

    fn build(mut self, kernel: usize) -> Result<(Image, u32), LinkError> {
        self.function(kernel);
        while let Some(index) = self.waiting.pop() {
            self.current = self.functions[&index];
            let (module, function) = self.symbols.functions[index];
            Decoder::new(&mut self, module, function)
                .run()
                .map_err(|(position, text)| error(module, position, text))?;
        }
        self.mark_recursive();
        let (module, function) = self.symbols.functions[kernel];
        if self.shared_end > MOST_SHARED {
            let text =
                format!("the kernel has more than {MOST_SHARED} bytes of static shared memory");
            return Err(error(module, function.position, text));
        }
        let shared = clamp(self.shared_end);
        for (_, _, constant) in &mut self.image.constants {
            if let Constant::DynamicShared(offset) = constant {
                let start = i64::from(shared.next_multiple_of(16));
                *constant = Constant::Bits((start + *offset) as u64);
            }
        }
        Ok((self.image, shared))
    }

    /// Returns the index of a function in the image, which is decoded later.
    pub(super) fn function(&mut self, index: usize) -> u32 {
        let next = self.functions.len() as u32;
        let at = *self.functions.entry(index).or_insert_with(|| {
            self.waiting.push(index);
            let (module, function) = self.symbols.functions[index];
            let line = function.position.line;
            let info = FunctionInfo { index, module, line, ..FunctionInfo::default() };
            self.image.functions.push(info);
            next
        });
        self.calls.push((self.current, at));
        at
    }

    /// Notes an indirect call, which may reach each function whose address is a value somewhere.
    pub(super) fn indirect_call(&mut self) {
        let addressed = self.symbols.addressed.clone();
        for index in addressed {
            self.function(index);
        }
        self.has_indirect.push(self.current);
    }

    /// Finds the functions that may be called while they are active.
    fn mark_recursive(&mut self) {
        let count = self.image.functions.len();
        let mut callees = vec![Vec::new(); count];
        for (caller, callee) in &self.calls {
            callees[*caller as usize].push(*callee as usize);
        }
        for start in 0..count {
            let mut seen = vec![false; count];
            let mut waiting = callees[start].clone();
            while let Some(at) = waiting.pop() {
                if !std::mem::replace(&mut seen[at], true) {
                    waiting.extend(&callees[at]);
                }
            }
            // The first call recorded is that of the kernel, by nothing.
            self.image.functions[start].is_recursive = start != 0 && seen[start];
        }
    }

    pub(super) fn register(&mut self, bank: Bank) -> Slot {
        let count = match bank {
            Bank::Narrow => &mut self.image.narrow,
            Bank::Wide => &mut self.image.wide,
            Bank::Predicate => &mut self.image.predicates,
        };
        *count += 1;
        *count - 1
    }

    /// Returns a register with a constant.
    pub(super) fn constant(&mut self, bank: Bank, constant: Constant) -> Slot {
        if let Some(slot) = self.constants.get(&(bank, constant)) {
            return *slot;
        }
        let slot = self.register(bank);
        self.image.constants.push((bank, slot, constant));
        self.constants.insert((bank, constant), slot);
        slot
    }

    /// Returns the offset of a variable in shared memory, or its constant if the memory is dynamic.
    pub(super) fn shared(&mut self, index: usize, offset: i64) -> Constant {
        let its = self.symbols.shared[index];
        let (size, align) = layout(its);
        if its.linkage == Linkage::Extern && size == 0 {
            return Constant::DynamicShared(offset);
        }
        let end = &mut self.shared_end;
        let at = *self.shared.entry(index).or_insert_with(|| {
            let at = round_up(*end, align);
            *end = at.saturating_add(size);
            clamp(at)
        });
        Constant::Bits((i64::from(at) + offset) as u64)
    }

    /// Returns the offset of new shared memory for a variable of a function.
    pub(super) fn add_shared(&mut self, its: &Declared<'a>) -> u32 {
        let (size, align) = layout(its);
        let at = round_up(self.shared_end, align);
        self.shared_end = at.saturating_add(size);
        clamp(at)
    }

    pub(super) fn mnemonic(&mut self, mnemonic: &'a str) -> u32 {
        let next = self.image.mnemonics.len() as u32;
        *self.mnemonics.entry(mnemonic).or_insert_with(|| {
            self.image.mnemonics.push(mnemonic.to_owned());
            next
        })
    }

    /// Returns the index of a source file plus one, or zero if the module does not declare it.
    pub(super) fn file(&mut self, module: usize, number: u32) -> u32 {
        let Some(name) = self.symbols.files[module].get(&number) else { return 0 };
        let next = self.image.files.len() as u32 + 1;
        *self.files.entry((module, number)).or_insert_with(|| {
            self.image.files.push((*name).to_owned());
            next
        })
    }

    pub(super) fn emit_at(&self) -> u32 {
        self.image.code.len() as u32
    }

    pub(super) fn op_mut(&mut self, at: u32) -> Option<&mut Op> {
        self.image.code.get_mut(at as usize).map(|inst| &mut inst.op)
    }
}
