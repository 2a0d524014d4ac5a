//! Reads of textures.

use crate::common::random::Random;
use crate::form::Kind::{self, F16, F16x2, F32, Pred, S32, U32};
use crate::form::{Bound, Forms};
use crate::object::{
    Content, INTEGERS, NORMALIZED, Number, Object, SEAMLESS, SRGB, Sampler, Shape,
};

pub(super) fn add(forms: &mut Forms) {
    filters(forms);
    weights(forms);
    layers(forms);
    cubemaps(forms);
    formats(forms);
    fetches(forms);
    levels(forms);
    gradients(forms);
    gathers(forms);
    variants(forms);
    queries(forms);
}

const MODES: [&str; 4] = ["wrap", "clamp", "mirror", "border"];
const FILTERS: [&str; 2] = ["point", "linear"];

/// The bits of a number.
fn bits(value: f32) -> u64 {
    u64::from(value.to_bits())
}

/// Numbers that no coordinate is.
const SPECIAL: [f32; 14] = [
    f32::NAN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    -0.0,
    1e-40,
    -1e-40,
    1e9,
    -1e9,
    3e20,
    -3e38,
    8_388_609.0,
    -16_777_218.0,
    65_536.5,
    -32_768.5,
];

/// Offsets from the edge of a texel: halves and neighbours of steps of 1/256.
const PARTS: [f32; 18] = [
    0.0,
    0.5,
    0.25,
    1.0 / 1024.0,
    1.0 / 512.0,
    3.0 / 1024.0,
    1.0 / 256.0,
    0.5 - 1.0 / 512.0,
    0.5 - 1.0 / 1024.0,
    0.5 + 1.0 / 1024.0,
    0.5 + 1.0 / 512.0,
    0.75,
    1.0 - 1.0 / 256.0,
    1.0 - 1.0 / 512.0,
    1.0 - 1.0 / 1024.0,
    1.0 - 1.0 / 16384.0,
    1.0 / 16384.0,
    0.3,
];

/// Returns the number above, or below.
fn next(number: f32, by: i32) -> f32 {
    match (number.to_bits(), by) {
        (0, by) => f32::from_bits(1) * by as f32,
        (bits, by) if number > 0.0 => f32::from_bits(bits.wrapping_add_signed(by)),
        (bits, by) => f32::from_bits(bits.wrapping_add_signed(-by)),
    }
}

/// Returns coordinates along an axis of `len` texels, inside and outside.
fn along(len: usize, is_normalized: bool) -> Vec<f32> {
    let mut list = Vec::new();
    for texel in -2..=len as i32 + 1 {
        list.extend(PARTS.iter().map(|part| texel as f32 + part));
        let edge = texel as f32;
        list.extend([next(edge, 1), next(edge, -1), next(edge + 0.5, -1)]);
    }
    let mut random = Random(len as u64);
    for _ in 0..48 {
        let at = random.below(1 << 24) as f32 / (1 << 24) as f32;
        list.push((at * 5.0 - 2.0) * len as f32);
    }
    if is_normalized {
        list.iter_mut().for_each(|at| *at /= len as f32);
    }
    list.extend(SPECIAL);
    list
}

/// Returns `count` rows of coordinates along several axes.
fn points(extent: &[usize], is_normalized: bool, count: usize) -> Vec<Vec<u64>> {
    let lists: Vec<_> = extent.iter().map(|len| along(*len, is_normalized)).collect();
    if let [list] = &lists[..] {
        let mut rows: Vec<_> = list.iter().map(|at| vec![bits(*at)]).collect();
        let padded = rows.len().next_multiple_of(32);
        rows.resize(padded, vec![bits(0.5)]);
        return rows;
    }
    let mut random = Random(count as u64);
    let one = |list: &Vec<f32>, random: &mut Random| bits(list[random.below(list.len())]);
    let row = |_| lists.iter().map(|list| one(list, &mut random)).collect();
    (0..count).map(row).collect()
}

fn flags(is_normalized: bool) -> u32 {
    if is_normalized { NORMALIZED } else { 0 }
}

/// Returns a texture of random numbers of f32 with one channel.
fn floats(shape: Shape, extent: [usize; 3], sampler: Sampler) -> Object {
    Object::texture(shape, extent, Number::F32, 1, sampler)
}

/// Adds a form whose results are the four channels.
fn read(
    forms: &mut Forms,
    name: &str,
    remark: &str,
    coordinates: &str,
    operands: &[Kind],
    (object, rows): (&Object, &[Vec<u64>]),
) {
    let ty = if name.contains(".f32.") { F32 } else { U32 };
    let code = format!("{name} {{%d0, %d1, %d2, %d3}}, [%object, {{{coordinates}}}];");
    forms.code(&format!("{name} {remark}"), &code, operands, &[ty; 4]).object(object, rows);
}

