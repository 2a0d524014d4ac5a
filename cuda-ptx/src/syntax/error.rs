//! The error of the parser.

use super::Position;
use crate::debug_text::debug_text;
use std::fmt;

/// An error in the text of a module: the place, the syntax that PTX requires there, and the token there.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParseError {
    /// The place of the first token that does not fit.
    pub position: Position,
    /// The syntax that PTX requires there, for example "an operand".
    pub expected: &'static str,
    /// The token there, for example "`;`".
    pub found: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { position, expected, found } = self;
        write!(f, "{position}: expected {expected}, found {found}")
    }
}

impl std::error::Error for ParseError {}

debug_text! { ParseError { position, expected, found } }

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}
