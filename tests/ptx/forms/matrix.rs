//! Matrices that the lanes of a warp share.

use crate::common::random::Random;
use crate::form::Kind::{U32, U64};
use crate::form::{Forms, expand};
use crate::tile::{Element, FLAVORS, Flavor, Product, place, place_in_quads};

pub(super) fn add(forms: &mut Forms) {
    moves(forms);
    for (shape, kinds) in [
        ("m16n8k8", &["f32.f16", "f16.f16", "f32.bf16", "f32.tf32"][..]),
        ("m16n8k16", &["f32.f16", "f16.f16", "f32.bf16"]),
        ("m16n8k4", &["f32.tf32"]),
    ] {
        for (c, a) in kinds.iter().filter_map(|kinds| kinds.split_once('.')) {
            floats(forms, &format!("{shape}.row.col.{c}.{a}.{a}.{c}"), 2);
        }
    }
    for name in
        expand("{m16n8k16,m16n8k32}.row.col.f32.{e4m3.e4m3,e4m3.e5m2,e5m2.e4m3,e5m2.e5m2}.f32")
    {
        floats(forms, &name, 1);
        floats(forms, &name.replace("f32", "f16"), 1);
    }
    for name in
        expand("{m8n8k4,m16n8k4,m16n8k8,m16n8k16}.row.col{,.rn,.rz,.rm,.rp}.f64.f64.f64.f64")
    {
        floats(forms, &name, 1);
    }
    for name in
        expand("m8n8k4.{row,col}.{row,col}.{f16.f16.f16.f16,f32.f16.f16.f16,f32.f16.f16.f32}")
    {
        floats(forms, &name, 1);
    }
    for shape in ["m8n8k16", "m16n8k16", "m16n8k32"] {
        let pattern = format!("{shape}.row.col{{,.satfinite}}.s32.{{s8,u8}}.{{s8,u8}}.s32");
        expand(&pattern).iter().for_each(|name| integers(forms, name));
    }
    for shape in ["m8n8k32", "m16n8k32", "m16n8k64"] {
        let pattern = format!("{shape}.row.col{{,.satfinite}}.s32.{{s4,u4}}.{{s4,u4}}.s32");
        expand(&pattern).iter().for_each(|name| integers(forms, name));
    }
    for name in expand("{m8n8k128,m16n8k128,m16n8k256}.row.col.s32.b1.b1.s32.{xor,and}.popc") {
        integers(forms, &name);
    }
}

/// Adds `ldmatrix`, `stmatrix` and `movmatrix`.
fn moves(forms: &mut Forms) {
    let begin = ".shared .align 16 .b8 rows[512];\n.reg .b32 %x, %y;\n.reg .b64 %z;\nmov.u32 %x, rows;\n\
                 shl.b32 %y, %t, 4;\nadd.u32 %y, %x, %y;\n";
    for (count, name) in [(1, "x1"), (2, "x2"), (4, "x4")] {
        for trans in ["", ".trans"] {
            // Lanes name any row. Those of lanes that give no address do not matter.
            let code = format!(
                "{begin}st.shared.v4.b32 [%y], {{%a0, %a1, %a2, %a3}};\nbar.warp.sync -1;\n\
                 and.b32 %y, %a4, 0x1f0;\nadd.u32 %x, %x, %y;\n\
                 ldmatrix.sync.aligned.m8n8.{name}{trans}.shared.b16 {}, [%x];",
                list('d', 0, count)
            );
            forms.code(
                &format!("ldmatrix.sync.aligned.m8n8.{name}{trans}.shared.b16"),
                &code,
                &[U32; 5],
                &vec![U32; count],
            );
            let code = code
                .replace(".shared.b16", ".b16")
                .replace("ldmatrix", "cvt.u64.u32 %z, %x;\ncvta.shared.u64 %z, %z;\nldmatrix");
            forms.code(
                &format!("ldmatrix.sync.aligned.m8n8.{name}{trans}.b16"),
                &code.replace("[%x];", "[%z];"),
                &[U32; 5],
                &vec![U32; count],
            );
            // Lanes name different rows.
            let code = format!(
                "{begin}st.shared.v4.b32 [%y], {{-1, -2, -3, -4}};\nbar.warp.sync -1;\n\
                 mad.lo.u32 %y, %t, 208, 176;\nand.b32 %y, %y, 0x1f0;\nadd.u32 %y, %x, %y;\n\
                 stmatrix.sync.aligned.m8n8.{name}{trans}.shared.b16 [%y], {};\nbar.warp.sync -1;\n\
                 shl.b32 %y, %t, 4;\nadd.u32 %y, %x, %y;\n\
                 ld.shared.v4.b32 {{%d0, %d1, %d2, %d3}}, [%y];",
                list('a', 0, count)
            );
            forms.code(
                &format!("stmatrix.sync.aligned.m8n8.{name}{trans}.shared.b16"),
                &code,
                &vec![U32; count],
                &[U32; 4],
            );
        }
    }
    forms.typed("movmatrix.sync.aligned.m8n8.trans.b16", &[U32], &[U32]);
}

