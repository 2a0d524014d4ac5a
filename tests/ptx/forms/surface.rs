//! Accesses of surfaces.

use crate::common::random::Random;
use crate::form::Forms;
use crate::form::Kind::{self, U8, U16, U32, U64};
use crate::object::{Number, Object, Shape};

pub(super) fn add(forms: &mut Forms) {
    loads(forms);
    stores(forms);
    reductions(forms);
    queries(forms);
}

fn kind(bytes: usize) -> Kind {
    match bytes {
        1 => U8,
        2 => U16,
        4 => U32,
        _ => U64,
    }
}

/// Returns an index along an axis, inside or outside, as a multiple of `step`.
fn index(len: usize, step: usize, random: &mut Random) -> u64 {
    let (len, far) = ((len / step) as i64, i64::from(i32::MAX) / step as i64);
    let edges = [-1, -2, len, len + 1, len - 1, 0, far, -far, 100_000, -100_000];
    let index = match random.below(3) {
        0 => edges[random.below(edges.len())],
        _ => random.below(len as usize) as i64,
    };
    u64::from((index * step as i64) as u32)
}

fn list(letter: char, from: usize, count: usize) -> String {
    (from..from + count).map(|i| format!("%{letter}{i}")).collect::<Vec<_>>().join(", ")
}

/// The geometries: the shape, the coordinates, and the extent.
const GEOMETRIES: [(&str, Shape, &str, [usize; 3]); 5] = [
    ("1d", Shape::OneD, "%a0", [5, 0, 0]),
    ("2d", Shape::TwoD, "%a0, %a1", [5, 4, 0]),
    ("3d", Shape::ThreeD, "%a0, %a1, %a2, %a2", [5, 4, 3]),
    ("a1d", Shape::OneDLayered, "%a1, %a0", [5, 0, 3]),
    ("a2d", Shape::TwoDLayered, "%a2, %a0, %a1, %a1", [5, 4, 3]),
];

fn vectors() -> impl Iterator<Item = (usize, usize)> {
    let all = [1, 2, 4, 8].into_iter().flat_map(|bytes| [1, 2, 4].map(|count| (bytes, count)));
    all.filter(|(bytes, count)| bytes * count <= 16)
}

fn loads(forms: &mut Forms) {
    for (geometry, shape, coordinates, extent) in GEOMETRIES {
        let object = Object::surface(shape, extent, Number::U32, 4);
        let axes: Vec<usize> = extent.into_iter().filter(|extent| *extent != 0).collect();
        for (bytes, count) in vectors() {
            if geometry != "2d" && count != 1 {
                continue;
            }
            for mode in ["clamp", "zero", "trap"] {
                let step = bytes * count;
                let mut random = Random(step as u64);
                let row = |_| {
                    let mut row = vec![index(16 * axes[0], step, &mut random)];
                    row.extend(axes[1..].iter().map(|len| index(*len, 1, &mut random)));
                    row
                };
                let rows: Vec<Vec<u64>> = (0..256).map(row).collect();
                let rows: Vec<_> = match mode {
                    "trap" => {
                        let is_in = |row: &&Vec<u64>| {
                            let mut limits = axes.clone();
                            limits[0] *= 16;
                            row.iter().zip(&limits).all(|(at, limit)| *at < *limit as u64)
                        };
                        let mut rows: Vec<_> = rows.iter().filter(is_in).cloned().collect();
                        rows.truncate(rows.len() / 32 * 32);
                        rows
                    }
                    _ => rows,
                };
                let vector = if count == 1 { String::new() } else { format!(".v{count}") };
                let name = format!("suld.b.{geometry}{vector}.b{}.{mode}", 8 * bytes);
                let results = list('d', 0, count);
                let code = format!("{name} {{{results}}}, [%object, {{{coordinates}}}];");
                let kinds = vec![U32; axes.len()];
                forms.code(&name, &code, &kinds, &vec![kind(bytes); count]).object(&object, &rows);
            }
        }
    }
    // Narrow texels.
    for (number, channels) in [(Number::U8, 1), (Number::U16, 1), (Number::U8, 4), (Number::F16, 2)]
    {
        let object = Object::surface(Shape::TwoD, [9, 4, 0], number, channels);
        let step = object.texel();
        for mode in ["clamp", "zero"] {
            let mut random = Random(9);
            let rows: Vec<_> = (0..128)
                .map(|_| vec![index(9 * step, step, &mut random), index(4, 1, &mut random)])
                .collect();
            let name = format!("suld.b.2d.b{}.{mode}", 8 * step);
            let code = format!("{name} {{%d0}}, [%object, {{%a0, %a1}}];");
            let name = format!("{name} {number:?} x{channels}");
            forms.code(&name, &code, &[U32; 2], &[kind(step)]).object(&object, &rows);
        }
    }
}

/// The index of the thread in the grid, which is the row that it writes.
const THREAD: &str =
    ".reg .b32 %w;\nmov.u32 %w, %ctaid.x;\nshl.b32 %w, %w, 5;\nadd.u32 %w, %w, %t;\n";

