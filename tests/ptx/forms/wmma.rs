//! Fragments: matrices in registers of a warp whose layout PTX does not state.

use crate::common::random::Random;
use crate::form::Kind::{self, U32, U64};
use crate::form::{Forms, expand};
use crate::tile::{Element, FLAVORS, Flavor, Product};

/// The shapes, each with the types of the factors `a` and `b`, and those of the sums `c` and `d`.
const SHAPES: [(&str, &[&str], &[&str]); 6] = [
    ("m16n16k16", &["f16", "bf16", "s8", "u8"], &["f16", "f32", "s32"]),
    ("m8n32k16", &["f16", "bf16", "s8", "u8"], &["f16", "f32", "s32"]),
    ("m32n8k16", &["f16", "bf16", "s8", "u8"], &["f16", "f32", "s32"]),
    ("m16n16k8", &["tf32"], &["f32"]),
    ("m8n8k4", &["f64"], &["f64"]),
    ("m8n8k32", &["s4", "u4"], &["s32"]),
];
/// The shape of factors of one bit.
const BITS: (&str, &[&str], &[&str]) = ("m8n8k128", &["b1"], &["s32"]);

/// The operands of a thread of 64 bits, in which a warp has a matrix, or the three of a multiplication.
const ONE: usize = 8;
const THREE: usize = 12;

pub(super) fn add(forms: &mut Forms) {
    for (shape, factors, sums) in SHAPES.into_iter().chain([BITS]) {
        for ty in factors {
            // Matrices with elements of less than a byte have one layout.
            let is_small = Element(ty).bits() < 8;
            let a = if is_small { &["row"][..] } else { &["row", "col"] };
            let b = if is_small { &["col"][..] } else { &["row", "col"] };
            a.iter().for_each(|layout| loads(forms, "a", layout, shape, ty));
            b.iter().for_each(|layout| loads(forms, "b", layout, shape, ty));
        }
        for (ty, layout) in sums.iter().flat_map(|ty| [(ty, "row"), (ty, "col")]) {
            loads(forms, "c", layout, shape, ty);
            stores(forms, layout, shape, ty);
        }
    }
    for name in expand("{row,col}.{row,col}.{m16n16k16,m8n32k16,m32n8k16}.{f16,f32}.{f16,f32}") {
        multiply(forms, &name, "f16");
    }
    for ty in ["bf16", "s8", "u8"] {
        let [sum, clamps] = if ty == "bf16" { ["f32", ""] } else { ["s32", "{,.satfinite}"] };
        let shapes = "{m16n16k16,m8n32k16,m32n8k16}";
        let pattern = format!("{{row,col}}.{{row,col}}.{shapes}.{sum}.{ty}.{ty}.{sum}{clamps}");
        expand(&pattern).iter().for_each(|name| multiply(forms, name, ty));
    }
    for name in expand("{row,col}.{row,col}.m16n16k8.f32.tf32.tf32.f32") {
        multiply(forms, &name, "tf32");
    }
    for name in expand("{row,col}.{row,col}.m8n8k4{,.rn,.rz,.rm,.rp}.f64.f64.f64.f64") {
        multiply(forms, &name, "f64");
    }
    for ty in ["s4", "u4"] {
        for name in expand(&format!("row.col.m8n8k32.s32.{ty}.{ty}.s32{{,.satfinite}}")) {
            multiply(forms, &name, ty);
        }
    }
    for operation in ["xor", "and"] {
        let name = format!("row.col.m8n8k128.s32.b1.b1.s32.{operation}.popc");
        multiply(forms, &name, "b1");
    }
    copies(forms);
    rejected(forms);
}

/// Returns the rows and the columns of a matrix of a shape.
fn extents(shape: &str, matrix: &str) -> (usize, usize) {
    let numbers = shape[1..].split(['n', 'k']).map(|number| number.parse().expect("a number"));
    let numbers: Vec<usize> = numbers.collect();
    let [m, n, k] = numbers[..] else { panic!("{shape} has not three extents") };
    match matrix {
        "a" => (m, k),
        "b" => (k, n),
        _ => (m, n),
    }
}

/// Returns the number of registers of a lane. Those of halves are in two copies, or in four.
fn registers(shape: &str, matrix: &str, ty: &'static str) -> usize {
    let (rows, columns) = extents(shape, matrix);
    match Element(ty).bits() {
        16 if ty == "f16" && matrix != "c" => 8,
        64 => rows * columns / 32,
        bits => rows * columns * bits as usize / 1024,
    }
}

fn kind(ty: &str) -> Kind {
    if ty == "f64" { U64 } else { U32 }
}

