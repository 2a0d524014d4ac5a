//! Loads, stores, and what belongs to them.

use crate::form::Kind::{self, U32, U64};
use crate::form::{Forms, expand};

const TYPES: &str = "{b8,u8,s8,b16,u16,s16,b32,u32,s32,f32,b64,u64,s64,f64}";

/// Code that makes `%s` the address of 64 bytes of shared memory of the thread.
const SHARED: &str = ".shared .align 16 .b8 cells[2048];\n.reg .b64 %s, %x;\nmov.u64 %s, cells;\n\
                      mul.wide.u32 %x, %t, 64;\nadd.u64 %s, %s, %x;\n";
/// Code that makes `%s` the address of 64 bytes of local memory.
const LOCAL: &str = ".local .align 16 .b8 cells[64];\n.reg .b64 %s;\nmov.u64 %s, cells;\n";

pub(super) fn add(forms: &mut Forms) {
    for name in expand(&format!("ld.global{{,.v2,.v4}}.{TYPES}")) {
        load(forms, &name, "", "%in");
        store(forms, &name.replace("ld.", "st."), "", "%out");
    }
    for (space, setup) in [("shared", SHARED), ("local", LOCAL)] {
        for name in expand(&format!("ld.{space}{{,.v2,.v4}}.{TYPES}")) {
            let fill = format!(
                "{setup}.reg .b64 %y;\nst.{space}.b64 [%s], %a0;\nst.{space}.b64 [%s+8], %a1;\n"
            );
            load(forms, &name, &fill, "%s");
        }
        for name in expand(&format!("st.{space}{{,.v2,.v4}}.{TYPES}")) {
            store(forms, &name, setup, "%s");
        }
    }
    generic(forms);
    narrow(forms);
    constants(forms);
    parameters(forms);
    caches(forms);
    order(forms);
    copies(forms);
}

/// Returns the number of elements of a vector.
fn elements(name: &str) -> usize {
    let word = name.split('.').find(|word| matches!(*word, "v2" | "v4" | "v8"));
    word.map_or(1, |word| usize::from(word.as_bytes()[1] - b'0'))
}

fn list(letter: &str, count: usize) -> String {
    match count {
        1 => format!("%{letter}0"),
        _ => {
            let names: Vec<_> = (0..count).map(|index| format!("%{letter}{index}")).collect();
            format!("{{{}}}", names.join(", "))
        }
    }
}

/// Returns the register for an element in memory: one of 16 bits for 8 bits.
fn register(name: &str) -> Kind {
    match Kind::of(name) {
        Kind::U8 | Kind::S8 => Kind::U16,
        kind => kind,
    }
}

/// Adds a load from `address`. Two operands of 8 bytes are in memory there.
fn load(forms: &mut Forms, name: &str, setup: &str, address: &str) {
    let count = elements(name);
    if count * Kind::of(name).bytes() <= 16 {
        let code = format!("{setup}{name} {}, [{address}];", list("d", count));
        forms.code(name, &code, &[U64; 2], &vec![register(name); count]);
    }
}

/// Adds a store to `address`, with the 16 bytes there as results.
fn store(forms: &mut Forms, name: &str, setup: &str, address: &str) {
    let count = elements(name);
    let signed = Kind::of(name) == Kind::S8;
    if count * Kind::of(name).bytes() <= 16 && !signed {
        let space = name.split('.').find(|word| matches!(*word, "global" | "shared" | "local"));
        let space = space.map_or(String::new(), |space| format!(".{space}"));
        let clear = format!("st{space}.b64 [{address}], -1;\nst{space}.b64 [{address}+8], 0;\n");
        let back = format!("ld{space}.b64 %d0, [{address}];\nld{space}.b64 %d1, [{address}+8];");
        let code = format!("{setup}{clear}{name} [{address}], {};\n{back}", list("a", count));
        forms.code(name, &code, &vec![register(name); count], &[U64; 2]);
    }
}

