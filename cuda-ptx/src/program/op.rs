//! Micro-operations: what the instructions of PTX are decoded into.

use super::Slot;
use super::matrix::Matrix;
use crate::number::integer::{Overflow, Permutation};
use crate::number::video::{Mad, Packed, Scalar};
use crate::number::{Comparison, Format, Mode};
use crate::texture::Boundary;

/// A type of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Int {
    U8,
    S8,
    U16,
    S16,
    U32,
    S32,
    U64,
    S64,
}

impl Int {
    pub(crate) fn bits(self) -> u32 {
        match self {
            Self::U8 | Self::S8 => 8,
            Self::U16 | Self::S16 => 16,
            Self::U32 | Self::S32 => 32,
            Self::U64 | Self::S64 => 64,
        }
    }

    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Self::S8 | Self::S16 | Self::S32 | Self::S64)
    }

    /// Returns the unsigned type of this many bits.
    pub(crate) fn unsigned(bits: u32) -> Self {
        match bits {
            8 => Self::U8,
            16 => Self::U16,
            32 => Self::U32,
            _ => Self::U64,
        }
    }
}

/// A type of floating-point numbers in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Float {
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    F32,
    F32x2,
    F64,
}

/// A bank of registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Bank {
    Narrow,
    Wide,
    Predicate,
}

/// How `min` and `max` treat NaN, denormals and signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extremum {
    pub(crate) is_max: bool,
    pub(crate) flush: bool,
    pub(crate) nan: bool,
    pub(crate) xorsign_abs: bool,
}

/// A function of one value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Unary {
    Neg(Int),
    Abs(Int),
    Not(Int),
    Cnot(Int),
    Popc(Int),
    Clz(Int),
    Brev(Int),
    Bfind(Int, bool),
    NegFloat(Float, bool),
    AbsFloat(Float, bool),
    Rcp(Float, Mode),
    Sqrt(Float, Mode),
    /// A function that the manual bounds. The flag is `.ftz`.
    Approximate(Approximate, Float, bool),
    /// `cvta` and other additions of a constant.
    AddConstant(u64),
}

/// A function with a bound of its error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Approximate {
    Rcp,
    Sqrt,
    Rsqrt,
    Sin,
    Cos,
    Lg2,
    Ex2,
    Tanh,
}

/// A function of two values of one type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Binary {
    Add(Int),
    Sub(Int),
    AddSat,
    SubSat,
    Mul(Int),
    MulHi(Int),
    MulWide(Int),
    Mul24(Int, bool),
    Div(Int),
    Rem(Int),
    Min(Int, bool),
    Max(Int, bool),
    /// 16-bit halves of 32 bits: whether it is `max`, whether the halves are signed, `.relu`.
    Extremum16x2(bool, bool, bool),
    Add16x2,
    And(Int),
    Or(Int),
    Xor(Int),
    Shl(Int),
    Shr(Int),
    Bmsk(Overflow),
    /// Whether it is signed.
    Szext(bool, Overflow),
    AddFloat(Float, Mode),
    SubFloat(Float, Mode),
    MulFloat(Float, Mode),
    DivFloat(Float, Mode),
    DivApproximate(bool),
    DivFull(bool),
    Extremum(Float, Extremum),
    Copysign(Float),
}

/// A function of three values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ternary {
    Mad(Int),
    MadHi(Int),
    MadHiSat,
    MadWide(Int),
    /// The type, whether it is `.hi`, `.sat`.
    Mad24(Int, bool, bool),
    Sad(Int),
    Bfe(Int),
    Prmt(Permutation),
    Lop3(u8),
    /// Whether it shifts to the left.
    Shf(bool, Overflow),
    Fma(Float, Mode),
    /// Whether `a` and `b` are signed.
    Dp4a(bool, bool),
    /// Whether `a` and `b` are signed, whether the upper half of `b` is used.
    Dp2a(bool, bool, bool),
    Fns,
    /// The type of the two values, and that of the condition.
    Slct(Bank, SlctBy),
    Extremum3(Extremum),
}

/// The type of the condition of `slct`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlctBy {
    Signed,
    /// A number of f32, and `.ftz`.
    Single(bool),
}

/// The type of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    Int(Int),
    /// The type and `.ftz`.
    Float(Float, bool),
}

/// A Boolean function of two predicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logic {
    And,
    Or,
    Xor,
}

/// A predicate, or its negation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) slot: Slot,
    pub(crate) is_negated: bool,
}

