//! Errors with the place of the first token that does not fit, the expectation, and this token.

use crate::{HEAD, with_head, with_kernel};
use cuda_ptx::syntax::{ParseError, Position, parse};

/// Checks the error of items that begin in line 4.
#[track_caller]
fn check(items: &str, error: &str) {
    assert_eq!(parse(&with_head(items)).expect_err(items).to_string(), error);
}

/// Checks the error of statements that begin in line 6.
#[track_caller]
fn check_statement(statement: &str, error: &str) {
    assert_eq!(parse(&with_kernel(statement)).expect_err(statement).to_string(), error);
}

#[test]
fn an_error_has_a_place_an_expectation_and_a_token() {
    let error = ParseError::clone(&parse("\n  .target").expect_err("there is no version"));
    assert_eq!(error.position, Position { line: 2, column: 3 });
    assert_eq!((error.expected, &error.found[..]), ("`.version`", "`.target`"));
    assert_eq!(error.to_string(), "line 2, column 3: expected `.version`, found `.target`");
}

#[test]
fn the_head_of_a_module_is_required() {
    for (text, error) in [
        ("", "line 1, column 1: expected `.version`, found the end of the text"),
        ("\u{7f}ELF", "line 1, column 1: expected `.version`, found `\u{7f}`"),
        (".version 8", "line 1, column 10: expected a version such as 8.0, found `8`"),
        (".version 8.x", "line 1, column 10: expected a version such as 8.0, found `8`"),
        (".version a.b", "line 1, column 10: expected a version such as 8.0, found `a.b`"),
        (".version 8.0\n", "line 2, column 1: expected `.target`, found the end of the text"),
        (
            ".version 8.0 .target 90",
            "line 1, column 22: expected an architecture or option of `.target`, found `90`",
        ),
        (
            ".version 8.0 .target sm_90 .address_size 16",
            "line 1, column 42: expected 32 or 64, found `16`",
        ),
    ] {
        assert_eq!(parse(text).expect_err(text).to_string(), error);
    }
}