fn generic(forms: &mut Forms) {
    for name in expand(&format!("ld{{,.v2,.v4}}.{TYPES}")) {
        load(forms, &name, "", "%in");
        let fill =
            "st.shared.b64 [%s], %a0;\nst.shared.b64 [%s+8], %a1;\ncvta.shared.u64 %s, %s;\n";
        let before = forms.0.len();
        load(forms, &name, &format!("{SHARED}{fill}"), "%s");
        let fill = "st.local.b64 [%s], %a0;\nst.local.b64 [%s+8], %a1;\ncvta.local.u64 %s, %s;\n";
        if let Some(form) = forms.0.get_mut(before) {
            form.name += " of shared";
            load(forms, &name, &format!("{LOCAL}{fill}"), "%s");
            forms.0[before + 1].name += " of local";
        }
    }
    for name in expand(&format!("st{{,.v2,.v4}}.{TYPES}")) {
        store(forms, &name, "", "%out");
        let before = forms.0.len();
        store(forms, &name, &format!("{SHARED}cvta.shared.u64 %s, %s;\n"), "%s");
        if let Some(form) = forms.0.get_mut(before) {
            form.name += " to shared";
        }
    }
}

/// Adds loads into registers that are wider than the type, which extend, and stores from such.
fn narrow(forms: &mut Forms) {
    for name in expand("ld.global.{b8,u8,s8,b16,u16,s16,b32,u32,s32}") {
        for (bits, kind) in [(32, U32), (64, U64)] {
            if kind.bytes() > Kind::of(&name).bytes() {
                let code = format!("{name} %d0, [%in];");
                forms.code(&format!("{name} to {bits} bits"), &code, &[U64], &[kind]);
                let shared = name.replace("global", "shared");
                let code = format!("{SHARED}st.shared.b64 [%s], %a0;\n{shared} %d0, [%s];");
                forms.code(&format!("{shared} to {bits} bits"), &code, &[U64], &[kind]);
            }
        }
    }
    for name in expand("st.global.{b8,u8,s8,b16,u16,s16,b32,u32,s32}") {
        for (bits, kind) in [(32, U32), (64, U64)] {
            if kind.bytes() > Kind::of(&name).bytes() {
                let code = format!("{name} [%out], %a0;\nld.global.b64 %d0, [%out];");
                forms.code(&format!("{name} from {bits} bits"), &code, &[kind], &[U64]);
            }
        }
    }
    for (name, code) in [
        ("ld.global offset", "ld.global.u32 %d0, [%in+4];"),
        (
            "ld.global negative offset",
            ".reg .b64 %x;\nadd.u64 %x, %in, 12;\nld.global.u32 %d0, [%x+-8];",
        ),
    ] {
        forms.code(name, code, &[U64; 2], &[U32]);
    }
}

/// Adds loads from constant memory and from initialised variables, at an index from the operand.
fn constants(forms: &mut Forms) {
    for (space, linkage) in [("const", ""), ("global", ".visible ")] {
        for (name, kind, value) in [
            ("u8", Kind::U16, "{1, 0xff, 128, 7, 0x80, 0, 3}"),
            ("s8", Kind::U16, "{1, -1, -128, 127, 3}"),
            ("u16", Kind::U16, "{1, 65535, 0x8000, 5}"),
            ("s32", U32, "{1, -1, 0x80000000, 077, 0b101}"),
            ("u64", U64, "{1, 0xffffffffffffffff, 9223372036854775808}"),
            ("f32", Kind::F32, "{1.0, -2.5e10, 0f7fc12345, 0.1}"),
            ("f64", Kind::F64, "{1.0, -2.5e-300, 0d7ff8000000012345, 0.1}"),
        ] {
            let declaration = format!("{linkage}.{space} .align 8 .{name} table#[8] = {value};");
            let bytes = Kind::of(name).bytes();
            let code = format!(
                ".reg .b64 %x, %y;\n.reg .b32 %z;\nand.b32 %z, %a0, 7;\nmul.wide.u32 %x, %z, {bytes};\n\
                 mov.u64 %y, table#;\nadd.u64 %y, %y, %x;\nld.{space}.{name} %d0, [%y];"
            );
            let form =
                forms.code(&format!("ld.{space}.{name} initialised"), &code, &[U32], &[kind]);
            form.declare(&declaration);
        }
    }
    let vectors = ".const .align 16 .b8 table#[16] = {1, 2, 3, 4, 250, 251, 252, 253, 0, 9, 8, 7};";
    for name in expand("ld.const{,.v2,.v4}.{u8,u16,u32,f32,u64}") {
        let count = elements(&name);
        if count * Kind::of(&name).bytes() <= 16 {
            let code = format!("{name} {}, [table#];", list("d", count));
            let form = forms.code(&name, &code, &[], &vec![register(&name); count]);
            form.declare(vectors);
        }
    }
    let named = ".global .align 8 .u32 value# = 77;\n.global .align 8 .u64 pointer# = value#;\n\
                 .global .align 8 .u64 generic# = generic(value#);\n\
                 .global .align 4 .b8 words#[3][4] = {{1, 2}, {3, 4, 5, 6}, {7}};";
    let code = ".reg .b64 %x;\nld.global.u64 %x, [pointer#];\nld.global.u32 %d0, [%x];\n\
                ld.global.u64 %x, [generic#];\nld.u32 %d1, [%x];\nld.global.u32 %d2, [words#+4];";
    forms.code("initialisers with addresses", code, &[], &[U32; 3]).declare(named);
}