/// Adds stores. Each thread writes in a row of its own, or in a column.
fn stores(forms: &mut Forms) {
    let mut random = Random(3);
    let values =
        |count: usize, random: &mut Random| (0..count).map(|_| random.next()).collect::<Vec<u64>>();
    for (bytes, count) in vectors() {
        for mode in ["clamp", "zero"] {
            let step = bytes * count;
            let object = Object::surface(Shape::TwoD, [3, 64, 0], Number::U32, 4);
            let mut rows = Vec::new();
            for _ in 0..64 {
                let mut row = vec![index(48, step, &mut random)];
                row.extend(values(count, &mut random).iter().map(|its| its & mask(bytes)));
                rows.push(row);
            }
            let vector = if count == 1 { String::new() } else { format!(".v{count}") };
            let name = format!("sust.b.2d{vector}.b{}.{mode}", 8 * bytes);
            let operands = list('a', 1, count);
            let code =
                format!("{THREAD}{name} [%object, {{%a0, %w}}], {{{operands}}};\nmov.b32 %d0, 0;");
            let mut kinds = vec![U32];
            kinds.extend(vec![kind(bytes); count]);
            forms.code(&name, &code, &kinds, &[U32]).object(&object, &rows);
        }
    }
    // Each thread writes in a column of its own.
    for (geometry, shape, coordinates, extent, axes) in [
        ("1d", Shape::OneD, "%x", [64, 0, 0], 0),
        ("2d", Shape::TwoD, "%x, %a1", [64, 3, 0], 1),
        ("3d", Shape::ThreeD, "%x, %a1, %a2, %a2", [64, 3, 2], 2),
        ("a1d", Shape::OneDLayered, "%a1, %x", [64, 0, 3], 1),
        ("a2d", Shape::TwoDLayered, "%a2, %x, %a1, %a1", [64, 3, 2], 2),
    ] {
        for mode in ["clamp", "zero", "trap"] {
            let object = Object::surface(shape, extent, Number::U32, 1);
            let lens: Vec<usize> = extent[1..].iter().copied().filter(|len| *len != 0).collect();
            let mut rows = Vec::new();
            for _ in 0..64 {
                let mut row = values(1, &mut random);
                row[0] &= 0xffff_ffff;
                row.extend(lens.iter().map(|len| match mode {
                    "trap" => random.below(*len) as u64,
                    _ => index(*len, 1, &mut random),
                }));
                rows.push(row);
            }
            let name = format!("sust.b.{geometry}.b32.{mode}");
            let code = format!(
                "{THREAD}.reg .b32 %x;\nshl.b32 %x, %w, 2;\n\
                 {name} [%object, {{{coordinates}}}], {{%a0}};\nmov.b32 %d0, 0;"
            );
            let kinds = vec![U32; 1 + axes];
            forms.code(&format!("{name} of columns"), &code, &kinds, &[U32]).object(&object, &rows);
        }
    }
    formatted(forms);
}

fn mask(bytes: usize) -> u64 {
    u64::MAX >> (64 - 8 * bytes)
}

/// Adds stores that convert to the format of the surface.
fn formatted(forms: &mut Forms) {
    let floats = [
        0.0,
        1.0,
        -1.0,
        0.5,
        1.5,
        -0.0,
        0.3,
        1e-3,
        65504.0,
        65520.0,
        1e10,
        -2.5,
        0.999,
        1e-8,
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        0.501_960_8,
        0.001_960_8,
        -0.25,
        254.5 / 255.0,
    ];
    for (number, channels) in [
        (Number::U8, 1),
        (Number::U8, 4),
        (Number::S8, 2),
        (Number::U16, 2),
        (Number::S16, 1),
        (Number::U32, 2),
        (Number::S32, 1),
        (Number::F16, 4),
        (Number::F32, 2),
        (Number::Unorm8, 4),
        (Number::Snorm8, 2),
        (Number::Unorm16, 1),
        (Number::Snorm16, 4),
    ] {
        let is_integer = matches!(
            number,
            Number::U8 | Number::S8 | Number::U16 | Number::S16 | Number::U32 | Number::S32
        );
        let object = Object::surface(Shape::TwoD, [4, 128, 0], number, channels);
        let mut random = Random(channels as u64);
        let mut value = || match (is_integer, random.below(2)) {
            (true, 0) => random.next() >> random.below(32) & 0xffff_ffff,
            (true, _) => (random.below(600) as u64).wrapping_sub(300) & 0xffff_ffff,
            (false, 0) => u64::from(floats[random.below(floats.len())].to_bits()),
            (false, _) => {
                let at = random.below(1 << 20) as f32 / (1 << 20) as f32;
                u64::from((at * 2.5 - 1.25).to_bits())
            }
        };
        for mode in ["clamp", "zero"] {
            for count in [1, 4] {
                let mut places = Random(4);
                let rows: Vec<Vec<u64>> = (0..128)
                    .map(|_| {
                        let mut row = vec![index(4, 1, &mut places)];
                        row.extend((0..count).map(|_| value()));
                        row
                    })
                    .collect();
                let vector = if count == 1 { "" } else { ".v4" };
                let name = format!("sust.p.2d{vector}.b32.{mode}");
                let operands = list('a', 1, count);
                let code = format!(
                    "{THREAD}{name} [%object, {{%a0, %w}}], {{{operands}}};\nmov.b32 %d0, 0;"
                );
                let name = format!("{name} {number:?} x{channels}");
                forms.code(&name, &code, &vec![U32; 1 + count], &[U32]).object(&object, &rows);
            }
        }
    }
}

