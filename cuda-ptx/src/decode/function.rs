//! The statements of a function.

use super::Problem;
use super::link::{Builder, clamp, layout, place, round_up};
use super::words::{Words, bits};
use crate::map::Map;
use crate::program::{
    Address, Bank, Base, Condition, Element, Elements, Inst, Op, Place, Slot, Space as OpSpace,
    Transfer,
};
use crate::syntax::{
    Function, Guard, Instruction, Position, Space, Statement, Type, Variable as Declared,
};

/// What a name in a function refers to.
#[derive(Clone, Debug)]
pub(super) enum Symbol {
    Register {
        slot: Slot,
        ty: Type,
    },
    /// The registers of a vector.
    Vector {
        slots: Vec<Slot>,
        ty: Type,
    },
    /// Bytes in the frame: a variable in local memory, or in the space `.param` of a function.
    Frame {
        offset: u32,
        size: u32,
    },
    /// A parameter of a kernel.
    Param {
        offset: u32,
    },
    /// A variable in static shared memory.
    Shared {
        offset: u32,
    },
    /// A variable of the module that the function declares.
    Prototype {
        results: Vec<(u32, u32)>,
        params: Vec<(u32, u32)>,
    },
    /// The table of an indirect branch: its labels.
    Targets,
}

/// The names and labels between two braces.
#[derive(Default)]
struct Scope<'a> {
    symbols: Map<&'a str, Symbol>,
    /// Ranges of registers: the first register and the number, by the prefix.
    ranges: Map<&'a str, (Slot, u32, Type)>,
    labels: Map<&'a str, u32>,
    /// Branches to labels that are not yet known: the instruction, the entry of its table, the label.
    branches: Vec<(u32, usize, &'a str)>,
    tables: Map<&'a str, Vec<&'a str>>,
}

/// The decoder of a function.
pub(super) struct Decoder<'b, 's, 'a> {
    pub(super) builder: &'b mut Builder<'s, 'a>,
    pub(super) module: usize,
    pub(super) function: &'a Function<'a>,
    scopes: Vec<Scope<'a>>,
    /// The bytes of the frame so far.
    frame: u64,
    /// The bytes of variables in local memory so far.
    local: u64,
    place: Place,
    position: Position,
    pub(super) guard: Option<Condition>,
    /// Results in registers, which `ret` stores into the frame.
    results: Vec<(Symbol, u32)>,
    /// The predicate with the carry bit of each lane.
    carry: Option<Slot>,
}

impl<'b, 's, 'a> Decoder<'b, 's, 'a> {
    pub(super) fn new(
        builder: &'b mut Builder<'s, 'a>,
        module: usize,
        function: &'a Function<'a>,
    ) -> Self {
        Self {
            builder,
            module,
            function,
            scopes: vec![Scope::default()],
            frame: 0,
            local: 0,
            place: Place::default(),
            position: function.position,
            guard: None,
            results: Vec::new(),
            carry: None,
        }
    }

    pub(super) fn run(mut self) -> Result<(), (Position, String)> {
        let index = self.builder.current as usize;
        let image = &self.builder.image;
        let before = (image.narrow, image.wide, image.predicates);
        self.builder.image.functions[index].entry = self.builder.emit_at();
        let body = self.function.body.as_deref().unwrap_or_default();
        let done = self.params().and_then(|()| self.statements(body));
        let done = done.and_then(|()| {
            self.place.mnemonic = self.builder.mnemonic("ret");
            self.end()
        });
        let text = |problem| match problem {
            Problem::Invalid(text) => text,
            Problem::Unsupported(text) => format!("{text} is not supported"),
        };
        done.map_err(|problem| (self.position, text(problem)))?;
        let scope = self.scopes.pop().unwrap_or_default();
        if let Some((_, _, label)) = scope.branches.first() {
            return Err((self.function.position, format!("the label `{label}` is not defined")));
        }
        let image = &mut self.builder.image;
        let info = &mut image.functions[index];
        info.frame = clamp(round_up(self.frame, 16));
        info.local = clamp(self.local);
        info.narrow = (before.0, image.narrow - before.0);
        info.wide = (before.1, image.wide - before.1);
        info.predicates = (before.2, image.predicates - before.2);
        Ok(())
    }

