//! Printing of the syntax tree as PTX that parses to an equal tree, apart from positions.

use super::{
    Address, Directive, File, Function, Guard, Immediate, Initializer, Instruction, Item, Location,
    Module, Operand, Prototype, Section, Space, Statement, Type, Variable,
};
use std::fmt::{self, Display, Formatter};

/// Elements with a separator between them.
struct Separated<'t, T>(&'t [T], &'static str);

impl<T: Display> Display for Separated<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (index, element) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(self.1)?;
            }
            element.fmt(f)?;
        }
        Ok(())
    }
}

fn commas<T>(elements: &[T]) -> Separated<'_, T> {
    Separated(elements, ", ")
}

/// `.pragma` with its strings.
struct Pragma<'t, 'a>(&'t [&'a str]);

impl Display for Pragma<'_, '_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, ".pragma \"{}\";", Separated(self.0, "\", \""))
    }
}

/// `.attribute` of a variable or function.
struct Attributes {
    is_managed: bool,
    unified: Option<(u64, u64)>,
}

impl Display for Attributes {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (self.is_managed, self.unified) {
            (false, None) => Ok(()),
            (true, None) => f.write_str(" .attribute(.managed)"),
            (false, Some((a, b))) => write!(f, " .attribute(.unified({a}, {b}))"),
            (true, Some((a, b))) => write!(f, " .attribute(.managed, .unified({a}, {b}))"),
        }
    }
}

/// Parameters or results in parentheses.
struct Params<'t, 'a>(&'t [Variable<'a>]);

impl Display for Params<'_, '_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "({})", commas(self.0))
    }
}

/// Statements in braces.
struct Block<'t, 'a> {
    statements: &'t [Statement<'a>],
    /// The indentation of the braces.
    indent: usize,
}

impl Display for Block<'_, '_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("{\n")?;
        for statement in self.statements {
            let inner = self.indent + 4;
            match statement {
                Statement::Label { .. } => writeln!(f, "{statement}")?,
                Statement::Block(statements) => {
                    writeln!(f, "{:inner$}{}", "", Block { statements, indent: inner })?;
                }
                _ => writeln!(f, "{:inner$}{statement}", "")?,
            }
        }
        write!(f, "{:indent$}}}", "", indent = self.indent)
    }
}

impl Display for Module<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { version: (major, minor), target, address_size, items } = self;
        writeln!(f, ".version {major}.{minor}")?;
        writeln!(f, ".target {}", commas(target))?;
        writeln!(f, ".address_size {address_size}")?;
        for item in items {
            writeln!(f, "{item}")?;
        }
        Ok(())
    }
}

impl Display for Item<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(variable) => write!(f, "{variable};"),
            Self::Function(function) => function.fmt(f),
            Self::Alias { name, function } => write!(f, ".alias {name}, {function};"),
            Self::File(file) => file.fmt(f),
            Self::Section(section) => section.fmt(f),
            Self::Pragma(strings) => Pragma(strings).fmt(f),
        }
    }
}

impl Display for File<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { index, name, time_and_size } = self;
        write!(f, ".file {index} \"{name}\"")?;
        if let Some((time, size)) = time_and_size {
            write!(f, ", {time}, {size}")?;
        }
        Ok(())
    }
}

impl Display for Section<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { name, content } = self;
        write!(f, ".section {name} {{{content}}}")
    }
}

impl Display for Space {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, ".{}", self.name())
    }
}

impl Display for Type {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, ".{}", self.name())
    }
}

/// Prints the declaration without its semicolon.
impl Display for Variable<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(linkage) = self.linkage.name() {
            write!(f, ".{linkage} ")?;
        }
        let attributes = Attributes { is_managed: self.is_managed, unified: self.unified };
        write!(f, "{}{attributes}", self.space)?;
        if let Some(align) = self.align {
            write!(f, " .align {align}")?;
        }
        if self.vector != 1 {
            write!(f, " .v{}", self.vector)?;
        }
        write!(f, " {}", self.ty)?;
        if let Some((space, align)) = self.pointer {
            f.write_str(" .ptr")?;
            if let Some(space) = space {
                write!(f, " {space}")?;
            }
            if let Some(align) = align {
                write!(f, " .align {align}")?;
            }
        }
        write!(f, " {}", self.name)?;
        if let Some(range) = self.range {
            write!(f, "<{range}>")?;
        }
        for dimension in &self.dimensions {
            match dimension {
                Some(elements) => write!(f, "[{elements}]")?,
                None => f.write_str("[]")?,
            }
        }
        if let Some(initializer) = &self.initializer {
            write!(f, " = {initializer}")?;
        }
        Ok(())
    }
}