/// Returns the operands or results from a number on.
fn list(letter: char, from: usize, count: usize) -> String {
    let names = (from..from + count).map(|index| format!("%{letter}{index}"));
    format!("{{{}}}", names.collect::<Vec<_>>().join(", "))
}

/// The bytes that the lanes of a warp have as operands: those of lane 0 are the first.
fn rows(bytes: &[u8], operands: usize) -> Vec<Vec<u64>> {
    let word = |index: usize| {
        let bytes = bytes.get(8 * index..8 * index + 8).map(|bytes| bytes.try_into().expect("8"));
        bytes.map_or(0, u64::from_le_bytes)
    };
    (0..32).map(|lane| (0..operands).map(|at| word(operands * lane + at)).collect()).collect()
}

/// Puts an element into bytes.
fn put(bytes: &mut Vec<u8>, its: Element, index: usize, value: u64) {
    let bits = its.bits() as usize;
    let (at, shift) = (index * bits / 8, index * bits % 8);
    let end = at + bits.div_ceil(8);
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    for (byte, value) in bytes[at..end].iter_mut().zip((value << shift).to_le_bytes()) {
        *byte |= value;
    }
}

/// Code that copies the operands of a warp to shared memory, and that has their address there in `%x`, in generic
/// addresses in `%y` and in global memory in `%z`.
fn begin(operands: usize) -> String {
    let mut code = format!(
        ".shared .align 32 .b8 bytes[{}];\n.reg .b32 %x, %w, %s;\n.reg .b64 %y, %z;\n\
         mov.u32 %x, bytes;\nmad.lo.u32 %w, %t, {}, %x;\n",
        256 * operands,
        8 * operands
    );
    for at in 0..operands {
        code += &format!("st.shared.b64 [%w+{}], %a{at};\n", 8 * at);
    }
    code + &format!(
        "bar.warp.sync -1;\ncvt.u64.u32 %y, %x;\ncvta.shared.u64 %y, %y;\n\
         mul.wide.u32 %z, %t, {};\nsub.u64 %z, %in, %z;\n",
        8 * operands
    )
}

/// Returns the elements of a line in memory, and those with a gap between lines.
fn strides(shape: &str, matrix: &str, layout: &str, ty: &'static str) -> (usize, usize) {
    let (rows, columns) = extents(shape, matrix);
    let line = if layout == "row" { columns } else { rows };
    (line, line + 256usize.div_ceil(Element(ty).bits() as usize).max(8))
}

/// Adds loads of one matrix.
fn loads(forms: &mut Forms, matrix: &str, layout: &str, shape: &str, ty: &'static str) {
    let its = Element(ty);
    let (line, gap) = strides(shape, matrix, layout, ty);
    let mut random = Random(shape.len() as u64 + 7);
    // Two tiles tell all elements of 8 bits apart.
    let elements = 2048 * 8 / its.bits() as usize;
    let tile = |tile: usize, random: &mut Random| {
        let mut bytes = Vec::new();
        for index in 0..elements {
            let value = match its.bits() {
                1 | 4 => random.next() & ((1 << its.bits()) - 1),
                8 => (index >> (4 * tile)) as u64 & 0xff,
                16 => (index | tile << 12) as u64,
                32 => (index as u64) * 0x1_0001 + tile as u64,
                _ => (index as u64) * 0x0001_0001_0001_0001,
            };
            put(&mut bytes, its, index, value);
        }
        rows(&bytes, ONE)
    };
    let tiles: Vec<_> = [0, 1].map(|number| tile(number, &mut random)).concat();
    let count = registers(shape, matrix, ty);
    for (space, address, stride) in [
        ("", "%y", None),
        ("", "%z", Some(gap)),
        (".shared", "%x", Some(gap)),
        (".global", "%z", None),
    ] {
        let name = format!("wmma.load.{matrix}.sync.aligned.{layout}.{shape}{space}.{ty}");
        let last = if stride.is_some() { ", %s" } else { "" };
        let code = format!(
            "{}mov.b32 %s, {};\n{name} {}, [{address}]{last};",
            begin(ONE),
            stride.unwrap_or(line),
            list('d', 0, count)
        );
        let remark = if stride.is_some() { " with a gap" } else { "" };
        let name = format!("{name}{remark}");
        forms.code(&name, &code, &[U64; ONE], &vec![kind(ty); count]).rows = tiles.clone();
    }
}