    /// Declares the parameters and results.
    fn params(&mut self) -> Result<(), Problem> {
        let function = self.function;
        if function.is_entry {
            let (places, _) = place(&function.params, 0);
            for (its, (offset, _)) in function.params.iter().zip(places) {
                self.declare(its.name, Symbol::Param { offset })?;
            }
            return Ok(());
        }
        let (results, end) = place(&function.results, 0);
        let (params, end) = place(&function.params, end);
        self.frame = end;
        for (its, (offset, size)) in function.results.iter().zip(results) {
            match its.space {
                Space::Register => {
                    let symbol = self.register(its)?;
                    self.declare(its.name, symbol.clone())?;
                    self.results.push((symbol, offset));
                }
                _ => self.declare(its.name, Symbol::Frame { offset, size })?,
            }
        }
        for (its, (offset, size)) in function.params.iter().zip(params) {
            match its.space {
                Space::Register => {
                    let symbol = self.register(its)?;
                    self.declare(its.name, symbol.clone())?;
                    let transfer = self.in_frame(&symbol, offset)?;
                    self.emit(Op::Load(transfer));
                }
                _ => self.declare(its.name, Symbol::Frame { offset, size })?,
            }
        }
        Ok(())
    }

    /// Returns the transfer between a register and its bytes in the frame.
    fn in_frame(&self, symbol: &Symbol, offset: u32) -> Result<Transfer, Problem> {
        let Symbol::Register { slot, ty } = symbol else {
            return Problem::unsupported("a vector as a parameter")?;
        };
        let element = match bank(*ty)? {
            Bank::Narrow => Element::Narrow(*slot),
            Bank::Wide => Element::Wide(*slot),
            Bank::Predicate => return Problem::unsupported("a predicate as a parameter"),
        };
        let address =
            Address { space: OpSpace::Frame, base: Base::None, offset: i64::from(offset) };
        let size = bits(*ty).div_ceil(8);
        Ok(Transfer {
            address,
            size,
            is_signed: false,
            order: None,
            elements: Elements::One(element),
        })
    }

    /// Stores the results that are in registers, and returns.
    pub(super) fn end(&mut self) -> Result<(), Problem> {
        if self.function.is_entry {
            self.emit(Op::Exit);
            return Ok(());
        }
        for (symbol, offset) in self.results.clone() {
            let transfer = self.in_frame(&symbol, offset)?;
            self.emit(Op::Store(transfer));
        }
        self.emit(Op::Return);
        Ok(())
    }

    pub(super) fn emit(&mut self, op: Op) -> u32 {
        let guard = self.guard;
        let at = self.builder.emit_at();
        self.builder.image.code.push(Inst { guard, op });
        self.builder.image.places.push(self.place);
        at
    }

    fn declare(&mut self, name: &'a str, symbol: Symbol) -> Result<(), Problem> {
        let scope = self.scopes.last_mut();
        match scope.and_then(|scope| scope.symbols.insert(name, symbol)) {
            Some(_) => Problem::invalid(format!("`{name}` is declared twice")),
            None => Ok(()),
        }
    }

    /// Returns new registers for a declaration.
    fn register(&mut self, its: &Declared<'a>) -> Result<Symbol, Problem> {
        if its.ty == Type::B128 {
            let slots = vec![self.builder.register(Bank::Wide), self.builder.register(Bank::Wide)];
            return Ok(Symbol::Vector { slots, ty: Type::B128 });
        }
        let bank = bank(its.ty)?;
        if its.vector > 1 {
            let slots = (0..its.vector).map(|_| self.builder.register(bank)).collect();
            return Ok(Symbol::Vector { slots, ty: its.ty });
        }
        Ok(Symbol::Register { slot: self.builder.register(bank), ty: its.ty })
    }