/// The instruction, the shape, the coordinates, and the extent of a plain geometry.
const PLAIN: [(&str, Shape, &str, [usize; 3]); 3] = [
    ("tex.1d.v4.f32.f32", Shape::OneD, "%a0", [5, 0, 0]),
    ("tex.2d.v4.f32.f32", Shape::TwoD, "%a0, %a1", [5, 4, 0]),
    ("tex.3d.v4.f32.f32", Shape::ThreeD, "%a0, %a1, %a2, %a2", [4, 3, 5]),
];

/// Adds each address mode with each filter.
fn filters(forms: &mut Forms) {
    for (axes, (name, shape, coordinates, extent)) in (1..).zip(PLAIN) {
        for (mode, mode_name) in (0..).zip(MODES) {
            for (filter, filter_name) in FILTERS.iter().enumerate() {
                for is_normalized in [false, true] {
                    // The mode of a volume is tried in one of the two.
                    if axes == 3 && is_normalized != (mode % 2 == 0) {
                        continue;
                    }
                    let sampler = Sampler {
                        modes: [mode; 3],
                        is_linear: filter == 1,
                        flags: flags(is_normalized),
                        ..Sampler::default()
                    };
                    let object = floats(shape, extent, sampler);
                    let rows = points(&extent[..axes], is_normalized, 512);
                    let remark = if is_normalized { " normalized" } else { "" };
                    let remark = format!("{filter_name} {mode_name}{remark}");
                    let kinds = vec![F32; axes];
                    read(forms, name, &remark, coordinates, &kinds, (&object, &rows));
                }
            }
        }
    }
    let (name, shape, coordinates, extent) = PLAIN[1];
    for (remark, modes) in [("wrap mirror", [0, 2, 1]), ("border clamp", [3, 1, 1])] {
        let sampler = Sampler { modes, is_linear: true, flags: NORMALIZED, ..Sampler::default() };
        let object = floats(shape, extent, sampler);
        let rows = points(&extent[..2], true, 512);
        read(forms, name, remark, coordinates, &[F32; 2], (&object, &rows));
    }
    let sampler = Sampler { is_linear: true, ..Sampler::default() };
    for (remark, sampler) in [("pitched linear", sampler), ("pitched", Sampler::default())] {
        let object = floats(Shape::Pitched, [5, 4, 0], sampler);
        let rows = points(&[5, 4], false, 512);
        read(forms, name, remark, coordinates, &[F32; 2], (&object, &rows));
    }
}

/// Adds reads of 0 and 1 in turn, whose results are the weights, and reads of long lines.
fn weights(forms: &mut Forms) {
    let name = "tex.1d.v4.f32.f32";
    for (remark, len, is_normalized) in
        [("weights", 8, false), ("weights normalized", 8, true), ("weights of 7", 7, true)]
    {
        let flags = flags(is_normalized);
        let sampler = Sampler { is_linear: true, flags, ..Sampler::default() };
        let mut object = floats(Shape::OneD, [len, 0, 0], sampler);
        object.content = Content::Checkered;
        let at = |step: u16| 2.5 + f32::from(step) / 1024.0;
        let scale = if is_normalized { len as f32 } else { 1.0 };
        let rows: Vec<_> = (0..1024).map(|step| vec![bits(at(step) / scale)]).collect();
        read(forms, name, remark, "%a0", &[F32], (&object, &rows));
    }
    for (remark, is_linear) in [("of 4093", false), ("of 4093 linear", true)] {
        let sampler = Sampler { is_linear, flags: NORMALIZED, ..Sampler::default() };
        let object = floats(Shape::OneD, [4093, 0, 0], sampler);
        let mut random = Random(4093);
        let mut at = |step: usize| {
            let texel = random.below(4093) as f32 + PARTS[step % PARTS.len()];
            vec![bits(texel / 4093.0)]
        };
        let rows: Vec<_> = (0..1024).map(&mut at).collect();
        read(forms, name, remark, "%a0", &[F32], (&object, &rows));
    }
    let sampler = Sampler { is_linear: true, ..Sampler::default() };
    let mut object = floats(Shape::TwoD, [8, 8, 0], sampler);
    object.content = Content::Checkered;
    let mut random = Random(64);
    let mut at = || bits(2.5 + random.below(1024) as f32 / 512.0);
    let rows: Vec<_> = (0..512).map(|_| vec![at(), at()]).collect();
    read(forms, "tex.2d.v4.f32.f32", "weights", "%a0, %a1", &[F32; 2], (&object, &rows));
    // Infinities and NaN of texels with weights of zero.
}

