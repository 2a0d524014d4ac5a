//! Statements and operands.

use super::{Parser, Token};
use crate::syntax::{
    Address, Guard, Immediate, Inlined, Instruction, Location, Operand, ParseError, Position,
    Prototype, Statement,
};

impl<'a> Parser<'a> {
    /// Parses statements in braces.
    pub(super) fn block(
        &mut self,
        expected: &'static str,
    ) -> Result<Vec<Statement<'a>>, ParseError> {
        self.nested(|parser| {
            parser.symbol("{", expected)?;
            let mut statements = Vec::new();
            while !parser.accept("}") {
                parser.statement(&mut statements)?;
            }
            Ok(statements)
        })
    }

    fn statement(&mut self, statements: &mut Vec<Statement<'a>>) -> Result<(), ParseError> {
        match self.token {
            Token::Word(_) | Token::Dotted(_) => self.label_or_instruction(statements)?,
            Token::Symbol("@") => {
                let guard = self.guard()?;
                let (Token::Word(_) | Token::Dotted(_)) = self.token else {
                    return Err(self.error("an instruction"));
                };
                let (position, mnemonic) = (self.position, self.mnemonic());
                let instruction = self.instruction(position, Some(guard), mnemonic)?;
                statements.push(Statement::Instruction(instruction));
            }
            Token::Symbol("{") => statements.push(Statement::Block(self.block("`{`")?)),
            Token::Directive("loc") => {
                self.advance();
                statements.push(Statement::Location(self.location()?));
            }
            Token::Directive("pragma") => {
                self.advance();
                statements.push(Statement::Pragma(self.pragma()?));
            }
            Token::Directive(_) => {
                let linkage = self.linkage();
                self.variables(linkage, |variable| {
                    statements.push(Statement::Variable(Box::new(variable)))
                })?;
            }
            _ => return Err(self.error("an instruction, a label, a declaration or `}`")),
        }
        Ok(())
    }

    fn label_or_instruction(
        &mut self,
        statements: &mut Vec<Statement<'a>>,
    ) -> Result<(), ParseError> {
        let mark = self.mark();
        let mnemonic = self.mnemonic();
        if !self.is_symbol(":") {
            let instruction = self.instruction(mark.position, None, mnemonic)?;
            statements.push(Statement::Instruction(instruction));
            return Ok(());
        }
        let Token::Word(name) = mark.token else {
            return Err(mark.error("a label"));
        };
        self.advance();
        statements.push(self.label(mark.position, name)?);
        Ok(())
    }

    /// Parses a label after its colon, or a table or prototype with this name.
    fn label(&mut self, position: Position, name: &'a str) -> Result<Statement<'a>, ParseError> {
        if self.accept_directive("branchtargets") {
            let labels = self.list(|parser| parser.name("a label"))?;
            self.symbol(";", "`,` or `;`")?;
            Ok(Statement::BranchTargets { position, name, labels })
        } else if self.accept_directive("calltargets") {
            let functions = self.list(|parser| parser.name("a function"))?;
            self.symbol(";", "`,` or `;`")?;
            Ok(Statement::CallTargets { position, name, functions })
        } else if self.accept_directive("callprototype") {
            self.prototype(position, name)
        } else {
            Ok(Statement::Label { position, name })
        }
    }

    /// Parses the rest of `name: .callprototype`.
    fn prototype(
        &mut self,
        position: Position,
        name: &'a str,
    ) -> Result<Statement<'a>, ParseError> {
        let results = if self.is_symbol("(") { self.params()? } else { Vec::new() };
        self.keyword("_", "`_`")?;
        let params = if self.is_symbol("(") { self.params()? } else { Vec::new() };
        let directives = self.directives()?;
        self.symbol(";", "`;` or a directive")?;
        let prototype = Prototype { position, name, results, params, directives };
        Ok(Statement::CallPrototype(Box::new(prototype)))
    }

    fn location(&mut self) -> Result<Location<'a>, ParseError> {
        let (file, line, column) = self.place()?;
        let mut inlined = None;
        if self.accept(",") {
            self.keyword("function_name", "`function_name`")?;
            let label = self.name("a label")?;
            let offset = if self.accept("+") { self.number("a number")? } else { 0 };
            self.symbol(",", "`+` or `,`")?;
            self.keyword("inlined_at", "`inlined_at`")?;
            inlined = Some(Inlined { function_name: (label, offset), at: self.place()? });
        }
        Ok(Location { file, line, column, inlined })
    }

    /// Parses a place in a source file.
    fn place(&mut self) -> Result<(u32, u32, u32), ParseError> {
        let file = self.number("the number of a file")?;
        let line = self.number("the number of a line")?;
        Ok((file, line, self.number("the number of a column")?))
    }

    fn guard(&mut self) -> Result<Guard<'a>, ParseError> {
        self.advance();
        let is_negated = self.accept("!");
        let register = self.name("a predicate register")?;
        Ok(Guard { register, is_negated })
    }

    /// Parses a mnemonic. Its parts can have spaces between them, but are on one line: a directive on the
    /// next line shows that a semicolon is missing.
    fn mnemonic(&mut self) -> &'a str {
        let (start, mut end) = (self.start, self.lexer.offset());
        self.advance();
        while let Token::Directive(_) = self.token {
            let between = self.lexer.slice(end, self.start);
            if !between.bytes().all(|byte| matches!(byte, b' ' | b'\t')) {
                break;
            }
            end = self.lexer.offset();
            self.advance();
        }
        self.lexer.slice(start, end)
    }

    /// Parses an instruction after its mnemonic.
    fn instruction(
        &mut self,
        position: Position,
        guard: Option<Guard<'a>>,
        mnemonic: &'a str,
    ) -> Result<Instruction<'a>, ParseError> {
        let mut instruction = Instruction { position, guard, mnemonic, operands: Vec::new() };
        if self.accept(";") {
            return Ok(instruction);
        }
        let is_call = instruction.opcode() == "call";
        instruction.operands = self.list(|parser| {
            if is_call && parser.is_symbol("(") { parser.call_list() } else { parser.operand() }
        })?;
        self.symbol(";", "`,` or `;`")?;
        Ok(instruction)
    }

    /// Parses the results or the arguments of a call.
    fn call_list(&mut self) -> Result<Operand<'a>, ParseError> {
        self.advance();
        if self.accept(")") {
            return Ok(Operand::List(Vec::new()));
        }
        let operands = self.list(Self::operand)?;
        self.symbol(")", "`,` or `)`")?;
        Ok(Operand::List(operands))
    }

    fn operand(&mut self) -> Result<Operand<'a>, ParseError> {
        let operand = self.single_operand()?;
        if !self.accept("|") {
            return Ok(operand);
        }
        Ok(Operand::Pair(Box::new(operand), Box::new(self.single_operand()?)))
    }

    fn single_operand(&mut self) -> Result<Operand<'a>, ParseError> {
        let is_constant = self.is_constant();
        match self.token {
            Token::Word("_") => {
                self.advance();
                Ok(Operand::Discard)
            }
            Token::Word(name) | Token::Dotted(name) if !is_constant => {
                self.advance();
                let offset = self.offset()?;
                Ok(offset.map_or(Operand::Name(name), |offset| Operand::Offset(name, offset)))
            }
            Token::Symbol(sign @ ("!" | "-")) => match self.peek() {
                Token::Word(name) | Token::Dotted(name) if !matches!(name, "_" | "WARP_SZ") => {
                    self.advance();
                    self.advance();
                    Ok(if sign == "!" { Operand::Not(name) } else { Operand::Negative(name) })
                }
                _ => Ok(Operand::Immediate(self.constant()?)),
            },
            Token::Symbol("{") => {
                let operands = self.nested(|parser| {
                    parser.advance();
                    parser.list(Self::operand)
                })?;
                self.symbol("}", "`,` or `}`")?;
                Ok(Operand::Vector(operands))
            }
            Token::Symbol("[") => Ok(Operand::Address(Box::new(self.nested(Self::address)?))),
            _ if is_constant || self.is_symbol("(") => Ok(Operand::Immediate(self.constant()?)),
            _ => Err(self.error("an operand")),
        }
    }

    /// Parses an address in brackets.
    fn address(&mut self) -> Result<Address<'a>, ParseError> {
        self.advance();
        let is_constant = self.is_constant();
        let (base, offset) = match self.token {
            Token::Word(name) | Token::Dotted(name) if !is_constant && name != "_" => {
                self.advance();
                (Operand::Name(name), self.offset()?.unwrap_or(0))
            }
            _ if is_constant || self.is_symbol("(") => {
                let bits = self.integer_constant()?;
                (Operand::Immediate(Immediate::Integer { bits, is_unsigned: false }), 0)
            }
            _ => return Err(self.error("a register, a variable or an integer constant")),
        };
        let rest = if self.accept(",") { self.list(Self::operand)? } else { Vec::new() };
        let expected = if rest.is_empty() { "`+`, `,` or `]`" } else { "`,` or `]`" };
        self.symbol("]", expected)?;
        Ok(Address { base, offset, rest })
    }
}