    fn variable(&mut self, its: &'a Declared<'a>) -> Result<(), Problem> {
        self.position = its.position;
        match its.space {
            Space::Register => {
                if let (Some(count), true) = (its.range, its.ty != Type::B128) {
                    let bank = bank(its.ty)?;
                    let first = self.builder.register(bank);
                    let total = match bank {
                        Bank::Narrow => &mut self.builder.image.narrow,
                        Bank::Wide => &mut self.builder.image.wide,
                        Bank::Predicate => &mut self.builder.image.predicates,
                    };
                    if count > 1 << 20 {
                        return Problem::invalid("too many registers");
                    }
                    *total += count.max(1) - 1;
                    if let Some(scope) = self.scopes.last_mut() {
                        scope.ranges.insert(its.name, (first, count, its.ty));
                    }
                    return Ok(());
                }
                if its.range.is_some() {
                    return Problem::unsupported("a range of registers of 128 bits");
                }
                let symbol = self.register(its)?;
                self.declare(its.name, symbol)?;
            }
            Space::Shared => {
                let offset = self.builder.add_shared(its);
                self.declare(its.name, Symbol::Shared { offset })?;
            }
            Space::Local | Space::Param => {
                let (size, align) = layout(its);
                if its.space == Space::Local {
                    self.local = round_up(self.local, align).saturating_add(size);
                }
                let offset = round_up(self.frame, align);
                self.frame = offset.saturating_add(size);
                let symbol = Symbol::Frame { offset: clamp(offset), size: clamp(size) };
                self.declare(its.name, symbol)?;
            }
            _ => {
                return Problem::unsupported("a variable in this state space inside of a function");
            }
        }
        Ok(())
    }