/// Numbers of layers that exist, and of others.
const LAYERS: [u32; 12] =
    [0, 1, 2, 3, 4, 100, 65_535, 65_536, u32::MAX, u32::MAX - 1, 1 << 31, (1 << 31) - 1];

fn layered(extent: &[usize], is_normalized: bool, count: usize, layers: usize) -> Vec<Vec<u64>> {
    let mut random = Random(layers as u64);
    let mut rows = match extent {
        [] => vec![Vec::new(); count],
        extent => points(extent, is_normalized, count),
    };
    for row in &mut rows {
        let layer = match random.below(3) {
            0 => LAYERS[random.below(LAYERS.len())],
            _ => random.below(layers) as u32,
        };
        row.insert(0, u64::from(layer));
    }
    rows
}

fn layers(forms: &mut Forms) {
    for (filter, filter_name) in FILTERS.iter().enumerate() {
        for (mode, is_normalized) in [(1, false), (3, true)] {
            let sampler = Sampler {
                modes: [mode; 3],
                is_linear: filter == 1,
                flags: flags(is_normalized),
                ..Sampler::default()
            };
            let remark = format!("{filter_name} {}", MODES[mode as usize]);
            let lines = floats(Shape::OneDLayered, [5, 0, 3], sampler);
            let rows = layered(&[5], is_normalized, 256, 3);
            let name = "tex.a1d.v4.f32.f32";
            read(forms, name, &remark, "%a0, %a1", &[U32, F32], (&lines, &rows));
            let planes = floats(Shape::TwoDLayered, [5, 4, 3], sampler);
            let rows = layered(&[5, 4], is_normalized, 256, 3);
            let name = "tex.a2d.v4.f32.f32";
            let kinds = [U32, F32, F32];
            read(forms, name, &remark, "%a0, %a1, %a2, %a2", &kinds, (&planes, &rows));
        }
    }
}

/// Returns directions: toward faces, edges and corners of a cube, and others.
fn directions(count: usize) -> Vec<Vec<u64>> {
    let few = [1.0, -1.0, 0.0, 0.5, -0.5, -0.0, 2.0, next(1.0, -1), 0.25, 1e20, 1e-20];
    let mut random = Random(6);
    let one = |random: &mut Random| (random.below(1 << 24) as f32 / (1 << 23) as f32) - 1.0;
    let mut rows = Vec::new();
    while rows.len() < count {
        let row: [f32; 3] = std::array::from_fn(|_| match rows.len() % 3 {
            0 => few[random.below(few.len())],
            1 if random.below(20) == 0 => SPECIAL[random.below(SPECIAL.len())],
            _ => one(&mut random),
        });
        rows.push(row.map(bits).to_vec());
    }
    rows
}

fn cubemaps(forms: &mut Forms) {
    for (filter, filter_name) in FILTERS.iter().enumerate() {
        for (remark, mode, more) in
            [("clamp", 1, 0), ("border", 3, 0), ("wrap", 0, 0), ("clamp seamless", 1, SEAMLESS)]
        {
            let sampler = Sampler {
                modes: [mode; 3],
                is_linear: filter == 1,
                flags: NORMALIZED | more,
                ..Sampler::default()
            };
            let remark = format!("{filter_name} {remark}");
            let object = floats(Shape::Cubemap, [4, 4, 6], sampler);
            let rows = directions(768);
            let coordinates = "%a0, %a1, %a2, %a2";
            let name = "tex.cube.v4.f32.f32";
            read(forms, name, &remark, coordinates, &[F32; 3], (&object, &rows));
            if mode == 1 {
                let object = floats(Shape::CubemapLayered, [3, 3, 18], sampler);
                let mut rows = layered(&[], true, 384, 3);
                for (row, direction) in rows.iter_mut().zip(directions(384)) {
                    row.extend(direction);
                }
                let coordinates = "%a0, %a1, %a2, %a3";
                let kinds = [U32, F32, F32, F32];
                let name = "tex.acube.v4.f32.f32";
                read(forms, name, &remark, coordinates, &kinds, (&object, &rows));
            }
        }
    }
}