/// Adds a multiplication of floating-point numbers, with this many tiles of each flavor.
fn floats(forms: &mut Forms, name: &str, count: usize) {
    multiply(forms, name, &FLAVORS, count);
}

fn integers(forms: &mut Forms, name: &str) {
    multiply(forms, name, &[Flavor::Near, Flavor::Any, Flavor::Overflow], 1);
}

/// Adds `mma` with these modifiers, and tiles of each flavor.
fn multiply(forms: &mut Forms, modifiers: &str, flavors: &[Flavor], count: usize) {
    let words: Vec<&str> = modifiers.split('.').collect();
    let named = words.iter().filter_map(|word| TYPES.iter().find(|ty| *ty == word));
    let types: Vec<Element> = named.map(|ty| Element(ty)).collect();
    let [d, a, b, c] = types[..] else { panic!("{modifiers} has not four types") };
    let (m, n, k) = extents(words[0]);
    // Four multiplications in one. Their rows of `a` and `c` follow each other, and their columns of `b`.
    let is_quads = words[0] == "m8n8k4" && a.0 == "f16";
    let stack = if is_quads { 4 } else { 1 };
    let product = Product { m: stack * m, n, k, a, b, c };
    let columns = Product { m, n: stack * n, ..product };
    let at = |matrix, lane, index| match is_quads {
        true => {
            let layouts = (words[1] == "row", words[2] == "row");
            place_in_quads(layouts, c.bits() == 32, matrix, lane, index)
        }
        false => place(&product, matrix, lane, index),
    };
    let registers = |elements: usize, its: Element| match its.bits() {
        64 => elements / 32,
        bits => stack * elements * bits as usize / 1024,
    };
    let counts = [registers(m * k, a), registers(k * n, b), registers(m * n, c)];
    let seed = modifiers.bytes().map(u64::from);
    let mut random = Random(seed.fold(7, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte)));
    let mut rows = Vec::new();
    for flavor in flavors {
        for number in 0..count {
            let mut tile = product.tile(*flavor, number, &mut random);
            if is_quads {
                let [_, b, _] = columns.tile(*flavor, number, &mut random);
                tile[1] = b;
            }
            rows.extend(product.rows(&tile, at, counts));
        }
    }
    let kinds = |count| vec![if a.bits() == 64 { U64 } else { U32 }; count];
    let results = registers(m * n, d);
    let [a, b, c] = counts;
    let code = format!(
        "mma.sync.aligned.{modifiers} {}, {}, {}, {};",
        list('d', 0, results),
        list('a', 0, a),
        list('a', a, b),
        list('a', a + b, c)
    );
    let name = format!("mma.sync.aligned.{modifiers}");
    forms.code(&name, &code, &kinds(a + b + c), &kinds(results)).rows = rows;
}

/// Returns the operands or results from a number on.
fn list(letter: char, from: usize, count: usize) -> String {
    let names = (from..from + count).map(|index| format!("%{letter}{index}"));
    format!("{{{}}}", names.collect::<Vec<_>>().join(", "))
}

const TYPES: [&str; 13] =
    ["f16", "bf16", "tf32", "e4m3", "e5m2", "f32", "f64", "s8", "u8", "s4", "u4", "b1", "s32"];

/// Returns the numbers of a shape such as `m16n8k16`.
fn extents(shape: &str) -> (usize, usize, usize) {
    let numbers: Vec<usize> =
        shape[1..].split(['n', 'k']).map(|number| number.parse().expect("a number")).collect();
    (numbers[0], numbers[1], numbers[2])
}