/// Adds loads of the kernel's parameters.
fn parameters(forms: &mut Forms) {
    for (name, place) in [
        ("u8", "more0"),
        ("s8", "more0"),
        ("b8", "more4+13"),
        ("u16", "more1"),
        ("s16", "more1"),
        ("b16", "more4+14"),
        ("f32", "more2"),
        ("u32", "more2"),
        ("b32", "more4"),
        ("s32", "more4+16"),
        ("f64", "more3"),
        ("b64", "more3"),
        ("u64", "more4+8"),
        ("s64", "more4"),
        ("v2.b32", "more4+8"),
        ("v4.f32", "more4"),
        ("v2.u64", "more4"),
        ("v4.u8", "more4+16"),
        ("v2.u8", "more4+2"),
        ("v4.u16", "more4+8"),
    ] {
        let name = format!("ld.param.{name}");
        let count = elements(&name);
        let code = format!("{name} {}, [{place}];", list("d", count));
        forms.code(&name, &code, &[], &vec![register(&name); count]);
    }
    let code =
        "ld.param.s8 %d0, [more0];\nld.param.s16 %d1, [more1];\nld.param.u8 %d2, [more4+19];";
    forms.code("ld.param to 32 bits", code, &[], &[U32; 3]);
    let code = ".reg .b64 %x, %y;\nand.b64 %x, %a0, 15;\nmov.b64 %y, more4;\nadd.u64 %y, %y, %x;\n\
                ld.param.u8 %d0, [%y];";
    forms.code("ld.param of an index", code, &[U64], &[U32]);
}

/// Adds the modifiers that do not change what is read and written.
fn caches(forms: &mut Forms) {
    for name in expand("ld.global{.ca,.cg,.cs,.lu,.cv,.nc}.{b8,b16,b32,b64}")
        .into_iter()
        .chain(expand("ld.global.nc{,.v2,.v4}.{u8,u16,u32,u64,f32,f64}"))
        .chain(expand("ld.global.{nc.L1::no_allocate.u32,nc.L2::128B.f32,L1::evict_last.v4.u32}"))
        .chain(expand("ld.global.{L1::evict_first.u32,L2::64B.u64,L1::no_allocate.L2::256B.v2.u64}"))
        .chain(expand("ld{.volatile,.relaxed.gpu,.acquire.sys,.weak}.global.{u8,u32,f32,f64}"))
        .chain(expand("ld{.relaxed.cta,.relaxed.cluster,.relaxed.sys,.acquire.cta,.acquire.gpu}.global.b32"))
        .chain(expand("ld.mmio.relaxed.sys.global.{u32,u64}"))
        .chain(expand("{ldu.global.u32,ldu.global.v4.f32,ldu.global.f64,ld.volatile.u32,ld.volatile.u64}"))
        .chain(expand("ld.{global.cs.f32,global.cg.f32,acquire.gpu.u32,acquire.gpu.b32,relaxed.sys.global.v2.f32}"))
    {
        load(forms, &name, "", "%in");
    }
    for name in expand("st.global{.wb,.cg,.cs,.wt}.{b8,b16,b32,b64}")
        .into_iter()
        .chain(expand("st{.volatile,.relaxed.gpu,.release.sys,.weak}.global.{u8,u32,f64}"))
        .chain(expand("st{.relaxed.cta,.relaxed.cluster,.release.cta,.release.gpu}.global.b32"))
        .chain(expand("st.global.{cs.f32,L1::evict_last.u32,L1::no_allocate.v4.f32}"))
        .chain(expand("{st.mmio.relaxed.sys.global.u32,st.release.gpu.b32}"))
    {
        store(forms, &name, "", "%out");
    }
    for name in expand("ld.volatile.shared.{u8,u32,u64,v2.f32,f64}") {
        let fill = format!("{SHARED}st.shared.b64 [%s], %a0;\nst.shared.b64 [%s+8], %a1;\n");
        load(forms, &name, &fill, "%s");
    }
    store(forms, "st.volatile.shared.u32", SHARED, "%s");
    let policy = ".reg .b64 %x;\ncreatepolicy.fractional.L2::evict_last.b64 %x, 0.5;\n\
                  ld.global.L2::cache_hint.u64 %d0, [%in], %x;";
    forms.code("ld.global.L2::cache_hint.u64", policy, &[U64], &[U64]);
    for name in expand("prefetch{.global,}.{L1,L2}").into_iter().chain([
        "prefetchu.L1".to_owned(),
        "prefetch.global.L2::evict_last".to_owned(),
        "prefetch.global.L2::evict_normal".to_owned(),
    ]) {
        forms.code(&name, &format!("{name} [%in];\nmov.b64 %d0, %a0;"), &[U64], &[U64]);
    }
}

