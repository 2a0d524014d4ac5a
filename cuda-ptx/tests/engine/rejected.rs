//! Instructions that NVIDIA's assembler rejects, each beside one that it accepts.

use cuda_ptx::{Program, syntax};

/// Returns the error of a kernel with this code, if there is one.
fn error(code: &str) -> Option<String> {
    let text = format!(
        ".version 9.0 .target sm_90 .address_size 64 .visible .entry k(.param .u64 out) {{
             .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<4>; .reg .f32 %f<4>; .reg .b64 %d<4>;
             ld.param.u64 %d0, [out]; {code} ret; }}"
    );
    let module = syntax::parse(&text).unwrap_or_else(|error| panic!("{code}: {error}"));
    Program::link(&[module]).err().map(|error| error.to_string())
}

#[test]
fn an_instruction_that_the_assembler_rejects_is_an_error() {
    for (accepted, rejected, why) in [
        ("add.f32 %f1, %f2, 1.5;", "add.f32 %f1, %f2, 1;", "this constant"),
        ("add.u32 %r1, %r2, 1;", "add.u32 %r1, %r2, 0f3F800000;", "this constant"),
        ("mov.b32 %r1, 0f3F800000;", "mov.b32 %r1, 1.5;", "this constant"),
        ("mov.b64 %d1, 1.5;", "mov.b64 %d1, 0f3F800000;", "this constant"),
        ("add.f16 %h1, %h2, %h3;", "add.f16 %h1, %h2, 1.5;", "this constant"),
        ("cvt.rn.f32.s32 %f1, 1;", "cvt.rn.f32.s32 %f1, 1.5;", "this constant"),
        ("cvt.rni.s32.f32 %r1, 1.5;", "cvt.rni.s32.f32 1, %f1;", "not a register"),
        ("ld.global.u32 %r1, [%d0];", "ld.global.u32 1, [%d0];", "not a register"),
        ("ld.local.u32 %r1, [8];", "ld.global.u32 %r1, [8];", "local memory"),
        ("ld.shared.u32 %r1, [%r2];", "ld.global.u32 %r1, [%r2];", "32 bits"),
        ("ld.v2.u32 {%r1, %r2}, [%d0];", "ld.u32 {%r1, %r2}, [%d0];", "1 elements"),
        ("ld.v2.u8 {%r1, %r2}, [%d0];", "ld.v2.u8 {%r1, %d2}, [%d0];", "different sizes"),
        ("ld.relaxed.gpu.u32 %r1, [%d0];", "ld.relaxed.u32 %r1, [%d0];", "needs a scope"),
        ("ld.global.nc.u32 %r1, [%d0];", "ld.nc.u32 %r1, [%d0];", "`.nc`"),
        ("fence.sc.gpu;", "fence.sc;", "needs a scope"),
        ("membar.gl;", "membar;", "needs a level"),
        ("griddepcontrol.wait;", "griddepcontrol;", "`.wait`"),
        ("bmsk.clamp.b32 %r1, %r2, %r3;", "bmsk.b32 %r1, %r2, %r3;", "`.clamp`"),
        ("szext.wrap.s32 %r1, %r2, %r3;", "szext.s32 %r1, %r2, %r3;", "`.wrap`"),
        ("clz.b32 %r1, %r2;", "clz.b32 %r1, %r2, %r3;", "2 operands"),
        ("setp.eq.u32 %p1, %r1, %r2;", "setp.eq.u32 %p1, %r1, %r2, %p2;", "3 operands"),
        ("redux.sync.max.s32 %r1, %r2, -1;", "redux.max.s32 %r1, %r2, -1;", "`.sync`"),
        ("tanh.approx.f32 %f1, %f2;", "tanh.f32 %f1, %f2;", "`.approx`"),
        ("fma.rn.f32 %f1, %f2, %f3, %f1;", "fma.f32 %f1, %f2, %f3, %f1;", "rounding"),
        (".reg .b32 %x;", ".reg .b32 %x; .reg .b64 %x;", "declared twice"),
        ("$x: bra.uni $x;", "$x: bra.uni $x; $x: ret;", "twice"),
    ] {
        assert_eq!(error(accepted), None, "{accepted}");
        let found = error(rejected).unwrap_or_else(|| panic!("{rejected} is accepted"));
        assert!(found.contains(why), "{rejected}: {found}");
    }
}

