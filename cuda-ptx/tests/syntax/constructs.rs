//! Constructs of PTX, in the form in which the tree prints them and in others.

use crate::{body, function, parsed, round_trip, with_head, with_kernel};
use cuda_ptx::syntax::{
    Address, Guard, Immediate, Initializer, Instruction, Item, Linkage, Operand, Position, Space,
    Statement, Type,
};

/// Items of a module as they are printed.
const ITEMS: &[&str] = &[
    ".global .b32 x;",
    ".visible .global .align 4 .b8 x[4][2] = {{1, 2}, {3}};",
    ".extern .shared .align 16 .b8 dynamic[];",
    ".weak .const .f64 x = 0d3FF0000000000000;",
    ".common .global .u64 x;",
    ".global .attribute(.managed) .s32 x;",
    ".global .attribute(.unified(1, 2)) .s32 x;",
    ".global .attribute(.managed, .unified(1, 2)) .s32 x;",
    ".global .v4 .f32 x[2];",
    ".global .u64 x = y;",
    ".global .u64 x[2] = {y+4, generic(y)+-8};",
    ".global .u8 x[3] = {0xff(y), 0xff00(y+4), 0xff0000(generic(y)+4)};",
    ".global .b32 x[2] = {};",
    ".global .f32 x = 0f3F800000;",
    ".global .texref x;",
    ".global .surfref x;",
    ".global .samplerref x = {addr_mode_0 = clamp_to_border, filter_mode = nearest};",
    ".global .texref x = {width = 4, channel_order = 16U};",
    ".tex .u32 x;",
    ".alias a, b;",
    ".file 1 \"/a b/c.cu\"",
    ".file 2 \"c.cu\", 1700000000, 12",
    ".section .debug_str {\ninfo: .b8 1 // }\n{ \"}\" } /* } */}",
    ".pragma \"nounroll\";",
    ".pragma \"a\", \"b\";",
    ".func f();",
    ".extern .func (.param .b32 r) f(.param .b64 p0, .param .align 8 .b8 p1[16]);",
    ".visible .func (.reg .f32 r) f(.reg .f32 a) .noreturn\n{\n}",
    ".func f(.param .b8 _[]);",
    ".func .attribute(.unified(171, 205)) f();",
    ".func f() .abi_preserve 8 .abi_preserve_control 2 .noreturn;",
    ".weak .entry k(.param .u64 .ptr .global .align 8 a, .param .u64 .ptr b)\n{\n}",
    ".entry k() .maxntid 128, 2, 1 .minnctapersm 2 .maxnreg 32\n{\n}",
    ".entry k() .reqntid 64 .reqnctapercluster 2, 1, 1 .explicitcluster .maxclusterrank 8\n{\n}",
    ".entry k() .blocksareclusters .pragma \"nounroll\"; .maxnctapersm 3\n{\n}",
];

/// Statements as they are printed.
const STATEMENTS: &[&str] = &[
    ".reg .b32 %r<10>;",
    ".reg .v2 .f16x2 %v;",
    ".local .align 8 .b8 __local_depot0[16];",
    ".param .b32 retval0;",
    ".loc 1 2 3",
    ".loc 1 2 3, function_name $L__info_string0, inlined_at 1 5 6",
    ".loc 1 2 3, function_name $L__info_string0+16, inlined_at 1 5 6",
    ".pragma \"nounroll\";",
    "t: .branchtargets $L1, $L2;",
    "t: .calltargets f, g;",
    "t: .callprototype (.param .b32 _) _ (.param .b64 _, .param .b8 _[4]);",
    "t: .callprototype () _ () .abi_preserve 8 .noreturn;",
    "ret;",
    "@p bra $L1;",
    "@!%p1 exit;",
    "call.uni f;",
    "call.uni f, ();",
    "call (r0), f, (p0, 5), t;",
    "call %rd1, (p0, -5), t;",
    "call f, (_, 3);",
    "mov.b32 %r1, %tid.x;",
    "mov.u32 %r1, %clusterid.x;",
    "mov.u64 %rd1, x+4;",
    "mov.u64 %rd1, x+0;",
    "mov.b64 {%r1, _}, %rd1;",
    "setp.lt.and.s32 p|q, a, b, !r;",
    "shfl.sync.idx.b32 %r1|_, %r2, 0U, 31, -1;",
    "elect.sync _|%p1, -1;",
    "vmad.s32.s32.u32.sat %r1, -%r2.b0, %r3.h1, %r4;",
    "vmad.s32.s32.s32 %r1, %r2, %r3, -%r4;",
    "ld.global.u32 %r1, [%rd1];",
    "ld.global.u32 %r1, [%rd1+4];",
    "ld.global.u32 %r1, [%rd1+-4];",
    "ld.global.u32 %r1, [%rd1+-9223372036854775807-1];",
    "ld.shared.u32 %r1, [x+8];",
    "ld.local.u32 %r1, [1234];",
    "ld.global.L1::no_allocate.L2::128B.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1+16];",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], %r2, [%r3];",
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd1, \
     {%r2, %r3}], [%r4], {1, 2};",
    "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}|%p1, [t, s, {%f5, %f6}], {1, 2};",
    "tex.1d.v4.s32.s32 {r0, r1, r2, r3}, [x, {f1}];",
    "tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, p;",
    "mov.f64 %fd1, 0d7FF8000000000001;",
    "mov.f32 %f1, 0fFF800000;",
    "$L__BB0_1:",
    "_a$1:",
    "%3:",
];