/// Adds reductions, whose order does not matter.
fn reductions(forms: &mut Forms) {
    for (operation, ty, number, channels) in [
        ("add", "u32", Number::U32, 1),
        ("add", "s32", Number::S32, 1),
        ("add", "u64", Number::U32, 2),
        ("min", "u32", Number::U32, 1),
        ("min", "s32", Number::S32, 1),
        ("max", "u32", Number::U32, 1),
        ("max", "s32", Number::S32, 1),
        ("min", "s64", Number::U32, 2),
        ("max", "u64", Number::U32, 2),
        ("and", "b32", Number::U32, 1),
        ("or", "b32", Number::U32, 1),
    ] {
        for (way, mode) in [("b", "clamp"), ("b", "zero"), ("p", "zero")] {
            let bytes = 4 * channels;
            if way == "p" && bytes == 8 {
                continue;
            }
            let object = Object::surface(Shape::TwoD, [5, 4, 0], number, channels);
            let step = if way == "b" { bytes } else { 1 };
            let mut random = Random(bytes as u64);
            let rows: Vec<_> = (0..128)
                .map(|_| {
                    let at = [index(5 * step, step, &mut random), index(4, 1, &mut random)];
                    vec![at[0], at[1], random.next() & mask(bytes)]
                })
                .collect();
            let shown = if way == "b" { ty } else { "b32" };
            let name = format!("sured.{way}.{operation}.2d.{shown}.{mode}");
            let code = format!("{name} [%object, {{%a0, %a1}}], %a2;\nmov.b32 %d0, 0;");
            let name = format!("{name} {number:?}");
            forms.code(&name, &code, &[U32, U32, kind(bytes)], &[U32]).object(&object, &rows);
        }
    }
    // Of a texel with several channels, the first one is changed.
    for channels in [2, 4] {
        let object = Object::surface(Shape::TwoD, [5, 4, 0], Number::U32, channels);
        for operation in ["add", "min", "and"] {
            let mut random = Random(channels as u64);
            let rows: Vec<_> = (0..128)
                .map(|_| {
                    let at = [index(5, 1, &mut random), index(4, 1, &mut random)];
                    vec![at[0], at[1], random.next() & 0xffff_ffff]
                })
                .collect();
            let name = format!("sured.p.{operation}.2d.b32.zero");
            let code = format!("{name} [%object, {{%a0, %a1}}], %a2;\nmov.b32 %d0, 0;");
            let name = format!("{name} U32 x{channels}");
            forms.code(&name, &code, &[U32; 3], &[U32]).object(&object, &rows);
        }
    }
    for (geometry, shape, coordinates, extent) in &GEOMETRIES[..3] {
        let object = Object::surface(*shape, *extent, Number::U32, 1);
        let axes: Vec<usize> = extent.iter().copied().filter(|extent| *extent != 0).collect();
        let mut random = Random(axes.len() as u64);
        let rows: Vec<Vec<u64>> = (0..128)
            .map(|_| {
                let mut row = vec![4 * random.below(axes[0]) as u64];
                row.extend(axes[1..].iter().map(|len| random.below(*len) as u64));
                row.resize(3, 0);
                row.push(random.next() & 0xffff_ffff);
                row
            })
            .collect();
        let name = format!("sured.b.add.{geometry}.u32.trap");
        let code = format!("{name} [%object, {{{coordinates}}}], %a3;\nmov.b32 %d0, 0;");
        forms.code(&name, &code, &[U32; 4], &[U32]).object(&object, &rows);
    }
}

fn queries(forms: &mut Forms) {
    let mut add = |query: &str, name: &str, object: &Object| {
        let code = format!("suq.{query}.b32 %d0, [%object];");
        let rows = vec![vec![0]; 32];
        forms.code(&format!("suq.{query} {name}"), &code, &[U32], &[U32]).object(object, &rows);
    };
    for (geometry, shape, _, extent) in GEOMETRIES {
        let object = Object::surface(shape, extent, Number::U16, 2);
        for query in ["width", "height", "depth"] {
            add(query, geometry, &object);
        }
    }
    let object = Object::surface(Shape::TwoD, [20, 12, 0], Number::U8, 4);
    for query in ["channel_data_type", "channel_order", "array_size", "memory_layout"] {
        add(query, "2d", &object);
    }
}
