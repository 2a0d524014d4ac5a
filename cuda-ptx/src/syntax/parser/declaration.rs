//! Declarations of variables, registers and parameters.

use super::{Parser, Token};
use crate::syntax::{Immediate, Initializer, Linkage, ParseError, Position, Space, Type, Variable};

/// The content of `.attribute`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attributes {
    pub(super) is_managed: bool,
    pub(super) unified: Option<(u64, u64)>,
}

impl<'a> Parser<'a> {
    /// Parses a declaration of one or more variables.
    pub(super) fn variables(
        &mut self,
        linkage: Linkage,
        mut add: impl FnMut(Variable<'a>),
    ) -> Result<(), ParseError> {
        let common = self.declaration(linkage, "a directive such as `.global` or `.entry`")?;
        loop {
            let mut variable = self.declarator(&common, false)?;
            if self.accept("=") {
                variable.initializer = Some(self.initializer()?);
            }
            add(variable);
            if !self.accept(",") {
                return self.symbol(";", "`,` or `;`");
            }
        }
    }

    /// Parses parameters or results in parentheses.
    pub(super) fn params(&mut self) -> Result<Vec<Variable<'a>>, ParseError> {
        self.symbol("(", "`(`")?;
        if self.accept(")") {
            return Ok(Vec::new());
        }
        let params = self.list(|parser| {
            let common = parser.declaration(Linkage::Internal, "`.param` or `.reg`")?;
            parser.declarator(&common, true)
        })?;
        self.symbol(")", "`,` or `)`")?;
        Ok(params)
    }

    /// Parses the words before the name of a variable.
    fn declaration(
        &mut self,
        linkage: Linkage,
        expected: &'static str,
    ) -> Result<Variable<'a>, ParseError> {
        let (mut space, mut ty) = (None, None);
        let mut attributes = Attributes::default();
        let (mut align, mut vector) = (None, None);
        let mut pointer: Option<(Option<Space>, Option<u64>)> = None;
        while let Token::Directive(word) = self.token {
            let named_space = Space::from_name(word);
            if let Some((pointer_space, pointer_align)) = &mut pointer {
                if word == "align" {
                    self.advance();
                    *pointer_align = Some(self.number("an alignment in bytes")?);
                    continue;
                }
                if named_space.is_none() || pointer_space.is_some() {
                    return Err(self.error("`.align` or a name"));
                }
                *pointer_space = named_space;
            } else if ty.is_some() {
                if word != "ptr" || space != Some(Space::Param) {
                    return Err(self.error("a name"));
                }
                pointer = Some((None, None));
            } else if word == "align" {
                self.advance();
                align = Some(self.number("an alignment in bytes")?);
                continue;
            } else if space.is_none() {
                space = Some(named_space.ok_or_else(|| self.error(expected))?);
            } else if word == "attribute" {
                attributes = self.attributes()?;
                continue;
            } else if let ("v2" | "v4" | "v8", None) = (word, vector) {
                vector = word[1..].parse().ok();
            } else {
                ty = Some(Type::from_name(word).ok_or_else(|| self.error("a type"))?);
            }
            self.advance();
        }
        Ok(Variable {
            position: Position::default(),
            linkage,
            space: space.ok_or_else(|| self.error(expected))?,
            is_managed: attributes.is_managed,
            unified: attributes.unified,
            align,
            vector: vector.unwrap_or(1),
            ty: ty.ok_or_else(|| self.error("a type"))?,
            pointer,
            name: "",
            range: None,
            dimensions: Vec::new(),
            initializer: None,
        })
    }

    /// Parses `.attribute(..)`.
    pub(super) fn attributes(&mut self) -> Result<Attributes, ParseError> {
        self.advance();
        self.symbol("(", "`(`")?;
        let mut attributes = Attributes::default();
        loop {
            if self.accept_directive("managed") {
                attributes.is_managed = true;
            } else if self.accept_directive("unified") {
                self.symbol("(", "`(`")?;
                let first = self.number("a number")?;
                self.symbol(",", "`,`")?;
                attributes.unified = Some((first, self.number("a number")?));
                self.symbol(")", "`)`")?;
            } else {
                return Err(self.error("`.managed` or `.unified`"));
            }
            if !self.accept(",") {
                self.symbol(")", "`,` or `)`")?;
                return Ok(attributes);
            }
        }
    }

    /// Parses the name of a variable, its range and its dimensions. A parameter can have the name `_`.
    fn declarator(
        &mut self,
        common: &Variable<'a>,
        is_param: bool,
    ) -> Result<Variable<'a>, ParseError> {
        let mut variable = Variable { position: self.position, ..common.clone() };
        if is_param && self.token == Token::Word("_") {
            variable.name = "_";
            self.advance();
        } else {
            variable.name = self.name("a name")?;
        }
        if !is_param && self.accept("<") {
            variable.range = Some(self.number("a number of registers")?);
            self.symbol(">", "`>`")?;
        }
        while self.accept("[") {
            if self.accept("]") {
                variable.dimensions.push(None);
            } else {
                variable.dimensions.push(Some(self.number("a number of elements or `]`")?));
                self.symbol("]", "`]`")?;
            }
        }
        Ok(variable)
    }

    fn initializer(&mut self) -> Result<Initializer<'a>, ParseError> {
        if self.is_symbol("{") {
            return self.nested(Self::initializers);
        }
        if !self.is_constant() && !self.is_symbol("(") {
            return match self.token {
                Token::Word(_) => self.address_of(None),
                _ => Err(self.error("a constant, a name or `{`")),
            };
        }
        let value = self.constant()?;
        match value {
            Immediate::Integer { bits, .. } if self.accept("(") => {
                let address = self.address_of(Some(bits))?;
                self.symbol(")", "`+` or `)`")?;
                Ok(address)
            }
            _ => Ok(Initializer::Value(value)),
        }
    }

    /// Parses values in braces.
    fn initializers(&mut self) -> Result<Initializer<'a>, ParseError> {
        self.advance();
        if self.accept("}") {
            return Ok(Initializer::List(Vec::new()));
        }
        let values = self.list(|parser| {
            let value = parser.initializer()?;
            let (Initializer::Address { symbol: name, .. }, true) = (&value, parser.is_symbol("="))
            else {
                return Ok(value);
            };
            parser.advance();
            Ok(Initializer::Field { name, value: Box::new(parser.initializer()?) })
        })?;
        self.symbol("}", "`,` or `}`")?;
        Ok(Initializer::List(values))
    }

    /// Parses the name of a variable or function, which can be in `generic(..)`, and the number of bytes
    /// that is added.
    fn address_of(&mut self, mask: Option<u64>) -> Result<Initializer<'a>, ParseError> {
        let mut symbol = self.name("a variable or function")?;
        let is_generic = symbol == "generic" && self.accept("(");
        if is_generic {
            symbol = self.name("a variable or function")?;
            self.symbol(")", "`)`")?;
        }
        let offset = self.offset()?;
        Ok(Initializer::Address { symbol, offset: offset.unwrap_or(0), is_generic, mask })
    }

    /// Parses `+` and a number of bytes, if they are there.
    pub(super) fn offset(&mut self) -> Result<Option<i64>, ParseError> {
        if !self.accept("+") {
            return Ok(None);
        }
        Ok(Some(self.integer_constant()? as i64))
    }
}