fn formats(forms: &mut Forms) {
    let integers = [Number::U8, Number::U16, Number::U32, Number::S8, Number::S16, Number::S32];
    let (f16, f32) = (Number::F16, Number::F32);
    let norms = [Number::Unorm8, Number::Unorm16, Number::Snorm8, Number::Snorm16];
    let mut list: Vec<(&str, Number, u32)> = Vec::new();
    list.extend(integers.map(|number| ("u32", number, INTEGERS)));
    list.extend([0, 1, 3, 4].map(|index| ("f32", integers[index], 0)));
    list.extend([f16, f32].map(|number| ("f32", number, 0)));
    list.extend(norms.map(|number| ("f32", number, 0)));
    list.push(("f32", Number::U8, SRGB));
    // Integers into floats and floats into integers.
    list.extend([("f32", Number::S16, INTEGERS), ("s32", f32, 0), ("u32", f16, 0)]);
    list.extend([("s32", Number::U8, 0), ("s32", Number::S8, INTEGERS)]);
    for (ty, number, flags) in list {
        for channels in [1, 2, 4] {
            let sampler = Sampler { modes: [3; 3], flags, ..Sampler::default() };
            let mut object = Object::texture(Shape::OneD, [288, 0, 0], number, channels, sampler);
            if !matches!(number, Number::F16 | Number::F32) {
                object.content = Content::Ascending;
            }
            let rows: Vec<_> = (0..320u16).map(|i| vec![bits(f32::from(i) - 8.0)]).collect();
            let remark = format!("{number:?} x{channels} {flags:x}");
            read(forms, &format!("tex.1d.v4.{ty}.f32"), &remark, "%a0", &[F32], (&object, &rows));
        }
    }
    let linear = [Number::U8, Number::S8, Number::U16, Number::S16, f16, Number::Unorm8];
    for (number, channels, flags) in
        linear.map(|number| (number, 2, 0)).into_iter().chain([(Number::U8, 4, SRGB)])
    {
        for content in [Content::Random, Content::Checkered] {
            let sampler = Sampler { modes: [3; 3], is_linear: true, flags, ..Sampler::default() };
            let mut object = Object::texture(Shape::TwoD, [5, 4, 0], number, channels, sampler);
            object.content = content;
            let rows = points(&[5, 4], false, 512);
            let remark = format!("{number:?} x{channels} {flags:x} linear {content:?}");
            read(forms, "tex.2d.v4.f32.f32", &remark, "%a0, %a1", &[F32; 2], (&object, &rows));
            // How a GPU rounds these sums is not known.
            let bound = match (number, content) {
                (Number::S8, _) => Bound::Absolute(1.0 / 32767.0),
                (Number::U8, Content::Random) if flags == SRGB => Bound::Absolute(1.0 / 1024.0),
                _ => Bound::Exact,
            };
            if let Some(form) = forms.0.last_mut() {
                form.bound = bound;
            }
        }
    }
}

/// Indices along an axis.
fn indices(len: usize, random: &mut Random) -> u64 {
    let edges = [-1, len as i32, len as i32 - 1, 0, i32::MIN, i32::MAX, 1 << 20, -70_000];
    let index = match random.below(3) {
        0 => edges[random.below(edges.len())],
        _ => random.below(len) as i32,
    };
    u64::from(index as u32)
}

/// Adds reads by index.
fn fetches(forms: &mut Forms) {
    for (remark, shape, mode, number) in [
        ("linear", Shape::Linear, 1, Number::F32),
        ("linear fraction", Shape::Linear, 1, Number::U8),
        ("linear border", Shape::Linear, 3, Number::F32),
        ("array", Shape::OneD, 1, Number::F32),
        ("array border", Shape::OneD, 3, Number::F32),
        ("array wrap", Shape::OneD, 0, Number::F32),
    ] {
        let sampler = Sampler { modes: [mode; 3], ..Sampler::default() };
        let object = Object::texture(shape, [37, 0, 0], number, 1, sampler);
        let mut random = Random(37);
        let rows: Vec<_> = (0..128).map(|_| vec![indices(37, &mut random)]).collect();
        read(forms, "tex.1d.v4.f32.s32", remark, "%a0", &[S32], (&object, &rows));
    }
    for (name, shape, coordinates, extent) in [
        ("tex.2d.v4.f32.s32", Shape::TwoD, "%a0, %a1", [5, 4, 0]),
        ("tex.3d.v4.f32.s32", Shape::ThreeD, "%a0, %a1, %a2, %a2", [4, 3, 5]),
        ("tex.a1d.v4.f32.s32", Shape::OneDLayered, "%a0, %a1", [5, 0, 3]),
        ("tex.a2d.v4.f32.s32", Shape::TwoDLayered, "%a0, %a1, %a2, %a2", [5, 4, 3]),
        ("tex.2d.v4.f32.s32 pitched", Shape::Pitched, "%a0, %a1", [5, 4, 0]),
    ] {
        for (remark, mode, flags) in
            [("clamp", 1, 0), ("border", 3, 0), ("clamp normalized", 1, NORMALIZED)]
        {
            if shape == Shape::Pitched && flags != 0 {
                continue;
            }
            let sampler = Sampler { modes: [mode; 3], flags, ..Sampler::default() };
            let object = floats(shape, extent, sampler);
            let [name, more] = [name.split(' ').next().unwrap_or_default(), name];
            let remark = more.replacen(name, remark, 1);
            let axes: Vec<usize> = match shape {
                Shape::OneDLayered => vec![extent[2], extent[0]],
                Shape::TwoDLayered => vec![extent[2], extent[0], extent[1]],
                _ => extent.into_iter().filter(|extent| *extent != 0).collect(),
            };
            let mut random = Random(axes.len() as u64);
            let row = |_| axes.iter().map(|len| indices(*len, &mut random)).collect();
            let rows: Vec<Vec<u64>> = (0..256).map(row).collect();
            let kinds = vec![S32; axes.len()];
            read(forms, name, &remark, coordinates, &kinds, (&object, &rows));
        }
    }
}