#[test]
fn each_item_prints_as_it_was_written() {
    for item in ITEMS {
        let text = with_head(&format!("{item}\n"));
        assert_eq!(round_trip(&text), text);
    }
}

#[test]
fn each_statement_prints_as_it_was_written() {
    for statement in STATEMENTS {
        let indent = if statement.ends_with(':') { "" } else { "    " };
        let text = with_kernel(&format!("{indent}{statement}")) + "\n";
        assert_eq!(round_trip(&text), text);
    }
}

#[test]
fn a_module_without_an_address_size_has_addresses_of_32_bits() {
    let module = parsed(".version 1.4\n.target sm_10, map_f64_to_f32");
    assert_eq!(module.version, (1, 4));
    assert_eq!(module.target, ["sm_10", "map_f64_to_f32"]);
    assert_eq!((module.address_size, module.items.len()), (32, 0));
}

#[test]
fn a_declaration_of_several_names_is_several_variables() {
    let text = with_head(".global .align 8 .u32 a = 1, b[2] = {2}, c;");
    let expected = with_head(
        ".global .align 8 .u32 a = 1;\n.global .align 8 .u32 b[2] = {2};\n.global .align 8 .u32 c;\n",
    );
    assert_eq!(round_trip(&text), expected);
    let text = with_kernel(".reg .b32 %r<4>, x;");
    let module = parsed(&text);
    let [Statement::Variable(range), Statement::Variable(x)] = body(&module) else {
        panic!("{text}");
    };
    assert_eq!((range.name, range.range, range.ty), ("%r", Some(4), Type::B32));
    assert_eq!((x.name, x.range, x.space), ("x", None, Space::Register));
}

#[test]
fn a_variable_has_the_parts_of_its_declaration() {
    let text = with_head(
        ".visible .const .attribute(.managed) .align 16 .v2 .f32 x[2][] = {generic(y)+4};",
    );
    let [Item::Variable(variable)] = &parsed(&text).items[..] else {
        panic!("{text}");
    };
    assert_eq!(variable.position, Position { line: 4, column: 57 });
    assert_eq!(variable.linkage, Linkage::Visible);
    assert_eq!(variable.space, Space::Const);
    assert!(variable.is_managed);
    assert_eq!((variable.align, variable.vector, variable.ty), (Some(16), 2, Type::F32));
    assert_eq!((variable.name, &variable.dimensions[..]), ("x", &[Some(2), None][..]));
    let address = Initializer::Address { symbol: "y", offset: 4, is_generic: true, mask: None };
    assert_eq!(variable.initializer, Some(Initializer::List(vec![address])));
}

#[test]
fn the_alignment_of_the_memory_behind_a_parameter_is_not_that_of_the_parameter() {
    let text = with_head(".entry k(.param .align 4 .u64 .ptr .shared .align 8 p) { }");
    let module = parsed(&text);
    let param = &function(&module).params[0];
    assert_eq!((param.align, param.pointer), (Some(4), Some((Some(Space::Shared), Some(8)))));
}