/// A comparison with the optional combination of its result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Compare {
    pub(crate) ty: Compared,
    pub(crate) comparison: Comparison,
    pub(crate) operands: [Slot; 2],
    pub(crate) combine: Option<(Logic, Condition)>,
}

/// The source or result of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    Int(Int),
    Float(Format),
}

/// A conversion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Convert {
    pub(crate) from: Number,
    pub(crate) to: Number,
    pub(crate) mode: Mode,
    /// Whether a float is rounded to an integer of its own type.
    pub(crate) is_integral: bool,
    /// `.satfinite`
    pub(crate) is_finite: bool,
    /// Whether the result is in a register of 64 bits, and is extended to it.
    pub(crate) to_bank: Bank,
    pub(crate) from_bank: Bank,
}

/// A state space of memory, as an instruction names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    /// A generic address.
    Generic,
    Global,
    Const,
    /// Shared memory of the own block or cluster.
    Shared,
    Local,
    /// The parameters of the kernel.
    Param,
    /// Variables of a function in the space `.param`, and its parameters: in its frame.
    Frame,
}

/// An address: a register, and bytes that are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) space: Space,
    pub(crate) base: Base,
    pub(crate) offset: i64,
}

/// The register of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    None,
    Narrow(Slot),
    Wide(Slot),
}

/// The threads among which an access or a fence orders memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    Cta,
    Cluster,
    /// `.gpu` and `.sys`
    Device,
}

/// The order of a fence, or of an access that is not weak: `.volatile`, `.relaxed`, `.acquire` and the like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) scope: Scope,
    pub(crate) acquires: bool,
    pub(crate) releases: bool,
}

/// A fence, which is in one order with the others that have `.sc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fence {
    pub(crate) order: Order,
    pub(crate) is_sc: bool,
}

impl Order {
    /// The order of an access that other threads may race with, and that orders nothing else.
    pub(crate) const fn relaxed(scope: Scope) -> Self {
        Self { scope, acquires: false, releases: false }
    }
}

/// A load, or the value of a store.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Transfer {
    pub(crate) address: Address,
    /// The bytes of an element: 1, 2, 4, 8, or 16.
    pub(crate) size: u32,
    /// Whether a loaded value is sign-extended.
    pub(crate) is_signed: bool,
    /// How the access is ordered, unless it is weak.
    pub(crate) order: Option<Order>,
    pub(crate) elements: Elements,
}

impl Transfer {
    /// Returns the bytes of all elements.
    pub(crate) fn bytes(&self) -> u32 {
        self.size * self.elements.as_slice().len() as u32
    }
}

/// The registers of a load or store.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Elements {
    One(Element),
    Several(Box<[Element]>),
}

impl Elements {
    pub(crate) fn as_slice(&self) -> &[Element] {
        match self {
            Self::One(element) => std::slice::from_ref(element),
            Self::Several(elements) => elements,
        }
    }
}

/// A register of a load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    /// `_`
    Discard,
    Narrow(Slot),
    Wide(Slot),
}

/// The function of an atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtomicFunction {
    And,
    Or,
    Xor,
    Exchange,
    CompareAndSwap,
    Add(Int),
    Inc,
    Dec,
    Min(Int),
    Max(Int),
    AddFloat(Float),
    MinFloat(Float),
    MaxFloat(Float),
}

/// An atomic operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Atomic {
    pub(crate) address: Address,
    pub(crate) function: AtomicFunction,
    /// The bytes of the value: 2, 4, or 8.
    pub(crate) size: u32,
    /// The old value. `None` for a reduction.
    pub(crate) d: Option<Slot>,
    pub(crate) value: Slot,
    pub(crate) new: Option<Slot>,
    pub(crate) order: Order,
}

/// An exchange of 128 bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AtomicWide {
    pub(crate) address: Address,
    pub(crate) d: Option<[Slot; 2]>,
    /// The value that `cas` compares with.
    pub(crate) compare: Option<[Slot; 2]>,
    pub(crate) value: [Slot; 2],
    pub(crate) order: Order,
}

/// An operation at a multicast address, on the memory of several devices.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Multimem {
    pub(crate) address: Address,
    pub(crate) function: MultimemFunction,
    /// The bytes of an element: 2, 4, or 8.
    pub(crate) size: u32,
    /// The registers of the results, or of the operands.
    pub(crate) elements: Box<[Slot]>,
    /// How the access is ordered, unless it is weak.
    pub(crate) order: Option<Order>,
}