/// Returns numbers of levels.
fn level(random: &mut Random) -> u64 {
    let edges = [0.5, 0.499, 0.501, 1.0, 2.0, 4.0, 5.0, -1.0, 1e9, -1e9, f32::NAN, f32::INFINITY];
    bits(match random.below(3) {
        0 => edges[random.below(edges.len())],
        1 => random.below(6 * 512) as f32 / 512.0 - 0.5,
        _ => random.below(1 << 20) as f32 / (1 << 18) as f32,
    })
}

fn mipmapped(shape: Shape, extent: [usize; 3], levels: usize, sampler: Sampler) -> Object {
    Object { levels, ..floats(shape, extent, sampler) }
}

/// Adds reads of levels.
fn levels(forms: &mut Forms) {
    let plain = Sampler { flags: NORMALIZED, ..Sampler::default() };
    let both = Sampler { is_linear: true, is_mipmap_linear: true, ..plain };
    for (remark, sampler) in [
        ("point point", plain),
        ("linear point", Sampler { is_linear: true, ..plain }),
        ("point linear", Sampler { is_mipmap_linear: true, ..plain }),
        ("linear linear", both),
        ("bias", Sampler { bias: 0.7, ..both }),
        ("bias down", Sampler { bias: -3.3, ..both }),
        ("clamp", Sampler { levels: [0.8, 2.3], ..both }),
        ("clamp point", Sampler { levels: [0.8, 2.3], ..plain }),
        ("border", Sampler { modes: [3; 3], ..both }),
    ] {
        let object = mipmapped(Shape::TwoD, [20, 12, 0], 5, sampler);
        let mut random = Random(20);
        let mut rows = points(&[20, 12], true, 512);
        rows.iter_mut().for_each(|row| row.push(level(&mut random)));
        let name = "tex.level.2d.v4.f32.f32";
        let code = format!("{name} {{%d0, %d1, %d2, %d3}}, [%object, {{%a0, %a1}}], %a2;");
        forms.code(&format!("{name} {remark}"), &code, &[F32; 3], &[F32; 4]).object(&object, &rows);
        let name = "tex.2d.v4.f32.f32";
        rows.truncate(128);
        rows.iter_mut().for_each(|row| row.truncate(2));
        let remark = format!("of levels {remark}");
        read(forms, name, &remark, "%a0, %a1", &[F32; 2], (&object, &rows));
    }
    // The weights between levels.
    let mut object = mipmapped(Shape::OneD, [8, 0, 0], 3, both);
    object.content = Content::Checkered;
    let rows: Vec<_> = (0..1024)
        .map(|step: u16| vec![bits(0.4375), bits(f32::from(step) / 1024.0 - 0.125)])
        .collect();
    let name = "tex.level.1d.v4.f32.f32";
    let code = format!("{name} {{%d0, %d1, %d2, %d3}}, [%object, {{%a0}}], %a1;");
    forms.code(&format!("{name} weights"), &code, &[F32; 2], &[F32; 4]).object(&object, &rows);
    for (name, shape, extent, coordinates, lod, kinds) in [
        (
            "tex.level.3d.v4.f32.f32",
            Shape::ThreeD,
            [8, 6, 5],
            "%a0, %a1, %a2, %a2",
            "%a3",
            &[F32; 4][..],
        ),
        (
            "tex.level.a1d.v4.f32.f32",
            Shape::OneDLayered,
            [8, 0, 3],
            "%a0, %a1",
            "%a2",
            &[U32, F32, F32],
        ),
        (
            "tex.level.a2d.v4.f32.f32",
            Shape::TwoDLayered,
            [8, 6, 3],
            "%a0, %a1, %a2, %a2",
            "%a3",
            &[U32, F32, F32, F32],
        ),
        (
            "tex.level.cube.v4.f32.f32",
            Shape::Cubemap,
            [8, 8, 6],
            "%a0, %a1, %a2, %a2",
            "%a3",
            &[F32; 4],
        ),
    ] {
        let object = mipmapped(shape, extent, 3, both);
        let mut random = Random(extent[0] as u64);
        let mut rows = match shape {
            Shape::ThreeD => points(&extent, true, 256),
            Shape::OneDLayered => layered(&extent[..1], true, 256, 3),
            Shape::TwoDLayered => layered(&extent[..2], true, 256, 3),
            _ => directions(256),
        };
        rows.iter_mut().for_each(|row| row.push(level(&mut random)));
        let code = format!("{name} {{%d0, %d1, %d2, %d3}}, [%object, {{{coordinates}}}], {lod};");
        forms.code(name, &code, kinds, &[F32; 4]).object(&object, &rows);
    }
    let object = mipmapped(Shape::TwoD, [20, 12, 0], 5, Sampler::default());
    let mut random = Random(12);
    let rows: Vec<_> = (0..256)
        .map(|_| vec![indices(20, &mut random), indices(12, &mut random), indices(5, &mut random)])
        .collect();
    let name = "tex.level.2d.v4.f32.s32";
    let code = format!("{name} {{%d0, %d1, %d2, %d3}}, [%object, {{%a0, %a1}}], %a2;");
    forms.code(name, &code, &[S32; 3], &[F32; 4]).object(&object, &rows);
}