    fn statements(&mut self, statements: &'a [Statement<'a>]) -> Result<(), Problem> {
        for statement in statements {
            match statement {
                Statement::Label { position, name } => {
                    self.position = *position;
                    let at = self.builder.emit_at();
                    if let Some(scope) = self.scopes.last_mut() {
                        if scope.labels.insert(name, at).is_some() {
                            return Problem::invalid(format!("the label `{name}` is there twice"));
                        }
                    }
                }
                Statement::Instruction(its) => self.instruction(its)?,
                Statement::Variable(its) => self.variable(its)?,
                Statement::Block(inner) => {
                    self.scopes.push(Scope::default());
                    self.statements(inner)?;
                    self.leave();
                }
                Statement::Location(its) => {
                    // The line of an inlined function is that of its source.
                    self.place.file = self.builder.file(self.module, its.file);
                    self.place.source_line = its.line;
                }
                Statement::Pragma(_) => {}
                Statement::BranchTargets { name, labels, .. } => {
                    if let Some(scope) = self.scopes.last_mut() {
                        scope.tables.insert(name, labels.clone());
                    }
                    self.declare(name, Symbol::Targets)?;
                }
                Statement::CallTargets { name, functions, .. } => {
                    let global = functions.first().and_then(|name| self.global(name));
                    let Some(super::link::Global::Function(index)) = global else {
                        return Problem::invalid("a table of functions without a function");
                    };
                    let its = self.builder.symbols.functions[index].1;
                    let symbol = prototype(&its.results, &its.params);
                    self.declare(name, symbol)?;
                }
                Statement::CallPrototype(its) => {
                    let symbol = prototype(&its.results, &its.params);
                    self.declare(its.name, symbol)?;
                }
            }
        }
        // Labels at the end of a block.
        if self.scopes.len() == 1 {
            self.resolve();
        }
        Ok(())
    }

    /// Connects the branches of the innermost scope with its labels.
    fn resolve(&mut self) {
        let Some(scope) = self.scopes.last_mut() else { return };
        let branches = std::mem::take(&mut scope.branches);
        for (at, entry, label) in branches {
            let Some(to) = scope.labels.get(label).copied() else {
                scope.branches.push((at, entry, label));
                continue;
            };
            match self.builder.op_mut(at) {
                Some(Op::Branch(target)) => *target = to,
                Some(Op::BranchTable { targets, .. }) => targets[entry] = to,
                _ => {}
            }
        }
    }

    fn leave(&mut self) {
        self.resolve();
        let inner = self.scopes.pop().unwrap_or_default();
        if let Some(outer) = self.scopes.last_mut() {
            outer.branches.extend(inner.branches);
        }
    }

    /// Connects an emitted branch with a label, which may follow.
    pub(super) fn branch_to(&mut self, at: u32, entry: usize, label: &'a str) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.branches.push((at, entry, label));
        }
    }

    /// Returns the labels of a table.
    pub(super) fn table(&self, name: &str) -> Option<Vec<&'a str>> {
        self.scopes.iter().rev().find_map(|scope| scope.tables.get(name).cloned())
    }

    pub(super) fn global(&self, name: &str) -> Option<super::link::Global> {
        self.builder.symbols.names[self.module].get(name).copied()
    }

    /// Returns what a name of the function refers to.
    pub(super) fn symbol(&self, name: &str) -> Option<Symbol> {
        let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (prefix, number) = name.split_at(name.len() - digits);
        for scope in self.scopes.iter().rev() {
            if let Some(symbol) = scope.symbols.get(name) {
                return Some(symbol.clone());
            }
            if scope.ranges.is_empty() || digits == 0 {
                continue;
            }
            // A prefix may end with digits too.
            for more in 0..digits {
                let (prefix, number) = match more {
                    0 => (prefix, number),
                    more => name.split_at(prefix.len() + more),
                };
                let Some((first, count, ty)) = scope.ranges.get(prefix) else { continue };
                let number: Option<u32> = number.parse().ok();
                if let Some(number) = number.filter(|number| number < count) {
                    return Some(Symbol::Register { slot: first + number, ty: *ty });
                }
            }
        }
        None
    }

    pub(super) fn condition(&mut self, guard: &Guard<'a>) -> Result<Condition, Problem> {
        match self.symbol(guard.register) {
            Some(Symbol::Register { slot, ty: Type::Pred }) => {
                Ok(Condition { slot, is_negated: guard.is_negated })
            }
            _ => Problem::invalid(format!("`{}` is not a predicate register", guard.register)),
        }
    }

    /// Returns the predicate that holds the carry bits.
    pub(super) fn carry(&mut self) -> Slot {
        if let Some(slot) = self.carry {
            return slot;
        }
        let slot = self.builder.register(Bank::Predicate);
        self.carry = Some(slot);
        slot
    }

    fn instruction(&mut self, its: &'a Instruction<'a>) -> Result<(), Problem> {
        self.position = its.position;
        self.place.line = its.position.line;
        self.place.mnemonic = self.builder.mnemonic(its.mnemonic);
        self.guard = None;
        if let Some(guard) = &its.guard {
            self.guard = Some(self.condition(guard)?);
        }
        let mut words = Words::new(its.modifiers());
        let done = super::check::check(its.opcode(), words.peek(), its.operands.len());
        let done = done.and_then(|()| self.decode(its, &mut words)).and_then(|()| words.finish());
        match done {
            Ok(()) => Ok(()),
            Err(Problem::Unsupported(_)) => {
                self.emit(Op::Refused);
                Ok(())
            }
            Err(Problem::Invalid(text)) => Problem::invalid(format!("{}: {text}", its.mnemonic)),
        }?;
        self.guard = None;
        Ok(())
    }

    fn decode(&mut self, its: &'a Instruction<'a>, words: &mut Words<'a>) -> Result<(), Problem> {
        let known = self.compute(its, words)?
            || self.video(its, words)?
            || self.memory(its, words)?
            || self.multimem(its, words)?
            || self.texture(its, words)?
            || self.matrix(its, words)?
            || self.control(its, words)?
            || self.together(its, words)?;
        if known {
            return Ok(());
        }
        if super::special::is_known(its.opcode()) {
            return Problem::unsupported(its.opcode());
        }
        Problem::invalid("there is no such instruction")
    }
}

fn prototype<'a>(results: &[Declared<'a>], params: &[Declared<'a>]) -> Symbol {
    let (results, end) = place(results, 0);
    let (params, _) = place(params, end);
    Symbol::Prototype { results, params }
}

/// Returns the bank of the registers of a type.
pub(super) fn bank(ty: Type) -> Result<Bank, Problem> {
    Ok(match ty {
        Type::Pred => Bank::Predicate,
        Type::B64 | Type::U64 | Type::S64 | Type::F64 | Type::F32x2 => Bank::Wide,
        Type::B128 => return Problem::unsupported("a value of 128 bits"),
        Type::TexRef | Type::SamplerRef | Type::SurfRef => Bank::Wide,
        _ => Bank::Narrow,
    })
}