#[test]
fn a_bulk_copy_that_the_assembler_rejects_is_an_error() {
    const LOAD: &str = "cp.async.bulk.tensor.2d.shared::cluster.global";
    const BARRIER: &str = "mbarrier::complete_tx::bytes";
    let load = |words: &str, rest: &str| {
        format!("{LOAD}{words}.{BARRIER} [%r1], [%d1, {{%r2, %r3}}], [%r0]{rest};")
    };
    let three = |offsets: &str| {
        format!(
            "cp.async.bulk.tensor.3d.shared::cta.global.im2col.{BARRIER} \
             [%r1], [%d1, {{%r1, %r2, %r3}}], [%r0]{offsets};"
        )
    };
    let bytes = |words: &str, rest: &str| format!("cp.async.bulk.{words} {rest};");
    let store = "global.shared::cta.bulk_group";
    for (accepted, rejected, why) in [
        (load(".tile", ""), load(".im2col", ", {%h0}"), "three dimensions"),
        (load("", ""), load("", ", %h0"), "too many operands"),
        (load("", ""), load("", "").replace("%r2, %r3", "%r2"), "2 elements"),
        (load("", ""), load("", "").replace("2d.", ""), "number of dimensions"),
        (load("", ""), load("", "").replace(&format!(".{BARRIER}"), ".bulk_group"), "a barrier"),
        (three(", {%h0}"), three(", {%h0, %h1}"), "1 elements"),
        (three(", {%h0}"), three(""), "operand is missing"),
        (
            bytes(store, "[%d0], [%r1], 16"),
            bytes("global.shared::cta", "[%d0], [%r1], 16"),
            "a barrier counts",
        ),
        (
            bytes(store, "[%d0], [%r1], 16"),
            bytes("global.global.bulk_group", "[%d0], [%d1], 16"),
            "within global memory",
        ),
        (
            bytes(&format!("{store}.L2::cache_hint"), "[%d0], [%r1], 16, %d1"),
            bytes(&format!("{store}.L2::cache_hint"), "[%d0], [%r1], 16"),
            "operand is missing",
        ),
        (
            "fence.proxy.tensormap::generic.acquire.gpu [%d0], 128;".to_owned(),
            "fence.proxy.tensormap::generic.acquire.gpu [%d0];".to_owned(),
            "2 operands",
        ),
    ] {
        assert_eq!(error(&accepted), None, "{accepted}");
        let found = error(&rejected).unwrap_or_else(|| panic!("{rejected} is accepted"));
        assert!(found.contains(why), "{rejected}: {found}");
    }
}

/// Returns an instruction with the registers of `mma.m16n8k16` of halves, unless these replace those of `c`.
fn mma(modifiers: &str, c: &str) -> String {
    format!(
        "mma.sync.aligned.{modifiers} {{%f0, %f1, %f2, %f3}}, {{%r0, %r1, %r2, %r3}}, {{%r0, %r1}}, {c};"
    )
}