/// Returns a change of a coordinate from a thread to the next.
fn change(random: &mut Random) -> f32 {
    let sign = if random.below(2) == 0 { 1.0 } else { -1.0 };
    match random.below(8) {
        0 => 0.0,
        1 => sign * 2f32.powi(random.below(8) as i32 - 6),
        _ => sign * (random.below(1 << 20) as f32 + 1.0) / (1 << random.below(21)) as f32 / 4e5,
    }
}

/// Adds reads of levels that the changes of the coordinates choose.
fn gradients(forms: &mut Forms) {
    let linear = Sampler {
        flags: NORMALIZED,
        is_linear: true,
        is_mipmap_linear: true,
        ..Sampler::default()
    };
    let point = Sampler { is_linear: false, is_mipmap_linear: false, ..linear };
    let biased = Sampler { bias: 0.7, levels: [0.4, 3.0], ..linear };
    for (axes, shape, extent) in [
        (1, Shape::OneD, [32, 0, 0]),
        (2, Shape::TwoD, [32, 16, 0]),
        (3, Shape::ThreeD, [32, 16, 8]),
    ] {
        for (remark, sampler) in [
            ("linear", linear),
            ("point", point),
            ("biased", biased),
            ("anisotropic", Sampler { anisotropy: 8, ..linear }),
        ] {
            if axes != 2 && remark != "linear" {
                continue;
            }
            let object = mipmapped(shape, extent, 5, sampler);
            let mut random = Random(remark.len() as u64);
            let mut rows = points(&extent[..axes], true, 512);
            rows.truncate(512);
            for row in &mut rows {
                row.extend((0..2 * axes).map(|_| bits(change(&mut random))));
            }
            let list = |first: usize| {
                let at = |i: usize| format!("%a{}", first + i.min(axes - 1));
                let count = if axes == 3 { 4 } else { axes };
                (0..count).map(at).collect::<Vec<_>>().join(", ")
            };
            let name = format!("tex.grad.{axes}d.v4.f32.f32");
            let [at, x, y] = [list(0), list(axes), list(2 * axes)];
            let code =
                format!("{name} {{%d0, %d1, %d2, %d3}}, [%object, {{{at}}}], {{{x}}}, {{{y}}};");
            let kinds = vec![F32; 3 * axes];
            let form = forms.code(&format!("{name} {remark}"), &code, &kinds, &[F32; 4]);
            form.object(&object, &rows);
            // The logarithm is an approximation, so that texels have other weights.
            form.bound = match (axes, remark) {
                (_, "point") => Bound::Exact,
                (3, _) => Bound::Absolute(0.5),
                _ => Bound::Absolute(0.25),
            };
        }
    }
}