/// What an operation at a multicast address does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MultimemFunction {
    /// `multimem.ld_reduce`: combines the values of all devices. With `.acc::f32`, halves are added as singles.
    LoadReduce { function: AtomicFunction, is_single: bool },
    /// `multimem.st`
    Store,
    /// `multimem.red`: combines the operand with the value of each device.
    Reduce(AtomicFunction),
}

impl Multimem {
    /// Returns the bytes of all elements.
    pub(crate) fn bytes(&self) -> u32 {
        self.size * self.elements.len() as u32
    }
}

/// A bulk copy, which is complete when it is issued.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bulk {
    pub(crate) to: Address,
    pub(crate) from: Address,
    /// The register with the number of bytes.
    pub(crate) size: Slot,
    /// The barrier that counts the bytes.
    pub(crate) barrier: Option<Address>,
    /// The function of `cp.reduce`, and the bytes of an element.
    pub(crate) reduce: Option<(AtomicFunction, u32)>,
    /// The register with the mask of the blocks of the cluster that get the bytes.
    pub(crate) multicast: Option<Slot>,
}

/// A bulk copy of a tensor, which is complete when it is issued.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TensorCopy {
    /// The address of the tensor map.
    pub(crate) map: Address,
    pub(crate) coordinates: Box<[Slot]>,
    /// The offsets of pixels of a copy of columns. Stores of columns have none.
    pub(crate) offsets: Option<Box<[Slot]>>,
    pub(crate) access: TensorAccess,
}

/// What a copy does with a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TensorAccess {
    /// A copy to shared memory. The barrier counts the bytes, whose number is in a register that no instruction names.
    Load {
        to: Address,
        barrier: Address,
        bytes: Slot,
        multicast: Option<Slot>,
    },
    /// A copy from shared memory, or a reduction.
    Store {
        from: Address,
        function: Option<TensorReduction>,
    },
    Prefetch,
}

/// The function of a reduction, whose type is that of the tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TensorReduction {
    Add,
    Min,
    Max,
    Inc,
    Dec,
    And,
    Or,
    Xor,
}

/// A source of lanes for `shfl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

/// The function of `vote`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    All,
    Any,
    Uniform,
    Ballot,
}

/// The function of `redux`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Redux {
    And,
    Or,
    Xor,
    Add,
    Min(Int),
    Max(Int),
    /// Whether it is `max`, `.abs`, `.NaN`.
    Float(bool, bool, bool),
}

/// An operation of the lanes of a mask together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Together {
    Shuffle {
        kind: Shuffle,
        d: Option<Slot>,
        p: Option<Slot>,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    Vote {
        vote: Vote,
        d: Slot,
        a: Condition,
    },
    /// `match.any`, of this many bits.
    MatchAny {
        bits: u32,
        d: Slot,
        a: Slot,
    },
    MatchAll {
        bits: u32,
        d: Option<Slot>,
        p: Option<Slot>,
        a: Slot,
    },
    Redux {
        function: Redux,
        d: Slot,
        a: Slot,
    },
    Elect {
        d: Option<Slot>,
        p: Slot,
    },
    /// `bar.warp.sync`
    Sync,
    Matrix(Box<Matrix>),
}

/// What a barrier of a block does besides waiting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Barrier {
    Sync,
    Arrive,
    Popc { d: Slot, a: Condition },
    And { d: Slot, a: Condition },
    Or { d: Slot, a: Condition },
}

/// The operation of `mbarrier` and of instructions that complete on one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mbarrier {
    Init {
        count: Slot,
    },
    Inval,
    /// `expect_tx`, with the bytes.
    ExpectTx {
        bytes: Slot,
    },
    CompleteTx {
        bytes: Slot,
    },
    Arrive {
        state: Option<Slot>,
        count: Option<Slot>,
        /// The bytes of `.expect_tx`.
        expect: Option<Slot>,
        is_drop: bool,
    },
    TestWait {
        p: Slot,
        state: Slot,
    },
    TestParity {
        p: Slot,
        parity: Slot,
    },
    PendingCount {
        d: Slot,
        state: Slot,
    },
}

