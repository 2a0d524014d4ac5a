//! Finds the changes that can be made in a source file.
//!
//! | in | changes |
//! |---|---|
//! | a function | return at once, with simple values of the return type |
//! | a call or an assignment that is a statement | remove it |
//! | a condition or a match guard | negate it; make the guard true, or false |
//! | a match with an arm `_` | remove one of the other arms |
//! | a struct expression with a base | remove a field, which then has the value of the base |
//! | an operator | replace it, or remove `!` or `-` |
//! | an integer literal | add one |
//!
//! Code that the compiler evaluates (constants, statics, lengths, `const` functions) has no changes, because a choice
//! at run time cannot be made there. Neither have arguments of macros, whose syntax is not known, code that is not
//! compiled for the tests on this platform, `Debug`, on whose output no program depends, and `Default`, by which
//! changes of functions are made.

use std::ops::Range;

use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Arm, Attribute, BinOp, Block, Expr, ExprLit, FnArg, GenericArgument, ImplItemConst, ImplItemFn,
    ItemConst, ItemEnum, ItemFn, ItemImpl, ItemMod, ItemStatic, ItemTrait, Lit, Meta, Pat,
    PathArguments, ReturnType, Signature, Stmt, TraitItemConst, TraitItemFn, Type, UnOp,
};

/// The syntax of a choice between a change and the original.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Form {
    /// An expression.
    Value,
    /// A statement, or an empty range for a statement.
    Statement,
    /// The empty range before the `=>` of a match arm, which gets a guard. The arm is never chosen with the change.
    Guard,
}

/// A change of a source file.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// The bytes that are replaced.
    pub(crate) range: Range<usize>,
    pub(crate) form: Form,
    pub(crate) text: String,
    pub(crate) line: usize,
    /// What is changed, and the function.
    pub(crate) name: String,
}

/// Returns the changes of a source file, and the names of its modules in other files.
pub(crate) fn changes(source: &str) -> syn::Result<(Vec<Change>, Vec<String>)> {
    let file = syn::parse_file(source)?;
    let (changes, modules) = (Vec::new(), Vec::new());
    let mut finder = Finder { source, owner: String::new(), function: None, changes, modules };
    if is_compiled(&file.attrs) {
        finder.visit_file(&file);
    }
    Ok((finder.changes, finder.modules))
}

struct Finder<'a> {
    source: &'a str,
    /// The type or trait whose functions are visited, with `::`, or an empty text.
    owner: String,
    /// The current function. `None` is outside of functions.
    function: Option<String>,
    changes: Vec<Change>,
    modules: Vec<String>,
}

