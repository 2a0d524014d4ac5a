//! Code that is ready to run.

mod listing;
pub(crate) mod matrix;
mod op;

pub use listing::Instruction;

pub(crate) use op::{
    Address, Approximate, Atomic, AtomicFunction, AtomicWide, Bank, Barrier, Base, Binary, Bulk,
    Compare, Compared, Condition, Convert, CopyGroup, Element, Elements, Extremum, Fence, Float,
    Int, Intrinsic, LevelOf, Logic, Mbarrier, Multimem, MultimemFunction, Number, Op, Order, Pass,
    Passed, Redux, Sample, Scope, Shuffle, SlctBy, Space, SurfaceAccess, SurfaceFunction,
    TensorAccess, TensorCopy, TensorReduction, Ternary, TexelPlace, Together, Transfer, Unary,
    Video, Vote,
};

use crate::debug_text::debug_text;
use std::fmt;

/// The first address of the window of shared memory in generic addresses.
pub(crate) const SHARED_WINDOW: u64 = 0x0100_0000_0000_0000;
/// The first address of the window of local memory.
pub(crate) const LOCAL_WINDOW: u64 = 0x0200_0000_0000_0000;
/// The first address of the window of kernel parameters.
pub(crate) const PARAM_WINDOW: u64 = 0x0300_0000_0000_0000;
/// The first address of functions.
pub(crate) const FUNCTION_WINDOW: u64 = 0x0400_0000_0000_0000;
/// The distance between the addresses of two functions.
pub(crate) const FUNCTION_STEP: u64 = 16;
/// The size of each window.
pub(crate) const WINDOW: u64 = 1 << 40;
/// The distance between the shared memories of two blocks of a cluster, in the window of shared memory.
/// The first `CLUSTER_STEP` bytes are the memory of the own block.
pub(crate) const CLUSTER_STEP: u64 = 1 << 24;

/// The number of a register in its bank.
pub(crate) type Slot = u32;

/// Linked modules, decoded and ready to run.
#[derive(Debug)]
pub struct Program {
    pub(crate) kernels: Vec<Kernel>,
    pub(crate) variables: Vec<Variable>,
    pub(crate) functions: Vec<String>,
    pub(crate) undefined: Vec<String>,
    /// The places of the functions that no kernel calls.
    pub(crate) uncalled: Vec<Image>,
}

impl Program {
    /// Returns the kernels.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// Returns the index of the kernel with this name.
    pub fn kernel(&self, name: &str) -> Option<usize> {
        self.kernels.iter().position(|kernel| kernel.name == name)
    }

    /// Returns the symbols that a module declares as external, and no module defines. An instruction that uses one is
    /// [unsupported](Kernel::unsupported).
    pub fn undefined(&self) -> &[String] {
        &self.undefined
    }

    /// Returns the names of the functions and kernels, and of the functions of the driver that the modules declare.
    pub fn functions(&self) -> &[String] {
        &self.functions
    }

    /// Returns the variables in global and constant memory. A launch takes their addresses in this order.
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }
}

/// An error in a module, or between modules.
#[derive(Clone, PartialEq, Eq)]
pub struct LinkError {
    /// The index of the module.
    pub module: usize,
    /// The place in its text.
    pub position: crate::syntax::Position,
    /// What is wrong.
    pub text: String,
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { module, position, text } = self;
        write!(f, "module {module}, line {}, column {}: {text}", position.line, position.column)
    }
}

impl std::error::Error for LinkError {}

debug_text! { LinkError { module, position, text } }

/// A variable in global or constant memory.
#[derive(Clone, Debug)]
pub struct Variable {
    /// The name.
    pub name: String,
    /// The number of bytes.
    pub size: u64,
    /// The alignment in bytes.
    pub align: u64,
    /// Whether it is in constant memory.
    pub is_const: bool,
    /// Whether it is managed memory.
    pub is_managed: bool,
    /// The first bytes. The rest are zero.
    pub initial: Vec<u8>,
    /// Addresses that are added to `initial` when the variables have theirs.
    pub relocations: Vec<Relocation>,
}

/// A part of the initial value of a variable that depends on an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// The first byte in the variable.
    pub offset: u64,
    /// The number of bytes.
    pub size: u32,
    /// Whose address it is.
    pub target: Target,
    /// The number that is added to the address.
    pub addend: i64,
    /// The number of bits by which the address is shifted to the right.
    pub shift: u32,
}

/// What a relocation refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The variable with this index.
    Variable(usize),
    /// A fixed address: that of a function or of a variable in shared memory.
    Fixed(u64),
}

impl Relocation {
    /// Writes the address into the initial bytes of the variable. `variables` has the addresses of all variables.
    pub fn apply(&self, bytes: &mut [u8], variables: &[u64]) {
        let base = match self.target {
            Target::Variable(index) => variables.get(index).copied().unwrap_or(0),
            Target::Fixed(address) => address,
        };
        let value = base.wrapping_add_signed(self.addend).checked_shr(self.shift).unwrap_or(0);
        let start = usize::try_from(self.offset).unwrap_or(usize::MAX);
        let size = self.size.min(8) as usize;
        if let Some(to) = start.checked_add(size).and_then(|end| bytes.get_mut(start..end)) {
            to.copy_from_slice(&value.to_le_bytes()[..size]);
        }
    }
}