#[test]
fn errors_of_items() {
    let directive = "expected a directive such as `.global` or `.entry`";
    for (items, error) in [
        ("x", &format!("line 4, column 1: {directive}, found `x`")[..]),
        (";", &format!("line 4, column 1: {directive}, found `;`")),
        (".visible", &format!("line 4, column 9: {directive}, found the end of the text")),
        (".foo x;", &format!("line 4, column 1: {directive}, found `.foo`")),
        (".target sm_80", &format!("line 4, column 1: {directive}, found `.target`")),
        (".global x;", "line 4, column 9: expected a type, found `x`"),
        (".global .foo x;", "line 4, column 9: expected a type, found `.foo`"),
        (".global .v3 .b32 x;", "line 4, column 9: expected a type, found `.v3`"),
        (".global .v2 .v2 .b32 x;", "line 4, column 13: expected a type, found `.v2`"),
        (".global .b32 .b32 x;", "line 4, column 14: expected a name, found `.b32`"),
        (".global .b32 .ptr x;", "line 4, column 14: expected a name, found `.ptr`"),
        (".global .b32 ;", "line 4, column 14: expected a name, found `;`"),
        (".global .b32 _;", "line 4, column 14: expected a name, found `_`"),
        (".global .b32 a.b;", "line 4, column 14: expected a name, found `a.b`"),
        (
            ".global .align x .b32 a;",
            "line 4, column 16: expected an alignment in bytes, found `x`",
        ),
        (
            ".global .align -4 .b32 a;",
            "line 4, column 16: expected an alignment in bytes, found `-`",
        ),
        (
            ".global .b32 a[-1];",
            "line 4, column 16: expected a number of elements or `]`, found `-`",
        ),
        (".global .b32 a[2;", "line 4, column 17: expected `]`, found `;`"),
        (".global .b32 %r<x>;", "line 4, column 17: expected a number of registers, found `x`"),
        (
            ".global .b32 %r<4294967296>;",
            "line 4, column 17: expected a number of registers, found `4294967296`",
        ),
        (".global .b32 %r<4;", "line 4, column 18: expected `>`, found `;`"),
        (".global .b32 a = ;", "line 4, column 18: expected a constant, a name or `{`, found `;`"),
        (
            ".global .b32 a[1] = {1,};",
            "line 4, column 24: expected a constant, a name or `{`, found `}`",
        ),
        (".global .b32 a[1] = {1;", "line 4, column 23: expected `,` or `}`, found `;`"),
        (
            ".global .u64 a = generic(4);",
            "line 4, column 26: expected a variable or function, found `4`",
        ),
        (".global .u64 a = generic(x;", "line 4, column 27: expected `)`, found `;`"),
        (".global .u64 a = x-4;", "line 4, column 19: expected `,` or `;`, found `-`"),
        (
            ".global .u8 a = 0xff(4);",
            "line 4, column 22: expected a variable or function, found `4`",
        ),
        (".global .u8 a = 0xff(x;", "line 4, column 23: expected `+` or `)`, found `;`"),
        (".global .u8 a = x+1.5;", "line 4, column 19: expected an integer constant, found `1.5`"),
        (".global .attribute .b32 x;", "line 4, column 20: expected `(`, found `.b32`"),
        (
            ".global .attribute(.x) .b32 x;",
            "line 4, column 20: expected `.managed` or `.unified`, found `.x`",
        ),
        (
            ".global .attribute(.managed .b32 x;",
            "line 4, column 29: expected `,` or `)`, found `.b32`",
        ),
        (".global .attribute(.unified(1)) .b32 x;", "line 4, column 30: expected `,`, found `)`"),
        (".alias a b;", "line 4, column 10: expected `,`, found `b`"),
        (".alias a, 4;", "line 4, column 11: expected a function, found `4`"),
        (".file \"x\"", "line 4, column 7: expected the number of the file, found `\"x\"`"),
        (".file 1 x", "line 4, column 9: expected a string, found `x`"),
        (".file 1 \"x\", 4", "line 4, column 15: expected `,`, found the end of the text"),
        (
            ".section debug {}",
            "line 4, column 10: expected the name of a section, which begins with a period, found `debug`",
        ),
        (".section .debug ;", "line 4, column 17: expected `{`, found `;`"),
        (".section .debug {\n{\n}", "line 6, column 2: expected `}`, found the end of the text"),
        (".section .debug {\n/*", "line 5, column 1: expected `}`, found a comment without an end"),
        (".section .debug {\n\"", "line 5, column 1: expected `}`, found a string without an end"),
        (".pragma \"x\"", "line 4, column 12: expected `,` or `;`, found the end of the text"),
        (".pragma x;", "line 4, column 9: expected a string, found `x`"),
        (".global .b32 é;", "line 4, column 14: expected a name, found `é`"),
        (
            ".global .b32 x; /* ",
            "line 4, column 17: expected a directive such as `.global` or `.entry`, found a comment without an end",
        ),
        (".file 1 \"x", "line 4, column 9: expected a string, found a string without an end"),
    ] {
        check(items, error);
    }
}