impl Display for Initializer<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(value) => value.fmt(f),
            Self::Address { symbol, offset, is_generic, mask } => {
                if let Some(mask) = mask {
                    write!(f, "{mask:#x}(")?;
                }
                if *is_generic {
                    write!(f, "generic({symbol})")?;
                } else {
                    f.write_str(symbol)?;
                }
                if *offset != 0 {
                    write!(f, "+{}", Signed(*offset))?;
                }
                f.write_str(if mask.is_some() { ")" } else { "" })
            }
            Self::List(values) => write!(f, "{{{}}}", commas(values)),
            Self::Field { name, value } => write!(f, "{name} = {value}"),
        }
    }
}

impl Display for Immediate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Integer { bits, is_unsigned: true } => write!(f, "{bits}U"),
            Self::Integer { bits, is_unsigned: false } => Signed(bits as i64).fmt(f),
            Self::Single(bits) => write!(f, "0f{bits:08X}"),
            Self::Double(value) => write!(f, "0d{:016X}", value.to_bits()),
        }
    }
}

/// A signed number. The absolute value of the least number is unsigned in PTX, and thus its negative
/// too.
struct Signed(i64);

impl Display for Signed {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            i64::MIN => write!(f, "{}-1", i64::MIN + 1),
            number => number.fmt(f),
        }
    }
}

impl Display for Function<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(linkage) = self.linkage.name() {
            write!(f, ".{linkage} ")?;
        }
        f.write_str(if self.is_entry { ".entry" } else { ".func" })?;
        Attributes { is_managed: false, unified: self.unified }.fmt(f)?;
        if !self.results.is_empty() {
            write!(f, " {}", Params(&self.results))?;
        }
        write!(f, " {}{}", self.name, Params(&self.params))?;
        for directive in &self.directives {
            write!(f, " {directive}")?;
        }
        match &self.body {
            Some(statements) => write!(f, "\n{}", Block { statements, indent: 0 }),
            None => f.write_str(";"),
        }
    }
}

impl Display for Directive<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { name, numbers, strings } = self;
        if !strings.is_empty() {
            return Pragma(strings).fmt(f);
        }
        write!(f, ".{name}")?;
        if !numbers.is_empty() {
            write!(f, " {}", commas(numbers))?;
        }
        Ok(())
    }
}

impl Display for Statement<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label { name, .. } => write!(f, "{name}:"),
            Self::Instruction(instruction) => instruction.fmt(f),
            Self::Variable(variable) => write!(f, "{variable};"),
            Self::Block(statements) => Block { statements, indent: 0 }.fmt(f),
            Self::Location(location) => location.fmt(f),
            Self::Pragma(strings) => Pragma(strings).fmt(f),
            Self::BranchTargets { name, labels, .. } => {
                write!(f, "{name}: .branchtargets {};", commas(labels))
            }
            Self::CallTargets { name, functions, .. } => {
                write!(f, "{name}: .calltargets {};", commas(functions))
            }
            Self::CallPrototype(its) => {
                let Prototype { name, results, params, directives, .. } = &**its;
                let (results, params) = (Params(results), Params(params));
                write!(f, "{name}: .callprototype {results} _ {params}")?;
                for directive in directives {
                    write!(f, " {directive}")?;
                }
                f.write_str(";")
            }
        }
    }
}

impl Display for Location<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, inlined } = self;
        write!(f, ".loc {file} {line} {column}")?;
        if let Some(inlined) = inlined {
            let ((label, offset), (file, line, column)) = (inlined.function_name, inlined.at);
            write!(f, ", function_name {label}")?;
            if offset != 0 {
                write!(f, "+{offset}")?;
            }
            write!(f, ", inlined_at {file} {line} {column}")?;
        }
        Ok(())
    }
}

impl Display for Instruction<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(guard) = self.guard {
            write!(f, "{guard} ")?;
        }
        f.write_str(self.mnemonic)?;
        if !self.operands.is_empty() {
            write!(f, " {}", commas(&self.operands))?;
        }
        f.write_str(";")
    }
}

impl Display for Guard<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let sign = if self.is_negated { "!" } else { "" };
        write!(f, "@{sign}{}", self.register)
    }
}

impl Display for Operand<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Not(name) => write!(f, "!{name}"),
            Self::Negative(name) => write!(f, "-{name}"),
            Self::Offset(name, offset) => write!(f, "{name}+{}", Signed(*offset)),
            Self::Immediate(value) => value.fmt(f),
            Self::Discard => f.write_str("_"),
            Self::Vector(operands) => write!(f, "{{{}}}", commas(operands)),
            Self::Pair(first, second) => write!(f, "{first}|{second}"),
            Self::Address(address) => address.fmt(f),
            Self::List(operands) => write!(f, "({})", commas(operands)),
        }
    }
}

impl Display for Address<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { base, offset, rest } = self;
        write!(f, "[{base}")?;
        if *offset != 0 {
            write!(f, "+{}", Signed(*offset))?;
        }
        if !rest.is_empty() {
            write!(f, ", {}", commas(rest))?;
        }
        f.write_str("]")
    }
}