/// Adds stores of one matrix.
fn stores(forms: &mut Forms, layout: &str, shape: &str, ty: &'static str) {
    let (line, gap) = strides(shape, "c", layout, ty);
    let count = registers(shape, "c", ty);
    let operand = |lane: usize, index: usize| {
        let number = (32 * index + lane) as u64;
        match ty {
            // Two numbers.
            "f16" => number | (number + 0x1000) << 16,
            "f64" => number * 0x0001_0001_0001_0001,
            _ => number * 0x1_0001,
        }
    };
    let lane = |lane| (0..count).map(|index| operand(lane, index)).collect::<Vec<_>>();
    let operands: Vec<_> = (0..32).map(lane).collect();
    let mut before = String::from(
        ".shared .align 32 .b8 bytes[2048];\n.reg .b32 %x, %w, %s;\n.reg .b64 %y;\n\
         mov.u32 %x, bytes;\nmad.lo.u32 %w, %t, 64, %x;\n",
    );
    let mut after = String::from("bar.warp.sync -1;\n");
    for at in 0..ONE {
        before += &format!("st.shared.b64 [%w+{}], -1;\n", 8 * at);
        after += &format!("ld.shared.b64 %d{at}, [%w+{}];\n", 8 * at);
    }
    before += "bar.warp.sync -1;\ncvt.u64.u32 %y, %x;\ncvta.shared.u64 %y, %y;\n";
    for (space, address, stride) in [("", "%y", None), (".shared", "%x", Some(gap))] {
        let name = format!("wmma.store.d.sync.aligned.{layout}.{shape}{space}.{ty}");
        let last = if stride.is_some() { ", %s" } else { "" };
        let code = format!(
            "{before}mov.b32 %s, {};\n{name} [{address}], {}{last};\n{after}",
            stride.unwrap_or(line),
            list('a', 0, count)
        );
        forms.code(&name, &code, &vec![kind(ty); count], &[U64; ONE]).rows = operands.clone();
    }
}

/// Adds a multiplication with these modifiers, whose factors have the type `factor`.
fn multiply(forms: &mut Forms, modifiers: &str, factor: &'static str) {
    let words: Vec<&str> = modifiers.split('.').collect();
    let (layouts, shape) = ([words[0], words[1]], words[2]);
    let sums = words.iter().filter_map(|word| SUMS.iter().find(|ty| *ty == word));
    let sums: Vec<&'static str> = sums.copied().collect();
    let [d, c] = if factor == "f64" { ["f64"; 2] } else { [sums[0], sums[sums.len() - 1]] };
    let (m, k) = extents(shape, "a");
    let n = extents(shape, "b").1;
    let product = Product { m, n, k, a: Element(factor), b: Element(factor), c: Element(c) };
    let is_float = factor.contains('f');
    let flavors = match (is_float, layouts) {
        (true, ["row", "col"]) => &FLAVORS[..],
        (true, _) => &[Flavor::Near, Flavor::Align],
        _ => &[Flavor::Near, Flavor::Any, Flavor::Overflow],
    };
    let seed = modifiers.bytes().map(u64::from);
    let mut random = Random(seed.fold(7, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte)));
    let mut operands = Vec::new();
    for flavor in flavors {
        let [a, b, sum] = product.tile(*flavor, 0, &mut random);
        let mut bytes = Vec::new();
        // The first element of each matrix is at a multiple of 1024 bytes.
        let first = |matrix: usize, its: Element| 8 * 1024 * matrix / its.bits() as usize;
        for (index, value) in a.iter().enumerate() {
            let (line, place) = (index / k, index % k);
            let at = if layouts[0] == "row" { index } else { m * place + line };
            put(&mut bytes, product.a, at, *value);
        }
        for (index, value) in b.iter().enumerate() {
            let (line, place) = (index / k, index % k);
            let at = if layouts[1] == "col" { index } else { n * place + line };
            put(&mut bytes, product.b, first(1, product.b) + at, *value);
        }
        for (index, value) in sum.iter().enumerate() {
            put(&mut bytes, product.c, first(2, product.c) + index, *value);
        }
        operands.extend(rows(&bytes, THREE));
    }
    let mut code =
        begin(THREE) + ".reg .b32 %fa<8>, %fb<8>, %fc<8>;\n.reg .b64 %ga<2>, %gb<2>, %gc<2>;\n";
    let mut fragments = Vec::new();
    for (offset, matrix, layout, ty) in
        [(0, "a", layouts[0], factor), (1024, "b", layouts[1], factor), (2048, "c", "row", c)]
    {
        let letter = if kind(ty) == U64 { 'g' } else { 'f' };
        let names = (0..registers(shape, matrix, ty)).map(|at| format!("%{letter}{matrix}{at}"));
        let names = format!("{{{}}}", names.collect::<Vec<_>>().join(", "));
        code += &format!(
            "wmma.load.{matrix}.sync.aligned.{layout}.{shape}.shared.{ty} {names}, [%x+{offset}];\n"
        );
        fragments.push(names);
    }
    let count = registers(shape, "c", d);
    let name = format!("wmma.mma.sync.aligned.{modifiers}");
    code += &format!("{name} {}, {};", list('d', 0, count), fragments.join(", "));
    forms.code(&name, &code, &[U64; THREE], &vec![kind(d); count]).rows = operands;
}