#[test]
fn an_alignment_can_precede_the_state_space() {
    let text = with_kernel(".align 8 .local.b8 x[4];");
    assert!(round_trip(&text).contains(".local .align 8 .b8 x[4];"));
}

#[test]
fn words_of_a_declaration_need_no_space_between_them() {
    let text = with_kernel(".reg.v2.b32 x;");
    assert!(round_trip(&text).contains(".reg .v2 .b32 x;"));
}

#[test]
fn a_kernel_needs_no_parameters() {
    let text = with_head(".entry k { ret; }");
    assert!(round_trip(&text).contains(".entry k()\n"));
}

#[test]
fn an_instruction_has_its_parts_and_place() {
    let text = with_kernel("  @!p ld.global.v2.u32 {a, _}, [b+4], 7;");
    let expected = Instruction {
        position: Position { line: 6, column: 7 },
        guard: Some(Guard { register: "p", is_negated: true }),
        mnemonic: "ld.global.v2.u32",
        operands: vec![
            Operand::Vector(vec![Operand::Name("a"), Operand::Discard]),
            Operand::Address(Box::new(Address {
                base: Operand::Name("b"),
                offset: 4,
                rest: Vec::new(),
            })),
            Operand::Immediate(Immediate::Integer { bits: 7, is_unsigned: false }),
        ],
    };
    let module = parsed(&text);
    assert_eq!(body(&module), [Statement::Instruction(expected)]);
}

#[test]
fn a_mnemonic_can_have_spaces_before_its_modifiers() {
    let text = with_kernel("ld .global\t.u32 %r1, [%rd1];");
    round_trip(&text);
    let module = parsed(&text);
    let [Statement::Instruction(instruction)] = body(&module) else {
        panic!("{text}");
    };
    assert_eq!(instruction.mnemonic, "ld .global\t.u32");
    assert_eq!(instruction.opcode(), "ld");
    assert!(instruction.modifiers().eq(["global", "u32"]));
}

#[test]
fn a_call_has_lists_and_other_instructions_have_expressions_in_parentheses() {
    let text = with_kernel("call (r), f, ((1 + 2) * 3);\nadd.s32 a, b, (1 + 2) * 3;");
    let printed = round_trip(&text);
    assert!(printed.contains("call (r), f, (9);") && printed.contains("add.s32 a, b, 9;"));
}

#[test]
fn a_block_is_a_statement() {
    let text = with_kernel("{ .reg .b32 a; { } L: }");
    let module = parsed(&text);
    let [Statement::Block(outer)] = body(&module) else {
        panic!("{text}");
    };
    let [Statement::Variable(_), Statement::Block(inner), Statement::Label { name: "L", .. }] =
        &outer[..]
    else {
        panic!("{outer:?}");
    };
    assert!(inner.is_empty());
    assert!(
        round_trip(&text)
            .contains("    {\n        .reg .b32 a;\n        {\n        }\nL:\n    }\n")
    );
}

#[test]
fn words_with_a_meaning_can_be_names() {
    for name in ["generic", "add", "ret", "function_name", "call"] {
        round_trip(&with_head(&format!(".global .b32 {name} = {name};")));
        round_trip(&with_kernel(&format!("{name}: bra {name};")));
    }
}

#[test]
fn comments_are_white_space() {
    let text = with_kernel("/* ; } */ mov/**/.u32 // x\n %r1,/*\n\n*/4;ret/* * / **/;");
    let text = text.replace("mov/**/.u32", "mov.u32");
    let module = parsed(&text);
    let [_, Statement::Instruction(ret)] = body(&module) else {
        panic!("{text}");
    };
    assert_eq!(ret.position, Position { line: 9, column: 5 });
}

#[test]
fn lines_within_sections_and_strings_are_counted() {
    let text = with_head(".section .debug_info\n{\n{\n}\n}\n.pragma \"a\nb\"; .global .b32 x;");
    let module = parsed(&text);
    let Some(Item::Variable(variable)) = module.items.last() else {
        panic!("{module:?}");
    };
    assert_eq!(variable.position, Position { line: 10, column: 18 });
}

#[test]
fn a_backslash_does_not_continue_a_string() {
    let text = with_head(r#".file 1 "C:\dir\" .file 2 "x""#);
    let [Item::File(first), Item::File(_)] = &parsed(&text).items[..] else {
        panic!("{text}");
    };
    assert_eq!(first.name, r"C:\dir\");
}