#[test]
fn errors_of_functions() {
    for (items, error) in [
        (".func 4();", "line 4, column 7: expected the name of a function, found `4`"),
        (
            ".entry (.reg .b32 a) k();",
            "line 4, column 8: expected the name of a function, found `(`",
        ),
        (".func f(x);", "line 4, column 9: expected `.param` or `.reg`, found `x`"),
        (".func f(.param .b32 a, b);", "line 4, column 24: expected `.param` or `.reg`, found `b`"),
        (".func f(.param .b32 a = 4);", "line 4, column 23: expected `,` or `)`, found `=`"),
        (".func f(.param .b32 a<4>);", "line 4, column 22: expected `,` or `)`, found `<`"),
        (
            ".func f(.param .u64 .ptr .b32 a);",
            "line 4, column 26: expected `.align` or a name, found `.b32`",
        ),
        (".func f() x", "line 4, column 11: expected `{`, `;` or a directive, found `x`"),
        (".func f() .maxnreg 4, x;", "line 4, column 23: expected a number, found `x`"),
        (".func f() .pragma \"x\" {", "line 4, column 23: expected `,` or `;`, found `{`"),
        (
            ".func .attribute(.managed) f();",
            "line 4, column 7: expected a function without `.managed`, found `.attribute`",
        ),
        (
            ".func f() { ret;",
            "line 4, column 17: expected an instruction, a label, a declaration or `}`, found the end of \
             the text",
        ),
    ] {
        check(items, error);
    }
}

#[test]
fn errors_of_statements() {
    let statement = "expected an instruction, a label, a declaration or `}`";
    for (text, error) in [
        ("ret;;", &format!("line 6, column 5: {statement}, found `;`")[..]),
        ("4", &format!("line 6, column 1: {statement}, found `4`")),
        ("#line 1", &format!("line 6, column 1: {statement}, found `#`")),
        ("a.b: ret;", "line 6, column 1: expected a label, found `a.b`"),
        ("@ 4 ret;", "line 6, column 3: expected a predicate register, found `4`"),
        ("@p {", "line 6, column 4: expected an instruction, found `{`"),
        ("ret\n.reg .b32 x;", "line 7, column 1: expected an operand, found `.reg`"),
        ("ld/**/.u32 a, [b];", "line 6, column 7: expected an operand, found `.u32`"),
        ("ld. u32 a, [b];", "line 6, column 3: expected an operand, found `.`"),
        ("add.s32 a, b, c", "line 7, column 1: expected `,` or `;`, found `}`"),
        ("add.s32 a, b, ;", "line 6, column 15: expected an operand, found `;`"),
        ("add.s32 a b;", "line 6, column 11: expected `,` or `;`, found `b`"),
        ("mov.b32 a, {};", "line 6, column 13: expected an operand, found `}`"),
        ("mov.b64 {a, b;", "line 6, column 14: expected `,` or `}`, found `;`"),
        ("mov.b64 a, b-4;", "line 6, column 13: expected `,` or `;`, found `-`"),
        ("mov.b64 a, b+c;", "line 6, column 14: expected a constant, found `c`"),
        ("mov.b64 a, !_;", "line 6, column 13: expected a constant, found `_`"),
        ("setp.eq.s32 p|, a;", "line 6, column 15: expected an operand, found `,`"),
        (
            "ld.b32 a, [];",
            "line 6, column 12: expected a register, a variable or an integer constant, found `]`",
        ),
        (
            "ld.b32 a, [_];",
            "line 6, column 12: expected a register, a variable or an integer constant, found `_`",
        ),
        ("ld.b32 a, [1.5];", "line 6, column 12: expected an integer constant, found `1.5`"),
        ("ld.b32 a, [b-4];", "line 6, column 13: expected `+`, `,` or `]`, found `-`"),
        ("ld.b32 a, [b+c];", "line 6, column 14: expected a constant, found `c`"),
        ("ld.b32 a, [b;", "line 6, column 13: expected `+`, `,` or `]`, found `;`"),
        ("ld.b32 a, [b, {c};", "line 6, column 18: expected `,` or `]`, found `;`"),
        ("ld.b32 a, b[1];", "line 6, column 12: expected `,` or `;`, found `[`"),
        ("call f, (a;", "line 6, column 11: expected `,` or `)`, found `;`"),
        ("t: .branchtargets 4;", "line 6, column 19: expected a label, found `4`"),
        ("t: .branchtargets a b;", "line 6, column 21: expected `,` or `;`, found `b`"),
        ("t: .calltargets ;", "line 6, column 17: expected a function, found `;`"),
        ("t: .callprototype (.param .b32 _);", "line 6, column 34: expected `_`, found `;`"),
        ("t: .callprototype _ ret;", "line 6, column 21: expected `;` or a directive, found `ret`"),
        (".loc 1 2\nret;", "line 7, column 1: expected the number of a column, found `ret`"),
        (".loc 1 2 3, x", "line 6, column 13: expected `function_name`, found `x`"),
        (
            ".loc 1 2 3, function_name a, inlined 1",
            "line 6, column 30: expected `inlined_at`, found `inlined`",
        ),
        (
            ".loc 4294967296 1 1",
            "line 6, column 6: expected the number of a file, found `4294967296`",
        ),
        (".pragma \"x\"\nret;", "line 7, column 1: expected `,` or `;`, found `ret`"),
        (
            ".maxnreg 4;",
            "line 6, column 1: expected a directive such as `.global` or `.entry`, found `.maxnreg`",
        ),
    ] {
        check_statement(text, error);
    }
}

