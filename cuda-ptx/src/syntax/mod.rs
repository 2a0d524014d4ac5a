//! The syntax of PTX.

mod tree;

pub use tree::{
    Address, Directive, File, Function, Guard, Immediate, Initializer, Inlined, Instruction, Item,
    Linkage, Location, Module, Operand, Position, Section, Space, Statement, Type, Variable,
};