/// Adds multiplications of halves whose copies in registers differ.
fn copies(forms: &mut Forms) {
    for shape in ["m16n16k16", "m8n32k16", "m32n8k16"] {
        let name = format!("wmma.mma.sync.aligned.row.col.{shape}.f32.f32");
        let code = format!(
            "{name} {}, {}, {}, {};",
            list('d', 0, 8),
            list('a', 0, 8),
            list('a', 8, 8),
            list('a', 16, 8)
        );
        let mut random = Random(19);
        // Halves from 1 to 2, and singles from 1 to 2.
        let mut half = || random.next() & 0x03ff_03ff | 0x3c00_3c00;
        let mut row = || (0..24).map(|at| if at < 16 { half() } else { 0x3f80_0000 }).collect();
        let operands = (0..32).map(|_| row()).collect();
        let name = format!("{name} of registers");
        forms.code(&name, &code, &[U32; 24], &[U32; 8]).rows = operands;
    }
}

/// Adds instructions that the compiler rejects.
fn rejected(forms: &mut Forms) {
    let eight = list('d', 0, 8);
    for name in [
        "wmma.load.a.sync.aligned.row.m16n16k16.shared::cluster.f16",
        "wmma.load.a.sync.aligned.row.m16n16k16.local.f16",
        "wmma.load.a.sync.aligned.m16n16k16.f16",
        "wmma.load.a.sync.row.m16n16k16.f16",
        "wmma.load.a.sync.aligned.row.m16n16k8.f16",
        "wmma.load.d.sync.aligned.row.m16n16k16.f32",
        "wmma.load.c.sync.aligned.row.m16n16k8.s32",
    ] {
        forms.code(name, &format!("{name} {eight}, [%in];"), &[U32; 4], &[U32; 8]);
    }
    for (name, code) in [
        ("wmma.load.a.sync.aligned.col.m8n8k32.s4", "{%d0}, [%in];"),
        ("wmma.load.b.sync.aligned.row.m8n8k128.b1", "{%d0}, [%in];"),
        ("wmma.store.c.sync.aligned.row.m16n16k16.f16", "[%in], {%a0, %a1, %a2, %a3};"),
        ("wmma.store.d.sync.aligned.row.m16n16k16.s8", "[%in], {%a0, %a1, %a2, %a3};"),
        (
            "wmma.mma.sync.aligned.row.col.m8n8k4.rn.f64.f64.f64",
            "{%d0, %d1}, {%a0}, {%a1}, {%a2, %a3};",
        ),
        (
            "wmma.mma.sync.aligned.row.row.m8n8k32.s32.s4.s4.s32",
            "{%d0, %d1}, {%a0}, {%a1}, {%a2, %a3};",
        ),
        (
            "wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.u4.s32",
            "{%d0, %d1}, {%a0}, {%a1}, {%a2, %a3};",
        ),
        (
            "wmma.mma.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32",
            "{%d0, %d1}, {%a0}, {%a1}, {%a2, %a3};",
        ),
        (
            "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32.satfinite",
            "{%d0, %d1, %d2, %d3, %d4, %d5, %d6, %d7}, {%d0, %d1, %d2, %d3, %d4, %d5, %d6, %d7}, \
             {%d0, %d1, %d2, %d3, %d4, %d5, %d6, %d7}, {%d0, %d1, %d2, %d3, %d4, %d5, %d6, %d7};",
        ),
        (
            "wmma.mma.sync.aligned.row.col.m16n16k16.f32.bf16.f16.f32",
            "{%d0, %d1, %d2, %d3, %d4, %d5, %d6, %d7}, {%d0, %d1, %d2, %d3}, {%d0, %d1, %d2, %d3}, \
             {%d0, %d1, %d2, %d3, %d4, %d5, %d6, %d7};",
        ),
    ] {
        forms.code(name, &format!("{name} {code}"), &[U32; 4], &[U32; 8]);
    }
}

const SUMS: [&str; 3] = ["f16", "f32", "s32"];