/// Adds reads of four texels.
fn gathers(forms: &mut Forms) {
    for channel in ["r", "g", "b", "a"] {
        for (ty, number, flags) in
            [("f32", Number::F32, 0), ("u32", Number::U8, INTEGERS), ("f32", Number::S16, 0)]
        {
            if number != Number::F32 && channel == "g" {
                continue;
            }
            let sampler = Sampler { flags, ..Sampler::default() };
            let mut object = Object::texture(Shape::TwoD, [5, 4, 0], number, 4, sampler);
            object.is_gathered = true;
            let rows = points(&[5, 4], false, 256);
            let name = format!("tld4.{channel}.2d.v4.{ty}.f32");
            let remark = format!("{number:?}");
            read(forms, &name, &remark, "%a0, %a1", &[F32; 2], (&object, &rows));
        }
    }
    for (remark, mode, flags) in
        [("wrap", 0, NORMALIZED), ("mirror", 2, NORMALIZED), ("border", 3, NORMALIZED)]
    {
        for is_linear in [false, true] {
            let sampler = Sampler { modes: [mode; 3], flags, is_linear, ..Sampler::default() };
            let mut object = floats(Shape::TwoD, [5, 4, 0], sampler);
            object.is_gathered = true;
            let rows = points(&[5, 4], true, 512);
            let remark = format!("{remark}{}", if is_linear { " linear" } else { "" });
            let name = "tld4.r.2d.v4.f32.f32";
            read(forms, name, &remark, "%a0, %a1", &[F32; 2], (&object, &rows));
        }
    }
    let mut object = floats(Shape::TwoD, [5, 4, 0], Sampler::default());
    object.is_gathered = true;
    let rows = points(&[5, 4], false, 256);
    let name = "tld4.r.2d.v4.f32.f32";
    let code = format!("{name} {{%d0, %d1, %d2, %d3}}, [%object, {{%a0, %a1}}], {{2, -3}};");
    forms.code(&format!("{name} offset"), &code, &[F32; 2], &[F32; 4]).object(&object, &rows);
    let planes = floats(Shape::TwoDLayered, [5, 4, 3], Sampler::default());
    let rows = layered(&[5, 4], false, 256, 3);
    let kinds = [U32, F32, F32];
    let name = "tld4.r.a2d.v4.f32.f32";
    read(forms, name, "layers", "%a0, %a1, %a2, %a2", &kinds, (&planes, &rows));
    let sampler = Sampler { flags: NORMALIZED, ..Sampler::default() };
    let cube = floats(Shape::Cubemap, [4, 4, 6], sampler);
    let name = "tld4.r.cube.v4.f32.f32";
    let rows = directions(256);
    read(forms, name, "cube", "%a0, %a1, %a2, %a2", &[F32; 3], (&cube, &rows));
}

/// Adds offsets, results of other types, and residency.
fn variants(forms: &mut Forms) {
    let results = "{%d0, %d1, %d2, %d3}";
    for (mode, is_linear) in [(1, false), (3, true), (0, true)] {
        let flags = if mode == 0 { NORMALIZED } else { 0 };
        let sampler = Sampler { modes: [mode; 3], is_linear, flags, ..Sampler::default() };
        let remark = MODES[mode as usize];
        for (axes, offset, (name, shape, coordinates, extent)) in
            [(1, "{-3}", PLAIN[0]), (2, "{3, -2}", PLAIN[1]), (3, "{-1, 2, 7, 0}", PLAIN[2])]
        {
            let object = floats(shape, extent, sampler);
            let rows = points(&extent[..axes], mode == 0, 256);
            let code = format!("{name} {results}, [%object, {{{coordinates}}}], {offset};");
            let name = format!("{name} offset {remark}");
            forms.code(&name, &code, &vec![F32; axes], &[F32; 4]).object(&object, &rows);
        }
    }
    let object = floats(Shape::TwoD, [5, 4, 0], Sampler::default());
    let plane = points(&[5, 4], false, 256);
    let mut moved = plane.clone();
    let mut random = Random(9);
    for row in &mut moved {
        row.extend([0, 1].map(|_| (random.below(40) as u64 + 0xffff_ffec) & 0xffff_ffff));
    }
    let code = format!("tex.2d.v4.f32.f32 {results}, [%object, {{%a0, %a1}}], {{%a2, %a3}};");
    let kinds = [F32, F32, S32, S32];
    forms.code("tex.2d.v4.f32.f32 any offset", &code, &kinds, &[F32; 4]).object(&object, &moved);
    let code = format!("tex.2d.v4.f32.f32 {results}|%d4, [%object, {{%a0, %a1}}];");
    let kinds = [F32, F32, F32, F32, Pred];
    forms.code("tex.2d resident", &code, &[F32; 2], &kinds).object(&object, &plane);
    let code = "tex.base.2d.v4.f32.f32 {%d0, _, _, %d1}, [%object, {%a0, %a1}];";
    forms.code("tex.base.2d", code, &[F32; 2], &[F32; 2]).object(&object, &plane);
    for (number, is_linear) in [
        (Number::F32, false),
        (Number::F32, true),
        (Number::F16, true),
        (Number::U8, true),
        (Number::S16, false),
    ] {
        let sampler = Sampler { is_linear, ..Sampler::default() };
        let object = Object::texture(Shape::TwoD, [5, 4, 0], number, 4, sampler);
        let remark = format!("{number:?} {is_linear}");
        let code = format!("tex.2d.v4.f16.f32 {results}, [%object, {{%a0, %a1}}];");
        let name = format!("tex.2d.v4.f16.f32 {remark}");
        forms.code(&name, &code, &[F32; 2], &[F16; 4]).object(&object, &plane);
        let code = "tex.2d.v2.f16x2.f32 {%d0, %d1}, [%object, {%a0, %a1}];";
        let name = format!("tex.2d.v2.f16x2.f32 {remark}");
        forms.code(&name, code, &[F32; 2], &[F16x2; 2]).object(&object, &plane);
    }
    // Instructions of other geometries than that of the texture.
    let volume = floats(Shape::ThreeD, [5, 4, 3], Sampler::default());
    read(forms, "tex.2d.v4.f32.f32", "of a volume", "%a0, %a1", &[F32; 2], (&volume, &plane));
    read(forms, "tex.1d.v4.f32.f32", "of a plane", "%a0", &[F32; 2], (&object, &plane));
    let line = floats(Shape::OneD, [5, 0, 0], Sampler::default());
    read(forms, "tex.2d.v4.f32.f32", "of a line", "%a0, %a1", &[F32; 2], (&line, &plane));
    let planes = floats(Shape::TwoDLayered, [5, 4, 3], Sampler::default());
    read(forms, "tex.2d.v4.f32.f32", "of layers", "%a0, %a1", &[F32; 2], (&planes, &plane));
    let code = format!("tex.2d.v4.f32.f32 {results}, [0, {{%a0, %a1}}];").replace("[0,", "[%z,");
    let code = format!(".reg .b64 %z;\nmov.b64 %z, 0;\n{code}");
    forms.code("tex.2d of no texture", &code, &[F32; 2], &[F32; 4]).object(&object, &plane);
}

