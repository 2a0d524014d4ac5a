//! What the headers declare, read back from bindgen's output.

use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use syn::{Expr, ForeignItem, ImplItem, Item, Lit, Type, UseTree};

/// Everything that one reading of the headers declares, in the order of the headers.
#[derive(Debug, Default)]
#[allow(
    dead_code,
    reason = "build.rs includes this file and uses a part of it"
)]
pub(crate) struct Api {
    /// Object-like macros with a number for a value.
    pub(crate) constants: Vec<Constant>,
    pub(crate) enums: Vec<Enum>,
    /// Structs, unions and type aliases, as bindgen writes them.
    pub(crate) types: Vec<Item>,
    pub(crate) layouts: Vec<Layout>,
    pub(crate) functions: Vec<Prototype>,
}

#[derive(Debug)]
#[allow(dead_code, reason = "as for Api")]
pub(crate) struct Constant {
    pub(crate) name: String,
    pub(crate) ty: String,
    pub(crate) value: i64,
}

/// A C enum under the name that C programs use (`CUresult`, not the tag `cudaError_enum`).
#[derive(Debug)]
#[allow(dead_code, reason = "as for Api")]
pub(crate) struct Enum {
    pub(crate) name: String,
    /// `u32` or `i32`.
    pub(crate) repr: &'static str,
    pub(crate) constants: Vec<(String, i64)>,
}

/// Size, alignment and field offsets of a struct or union, in bytes.
#[derive(Debug, Default)]
#[allow(dead_code, reason = "as for Api")]
pub(crate) struct Layout {
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) align: u64,
    pub(crate) fields: Vec<(String, u64)>,
}

#[derive(Debug)]
#[allow(dead_code, reason = "as for Api")]
pub(crate) struct Prototype {
    pub(crate) name: String,
    pub(crate) params: Vec<(String, Type)>,
}

/// Reads bindgen's text.
pub(crate) fn parse(text: &str) -> Result<Api> {
    let file = syn::parse_file(text).context("reading bindgen's output")?;
    let names = enum_names(&file.items);
    let file = syn::parse_file(&rename(text, &names)?)?;

    let mut api = Api::default();
    // bindgen writes an enum's constants before its type.
    for item in &file.items {
        if let Some((name, field)) = newtype(item) {
            api.enums.push(Enum {
                name: name.to_string(),
                repr: match type_name(&field.ty)?.as_str() {
                    "c_uint" => "u32",
                    "c_int" => "i32",
                    other => bail!("enum {name} is a {other}"),
                },
                constants: Vec::new(),
            });
        }
    }
    let enums: BTreeMap<String, usize> = api
        .enums
        .iter()
        .enumerate()
        .map(|(index, item)| (item.name.clone(), index))
        .collect();
    for item in file.items {
        match item {
            Item::Const(item) if item.ident == "_" => {
                api.layouts.push(layout(&item.expr)?);
            }
            Item::Const(item) => api.constants.push(Constant {
                name: item.ident.to_string(),
                ty: type_name(&item.ty)?,
                value: number(&item.expr)?,
            }),
            Item::Struct(item) if enums.contains_key(&item.ident.to_string()) => {}
            Item::Impl(item) => {
                let name = type_name(&item.self_ty)?;
                let index = *enums
                    .get(&name)
                    .with_context(|| format!("an impl of {name}, which is no enum"))?;
                for constant in &item.items {
                    let ImplItem::Const(constant) = constant else {
                        bail!("{name} has more than constants");
                    };
                    let value = newtype_value(&constant.expr)?;
                    api.enums[index]
                        .constants
                        .push((constant.ident.to_string(), value));
                }
            }
            Item::ForeignMod(block) => {
                for item in block.items {
                    let ForeignItem::Fn(function) = item else {
                        bail!("a foreign item that is no function");
                    };
                    api.functions.push(prototype(&function.sig)?);
                }
            }
            Item::Struct(_) | Item::Union(_) | Item::Type(_) => api.types.push(item),
            Item::Use(_) => {
                let (name, alias) = renaming(&item).context("a `use` of a new form")?;
                // Where they are equal, the tag got the typedef's name.
                if name != alias {
                    api.types
                        .push(syn::parse_str(&format!("pub type {alias} = {name};"))?);
                }
            }
            other => bail!("bindgen wrote an item of a new kind: {other:?}"),
        }
    }
    Ok(api)
}

/// The C name of each enum: bindgen names a type after its tag (`cudaError_enum`) and adds the
/// typedef as `pub use self::cudaError_enum as CUresult`.
fn enum_names(items: &[Item]) -> BTreeMap<String, String> {
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for (tag, _) in items.iter().filter_map(newtype) {
        names.insert(tag.to_string(), tag.to_string());
    }
    for item in items {
        let Some((tag, name)) = renaming(item) else {
            continue;
        };
        if names.get(&tag) == Some(&tag) && !names.contains_key(&name) {
            names.insert(tag, name);
        }
    }
    names
}

