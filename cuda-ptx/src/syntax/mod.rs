//! The syntax of PTX: a parser, and the syntax tree that it returns. The tree prints as PTX.

mod error;
mod lexer;
mod names;
mod parser;
mod print;
mod tree;

pub use error::ParseError;
pub use parser::{parse, version};
pub use tree::{
    Address, Directive, File, Function, Guard, Immediate, Initializer, Inlined, Instruction, Item,
    Linkage, Location, Module, Operand, Position, Prototype, Section, Space, Statement, Type,
    Variable,
};