#[test]
fn an_instruction_on_matrices_that_the_assembler_rejects_is_an_error() {
    let four = "{%f0, %f1, %f2, %f3}";
    let halves = "m16n8k16.row.col.f32.f16.f16.f32";
    let right = mma(halves, four);
    assert_eq!(error(&right), None);
    let bits = "mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32";
    let of_bits = "{%r0, %r1, %r2, %r3}, {%r0, %r1}, {%r0}, {%r0, %r1, %r2, %r3};";
    assert_eq!(error(&format!("{bits}.xor.popc {of_bits}")), None);
    assert_eq!(error(&mma(halves, "{0f00000000, 0f00000000, 0f00000000, 0f00000000}")), None);
    for (rejected, why) in [
        (right.replace(".sync", ""), "`.sync`"),
        (right.replace(".aligned", ""), "`.aligned`"),
        (right.replace(".m16n8k16", ""), "the shape is missing"),
        (right.replace("row.col", "row.row"), "`.row.col`"),
        (right.replace("row.col", "col.col"), "`.row.col`"),
        (right.replace("row.col", "row"), "two layouts"),
        (right.replace("k16", "k32"), "this shape and these types"),
        (right.replace("f32.f16.f16.f32", "f32.f16.bf16.f32"), "this shape and these types"),
        (right.replace("f32.f16.f16.f32", "f16.f16.f16.f32"), "this shape and these types"),
        (right.replace("f32.f16.f16.f32", "f32.f16.f16.f16"), "this shape and these types"),
        (right.replace("f32.f16.f16.f32", "f32.tf32.tf32.f32"), "this shape and these types"),
        (right.replace("f32.f16.f16.f32", "f16.bf16.bf16.f16"), "this shape and these types"),
        (right.replace("f32.f16.f16.f32", "s32.s8.s4.s32"), "this shape and these types"),
        (right.replace("f32.f16.f16.f32", "u32.u8.u8.u32"), "four types"),
        (right.replace("row.col", "row.col.satfinite"), "this modifier"),
        (right.replace("row.col", "row.col.rn"), "this modifier"),
        (right.replace("{%r0, %r1, %r2, %r3}", "{%r0, %r1}"), "a vector of 4"),
        (right.replace("{%r0, %r1},", "{%r0},"), "a vector of 2"),
        (mma(halves, "{%f0, %f1}"), "a vector of 4"),
        (mma(halves, "{%d0, %d1, %d2, %d3}"), "64 bits"),
        (mma(halves, "{0, 0, 0, 0}"), "this constant"),
        (
            right.replace("{%f0, %f1, %f2, %f3}, {%r0", "{1.0, %f1, %f2, %f3}, {%r0"),
            "not a register",
        ),
        (format!("{bits} {of_bits}"), "`.xor.popc`"),
        (format!("{bits}.xor {of_bits}"), "`.xor.popc`"),
        (format!("{bits}.or.popc {of_bits}"), "`.xor.popc`"),
        (format!("{bits}.satfinite.xor.popc {of_bits}"), "this modifier"),
    ] {
        let found = error(&rejected).unwrap_or_else(|| panic!("{rejected} is accepted"));
        assert!(found.contains(why), "{rejected}: {found}");
    }
}

#[test]
fn a_move_of_matrices_that_the_assembler_rejects_is_an_error() {
    let load = "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r0, %r1}, [%r2];";
    let store = "stmatrix.sync.aligned.m8n8.x2.trans.shared::cta.b16 [%r2], {%r0, %r1};";
    let transpose = "movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r1;";
    let generic = "ldmatrix.sync.aligned.m8n8.x1.b16 {%r0}, [%d0];";
    for accepted in [load, store, transpose, generic] {
        assert_eq!(error(accepted), None, "{accepted}");
    }
    for (from, to, why) in [
        (".sync", "", "`.sync`"),
        (".aligned", "", "`.aligned`"),
        (".m8n8", "", "`.m8n8`"),
        (".b16", ".b8", "`.b16`"),
        (".x2", "", "`.x1`, `.x2` or `.x4`"),
        (".x2", ".x3", "`.x1`, `.x2` or `.x4`"),
        (".x2", ".x4", "a vector of 4"),
        (".trans.b16", ".b16", "`.trans`"),
        (".shared.", ".global.", "shared memory of the block"),
        (".shared::cta", ".shared::cluster", "shared memory of the block"),
        ("{%r0, %r1}", "{%r0}", "a vector of 2"),
        ("{%r0, %r1}", "%r0", "a vector of 2"),
        ("{%r0, %r1}", "{%r0, %d1}", "64 bits"),
        ("[%r2], {%r0, %r1}", "[%r2], {%r0, 5}", "not a register"),
        (" %r0, %r1", " %r0, 5", "not a register"),
        (" %r0, %r1", " %d0, %r1", "64 bits"),
        ("{%r0}", "%r0", "a vector of 1"),
        ("{%r0, %r1}, [", "{_, _}, [", "no register"),
    ] {
        let has = |its: &&str| its.contains(from);
        let changed: Vec<String> = [load, store, transpose, generic]
            .into_iter()
            .filter(has)
            .map(|its| its.replace(from, to))
            .collect();
        assert!(!changed.is_empty(), "{from}");
        for rejected in changed {
            let found = error(&rejected).unwrap_or_else(|| panic!("{rejected} is accepted"));
            assert!(found.contains(why), "{rejected}: {found}");
        }
    }
}

