//! The syntax tree of a module. Names are parts of the text.

/// A place in the text. Both numbers start at one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The line.
    pub line: u32,
    /// The column, in bytes.
    pub column: u32,
}

/// A module: the content of one PTX text.
#[derive(Clone, Debug, PartialEq)]
pub struct Module<'a> {
    /// The PTX version of `.version`: major and minor.
    pub version: (u32, u32),
    /// The words of `.target`, for example `sm_90a`, `debug`.
    pub target: Vec<&'a str>,
    /// The number of bits of an address: 32 or 64.
    pub address_size: u32,
    /// The variables, functions and other directives, in the order of the text.
    pub items: Vec<Item<'a>>,
}

/// A directive at the top level of a module.
#[derive(Clone, Debug, PartialEq)]
pub enum Item<'a> {
    /// A variable.
    Variable(Variable<'a>),
    /// A function, kernel or prototype of either.
    Function(Function<'a>),
    /// `.alias`: another name of a function.
    Alias {
        /// The new name.
        name: &'a str,
        /// The function.
        function: &'a str,
    },
    /// `.file`: a source file that `.loc` refers to.
    File(File<'a>),
    /// `.section`: debug information.
    Section(Section<'a>),
    /// `.pragma` with its strings, without quotation marks.
    Pragma(Vec<&'a str>),
}

/// `.file`: a source file that `.loc` refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File<'a> {
    /// The number of the file in `.loc`.
    pub index: u32,
    /// The name, without quotation marks.
    pub name: &'a str,
    /// The time of the last change and the size of the file.
    pub time_and_size: Option<(u64, u64)>,
}

/// `.section`: debug information, which has no meaning for execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section<'a> {
    /// The name, for example `.debug_info`.
    pub name: &'a str,
    /// The text between the braces.
    pub content: &'a str,
}

/// The visibility of a symbol to the linker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Linkage {
    /// No directive: the symbol is visible in its module only.
    #[default]
    Internal,
    /// `.extern`: the symbol is defined in another module.
    Extern,
    /// `.visible`: other modules may use the symbol.
    Visible,
    /// `.weak`: the linker keeps one of several definitions.
    Weak,
    /// `.common`: the linker merges variables of this name.
    Common,
}

/// A state space of variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// `.reg`
    Register,
    /// `.sreg`
    SpecialRegister,
    /// `.const`
    Const,
    /// `.global`
    Global,
    /// `.local`
    Local,
    /// `.param`
    Param,
    /// `.shared`
    Shared,
    /// `.tex`
    Texture,
}

/// A fundamental type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each type has its name in PTX")]
pub enum Type {
    B8,
    B16,
    B32,
    B64,
    B128,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    F32,
    F32x2,
    F64,
    Pred,
    TexRef,
    SamplerRef,
    SurfRef,
}

/// A variable, a register or a parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable<'a> {
    /// The place of the name.
    pub position: Position,
    /// The visibility.
    pub linkage: Linkage,
    /// The state space.
    pub space: Space,
    /// `.attribute(.managed)`
    pub is_managed: bool,
    /// The two numbers of `.attribute(.unified(..))`.
    pub unified: Option<(u64, u64)>,
    /// The number of `.align`, in bytes.
    pub align: Option<u64>,
    /// The number of elements of `.v2`, `.v4` or `.v8`; 1 without such a word.
    pub vector: u32,
    /// The type of an element.
    pub ty: Type,
    /// `.ptr` of a parameter, with the state space and the alignment of the memory behind it.
    pub pointer: Option<(Option<Space>, Option<u64>)>,
    /// The name. The name of a range of registers is a prefix.
    pub name: &'a str,
    /// The number of registers of a range such as `%r<10>`.
    pub range: Option<u32>,
    /// The dimensions of an array. `None` is an empty pair of brackets.
    pub dimensions: Vec<Option<u64>>,
    /// The initial value.
    pub initializer: Option<Initializer<'a>>,
}

/// An initial value of a variable.
#[derive(Clone, Debug, PartialEq)]
pub enum Initializer<'a> {
    /// A constant.
    Value(Immediate),
    /// The address of a variable or a function, in its state space or generic.
    Address {
        /// The name of the variable or function.
        symbol: &'a str,
        /// The number of bytes that is added.
        offset: i64,
        /// Whether it is in `generic(..)`.
        is_generic: bool,
        /// The number of `mask(symbol)`, such as `0xff00`, which selects one byte of the address.
        mask: Option<u64>,
    },
    /// Values in braces.
    List(Vec<Self>),
    /// `name = value`: a property of a sampler or texture, in braces.
    Field {
        /// The name of the property, for example `filter_mode`.
        name: &'a str,
        /// The value. A word such as `nearest` is an address of this name.
        value: Box<Self>,
    },
}

/// A constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Immediate {
    /// An integer: its 64 bits, and whether it is unsigned.
    Integer {
        /// The bits, in two's complement.
        bits: u64,
        /// Whether it has the type `.u64` and not `.s64`.
        is_unsigned: bool,
    },
    /// The bits of `0f3F800000`.
    Single(u32),
    /// A decimal number, or the bits of `0d3FF0000000000000`.
    Double(f64),
}

