//! The parser of PTX.

mod constants;
mod constructs;
mod corpus;
mod errors;

use cuda_ptx::syntax::{Function, Item, Module, Statement, parse};

/// The beginning of each text.
const HEAD: &str = ".version 8.8\n.target sm_90a\n.address_size 64\n";

/// Returns a module with items.
fn with_head(items: &str) -> String {
    format!("{HEAD}{items}")
}

/// Returns a module with a kernel that has a body.
fn with_kernel(body: &str) -> String {
    with_head(&format!(".entry k()\n{{\n{body}\n}}"))
}

fn parsed(text: &str) -> Module<'_> {
    parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Returns the first item of a module, which is a function.
fn function<'m, 'a>(module: &'m Module<'a>) -> &'m Function<'a> {
    let Some(Item::Function(function)) = module.items.first() else {
        panic!("{module:?}");
    };
    function
}

/// Returns the body of the first function.
fn body<'m, 'a>(module: &'m Module<'a>) -> &'m [Statement<'a>] {
    function(module).body.as_deref().expect("it has a body")
}

/// Checks that a text prints to a text with an equal tree, apart from positions, and returns that text.
#[track_caller]
fn round_trip(text: &str) -> String {
    let module = parsed(text);
    let printed = module.to_string();
    let again = parsed(&printed);
    assert_eq!(again.to_string(), printed);
    // The text of a NaN is equal to itself, and the NaN is not.
    let (before, after) = (without_positions(&module), without_positions(&again));
    assert!(before == after, "{text}\n{printed}");
    printed
}

/// Returns the tree as text, without positions.
fn without_positions(module: &Module) -> String {
    let tree = format!("{module:?}");
    let mut parts = tree.split("Position {");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str(part.split_once('}').map_or(part, |(_, rest)| rest));
    }
    text
}