/// An instruction on the groups of `cp.async` and `cp.async.bulk`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyGroup {
    /// `cp.async.commit_group`
    Commit,
    /// `cp.async.wait_group`, with the number of the newest groups that may be pending.
    Wait(u32),
    /// `cp.async.wait_all`
    WaitAll,
    /// `cp.async.mbarrier.arrive`: the copies so far are complete when the barrier's phase is.
    Arrive(Address),
    /// `cp.async.bulk.commit_group`
    CommitBulk,
    /// `cp.async.bulk.wait_group`, with the number of the newest groups that may be pending. With `.read`, only the
    /// reads of the others are complete.
    WaitBulk { pending: u32, is_read: bool },
}

/// A function that the driver supplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intrinsic {
    Vprintf,
    Assertfail,
    Malloc,
    Free,
    /// `cudaCGGetIntrinsicHandle`
    GridHandle,
    GraphSetConditional,
    GraphLaunch,
}

/// A value that is copied between the frame of a caller and that of the callee, which follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pass {
    /// The offset in the frame of the callee.
    pub(crate) callee: u32,
    pub(crate) size: u32,
    pub(crate) caller: Passed,
}

/// The side of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    /// An offset in its frame.
    Frame(u32),
    Register(Element),
    Predicate(Slot),
}

/// A video instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Video {
    Scalar(Scalar),
    Mad(Mad),
    Pair(Packed<2>),
    Quad(Packed<4>),
}

/// The coordinates of a texture or surface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TexelPlace {
    /// The handle.
    pub(crate) object: Slot,
    pub(crate) layer: Option<Slot>,
    /// The number of coordinates. The others are not used.
    pub(crate) axes: usize,
    pub(crate) at: [Slot; 3],
    pub(crate) is_cubemap: bool,
}

/// The level of a texture that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LevelOf {
    Base,
    /// A number, or an index, as the coordinates.
    Slot(Slot),
    Gradient([[Slot; 3]; 2]),
}

/// A read of a texture.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) place: TexelPlace,
    /// Whether the coordinates are indices.
    pub(crate) is_index: bool,
    pub(crate) level: LevelOf,
    pub(crate) offset: Option<[Slot; 3]>,
    /// The channel that is read of four texels.
    pub(crate) gather: Option<usize>,
    /// The bits of a result: 32, or 16 for halves.
    pub(crate) bits: u32,
    /// The registers. Two of them have two halves each.
    pub(crate) d: Box<[Element]>,
    /// Whether the texels are in memory.
    pub(crate) resident: Option<Slot>,
}

/// What an access of a surface does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SurfaceFunction {
    Load,
    Store,
    Reduce(AtomicFunction),
}

/// An access of a surface.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SurfaceAccess {
    pub(crate) place: TexelPlace,
    pub(crate) function: SurfaceFunction,
    /// Whether the first coordinate counts texels, whose format the elements have. Otherwise it counts bytes.
    pub(crate) is_formatted: bool,
    pub(crate) boundary: Boundary,
    /// The bytes of an element.
    pub(crate) size: u32,
    pub(crate) elements: Box<[Element]>,
}

