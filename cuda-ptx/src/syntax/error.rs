//! The error of the parser.

use super::Position;
use std::fmt;

/// An error in the text of a module: what PTX requires at a place, and what the text has there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParseError {
    /// The place of the first token that does not fit.
    pub position: Position,
    /// What PTX requires there, for example "a register or constant".
    pub expected: &'static str,
    /// What the text has there, for example "`;`".
    pub found: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { position, expected, found } = self;
        write!(f, "{position}: expected {expected}, found {found}")
    }
}

impl std::error::Error for ParseError {}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}