/// The name and the field of a tuple struct of one field, which is how bindgen writes an enum.
fn newtype(item: &Item) -> Option<(&syn::Ident, &syn::Field)> {
    let Item::Struct(item) = item else {
        return None;
    };
    let syn::Fields::Unnamed(fields) = &item.fields else {
        return None;
    };
    Some((&item.ident, fields.unnamed.first()?))
}

/// `pub use self::A as B` → (A, B).
fn renaming(item: &Item) -> Option<(String, String)> {
    let Item::Use(item) = item else { return None };
    let UseTree::Path(path) = &item.tree else {
        return None;
    };
    let UseTree::Rename(rename) = &*path.tree else {
        return None;
    };
    Some((rename.ident.to_string(), rename.rename.to_string()))
}

/// Renames whole identifiers, token by token.
fn rename(text: &str, names: &BTreeMap<String, String>) -> Result<String> {
    use proc_macro2::{Group, Ident, TokenStream, TokenTree};
    fn walk(stream: TokenStream, names: &BTreeMap<String, String>) -> TokenStream {
        stream
            .into_iter()
            .map(|tree| match tree {
                TokenTree::Ident(ident) => match names.get(&ident.to_string()) {
                    Some(name) => TokenTree::Ident(Ident::new(name, ident.span())),
                    None => TokenTree::Ident(ident),
                },
                TokenTree::Group(group) => {
                    TokenTree::Group(Group::new(group.delimiter(), walk(group.stream(), names)))
                }
                other => other,
            })
            .collect()
    }
    let stream: TokenStream = text
        .parse()
        .map_err(|error| anyhow::anyhow!("bindgen's output is not Rust: {error}"))?;
    Ok(walk(stream, names).to_string())
}

fn prototype(signature: &syn::Signature) -> Result<Prototype> {
    let name = signature.ident.to_string();
    let syn::ReturnType::Type(_, output) = &signature.output else {
        bail!("{name} returns nothing");
    };
    ensure!(
        type_name(output)? == "CUresult",
        "{name} does not return a CUresult"
    );
    ensure!(signature.variadic.is_none(), "{name} is variadic");
    let mut params = Vec::new();
    for input in &signature.inputs {
        let syn::FnArg::Typed(input) = input else {
            bail!("{name} takes self");
        };
        let syn::Pat::Ident(pattern) = &*input.pat else {
            bail!("{name} has a parameter without a name");
        };
        params.push((pattern.ident.to_string(), (*input.ty).clone()));
    }
    Ok(Prototype { name, params })
}

/// A block of bindgen's layout assertions: `["Size of T"][size_of::<T>() - 8usize]; …`.
fn layout(block: &Expr) -> Result<Layout> {
    let Expr::Block(block) = block else {
        bail!("an unnamed constant that is no block");
    };
    let mut layout = Layout::default();
    for statement in &block.block.stmts {
        let syn::Stmt::Expr(Expr::Index(index), _) = statement else {
            bail!("an assertion of a new form: {statement:?}");
        };
        let (what, value) = assertion(index)?;
        if let Some(name) = what.strip_prefix("Size of ") {
            layout.name = name.to_owned();
            layout.size = value;
        } else if what.starts_with("Alignment of ") {
            layout.align = value;
        } else if let Some(field) = what.strip_prefix("Offset of field: ") {
            let (_, field) = field
                .split_once("::")
                .with_context(|| format!("no field in {field}"))?;
            layout.fields.push((field.to_owned(), value));
        } else {
            bail!("an assertion of a new kind: {what}");
        }
    }
    Ok(layout)
}

fn assertion(index: &syn::ExprIndex) -> Result<(String, u64)> {
    let parts = match (&*index.expr, &*index.index) {
        (Expr::Array(array), Expr::Binary(difference)) => {
            array.elems.first().zip(Some(&*difference.right))
        }
        _ => None,
    };
    match parts {
        Some((
            Expr::Lit(syn::ExprLit {
                lit: Lit::Str(text),
                ..
            }),
            value,
        )) => Ok((text.value(), u64::try_from(number(value)?)?)),
        _ => bail!("an assertion of a new form: {index:?}"),
    }
}

/// `Name(7)` → 7.
fn newtype_value(expr: &Expr) -> Result<i64> {
    let Expr::Call(call) = expr else {
        bail!("an enum constant of a new form: {expr:?}");
    };
    number(call.args.first().context("an empty newtype")?)
}

fn number(expr: &Expr) -> Result<i64> {
    match expr {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Int(number) => Ok(number.base10_parse()?),
            other => bail!("not a number: {other:?}"),
        },
        Expr::Unary(minus) if matches!(minus.op, syn::UnOp::Neg(_)) => Ok(-number(&minus.expr)?),
        other => bail!("not a number: {other:?}"),
    }
}

/// The last part of a path: `c_uint` of `::core::ffi::c_uint`.
fn type_name(ty: &Type) -> Result<String> {
    let last = match ty {
        Type::Path(path) => path.path.segments.last(),
        _ => None,
    };
    let last = last.with_context(|| format!("not a named type: {ty:?}"))?;
    Ok(last.ident.to_string())
}