/// Adds fences, in each form once.
fn order(forms: &mut Forms) {
    let mut names = expand("fence{.acq_rel,.sc}.{cta,cluster,gpu,sys}");
    names.extend(expand("membar.{cta,gl,sys}"));
    names.extend(expand("fence.proxy.{alias,async,async.global,async.shared::cta}"));
    names.extend(expand("{fence.mbarrier_init.release.cluster,griddepcontrol.wait}"));
    names.extend(expand("{griddepcontrol.launch_dependents,nanosleep.u32 20,bar.warp.sync -1}"));
    names.push(
        "fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster".to_owned(),
    );
    for name in names {
        let code = format!("st.global.b64 [%out], %a0;\n{name};\nld.global.b64 %d0, [%out];");
        forms.code(&name, &code, &[U64], &[U64]);
    }
}

/// Adds asynchronous copies into shared memory.
fn copies(forms: &mut Forms) {
    let clear = "st.shared.b64 [%s], -1;\nst.shared.b64 [%s+8], -1;\n";
    let back = "ld.shared.b64 %d0, [%s];\nld.shared.b64 %d1, [%s+8];";
    let groups = "cp.async.commit_group;\ncp.async.wait_group 0;\n";
    for (name, operands) in [
        ("cp.async.ca.shared.global", "4"),
        ("cp.async.ca.shared.global", "8"),
        ("cp.async.ca.shared.global", "16"),
        ("cp.async.cg.shared.global", "16"),
        ("cp.async.cg.shared.global", "16, 0"),
        ("cp.async.cg.shared.global", "16, 7"),
        ("cp.async.ca.shared.global", "8, 3"),
        ("cp.async.ca.shared::cta.global", "4, 1"),
        ("cp.async.cg.shared.global.L2::128B", "16"),
    ] {
        let code = format!("{SHARED}{clear}{name} [%s], [%in], {operands};\n{groups}{back}");
        forms.code(&format!("{name} {operands}"), &code, &[U64; 2], &[U64; 2]);
    }
    let code = format!(
        "{SHARED}{clear}.reg .pred %p;\nsetp.ne.u64 %p, %a0, 0;\n\
         cp.async.ca.shared.global [%s], [%in], 4, %p;\n{groups}{back}"
    );
    forms.code("cp.async.ca.shared.global ignored", &code, &[U64; 2], &[U64; 2]);
    let code = format!(
        "{SHARED}{clear}cp.async.ca.shared.global [%s], [%in], 8;\ncp.async.commit_group;\n\
         cp.async.ca.shared.global [%s+8], [%in+8], 8;\ncp.async.commit_group;\n\
         cp.async.wait_group 1;\ncp.async.wait_all;\n{back}"
    );
    forms.code("cp.async.wait_all", &code, &[U64; 2], &[U64; 2]);
}