/// An operation of a warp.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Op {
    Nop,
    Move(Bank, Slot, Slot),
    MovePredicate {
        d: Slot,
        a: Condition,
    },
    /// Splits a value into parts of this many bits. A part without a register is discarded.
    Unpack {
        part: u32,
        d: Box<[Element]>,
        a: Box<[Element]>,
    },
    Pack {
        part: u32,
        d: Box<[Element]>,
        a: Box<[Element]>,
    },
    Unary(Unary, Slot, Slot),
    Binary(Binary, Slot, [Slot; 2]),
    Ternary(Ternary, Slot, [Slot; 3]),
    Bfi {
        bits: u32,
        d: Slot,
        a: [Slot; 4],
    },
    /// `add.cc`, `addc`, `sub.cc`, `subc`.
    Carry {
        ty: Int,
        is_sub: bool,
        takes: bool,
        gives: bool,
        carry: Slot,
        d: Slot,
        a: [Slot; 2],
    },
    /// `mad.cc`, `madc`.
    MadCarry {
        ty: Int,
        is_high: bool,
        takes: bool,
        gives: bool,
        carry: Slot,
        d: Slot,
        a: [Slot; 3],
    },
    Setp {
        compare: Compare,
        p: Option<Slot>,
        q: Option<Slot>,
    },
    /// A comparison whose result is a number: all ones or 1.0.
    Set {
        compare: Compare,
        d: Slot,
        one: u32,
    },
    /// `set` of packed halves.
    SetPacked {
        compare: Compare,
        d: Slot,
        one: u16,
    },
    /// `setp` of packed halves.
    SetpPacked {
        compare: Compare,
        p: Option<Slot>,
        q: Option<Slot>,
    },
    Selp {
        bank: Bank,
        d: Slot,
        a: [Slot; 2],
        p: Condition,
    },
    Logic {
        logic: Logic,
        d: Slot,
        a: [Condition; 2],
    },
    Testp {
        ty: Float,
        kind: crate::number::Property,
        d: Slot,
        a: Slot,
    },
    Convert {
        convert: Convert,
        d: Slot,
        a: Slot,
    },
    /// Two conversions whose results are packed: `a` into the upper half.
    ConvertPacked {
        convert: Convert,
        d: Slot,
        a: [Slot; 2],
    },
    /// A packed pair of small floats into a pair of halves.
    ConvertUnpacked {
        convert: Convert,
        d: Slot,
        a: Slot,
    },
    /// `cvt.pack`: the bits of the results, whether they are signed, and `c` whose value is shifted up.
    CvtPack {
        bits: u32,
        is_signed: bool,
        from: Int,
        d: Slot,
        a: [Slot; 3],
    },
    Video(Box<Video>, Slot, [Slot; 3]),
    Sample(Box<Sample>),
    Surface(Box<SurfaceAccess>),
    /// A query of the extent of a texture or surface along an axis, with the level.
    Query {
        is_surface: bool,
        axis: usize,
        object: Slot,
        level: Option<Slot>,
        d: Slot,
    },
    Load(Transfer),
    Store(Transfer),
    Atomic(Atomic),
    AtomicWide(Box<AtomicWide>),
    Multimem(Box<Multimem>),
    CopyBulk(Box<Bulk>),
    CopyTensor(Box<TensorCopy>),
    /// `cp.async.bulk.prefetch`, which only checks its operands.
    PrefetchBulk {
        from: Address,
        size: Slot,
    },
    /// The address of a variable in the frame.
    FrameAddress {
        d: Slot,
        offset: u32,
        is_wide: bool,
        is_generic: bool,
    },
    IsSpace {
        space: Space,
        p: Slot,
        a: Base,
    },
    /// `cp.async` of this many bytes, of which the register says how many are read.
    CopyAsync {
        to: Address,
        from: Address,
        size: u32,
        read: Option<Slot>,
        ignore: Option<Condition>,
    },
    /// A step of the groups of asynchronous copies. The copies are complete when they are issued.
    CopyGroup(CopyGroup),
    Mbarrier {
        address: Address,
        operation: Mbarrier,
        order: Order,
    },
    MapShared {
        d: Slot,
        a: Slot,
        rank: Slot,
        is_wide: bool,
        is_generic: bool,
    },
    RankOf {
        d: Slot,
        a: Base,
        is_generic: bool,
    },
    Clock {
        d: Slot,
        is_high: bool,
        is_wide: bool,
    },
    Activemask {
        d: Slot,
    },
    Branch(u32),
    BranchTable {
        index: Slot,
        targets: Box<[u32]>,
    },
    /// A call of the function with this index in the image.
    Call {
        function: u32,
        arguments: Box<[Pass]>,
    },
    CallIndirect {
        target: Slot,
        arguments: Box<[Pass]>,
    },
    /// A call of a function of the driver. `params` has the offset of each parameter in its frame.
    Intrinsic {
        intrinsic: Intrinsic,
        arguments: Box<[Pass]>,
        params: Box<[u32]>,
    },
    /// Reads the results of the call before, from the frame of the callee.
    Results(Box<[Pass]>),
    Return,
    Exit,
    Trap,
    /// Lets other groups and warps run.
    Sleep,
    Together {
        mask: Slot,
        operation: Together,
    },
    Barrier {
        id: Slot,
        count: Option<Slot>,
        barrier: Barrier,
        /// Whether all lanes of a warp must execute the instruction together.
        is_aligned: bool,
    },
    /// `barrier.cluster.arrive`, and whether it orders memory.
    ClusterArrive {
        releases: bool,
    },
    ClusterWait,
    /// `fence` and `membar`, which only the checks use: each access of the engine is seen by all threads at once.
    Fence(Fence),
    Alloca {
        d: Slot,
        size: Slot,
        align: u32,
        is_wide: bool,
    },
    StackSave {
        d: Slot,
        is_wide: bool,
    },
    StackRestore {
        a: Slot,
        is_wide: bool,
    },
    /// An instruction that is not supported.
    Refused,
}