fn queries(forms: &mut Forms) {
    let plain = Sampler::default();
    let normalized =
        Sampler { flags: NORMALIZED, modes: [0, 2, 3], is_linear: true, ..Sampler::default() };
    let texture = Object::texture;
    for (remark, object) in [
        ("line", texture(Shape::OneD, [37, 0, 0], Number::F32, 1, plain)),
        ("plane", texture(Shape::TwoD, [20, 12, 0], Number::U8, 4, normalized)),
        ("volume", texture(Shape::ThreeD, [8, 6, 5], Number::F16, 2, plain)),
        ("layers", texture(Shape::TwoDLayered, [8, 6, 3], Number::S16, 1, plain)),
        ("lines", texture(Shape::OneDLayered, [8, 0, 3], Number::S32, 2, plain)),
        ("cube", texture(Shape::Cubemap, [8, 8, 6], Number::Unorm8, 4, normalized)),
        ("cubes", texture(Shape::CubemapLayered, [8, 8, 18], Number::U32, 1, normalized)),
        ("memory", texture(Shape::Linear, [37, 0, 0], Number::U16, 2, plain)),
        ("pitched", texture(Shape::Pitched, [20, 12, 0], Number::S8, 1, plain)),
        ("levels", mipmapped(Shape::TwoD, [20, 12, 0], 5, normalized)),
        (
            "integers",
            texture(Shape::TwoD, [20, 12, 0], Number::U8, 1, Sampler { flags: INTEGERS, ..plain }),
        ),
    ] {
        for query in [
            "width",
            "height",
            "depth",
            "channel_data_type",
            "channel_order",
            "normalized_coords",
            "array_size",
            "num_mipmap_levels",
            "num_samples",
            "filter_mode",
            "addr_mode_0",
            "addr_mode_1",
            "addr_mode_2",
            "force_unnormalized_coords",
        ] {
            let code = format!("txq.{query}.b32 %d0, [%object];");
            let rows = vec![vec![0]; 32];
            forms
                .code(&format!("txq.{query} {remark}"), &code, &[U32], &[U32])
                .object(&object, &rows);
        }
        for query in ["width", "height", "depth"] {
            let code = format!("txq.level.{query}.b32 %d0, [%object], %a0;");
            let rows: Vec<_> = (0..32)
                .map(|level: u64| vec![if level < 30 { level } else { level + 0xffff_ffe0 }])
                .collect();
            forms
                .code(&format!("txq.level.{query} {remark}"), &code, &[U32], &[U32])
                .object(&object, &rows);
        }
    }
}