/// A kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The name.
    pub name: String,
    /// The parameters.
    pub params: Vec<Param>,
    /// The bytes of static shared memory.
    pub shared: u32,
    /// The bytes of the variables in local memory, without those of functions that it calls.
    pub local: u32,
    /// The number of blocks of a cluster along x, y and z, if the kernel requires it.
    pub cluster: Option<[u32; 3]>,
    /// The number of threads of a block, if the kernel limits it.
    pub max_threads: Option<u32>,
    pub(crate) param_bytes: usize,
    pub(crate) depends_on_order: bool,
    pub(crate) image: Image,
}

impl Kernel {
    /// Returns the size of all parameters in bytes.
    pub fn param_bytes(&self) -> usize {
        self.param_bytes
    }

    /// Returns whether the result may depend on the order in which blocks run: the kernel has atomic operations or
    /// reductions, waits for memory to change, prints, or allocates memory.
    pub fn depends_on_order(&self) -> bool {
        self.depends_on_order
    }

    /// Returns the instructions that are not supported, with their lines. A thread that reaches one ends the kernel.
    pub fn unsupported(&self) -> impl Iterator<Item = (&str, u32)> {
        let all = self.image.code.iter().zip(&self.image.places);
        let refused = all.filter(|(inst, _)| inst.op == Op::Refused);
        refused.map(|(_, place)| {
            let name = self.image.mnemonics.get(place.mnemonic as usize);
            (name.map_or("", String::as_str), place.line)
        })
    }
}

/// A parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// The first byte among those of all parameters.
    pub offset: usize,
    /// The number of bytes.
    pub size: usize,
}

/// A value that a register has before the first instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Constant {
    Bits(u64),
    /// The address of a variable.
    Variable(usize, i64),
    /// An address in dynamic shared memory.
    DynamicShared(i64),
    Special(Special),
}

/// A special register that does not change while a thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    Laneid,
    Warpid,
    Nwarpid,
    Smid,
    Nsmid,
    Gridid,
    Clusterid(u8),
    Nclusterid(u8),
    ClusterCtaid(u8),
    ClusterNctaid(u8),
    ClusterCtarank,
    ClusterNctarank,
    IsExplicitCluster,
    LanemaskEq,
    LanemaskLe,
    LanemaskLt,
    LanemaskGe,
    LanemaskGt,
    DynamicSmemSize,
    TotalSmemSize,
    AggrSmemSize,
    /// An offset in the shared memory that the driver reserves.
    ReservedSmem(u32),
    Envreg(u8),
    PerformanceCounter,
}

/// The code of a kernel and of all functions that it may call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Image {
    pub(crate) code: Vec<Inst>,
    /// The place of each instruction of `code`.
    pub(crate) places: Vec<Place>,
    pub(crate) mnemonics: Vec<String>,
    pub(crate) files: Vec<String>,
    pub(crate) functions: Vec<FunctionInfo>,
    pub(crate) narrow: u32,
    pub(crate) wide: u32,
    pub(crate) predicates: u32,
    pub(crate) constants: Vec<(Bank, Slot, Constant)>,
}

impl Image {
    /// Returns the places of the instructions without the code.
    pub(crate) fn listing(self) -> Self {
        let Self { places, mnemonics, files, functions, .. } = self;
        Self { places, mnemonics, files, functions, ..Self::default() }
    }

    /// Returns whether an operation may see what other blocks do at the time.
    pub(crate) fn depends_on_order(&self) -> bool {
        self.code.iter().any(|inst| match &inst.op {
            Op::Surface(access) => matches!(access.function, SurfaceFunction::Reduce(_)),
            Op::Atomic(_)
            | Op::AtomicWide(_)
            | Op::Multimem(_)
            | Op::CopyBulk(_)
            | Op::CopyTensor(_)
            | Op::Intrinsic { .. }
            | Op::Clock { .. } => true,
            Op::Load(transfer) => transfer.order.is_some(),
            _ => false,
        })
    }
}

/// An operation with its guard predicate.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Inst {
    pub(crate) guard: Option<Condition>,
    pub(crate) op: Op,
}

/// Where an instruction comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// The line of the PTX text.
    pub(crate) line: u32,
    /// The index of the mnemonic.
    pub(crate) mnemonic: u32,
    /// The index of the source file plus one, or zero.
    pub(crate) file: u32,
    pub(crate) source_line: u32,
}

/// A function of an image.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FunctionInfo {
    /// The index among the functions of the program.
    pub(crate) index: usize,
    /// The index of the module that defines it.
    pub(crate) module: usize,
    /// The line of its declaration.
    pub(crate) line: u32,
    pub(crate) entry: u32,
    /// The bytes of its frame.
    pub(crate) frame: u32,
    /// The bytes of variables in local memory, which are a part of the frame.
    pub(crate) local: u32,
    /// The registers of the function: the first and the number, of each bank.
    pub(crate) narrow: (u32, u32),
    pub(crate) wide: (u32, u32),
    pub(crate) predicates: (u32, u32),
    /// Whether a call may happen while the function is active.
    pub(crate) is_recursive: bool,
}