#[test]
fn a_function_that_nothing_calls_is_checked() {
    let text = |operand: &str| {
        format!(
            ".version 9.0 .target sm_90 .address_size 64 .visible .func f() {{
                 .reg .b32 %r; add.u32 %r, %r, {operand}; ret; }}"
        )
    };
    for (operand, is_right) in [("1", true), ("%nonsense", false)] {
        let text = text(operand);
        let program = Program::link(&[syntax::parse(&text).expect("it parses")]);
        assert_eq!(program.is_ok(), is_right, "{program:?}");
    }
}

#[test]
fn sizes_that_no_gpu_has_are_errors() {
    for (accepted, rejected, why) in [
        (".shared .b8 x[49152];", ".shared .b8 x[49153];", "shared memory"),
        (".shared .b8 x;", ".shared .b8 x; .shared .b64 y[2305843009213693951];", "shared memory"),
    ] {
        assert_eq!(error(accepted), None);
        assert!(error(rejected).is_some_and(|error| error.contains(why)), "{rejected}");
    }
    let text = |param: &str| {
        format!(".version 9.0 .target sm_90 .address_size 64 .entry k({param}) {{ ret; }}")
    };
    for (param, is_right) in [
        (".param .b8 a[32764]", true),
        (".param .b8 a[32765]", false),
        (".param .align 8 .u64 a[9223372036854775807]", false),
        (".param .u8 a, .param .align 9223372036854775808 .b8 b[1]", false),
    ] {
        let text = text(param);
        let program = Program::link(&[syntax::parse(&text).expect("it parses")]);
        assert_eq!(program.is_ok(), is_right, "{param}");
    }
}

#[test]
fn an_element_of_a_surface_has_at_most_64_bits() {
    let code = |ty: &str| format!("suld.b.1d.{ty}.trap _, [%d0, {{%r1}}];");
    assert_eq!(error(&code("b64")), None);
    assert!(error(&code("b128")).is_some_and(|error| error.contains("64 bits")));
}

#[test]
fn an_instruction_with_an_unknown_modifier_does_not_run() {
    for instruction in [
        "add.bogus.u32 %r1, %r2, %r3",
        "ld.global.bogus.u32 %r1, [%d0]",
        "st.bogus.global.u32 [%d0], %r1",
        "shfl.sync.bogus.idx.b32 %r1, %r2, 0, 31, -1",
        "bar.bogus.sync 0",
    ] {
        let name = instruction.split(' ').next().unwrap();
        let text = format!(
            ".version 9.0 .target sm_90 .address_size 64 .visible .entry k(.param .u64 out) {{
                 .reg .b32 %r<4>; .reg .b64 %d<4>; ld.param.u64 %d0, [out]; {instruction}; ret; }}"
        );
        let program = Program::link(&[syntax::parse(&text).unwrap()]).unwrap();
        let refused: Vec<&str> = program.kernels()[0].unsupported().map(|(name, _)| name).collect();
        assert_eq!(refused, [name]);
    }
}