#[test]
fn nesting_has_a_limit() {
    let error = |text: &str| parse(&with_kernel(text)).expect_err("it is too deep").to_string();
    let limit = "expected at most 100 nested blocks, lists, parentheses and operators, found";
    let many = |text: &str| text.repeat(1_000_000);
    assert_eq!(error(&many("{")), format!("line 6, column 100: {limit} `{{`"));
    for (text, place) in [
        (format!("mov.b32 a, {}", many("(")), "line 6, column 111"),
        (format!("mov.b32 a, {}", many("-")), "line 6, column 111"),
        (format!("mov.b32 a, {}", many("(.s64)")), "line 6, column 606"),
        (format!("mov.b32 a, {}", many("1?")), "line 6, column 211"),
        (format!("mov.b32 a, {}", many("1?2:")), "line 6, column 409"),
        (format!("mov.b32 a, {}", many("{")), "line 6, column 111"),
        (format!("mov.b32 a, {}", many("[a,")), "line 6, column 309"),
    ] {
        let error = error(&text);
        assert!(error.starts_with(&format!("{place}: {limit}")), "{place}: {error}");
    }
    let lists = with_head(&format!(".global .b32 a = {}", many("{")));
    let error = parse(&lists).expect_err("it is too deep").to_string();
    assert!(error.starts_with(&format!("line 4, column 118: {limit}")), "{error}");
}

#[test]
fn as_many_blocks_as_the_limit_allows_parse() {
    let deep = |count: usize| with_kernel(&("{".repeat(count) + &"}".repeat(count)));
    assert!(parse(&deep(99)).is_ok());
    assert!(parse(&deep(100)).is_err());
}

#[test]
fn the_text_of_a_long_token_is_cut() {
    let name = "é".repeat(1000);
    let error = parse(&with_head(&format!(".file \"{name}\""))).expect_err("there is no number");
    assert_eq!(error.found, format!("`\"{}…`", "é".repeat(30)));
}

#[test]
fn each_beginning_of_a_text_parses_or_is_an_error_within_it() {
    let text = format!(
        "{HEAD}.global .b8 x[2][3] = {{{{1, 0xff(y)}}, generic(y)+4}};\n.section .debug {{ \"}}\" /* */ }}\n\
         .func (.param .b32 r) f(.param .b64 .ptr .global p) .maxntid 1, 2 {{\n\
         @!p ld.global.L1::x.u32 %r1|p, [%r2+(4*2), {{_, -1}}], 1 ? 2.5e-1 : 0d3FF0000000000000;\n\
         t: .callprototype _ (.param .b32 _);\n.loc 1 2 3, function_name l+4, inlined_at 1 2 3\n}}"
    );
    for end in 0..=text.len() {
        if let Err(error) = parse(&text[..end]) {
            let lines = text[..end].split('\n').count();
            assert!(error.position.line as usize <= lines, "{error}");
            assert!(!error.found.is_empty(), "{error}");
        }
    }
    assert!(parse(&text).is_ok());
}
