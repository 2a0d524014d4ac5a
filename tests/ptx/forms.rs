//! The table of instruction forms. A pattern like `add{,.sat}.s32` stands for its forms.

mod atomic;
mod bulk;
mod compare;
mod control;
mod convert;
mod float;
mod half;
mod integer;
mod logic;
mod matrix;
mod memory;
mod multimem;
mod place;
mod refused;
mod surface;
mod tensor;
mod texture;
mod video;
mod warp;
mod wmma;

use crate::form::{Form, Forms};

/// Returns all forms.
///
/// # Panics
/// Two forms have the same name.
pub(crate) fn all() -> Vec<Form> {
    let mut forms = Forms::default();
    integer::add(&mut forms);
    logic::add(&mut forms);
    compare::add(&mut forms);
    float::add(&mut forms);
    half::add(&mut forms);
    convert::add(&mut forms);
    video::add(&mut forms);
    memory::add(&mut forms);
    atomic::add(&mut forms);
    warp::add(&mut forms);
    place::add(&mut forms);
    control::add(&mut forms);
    bulk::add(&mut forms);
    tensor::add(&mut forms);
    multimem::add(&mut forms);
    refused::add(&mut forms);
    texture::add(&mut forms);
    surface::add(&mut forms);
    matrix::add(&mut forms);
    wmma::add(&mut forms);
    let mut names = std::collections::HashSet::new();
    let twice = forms.0.iter().map(|form| &form.name).filter(|name| !names.insert(*name));
    let twice: Vec<_> = twice.collect();
    assert!(twice.is_empty(), "several forms have the same name: {twice:?}");
    forms.0
}