impl Finder<'_> {
    fn text(&self, syntax: &impl Spanned) -> &str {
        &self.source[syntax.span().byte_range()]
    }

    fn add(&mut self, range: Range<usize>, form: Form, text: impl Into<String>, what: &str) {
        let Some(function) = &self.function else {
            return;
        };
        let line = self.source[..range.start].matches('\n').count() + 1;
        // A name is one line.
        let what: Vec<&str> = what.split_whitespace().collect();
        let name = format!("{} in {function}", what.join(" "));
        self.changes.push(Change { range, form, text: text.into(), line, name });
    }

    fn replace(&mut self, place: &impl Spanned, text: &str) {
        let what = format!("replace {} with {text}", self.text(place));
        self.add(place.span().byte_range(), Form::Value, text, &what);
    }

    fn visit_function(&mut self, attributes: &[Attribute], signature: &Signature, body: &Block) {
        let is_test = attributes.iter().any(|its| its.path().is_ident("test"));
        if is_test || !is_compiled(attributes) || signature.constness.is_some() {
            return;
        }
        let function = format!("{}{}", self.owner, signature.ident);
        let outer = self.function.replace(function);
        let place = body.brace_token.span.open().byte_range().end;
        let inside = &self.source[place..body.brace_token.span.close().byte_range().start];
        let inside = inside.trim().to_owned();
        for value in values(&signature.output) {
            if inside != value {
                let what = format!("return {value}");
                self.add(place..place, Form::Statement, format!("return {value};"), what.trim());
            }
        }
        self.visit_block(body);
        self.function = outer;
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    // The compiler evaluates these, or they contain no code.
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    fn visit_generic_argument(&mut self, _: &'ast GenericArgument) {}
    fn visit_impl_item_const(&mut self, _: &'ast ImplItemConst) {}
    fn visit_item_const(&mut self, _: &'ast ItemConst) {}
    fn visit_item_enum(&mut self, _: &'ast ItemEnum) {}
    fn visit_item_static(&mut self, _: &'ast ItemStatic) {}
    fn visit_pat(&mut self, _: &'ast Pat) {}
    fn visit_trait_item_const(&mut self, _: &'ast TraitItemConst) {}
    fn visit_type(&mut self, _: &'ast Type) {}
    fn visit_fn_arg(&mut self, _: &'ast FnArg) {}

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if is_compiled(&module.attrs) {
            match module.content {
                Some(_) => visit::visit_item_mod(self, module),
                None => self.modules.push(module.ident.to_string()),
            }
        }
    }

    fn visit_item_impl(&mut self, block: &'ast ItemImpl) {
        let implemented = block.trait_.as_ref().map(|(_, path, _)| self.text(path).to_owned());
        let name = implemented.as_deref().and_then(|path| path.rsplit("::").next());
        if is_compiled(&block.attrs) && !matches!(name, Some("Debug" | "Default")) {
            let ty = self.text(&*block.self_ty);
            let owner = match implemented {
                Some(path) => format!("<{ty} as {path}>::"),
                None => format!("{ty}::"),
            };
            let outer = std::mem::replace(&mut self.owner, owner);
            visit::visit_item_impl(self, block);
            self.owner = outer;
        }
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        if is_compiled(&item.attrs) {
            let outer = std::mem::replace(&mut self.owner, format!("{}::", item.ident));
            visit::visit_item_trait(self, item);
            self.owner = outer;
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        let outer = std::mem::take(&mut self.owner);
        self.visit_function(&item.attrs, &item.sig, &item.block);
        self.owner = outer;
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.visit_function(&item.attrs, &item.sig, &item.block);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        if let Some(body) = &item.default {
            self.visit_function(&item.attrs, &item.sig, body);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if !is_compiled(attributes(statement)) {
            return;
        }
        if let Stmt::Expr(expression, Some(_)) = statement {
            if is_removable(expression) {
                let what = format!("remove {}", self.text(statement));
                self.add(statement.span().byte_range(), Form::Statement, "", &what);
            }
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_arm(&mut self, arm: &'ast Arm) {
        if is_compiled(&arm.attrs) {
            if let Some((_, guard)) = &arm.guard {
                self.replace(&**guard, "true");
                self.replace(&**guard, "false");
            }
            visit::visit_arm(self, arm);
        }
    }

    fn visit_expr(&mut self, expression: &'ast Expr) {
        match expression {
            Expr::Const(_) => return,
            // The compiler evaluates the length.
            Expr::Repeat(its) => return self.visit_expr(&its.expr),
            Expr::Binary(its) => {
                let operator = its.op.span().byte_range();
                let whole = its.span().byte_range();
                let (left, right) = (whole.start..operator.start, operator.end..whole.end);
                for &other in alternatives(&its.op) {
                    let text = [&self.source[left.clone()], other, &self.source[right.clone()]];
                    let what = format!("replace {} with {other}", self.text(&its.op));
                    self.add(whole.clone(), Form::Value, text.concat(), &what);
                }
            }
            Expr::Unary(its) if !matches!(its.op, UnOp::Deref(_)) => {
                let text = self.text(&*its.expr).to_owned();
                let what = format!("remove {} of {text}", self.text(&its.op));
                self.add(its.span().byte_range(), Form::Value, text, &what);
            }
            Expr::Lit(ExprLit { lit: Lit::Int(literal), .. }) => {
                // Without a value, it does not fit into 128 bits.
                if let Ok(value) = literal.base10_parse::<u128>() {
                    let other = format!("{}{}", value.saturating_add(1), literal.suffix());
                    self.replace(literal, &other);
                }
            }
            Expr::If(its) => self.negate(&its.cond),
            Expr::While(its) => self.negate(&its.cond),
            Expr::Match(its) => {
                let is_rest = |arm: &Arm| matches!(arm.pat, Pat::Wild(_)) && arm.guard.is_none();
                let has_rest = its.arms.iter().any(is_rest);
                for arm in its.arms.iter().filter(|arm| has_rest && !is_rest(arm)) {
                    if arm.guard.is_none() {
                        let place = arm.fat_arrow_token.span().byte_range().start;
                        let what = format!("remove the arm {}", self.text(&arm.pat));
                        self.add(place..place, Form::Guard, "", &what);
                    }
                }
            }
            Expr::Struct(its) if its.rest.is_some() => {
                let whole = its.span().byte_range();
                for pair in its.fields.pairs() {
                    let field = pair.span().byte_range();
                    let before = &self.source[whole.start..field.start];
                    let text = [before, &self.source[field.end..whole.end]].concat();
                    let what = format!("remove the field {}", self.text(*pair.value()));
                    self.add(whole.clone(), Form::Value, text, &what);
                }
            }
            _ => {}
        }
        visit::visit_expr(self, expression);
    }
}

impl Finder<'_> {
    /// Negates a condition, unless its operator is replaced or removed.
    fn negate(&mut self, condition: &Expr) {
        if !matches!(condition, Expr::Binary(_) | Expr::Unary(_) | Expr::Let(_) | Expr::Lit(_)) {
            let text = format!("!({})", self.text(condition));
            self.replace(condition, &text);
        }
    }
}

/// Returns whether a statement can be removed: one that calls or assigns.
fn is_removable(statement: &Expr) -> bool {
    match statement {
        Expr::Try(its) => is_removable(&its.expr),
        Expr::Assign(_) | Expr::Call(_) | Expr::MethodCall(_) | Expr::Unsafe(_) => true,
        _ => false,
    }
}

/// Returns what replaces a binary operator.
fn alternatives(operator: &BinOp) -> &'static [&'static str] {
    match operator {
        BinOp::Eq(_) => &["!="],
        BinOp::Ne(_) => &["=="],
        BinOp::And(_) => &["||"],
        BinOp::Or(_) => &["&&"],
        BinOp::Lt(_) => &["==", ">", "<="],
        BinOp::Gt(_) => &["==", "<", ">="],
        BinOp::Le(_) => &[">"],
        BinOp::Ge(_) => &["<"],
        BinOp::Add(_) => &["-", "*"],
        BinOp::Sub(_) => &["+", "/"],
        BinOp::Mul(_) => &["+", "/"],
        BinOp::Div(_) => &["%", "*"],
        BinOp::Rem(_) => &["/", "+"],
        BinOp::Shl(_) => &[">>"],
        BinOp::Shr(_) => &["<<"],
        BinOp::BitAnd(_) => &["|", "^"],
        // Not `^`, which computes the same for operands without a common bit, and most have none.
        BinOp::BitOr(_) => &["&"],
        BinOp::BitXor(_) => &["|", "&"],
        BinOp::AddAssign(_) => &["-=", "*="],
        BinOp::SubAssign(_) => &["+=", "/="],
        BinOp::MulAssign(_) => &["+=", "/="],
        BinOp::DivAssign(_) => &["%=", "*="],
        BinOp::RemAssign(_) => &["/=", "+="],
        BinOp::ShlAssign(_) => &[">>="],
        BinOp::ShrAssign(_) => &["<<="],
        BinOp::BitAndAssign(_) => &["|=", "^="],
        BinOp::BitOrAssign(_) => &["&="],
        BinOp::BitXorAssign(_) => &["|=", "&="],
        _ => &[],
    }
}

/// Returns simple values of a return type. A type may have none of them, which the compiler reports.
fn values(output: &ReturnType) -> Vec<String> {
    match output {
        ReturnType::Default => vec![String::new()],
        ReturnType::Type(_, ty) => values_of(ty),
    }
}

fn values_of(ty: &Type) -> Vec<String> {
    let owned = |values: &[&str]| values.iter().map(|&value| value.to_owned()).collect();
    match ty {
        Type::Never(_) | Type::ImplTrait(_) => Vec::new(),
        Type::Tuple(its) if its.elems.is_empty() => owned(&["()"]),
        Type::Reference(its) if its.elem.to_token_stream().to_string() == "str" => {
            owned(&["\"\"", "\"xyzzy\""])
        }
        Type::Path(its) => {
            let Some(last) = its.path.segments.last() else {
                return Vec::new();
            };
            let of_first = || match &last.arguments {
                PathArguments::AngleBracketed(its) => match its.args.first() {
                    Some(GenericArgument::Type(ty)) => values_of(ty),
                    _ => Vec::new(),
                },
                _ => Vec::new(),
            };
            let wrap = |name| of_first().into_iter().map(move |value| format!("{name}({value})"));
            match last.ident.to_string().as_str() {
                "bool" => owned(&["true", "false"]),
                "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => owned(&["0", "1"]),
                "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => owned(&["0", "1", "-1"]),
                "String" => owned(&["String::new()", "\"xyzzy\".into()"]),
                "Option" => std::iter::once("None".to_owned()).chain(wrap("Some")).collect(),
                "Result" => wrap("Ok").collect(),
                _ => owned(&["Default::default()"]),
            }
        }
        _ => owned(&["Default::default()"]),
    }
}

/// Returns the attributes of a statement that can be left out.
fn attributes(statement: &Stmt) -> &[Attribute] {
    match statement {
        Stmt::Local(its) => &its.attrs,
        Stmt::Expr(Expr::Block(its), _) => &its.attrs,
        Stmt::Expr(Expr::Call(its), _) => &its.attrs,
        Stmt::Expr(Expr::MethodCall(its), _) => &its.attrs,
        Stmt::Expr(Expr::If(its), _) => &its.attrs,
        _ => &[],
    }
}

/// Returns whether the build of the tests contains an item with these attributes.
fn is_compiled(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|its| its.path().is_ident("cfg")).all(|attribute| {
        let condition = attribute.parse_args::<Meta>();
        condition.is_ok_and(|condition| holds(&condition))
    })
}

/// Evaluates the condition of a `cfg`.
fn holds(condition: &Meta) -> bool {
    let text = condition.to_token_stream().to_string();
    let Meta::List(list) = condition else {
        return match text.as_str() {
            "unix" | "target_os = \"linux\"" | "target_pointer_width = \"64\"" => true,
            "feature = \"explore\"" | "feature = \"freed-hook\"" => false,
            _ => text.starts_with("feature"),
        };
    };
    let parser = syn::punctuated::Punctuated::<Meta, syn::Token![,]>::parse_terminated;
    let parts = list.parse_args_with(parser).unwrap_or_default();
    match list.path.to_token_stream().to_string().as_str() {
        "not" => !parts.iter().all(holds),
        "any" => parts.iter().any(holds),
        _ => parts.iter().all(holds),
    }
}

#[cfg(test)]
mod tests {
    use super::{Change, Form, changes};

    /// Returns a source with each of its changes made, one at a time.
    fn changed(source: &str) -> Vec<String> {
        let (changes, _) = changes(source).expect("a source");
        let with = |its: &Change| {
            let text = match its.form {
                Form::Guard => "if no ",
                _ => its.text.as_str(),
            };
            [&source[..its.range.start], text, &source[its.range.end..]].concat()
        };
        changes.iter().map(with).collect()
    }

    #[test]
    fn functions_return_simple_values() {
        assert_eq!(changed("fn f() {a!()}"), ["fn f() {return ;a!()}"]);
        assert_eq!(
            changed("fn f() -> bool {a!()}"),
            ["fn f() -> bool {return true;a!()}", "fn f() -> bool {return false;a!()}"]
        );
        assert_eq!(
            changed("fn f() -> Result<Option<u8>> {a!()}"),
            ["Ok(None)", "Ok(Some(0))", "Ok(Some(1))"]
                .map(|value| format!("fn f() -> Result<Option<u8>> {{return {value};a!()}}"))
        );
        assert_eq!(changed("fn f() -> T {a!()}"), ["fn f() -> T {return Default::default();a!()}"]);
        // Nothing would change.
        assert_eq!(changed("fn f() {}"), [""; 0]);
        assert_eq!(changed("fn f() -> bool { true }"), ["fn f() -> bool {return false; true }"]);
        assert_eq!(changed("fn f() -> ! { a!() } fn g() -> impl T { a!() }"), [""; 0]);
    }

    #[test]
    fn statements_are_removed_and_conditions_negated() {
        let bodies = |body: &str| {
            let all = changed(&format!("fn f() {{{body}}}"));
            let bodies = all.iter().skip(1).map(|text| text[8..text.len() - 1].to_owned());
            bodies.collect::<Vec<_>>()
        };
        assert_eq!(
            bodies("a(); b.c()?; d = e; let g = h();"),
            [
                " b.c()?; d = e; let g = h();",
                "a();  d = e; let g = h();",
                "a(); b.c()?;  let g = h();",
            ]
        );
        assert_eq!(bodies("if a {}"), ["if !(a) {}"]);
        assert_eq!(bodies("while !a {}"), ["while a {}"]);
        assert_eq!(
            bodies("match a { A => b, C if d => e, _ => f }"),
            [
                "match a { A if no => b, C if d => e, _ => f }",
                "match a { A => b, C if true => e, _ => f }",
                "match a { A => b, C if false => e, _ => f }",
            ]
        );
        assert_eq!(bodies("match a { A => b, C => e }"), [""; 0]);
    }

    #[test]
    fn operators_literals_and_fields_are_changed() {
        let bodies = |body: &str| {
            let all = changed(&format!("fn f() -> ! {{{body}}}"));
            let bodies = all.iter().map(|text| text[13..text.len() - 1].to_owned());
            bodies.collect::<Vec<_>>()
        };
        assert_eq!(bodies("a < b"), ["a == b", "a > b", "a <= b"]);
        assert_eq!(bodies("a & b == c"), ["a & b != c", "a | b == c", "a ^ b == c"]);
        assert_eq!(bodies("-a.b"), ["a.b"]);
        assert_eq!(bodies("0x0fu8"), ["16u8"]);
        assert_eq!(bodies("A { b: c, ..d }"), ["A {  ..d }"]);
        assert_eq!(bodies("*a"), [""; 0]);
    }

    #[test]
    fn code_without_choices_at_run_time_is_not_changed() {
        for source in [
            "const A: u8 = 1 + 2;",
            "const fn f() -> u8 { 1 + 2 }",
            "enum A { B = 1 }",
            "struct A([u8; 1 + 2]);",
            "fn f() -> ! { const { 1 + 2 } }",
            "fn f() -> ! { [a; 1 + 2] }",
            "fn f() -> ! { m!(1 + 2) }",
            "impl fmt::Debug for A { fn fmt(&self) { a() } }",
            "#[cfg(test)] mod a { fn f() -> u8 { 1 + 2 } }",
            "#[cfg(all(unix, not(target_os = \"linux\")))] fn f() -> u8 { 1 + 2 }",
            "#[cfg(feature = \"explore\")] fn f() -> u8 { 1 + 2 }",
            "fn f() -> ! { #[cfg(windows)] a(); }",
        ] {
            assert_eq!(changed(source), [""; 0], "{source}");
        }
        assert_eq!(changed("#[cfg(any(unix, windows))] fn f() { a!() }").len(), 1);
    }

    #[test]
    fn a_change_has_its_line_and_function_and_modules_are_listed() {
        let source = "mod a; #[cfg(test)] mod b;\nimpl A for B {\n fn f() -> ! { c &&\n d } }";
        let (changes, modules) = changes(source).expect("a source");
        let named: Vec<_> = changes.iter().map(|its| (its.line, its.name.as_str())).collect();
        assert_eq!(named, [(3, "replace && with || in <B as A>::f")]);
        assert_eq!(modules, ["a"]);
    }
}
