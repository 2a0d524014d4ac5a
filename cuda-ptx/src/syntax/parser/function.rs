//! Functions and kernels.

use super::{Parser, Token};
use crate::syntax::{Directive, Function, Linkage, ParseError};

impl<'a> Parser<'a> {
    /// Parses a function after `.entry` or `.func`.
    pub(super) fn function(
        &mut self,
        linkage: Linkage,
        is_entry: bool,
    ) -> Result<Function<'a>, ParseError> {
        let mut unified = None;
        if self.token == Token::Directive("attribute") {
            let mark = self.mark();
            let attributes = self.attributes()?;
            if attributes.is_managed {
                return Err(mark.error("a function without `.managed`"));
            }
            unified = attributes.unified;
        }
        let has_results = !is_entry && self.is_symbol("(");
        let results = if has_results { self.params()? } else { Vec::new() };
        let position = self.position;
        let name = self.name("the name of a function")?;
        let params = if self.is_symbol("(") { self.params()? } else { Vec::new() };
        let directives = self.directives()?;
        let body =
            if self.accept(";") { None } else { Some(self.block("`{`, `;` or a directive")?) };
        Ok(Function {
            position,
            linkage,
            is_entry,
            unified,
            name,
            results,
            params,
            directives,
            body,
        })
    }

    /// Parses the directives between the parameters and the body of a function.
    pub(super) fn directives(&mut self) -> Result<Vec<Directive<'a>>, ParseError> {
        let mut directives = Vec::new();
        while let Token::Directive(name) = self.token {
            self.advance();
            let (mut numbers, mut strings) = (Vec::new(), Vec::new());
            if name == "pragma" {
                strings = self.pragma()?;
            } else if let Token::Number(_) = self.token {
                numbers = self.list(|parser| parser.number("a number"))?;
            }
            directives.push(Directive { name, numbers, strings });
        }
        Ok(directives)
    }
}