/// A function, kernel or prototype of either.
#[derive(Clone, Debug, PartialEq)]
pub struct Function<'a> {
    /// The place of the name.
    pub position: Position,
    /// The visibility.
    pub linkage: Linkage,
    /// Whether it is a kernel: `.entry`.
    pub is_entry: bool,
    /// `.attribute(.unified(..))`
    pub unified: Option<(u64, u64)>,
    /// The name.
    pub name: &'a str,
    /// The variables of the result. Kernels have none.
    pub results: Vec<Variable<'a>>,
    /// The parameters.
    pub params: Vec<Variable<'a>>,
    /// Directives such as `.maxntid`, `.reqnctapercluster`, `.noreturn`.
    pub directives: Vec<Directive<'a>>,
    /// The statements. `None` for a prototype.
    pub body: Option<Vec<Statement<'a>>>,
}

/// A directive between the parameters and the body of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive<'a> {
    /// The name, without the period.
    pub name: &'a str,
    /// Its numbers.
    pub numbers: Vec<u64>,
    /// Its strings, without quotation marks.
    pub strings: Vec<&'a str>,
}

/// A statement of a function. Most statements are instructions, so the others are not larger.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement<'a> {
    /// A label.
    Label {
        /// The place of the label.
        position: Position,
        /// The name.
        name: &'a str,
    },
    /// An instruction.
    Instruction(Instruction<'a>),
    /// A variable or registers.
    Variable(Box<Variable<'a>>),
    /// Statements in braces, with a scope of their own.
    Block(Vec<Self>),
    /// `.loc`: the source of the instructions that follow.
    Location(Location<'a>),
    /// `.pragma` with its strings, without quotation marks.
    Pragma(Vec<&'a str>),
    /// `name: .branchtargets`, the table of `brx.idx`.
    BranchTargets {
        /// The place of the name.
        position: Position,
        /// The name of the table.
        name: &'a str,
        /// The labels.
        labels: Vec<&'a str>,
    },
    /// `name: .calltargets`, the functions that an indirect call may call.
    CallTargets {
        /// The place of the name.
        position: Position,
        /// The name of the table.
        name: &'a str,
        /// The functions.
        functions: Vec<&'a str>,
    },
    /// `name: .callprototype`, the type of an indirect call.
    CallPrototype(Box<Prototype<'a>>),
}

/// `name: .callprototype`, the type of an indirect call.
#[derive(Clone, Debug, PartialEq)]
pub struct Prototype<'a> {
    /// The place of the name.
    pub position: Position,
    /// The name of the prototype.
    pub name: &'a str,
    /// The variables of the result.
    pub results: Vec<Variable<'a>>,
    /// The parameters.
    pub params: Vec<Variable<'a>>,
    /// Directives such as `.noreturn`.
    pub directives: Vec<Directive<'a>>,
}

/// `.loc`: the source of the instructions that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location<'a> {
    /// The number of the file.
    pub file: u32,
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
    /// The function that was inlined there.
    pub inlined: Option<Inlined<'a>>,
}

/// The part of `.loc` about a function that was inlined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inlined<'a> {
    /// The label in `.debug_str` with the name of the function, and the offset to it.
    pub function_name: (&'a str, u64),
    /// The place of the call: file, line and column.
    pub at: (u32, u32, u32),
}

/// An instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction<'a> {
    /// The place of the mnemonic.
    pub position: Position,
    /// The guard predicate.
    pub guard: Option<Guard<'a>>,
    /// The opcode with its modifiers, for example `ld.global.v4.f32`. A modifier can follow a space.
    pub mnemonic: &'a str,
    /// The operands.
    pub operands: Vec<Operand<'a>>,
}

impl<'a> Instruction<'a> {
    /// Returns the opcode, for example `ld`.
    pub fn opcode(&self) -> &'a str {
        split(self.mnemonic).0.trim_ascii_end()
    }

    /// Returns the modifiers, for example `global`, `v4`, `f32`.
    pub fn modifiers(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let mut rest = split(self.mnemonic).1;
        std::iter::from_fn(move || {
            let (first, others) = split(rest?);
            rest = others;
            Some(first.trim_ascii_end())
        })
    }
}

/// Splits a mnemonic after its first part. Searching bytes is faster than `str::split_once` for such short texts.
fn split(text: &str) -> (&str, Option<&str>) {
    match text.bytes().position(|byte| byte == b'.') {
        Some(period) => (&text[..period], Some(&text[period + 1..])),
        None => (text, None),
    }
}

/// The guard predicate of an instruction: `@p` or `@!p`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard<'a> {
    /// The predicate register.
    pub register: &'a str,
    /// Whether the instruction is executed if the predicate is false.
    pub is_negated: bool,
}

/// An operand.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand<'a> {
    /// A register, special register such as `%tid.x`, variable, label, function, or component such as `%v.x`.
    Name(&'a str),
    /// `!p`: a negated predicate.
    Not(&'a str),
    /// `-r`: the negative of a register, which only `vmad` has.
    Negative(&'a str),
    /// `name+offset` outside of brackets.
    Offset(&'a str, i64),
    /// A constant.
    Immediate(Immediate),
    /// `_`: a result that is discarded.
    Discard,
    /// `{a, b}`: a vector.
    Vector(Vec<Self>),
    /// `p|q`: two results.
    Pair(Box<Self>, Box<Self>),
    /// `[..]`: an address in memory, or a texture with its coordinates.
    Address(Box<Address<'a>>),
    /// `(a, b)`: the results or the arguments of a call.
    List(Vec<Self>),
}

/// The content of a pair of brackets.
#[derive(Clone, Debug, PartialEq)]
pub struct Address<'a> {
    /// The register or variable, or the constant of an absolute address.
    pub base: Operand<'a>,
    /// The number of bytes that is added.
    pub offset: i64,
    /// The operands that follow after a comma: a sampler, or a vector of coordinates.
    pub rest: Vec<Operand<'a>>,
}
