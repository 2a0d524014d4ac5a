//! Bulk asynchronous copies of tensors.

use super::bulk::WAIT;
use crate::common::random::Random;
use crate::form::Kind::{U32, U64};
use crate::form::{Form, Forms, expand};
use crate::tensor::{Content, Shape, Tensor};

pub(super) fn add(forms: &mut Forms) {
    tiles(forms);
    types(forms);
    swizzles(forms);
    steps(forms);
    interleaved(forms);
    columns(forms);
    modifiers(forms);
    stores(forms);
    reductions(forms);
    faults(forms);
}

const LOAD: &str = "cp.async.bulk.tensor";
const U8: u32 = 0;
const U16: u32 = 1;
const UINT32: u32 = 2;
const FLOAT16: u32 = 6;
/// The names of the types of elements, in the order of the C API.
const TYPES: [&str; 13] = [
    "u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32 ftz", "tf32",
    "tf32 ftz",
];

/// How a form copies.
struct Copy<'a> {
    /// The modifiers after the number of dimensions.
    modifiers: &'a str,
    coordinates: &'a [i32],
    offsets: &'a [u16],
    /// The offset in shared memory.
    at: u32,
    /// Whether the operands have a policy.
    has_policy: bool,
    /// Whether the innermost coordinate stays where a copy ends the kernel.
    is_exact: bool,
}

/// Moves the innermost coordinate to a multiple of 16 bytes, further away from zero. Copies must start there.
fn align(copy: &Copy<'_>, tensor: &Tensor) -> Vec<i32> {
    let mut coordinates = copy.coordinates.to_vec();
    let each = 16 / crate::tensor::element(tensor.kind) as i32;
    if let (Some(first), false) = (coordinates.first_mut(), copy.is_exact || tensor.interleave != 0)
    {
        *first += first.signum() * ((each - *first % each * first.signum()) % each);
    }
    coordinates
}

const TILE: Copy<'_> = Copy {
    modifiers: "shared::cluster.global.tile.mbarrier::complete_tx::bytes",
    coordinates: &[],
    offsets: &[],
    at: 0,
    has_policy: false,
    is_exact: false,
};
const IM2COL: Copy<'_> =
    Copy { modifiers: "shared::cluster.global.im2col.mbarrier::complete_tx::bytes", ..TILE };
const STORE: Copy<'_> = Copy { modifiers: "global.shared::cta.tile.bulk_group", ..TILE };

/// Declares the coordinates and offsets of a copy, and returns the operand of the tensor and that of the offsets.
fn operands(copy: &Copy<'_>, tensor: &Tensor) -> (String, String, String) {
    let mut code = String::from(".reg .b32 %c<5>;\n.reg .b16 %o<3>;\n");
    let mut names = [Vec::new(), Vec::new()];
    for (index, coordinate) in align(copy, tensor).iter().enumerate() {
        code += &format!("mov.b32 %c{index}, {coordinate};\n");
        names[0].push(format!("%c{index}"));
    }
    for (index, offset) in copy.offsets.iter().enumerate() {
        code += &format!("mov.b16 %o{index}, {offset};\n");
        names[1].push(format!("%o{index}"));
    }
    let [coordinates, offsets] = names.map(|names| names.join(", "));
    let offsets = if offsets.is_empty() { offsets } else { format!(", {{{offsets}}}") };
    (code, format!("[%map, {{{coordinates}}}]"), offsets)
}

/// The bytes of shared memory that each thread reads or writes.
const EACH: usize = 32;

/// Returns the declarations of shared memory for so many threads. `%y` is the address of the thread's part.
fn begin(threads: usize) -> String {
    format!(
        ".shared .align 1024 .b8 cells[{}];\n.shared .align 8 .b64 gate;\n.reg .b32 %x, %y, %z, %n, %r, %k;\n\
         .reg .b64 %g, %policy;\n.reg .b16 %h;\n.reg .pred %p, %q;\nsetp.eq.u32 %p, %t, 0;\n\
         mov.u32 %x, cells;\nshl.b32 %y, %t, {};\nadd.u32 %y, %x, %y;\n\
         createpolicy.fractional.L2::evict_first.b64 %policy, 1.0;\n",
        EACH * threads + 1024,
        EACH.ilog2()
    )
}

/// Returns the number of threads for so many bytes.
fn threads(bytes: u64) -> usize {
    (bytes as usize).div_ceil(EACH).next_multiple_of(32)
}

/// Adds a copy to shared memory, whose bytes are the results.
fn load<'a>(forms: &'a mut Forms, remark: &str, tensor: Tensor, copy: &Copy<'_>) -> &'a mut Form {
    let rank = tensor.dims.len();
    let threads = threads(u64::from(copy.at) + tensor.covered() + 64);
    let (coordinates, from, offsets) = operands(copy, &tensor);
    let policy = if copy.has_policy { ", %policy" } else { "" };
    let Copy { modifiers, at, .. } = copy;
    let code = format!(
        "{}{coordinates}st.shared.v2.b64 [%y], {{-1, -1}};\nst.shared.v2.b64 [%y+16], {{-1, -1}};\n\
         @%p mbarrier.init.shared.b64 [gate], 1;\nfence.proxy.async.shared::cta;\nbar.sync 0;\n\
         @%p mbarrier.arrive.expect_tx.shared::cta.b64 _, [gate], {};\n\
         @%p {LOAD}.{rank}d.{modifiers} [%x+{at}], {from}, [gate]{offsets}{policy};\n{WAIT}\
         ld.shared.v2.b64 {{%d0, %d1}}, [%y];\nld.shared.v2.b64 {{%d2, %d3}}, [%y+16];\n\
         mbarrier.test_wait.parity.shared::cta.b64 %q, [gate], 0;\nselp.u32 %d4, 1, 0, %q;",
        begin(threads),
        tensor.copied()
    );
    let name = format!("{LOAD}.{rank}d.{modifiers} {remark}");
    forms
        .code(&name, &code, &[], &[U64, U64, U64, U64, U32])
        .tensor(tensor)
        .shape([1, 1, 1], [threads as u32, 1, 1])
}

/// Adds a copy from shared memory, whose bytes are the operands.
fn store<'a>(
    forms: &'a mut Forms,
    remark: &str,
    tensor: Tensor,
    (opcode, copy): (&str, &Copy<'_>),
) -> &'a mut Form {
    let rank = tensor.dims.len();
    let threads = threads(u64::from(copy.at) + tensor.covered() + 64);
    let (coordinates, to, _) = operands(copy, &tensor);
    let policy = if copy.has_policy { ", %policy" } else { "" };
    let Copy { modifiers, at, .. } = copy;
    let code = format!(
        "{}{coordinates}st.shared.v2.b64 [%y], {{%a0, %a1}};\nst.shared.v2.b64 [%y+16], {{%a2, %a3}};\n\
         fence.proxy.async.shared::cta;\nbar.sync 0;\n@!%p bra $end;\n\
         {opcode}.{rank}d.{modifiers} {to}, [%x+{at}]{policy};\ncp.async.bulk.commit_group;\n\
         cp.async.bulk.wait_group 0;\n$end:\nbar.sync 0;\nld.shared.b64 %d0, [%y];",
        begin(threads)
    );
    let mut source = Tensor { bytes: EACH * threads, ..tensor.clone() };
    if source.content == Content::Numbers {
        // Other numbers than those in the tensor.
        source.dims[0] += 1;
    }
    let mut random = Random(5);
    let mut bytes = source.memory();
    if tensor.content == Content::Numbers {
        bytes.chunks_exact_mut(8).for_each(|its| its.copy_from_slice(&random.next().to_le_bytes()));
    } else {
        bytes.rotate_left(24);
    }
    let words =
        bytes.chunks_exact(8).map(|its| u64::from_le_bytes(its.try_into().expect("8 bytes")));
    let words: Vec<u64> = words.collect();
    let name = format!("{opcode}.{rank}d.{modifiers} {remark}");
    let tensor = Tensor { is_written: true, ..tensor };
    let form = forms.code(&name, &code, &[U64; 4], &[U64]);
    form.rows = words.chunks_exact(4).map(<[u64]>::to_vec).collect();
    form.tensor(tensor).shape([1, 1, 1], [threads as u32, 1, 1])
}

/// A remark on the coordinates of a copy, and the coordinates.
type Place = (&'static str, Vec<i32>);

/// Small tensors of each rank, and places of a box.
fn ranks() -> Vec<(Tensor, Vec<Place>)> {
    let extents: [(&[u64], &[u32]); 5] = [
        (&[100], &[32]),
        (&[37, 20], &[8, 6]),
        (&[24, 10, 6], &[8, 4, 3]),
        (&[12, 7, 6, 5], &[8, 3, 2, 3]),
        (&[8, 5, 4, 4, 3], &[4, 3, 2, 3, 2]),
    ];
    let places = |dims: &[u64], extents: &[u32]| {
        let of = |f: &dyn Fn(i32, i32, i32) -> i32| {
            let all = dims.iter().zip(extents).enumerate();
            all.map(|(axis, (dim, its))| f(axis as i32, *dim as i32, *its as i32)).collect()
        };
        vec![
            ("inside", of(&|axis, _, _| 1 + axis % 2)),
            ("below", of(&|axis, _, _| axis % 2 - 2)),
            ("beyond", of(&|axis, dim, its| dim - its + 1 + axis % 2)),
            ("outside", of(&|axis, dim, its| if axis == 0 { dim } else { -its })),
            ("far", of(&|axis, _, _| if axis % 2 == 0 { i32::MIN } else { i32::MAX })),
        ]
    };
    let all = extents.iter();
    all.map(|(dims, its)| (Tensor::tile(UINT32, dims, its), places(dims, its))).collect()
}

fn tiles(forms: &mut Forms) {
    for (tensor, places) in ranks() {
        for (place, coordinates) in &places {
            load(forms, place, tensor.clone(), &Copy { coordinates, ..TILE });
        }
    }
    // Dimensions in another order in memory, and without any bytes between neighbors.
    let mut tensor = Tensor::tile(UINT32, &[8, 6, 5], &[8, 4, 3]);
    tensor.strides = vec![160, 32];
    load(forms, "of swapped strides", tensor.clone(), &Copy { coordinates: &[2, 1, 1], ..TILE });
    tensor.strides = vec![0, 32];
    load(forms, "of no stride", tensor, &Copy { coordinates: &[0, 1, 1], ..TILE });
    // The last row is not as long as the stride.
    let tensor = Tensor::tile(U8, &[19, 5], &[32, 4]);
    load(forms, "of odd rows", tensor, &Copy { coordinates: &[-3, 2], ..TILE });
    let tensor = Tensor::tile(U8, &[500, 9], &[256, 5]);
    load(forms, "of wide rows", tensor, &Copy { coordinates: &[251, 3], ..TILE });
}

fn types(forms: &mut Forms) {
    for (kind, ty) in (0..).zip(TYPES) {
        let element = crate::tensor::element(kind);
        let (inner, dim) = (64 / element, 200 / element);
        let mut tensor = Tensor::tile(kind, &[dim, 9], &[inner as u32, 6]);
        tensor.content = Content::Random;
        let coordinates = [dim as i32 - inner as i32 + 5, -1];
        load(
            forms,
            &format!("of {ty}"),
            tensor.clone(),
            &Copy { coordinates: &coordinates, ..TILE },
        );
        load(
            forms,
            &format!("of {ty} inside"),
            tensor.clone(),
            &Copy { coordinates: &[1, 2], ..TILE },
        );
        if kind >= FLOAT16 {
            tensor.fill = 1;
            let remark = format!("of {ty} with NaN outside");
            load(forms, &remark, tensor, &Copy { coordinates: &coordinates, ..TILE });
        }
    }
}

fn swizzles(forms: &mut Forms) {
    for (swizzle, inner) in
        [(1, &[16, 32][..]), (2, &[16, 32, 48, 64]), (3, &[16, 32, 64, 96, 112, 128])]
    {
        for bytes in inner {
            for at in [0, 384] {
                let mut tensor = Tensor::tile(UINT32, &[40, 30], &[bytes / 4, 19]);
                tensor.swizzle = swizzle;
                let span = 16 << swizzle;
                let remark = format!("of {bytes} bytes with swizzle {span} at {at}");
                load(forms, &remark, tensor, &Copy { coordinates: &[3, 2], at, ..TILE });
            }
        }
    }
    let mut tensor = Tensor::tile(UINT32, &[40, 30], &[12, 19]);
    tensor.swizzle = 2;
    let form = load(
        forms,
        "of 48 bytes with swizzle 64 that expects the spans",
        tensor.clone(),
        &Copy { coordinates: &[3, 2], ..TILE },
    );
    let [copied, covered] = [tensor.copied(), tensor.covered()];
    form.code = form.code.replace(&format!("], {copied};"), &format!("], {covered};"));
    for (kind, inner) in [(U8, 128), (U16, 64), (4, 16)] {
        let mut tensor = Tensor::tile(kind, &[256, 17], &[inner, 9]);
        tensor.swizzle = 3;
        let remark = format!("of {} with swizzle 128", TYPES[kind as usize]);
        load(forms, &remark, tensor.clone(), &Copy { coordinates: &[240, -2], at: 128, ..TILE });
    }
    for swizzle in 1..=3 {
        let mut tensor = Tensor::tile(U16, &[48, 7, 5], &[8 << swizzle, 5, 3]);
        tensor.swizzle = swizzle;
        let remark = format!("with swizzle {}", 16 << swizzle);
        load(forms, &remark, tensor, &Copy { coordinates: &[40, 3, -1], ..TILE });
    }
}

fn steps(forms: &mut Forms) {
    for (steps, extents) in [
        (&[1, 2][..], &[8, 7][..]),
        (&[1, 3], &[8, 8]),
        (&[1, 8], &[4, 17]),
        (&[2, 1], &[16, 3]),
        (&[4, 2], &[16, 6]),
        (&[3, 2], &[12, 5]),
        (&[8, 8], &[32, 16]),
    ] {
        for (place, coordinates) in [("inside", [3, 2]), ("below", [-3, -5]), ("beyond", [30, 17])]
        {
            let mut tensor = Tensor::tile(UINT32, &[40, 24], extents);
            tensor.steps = steps.to_vec();
            let remark = format!("with steps {steps:?} and box {extents:?} {place}");
            load(forms, &remark, tensor, &Copy { coordinates: &coordinates, ..TILE });
        }
    }
    let mut tensor = Tensor::tile(U16, &[16, 9, 8, 5, 4], &[8, 4, 3, 2, 2]);
    tensor.steps = vec![1, 2, 3, 1, 2];
    load(forms, "with steps", tensor, &Copy { coordinates: &[6, -1, 3, 4, 1], ..TILE });
    let mut tensor = Tensor::tile(U16, &[80, 30], &[64, 12]);
    (tensor.steps, tensor.swizzle) = (vec![1, 2], 3);
    load(forms, "with steps and swizzle 128", tensor, &Copy { coordinates: &[20, 11], ..TILE });
}

/// Returns a tensor of interleaved slices.
fn slices(interleave: u32, kind: u32, rank: usize) -> Tensor {
    let bytes = 16 * u64::from(interleave);
    let each = (bytes / crate::tensor::element(kind)) as u32;
    // Strides that tell the dimensions apart.
    let strides = [32 * bytes, 256 * bytes, 1024 * bytes, 2048 * bytes];
    let dims = [4 * u64::from(each), 9, 7, 3, 2];
    let extents = [each, 5, 3, 2, 2];
    let mut tensor = Tensor::tile(kind, &dims[..rank], &extents[..rank]);
    tensor.strides = strides[..rank - 1].to_vec();
    tensor.interleave = interleave;
    // Numbers of 16 bits are unique, except in five dimensions.
    tensor.bytes = if rank == 5 { 1 << 18 } else { 1 << 17 };
    tensor
}

fn interleaved(forms: &mut Forms) {
    for interleave in [1, 2] {
        let bytes = 16 * interleave;
        for rank in 3..=5 {
            for (place, coordinates) in [
                ("at the start", [0, 0, 0, 0, 0]),
                ("inside", [0, 2, 1, 1, 0]),
                ("below", [0, -2, -1, 0, -1]),
                ("beyond", [0, 6, 5, 2, 1]),
                ("in the second slice", [1, 1, 2, 0, 0]),
                ("in the middle of a slice", [8, 1, 2, 0, 0]),
            ] {
                let remark = format!("of {bytes} bytes interleaved {place}");
                let coordinates = &coordinates[..rank];
                load(forms, &remark, slices(interleave, U16, rank), &Copy { coordinates, ..TILE });
            }
        }
        for swizzle in 1..=3 {
            let mut tensor = slices(interleave, U16, 4);
            tensor.swizzle = swizzle;
            let remark = format!("of {bytes} bytes interleaved with swizzle {}", 16 << swizzle);
            load(forms, &remark, tensor, &Copy { coordinates: &[0, 1, 2, 1], at: 256, ..TILE });
        }
        for kind in [U8, UINT32] {
            let remark = format!("of {bytes} bytes interleaved of {}", TYPES[kind as usize]);
            let copy = Copy { coordinates: &[0, 1, 2], ..TILE };
            load(forms, &remark, slices(interleave, kind, 3), &copy);
        }
        let mut tensor = slices(interleave, U16, 3);
        if let Shape::Tile(extents) = &mut tensor.shape {
            extents[0] *= 2;
        }
        let remark = format!("of {bytes} bytes interleaved, two of them");
        load(forms, &remark, tensor, &Copy { coordinates: &[0, 1, 2], ..TILE });
        // The extent of the slices.
        for extent in [1, 16, 64] {
            let mut tensor = slices(interleave, U16, 4);
            if let Shape::Tile(extents) = &mut tensor.shape {
                extents[2] = extent;
            }
            let remark = format!("of {bytes} bytes interleaved of {extent} channels");
            load(forms, &remark, tensor, &Copy { coordinates: &[0, 1, 2, 0], ..TILE });
        }
        let mut tensor = slices(interleave, U16, 4);
        tensor.steps = vec![1, 2, 1, 1];
        let remark = format!("of {bytes} bytes interleaved with steps");
        load(forms, &remark, tensor, &Copy { coordinates: &[0, -1, 1, 0], ..TILE });
    }
}

fn columns(forms: &mut Forms) {
    let wide: [(&[u64], &[i32], &[i32]); 3] = [
        (&[20, 9, 4], &[-1], &[-1]),
        (&[20, 7, 6, 3], &[-1, -1], &[-1, -1]),
        (&[20, 5, 4, 4, 3], &[-1, -1, 0], &[-1, 0, -1]),
    ];
    for (dims, lower, upper) in wide {
        let tensor = Tensor::im2col(U16, dims, (lower, upper), (8, 20));
        let rank = dims.len();
        let none = vec![0; rank - 2];
        let (one, two) = (vec![1; rank - 2], vec![2; rank - 2]);
        for (place, first, offsets) in [
            ("at the start", [0, 0, 0, 0, 0], &none),
            ("at the corner", [0, -1, -1, -1, 0], &none),
            ("with offsets", [0, -1, -1, -1, 0], &one),
            ("with large offsets", [0, -1, -1, 0, 0], &two),
            ("of late channels", [16, 1, 0, 0, 1], &one),
            ("at the end", [0, 2, 2, 1, 2], &one),
        ] {
            // The last coordinate is the image.
            let mut coordinates = first[..rank].to_vec();
            coordinates[rank - 1] =
                if place == "at the end" { dims[rank - 1] as i32 - 1 } else { first[4] };
            let copy = Copy { coordinates: &coordinates, offsets, ..IM2COL };
            load(forms, place, tensor.clone(), &copy);
        }
        for (remark, lower, upper) in [
            ("without margins", vec![0; rank - 2], vec![0; rank - 2]),
            ("with other margins", vec![1; rank - 2], vec![1; rank - 2]),
            ("with wide margins", vec![-3; rank - 2], vec![2; rank - 2]),
        ] {
            let tensor = Tensor::im2col(U16, dims, (&lower, &upper), (8, 20));
            let mut coordinates = vec![0; rank];
            coordinates[1..rank - 1].fill(lower[0]);
            let copy = Copy { coordinates: &coordinates, offsets: &one, ..IM2COL };
            load(forms, remark, tensor, &copy);
        }
        for (step, start) in [(2, -1), (2, 0), (3, -1)] {
            let mut tensor = tensor.clone();
            tensor.steps[1..rank - 1].fill(step);
            let mut coordinates = vec![start; rank];
            (coordinates[0], coordinates[rank - 1]) = (0, 0);
            let copy = Copy { coordinates: &coordinates, offsets: &one, ..IM2COL };
            load(forms, &format!("with steps of {step} from {start}"), tensor, &copy);
        }
        let mut tensor = tensor.clone();
        tensor.steps.fill(2);
        let mut coordinates = vec![-1; rank];
        (coordinates[0], coordinates[rank - 1]) = (0, 0);
        let copy = Copy { coordinates: &coordinates, offsets: &none, ..IM2COL };
        load(forms, "with steps of all dimensions", tensor, &copy);
    }
    let four =
        |kind, columns| Tensor::im2col(kind, &[32, 7, 6, 3], (&[-1, -1], &[-1, -1]), columns);
    let copy = Copy { coordinates: &[3, -1, 4, 1], offsets: &[1, 0], ..IM2COL };
    for swizzle in 1..=3 {
        let mut tensor = four(U16, (8 << swizzle, 30));
        tensor.swizzle = swizzle;
        load(forms, &format!("with swizzle {}", 16 << swizzle), tensor, &copy);
    }
    for kind in [U8, UINT32, FLOAT16, 7, 11] {
        let mut tensor = four(kind, (16, 24));
        (tensor.content, tensor.fill) = (Content::Random, u32::from(kind >= FLOAT16));
        load(forms, &format!("of {}", TYPES[kind as usize]), tensor, &copy);
    }
    for (remark, coordinates, offsets) in [
        ("outside of the margins", [0, -3, -2, 0], [1, 1]),
        ("beyond the margins", [0, 7, 5, 0], [0, 0]),
        ("of the last pixel of the margins", [0, 5, 4, 0], [0, 0]),
        ("after the last pixel of the margins", [0, 5, 5, 0], [0, 0]),
        ("of an image outside", [0, 0, 0, -1], [0, 0]),
        ("after the last image", [0, 0, 0, 3], [0, 0]),
        ("of negative channels", [-4, 0, 0, 0], [0, 0]),
        ("with offsets of 255", [0, 0, 0, 0], [255, 3]),
        ("with offsets of 256", [0, 0, 0, 0], [256, 0]),
    ] {
        let copy = Copy { coordinates: &coordinates, offsets: &offsets, ..IM2COL };
        load(forms, remark, four(U16, (8, 20)), &copy);
    }
    for interleave in [1, 2] {
        let bytes = 16 * interleave;
        for (remark, coordinates) in
            [("", [0, -1, -1, 0]), (" in the second slice", [1, 0, 2, 1]), (" later", [8, 3, 4, 1])]
        {
            let mut tensor = slices(interleave, U16, 4);
            let (lower, upper) = (vec![-1, -1], vec![-1, -1]);
            let channels = 8 * interleave;
            tensor.shape = Shape::Im2col { lower, upper, channels, pixels: 20 };
            let copy = Copy { coordinates: &coordinates, offsets: &[1, 1], ..IM2COL };
            load(forms, &format!("of {bytes} bytes interleaved{remark}"), tensor, &copy);
        }
    }
}

/// Adds loads with other modifiers, and prefetches.
fn modifiers(forms: &mut Forms) {
    let complete = "mbarrier::complete_tx::bytes";
    let plane = || Tensor::tile(UINT32, &[37, 20], &[8, 6]);
    let at = Copy { coordinates: &[3, 16], ..TILE };
    for modifiers in [
        format!("shared::cta.global.tile.{complete}"),
        format!("shared::cta.global.{complete}"),
        format!("shared::cluster.global.{complete}"),
    ] {
        load(forms, "with other words", plane(), &Copy { modifiers: &modifiers, ..at });
    }
    for space in ["cta", "cluster"] {
        let modifiers = format!("shared::{space}.global.tile.{complete}.L2::cache_hint");
        load(forms, "", plane(), &Copy { modifiers: &modifiers, has_policy: true, ..at });
    }
    let modifiers = format!("shared::cta.global.im2col.{complete}.L2::cache_hint");
    let column = Tensor::im2col(U16, &[16, 7, 6, 3], (&[-1, -1], &[-1, -1]), (8, 20));
    let copy = Copy {
        modifiers: &modifiers,
        coordinates: &[0, 1, 2, 1],
        offsets: &[1, 1],
        has_policy: true,
        ..TILE
    };
    load(forms, "", column.clone(), &copy);
    for promotion in 1..=3 {
        let mut tensor = plane();
        tensor.promotion = promotion;
        load(forms, &format!("with promotion {promotion}"), tensor, &at);
    }
    // The map is copied to global memory, from where the copy reads it.
    for (remark, write) in [
        (
            "of a copied map",
            "mov.u64 %g, copied#;\nmul.wide.u32 %policy, %t, 4;\nadd.u64 %g, %g, %policy;\n\
             add.u64 %policy, %map, %policy;\nld.b32 %r, [%policy];\nst.global.b32 [%g], %r;\n\
             fence.proxy.tensormap::generic.release.gpu;\nbar.sync 0;\nmov.u64 %map, copied#;\n\
             fence.proxy.tensormap::generic.acquire.gpu [%map], 128;\n",
        ),
        (
            "of a map that cp_fenceproxy copies",
            "mul.wide.u32 %policy, %t, 4;\nadd.u64 %policy, %map, %policy;\nld.b32 %r, [%policy];\n\
             shl.b32 %k, %t, 2;\nadd.u32 %k, %x, %k;\nst.shared.b32 [%k], %r;\nbar.warp.sync -1;\n\
             mov.u64 %g, copied#;\n\
             tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%g], [%x], 128;\n\
             mov.u64 %map, copied#;\nfence.proxy.tensormap::generic.acquire.gpu [%map], 128;\nbar.sync 0;\n",
        ),
    ] {
        let form = load(forms, remark, plane(), &at);
        form.code = form.code.replacen(
            "st.shared.v2.b64 [%y],",
            &format!("{write}st.shared.v2.b64 [%y],"),
            1,
        );
        form.declare(".global .align 128 .b8 copied#[128];");
    }
    for (name, tensor, copy) in [
        ("cp.async.bulk.prefetch.tensor.2d.L2.global", plane(), &at),
        ("cp.async.bulk.prefetch.tensor.2d.L2.global.tile", plane(), &at),
        ("cp.async.bulk.prefetch.tensor.2d.L2.global.tile.L2::cache_hint", plane(), &at),
        ("cp.async.bulk.prefetch.tensor.4d.L2.global.im2col", column.clone(), &copy),
    ] {
        let (code, from, mut offsets) = operands(copy, &tensor);
        if name.ends_with("hint") {
            offsets += ", %policy";
        }
        let code = format!("{}{code}{name} {from}{offsets};\nmov.b32 %d0, %t;", begin(32));
        forms.code(name, &code, &[], &[U32]).tensor(tensor).shape([1, 1, 1], [32, 1, 1]);
    }
    for name in ["prefetch.tensormap [%map]", "prefetch.param.tensormap [map]"] {
        let form = forms.code(name, &format!("{name};\nmov.b32 %d0, %t;"), &[], &[U32]);
        form.tensor(plane()).shape([1, 1, 1], [32, 1, 1]);
    }
    for name in expand("fence.proxy.tensormap::generic.acquire.{cta,cluster,gpu,sys}") {
        let form =
            forms.code(&name, &format!("{name} [%map], 128;\nmov.b32 %d0, %t;"), &[], &[U32]);
        form.tensor(plane()).shape([1, 1, 1], [32, 1, 1]);
    }
    clusters(forms, &plane(), &column);
}

/// Adds loads to the blocks of clusters of four.
fn clusters(forms: &mut Forms, plane: &Tensor, column: &Tensor) {
    let complete = "mbarrier::complete_tx::bytes";
    let meet = "barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;\n";
    let neighbor = "mov.u32 %z, gate;\nxor.b32 %k, %r, 3;\nmapa.shared::cluster.u32 %z, %z, %k;\n\
                    mapa.shared::cluster.u32 %x, %x, %k;\nmov.u32 %k, 1;\nmov.pred %q, %p;\n";
    let chosen = |mask: u32| {
        format!(
            "mov.u32 %z, gate;\nmov.u32 %k, {mask};\nshr.u32 %k, %k, %r;\nand.b32 %k, %k, 1;\nmov.u16 %h, {mask};\n\
             setp.eq.u32 %q, %r, 1;\nand.pred %q, %q, %p;\n"
        )
    };
    for (remark, tensor, mode, multicast, begins) in [
        ("to another block", plane, "tile", "", neighbor.to_owned()),
        ("to 0xb", plane, "tile", ".multicast::cluster", chosen(0xb)),
        ("to 0x6", plane, "tile", ".multicast::cluster.L2::cache_hint", chosen(6)),
        ("to another block", column, "im2col", "", neighbor.to_owned()),
        ("to 0xd", column, "im2col", ".multicast::cluster", chosen(13)),
    ] {
        let (coordinates, offsets): (&[i32], &[u16]) = match mode {
            "tile" => (&[3, 16], &[]),
            _ => (&[0, 1, 2, 1], &[1, 1]),
        };
        let (code, from, mut offsets) = operands(&Copy { coordinates, offsets, ..TILE }, tensor);
        if multicast.contains("multicast") {
            offsets += ", %h";
        }
        if multicast.ends_with("hint") {
            offsets += ", %policy";
        }
        let (rank, bytes) = (tensor.dims.len(), tensor.copied());
        let name = format!("{LOAD}.{rank}d.shared::cluster.global.{mode}.{complete}{multicast}");
        let code = format!(
            "{}{code}st.shared.v2.b64 [%y], {{-1, -1}};\nst.shared.v2.b64 [%y+16], {{-1, -1}};\n\
             @%p mbarrier.init.shared.b64 [gate], 1;\nfence.mbarrier_init.release.cluster;\n\
             fence.proxy.async;\n{meet}mov.u32 %r, %cluster_ctarank;\n{begins}mul.lo.u32 %k, %k, {bytes};\n\
             @%p mbarrier.arrive.expect_tx.shared::cta.b64 _, [gate], %k;\n\
             @%q {name} [%x], {from}, [%z]{offsets};\n{WAIT}{meet}\
             ld.shared.v2.b64 {{%d0, %d1}}, [%y];\nld.shared.v2.b64 {{%d2, %d3}}, [%y+16];\n\
             mbarrier.test_wait.parity.shared::cta.b64 %q, [gate], 0;\nselp.u32 %d4, 1, 0, %q;",
            begin(32)
        );
        let form = forms.code(&format!("{name} {remark}"), &code, &[], &[U64, U64, U64, U64, U32]);
        form.direct(".explicitcluster\n.reqnctapercluster 4, 1, 1").tensor(tensor.clone());
        form.shape([4, 1, 1], [32, 1, 1]);
    }
}

fn stores(forms: &mut Forms) {
    for (tensor, places) in ranks() {
        for (place, coordinates) in &places[..4] {
            store(forms, place, tensor.clone(), (LOAD, &Copy { coordinates, ..STORE }));
        }
    }
    let plane = || Tensor::tile(UINT32, &[37, 20], &[8, 6]);
    let copy = Copy { coordinates: &[31, 3], ..STORE };
    for modifiers in
        ["global.shared::cta.bulk_group", "global.shared::cta.bulk_group.L2::cache_hint"]
    {
        let has_policy = modifiers.ends_with("hint");
        store(forms, "", plane(), (LOAD, &Copy { modifiers, has_policy, ..copy }));
    }
    for (kind, ty) in (0..).zip(TYPES) {
        let element = crate::tensor::element(kind);
        let (inner, dim) = (32 / element, 76 / element);
        let mut tensor = Tensor::tile(kind, &[dim, 5], &[inner as u32, 3]);
        tensor.content = Content::Random;
        let copy = Copy { coordinates: &[dim as i32 - inner as i32 + 1, 1], ..STORE };
        store(forms, &format!("of {ty}"), tensor, (LOAD, &copy));
    }
    for (swizzle, inner) in [(1, 32), (2, 64), (3, 128), (2, 48), (3, 64), (3, 96)] {
        let mut tensor = Tensor::tile(UINT32, &[40, 16], &[inner / 4, 13]);
        tensor.swizzle = swizzle;
        let remark = format!("of {inner} bytes with swizzle {}", 16 << swizzle);
        store(forms, &remark, tensor, (LOAD, &Copy { coordinates: &[3, 5], at: 128, ..STORE }));
    }
    for (steps, extents) in [([1, 2], [8, 7]), ([2, 1], [16, 3]), ([4, 3], [16, 6])] {
        let mut tensor = Tensor::tile(UINT32, &[40, 16], &extents);
        tensor.steps = steps.to_vec();
        let remark = format!("with steps {steps:?}");
        store(forms, &remark, tensor, (LOAD, &Copy { coordinates: &[33, 2], ..STORE }));
    }
    for interleave in [1, 2] {
        let bytes = 16 * interleave;
        for (remark, coordinates) in
            [("", [0, 2, 1]), (" below", [0, -1, -1]), (" in a later slice", [1, 6, 5])]
        {
            let remark = format!("of {bytes} bytes interleaved{remark}");
            let copy = Copy { coordinates: &coordinates, ..STORE };
            store(forms, &remark, slices(interleave, U16, 3), (LOAD, &copy));
        }
    }
    columns_back(forms, LOAD, "global.shared::cta.im2col_no_offs.bulk_group");
}

/// Adds stores or reductions of columns of pixels. They have no pixels before the first one.
fn columns_back(forms: &mut Forms, opcode: &str, modifiers: &str) {
    let wide: [(&[u64], &[i32]); 3] =
        [(&[20, 9, 4], &[-1]), (&[20, 7, 6, 3], &[-1, -1]), (&[20, 5, 4, 4, 3], &[-1, 0, -1])];
    for (dims, upper) in wide {
        let rank = dims.len();
        let lower = vec![0; rank - 2];
        let tensor = Tensor::im2col(UINT32, dims, (&lower, upper), (8, 20));
        for (place, first) in
            [("at the start", [0, 0, 0, 0, 0]), ("of late channels", [16, 1, 0, 0, 1])]
        {
            let mut coordinates = first[..rank].to_vec();
            coordinates[rank - 1] = first[4];
            let copy = Copy { modifiers, coordinates: &coordinates, ..STORE };
            store(forms, place, tensor.clone(), (opcode, &copy));
        }
    }
    // The last one has pixels before the first one.
    for (remark, first, pixels) in
        [("at the corner", -1, 4), ("after the corner", 0, 4), ("around the corner", 4, 8)]
    {
        let tensor = Tensor::im2col(UINT32, &[20, 9, 4], (&[-1], &[-1]), (8, pixels));
        let copy = Copy { modifiers, coordinates: &[0, first, 1], ..STORE };
        store(forms, remark, tensor, (opcode, &copy));
    }
    let (lower, upper) = (&[0, 0], &[0, 0]);
    let mut tensor = Tensor::im2col(UINT32, &[32, 7, 6, 3], (lower, upper), (16, 30));
    let copy = Copy { modifiers, coordinates: &[3, 4, 4, 1], ..STORE };
    store(forms, "without margins", tensor.clone(), (opcode, &copy));
    tensor.swizzle = 2;
    store(forms, "with swizzle 64", tensor.clone(), (opcode, &copy));
    (tensor.swizzle, tensor.steps) = (0, vec![1, 2, 2, 1]);
    store(forms, "with steps", tensor, (opcode, &copy));
}

fn reductions(forms: &mut Forms) {
    let reduce = "cp.reduce.async.bulk.tensor";
    let tile = |function: &str| format!("global.shared::cta.{function}.tile.bulk_group");
    for function in ["add", "min", "max", "inc", "dec", "and", "or", "xor"] {
        for (kind, ty) in (0..).zip(TYPES) {
            let element = crate::tensor::element(kind);
            let (inner, dim) = (128 / element, 172 / element);
            let mut tensor = Tensor::tile(kind, &[dim, 9], &[inner as u32, 8]);
            tensor.content = Content::Random;
            let coordinates = [dim as i32 - inner as i32 + 1, 2];
            let copy = Copy { modifiers: &tile(function), coordinates: &coordinates, ..STORE };
            store(forms, &format!("of {ty}"), tensor, (reduce, &copy));
        }
    }
    for (tensor, places) in ranks() {
        let (place, coordinates) = &places[2];
        let copy = Copy { modifiers: &tile("add"), coordinates, ..STORE };
        store(forms, place, tensor, (reduce, &copy));
    }
    let mut tensor = Tensor::tile(UINT32, &[40, 16], &[32, 13]);
    tensor.swizzle = 3;
    let copy = Copy { modifiers: &tile("xor"), coordinates: &[3, 5], at: 128, ..STORE };
    store(forms, "with swizzle 128", tensor.clone(), (reduce, &copy));
    (tensor.swizzle, tensor.steps) = (0, vec![1, 2]);
    store(forms, "with steps", tensor, (reduce, &copy));
    for modifiers in
        ["global.shared::cta.add.bulk_group", "global.shared::cta.add.bulk_group.L2::cache_hint"]
    {
        let has_policy = modifiers.ends_with("hint");
        let copy = Copy { modifiers, coordinates: &[31, 3], has_policy, ..STORE };
        store(forms, "", Tensor::tile(UINT32, &[37, 20], &[8, 6]), (reduce, &copy));
    }
    columns_back(forms, reduce, "global.shared::cta.add.im2col_no_offs.bulk_group");
}

/// Adds copies that end the kernel.
fn faults(forms: &mut Forms) {
    let plane = || Tensor::tile(UINT32, &[37, 20], &[8, 6]);
    for at in [16, 32, 64] {
        let copy = Copy { coordinates: &[0, 0], at, ..TILE };
        load(forms, &format!("at {at} bytes"), plane(), &copy);
        let copy = Copy { coordinates: &[0, 0], at, ..STORE };
        store(forms, &format!("at {at} bytes"), plane(), (LOAD, &copy));
    }
    for (kind, coordinate) in [(UINT32, 1), (UINT32, -3), (U8, 8), (4, 1)] {
        let tensor = Tensor::tile(kind, &[64, 20], &[16, 6]);
        let copy = Copy { coordinates: &[coordinate, 0], is_exact: true, ..TILE };
        let remark = format!("of {} from {coordinate}", TYPES[kind as usize]);
        load(forms, &remark, tensor, &copy);
    }
    let copy = Copy { coordinates: &[1, 0], is_exact: true, ..STORE };
    store(forms, "from 1", plane(), (LOAD, &copy));
    let modifiers = "global.shared::cta.add.tile.bulk_group";
    store(forms, "from 1", plane(), ("cp.reduce.async.bulk.tensor", &Copy { modifiers, ..copy }));
    for coordinates in [[0, -1], [-4, 0]] {
        let copy = Copy { modifiers, coordinates: &coordinates, ..STORE };
        let remark = format!("from {coordinates:?}");
        store(forms, &remark, plane(), ("cp.reduce.async.bulk.tensor", &copy));
    }
    let copy = Copy { coordinates: &[4, 0, 0, 0], offsets: &[0, 0], is_exact: true, ..IM2COL };
    let column = Tensor::im2col(U16, &[20, 7, 6, 3], (&[-1, -1], &[-1, -1]), (8, 20));
    load(forms, "from channel 4", column, &copy);
    let copy = Copy { coordinates: &[0, 1, 2], at: 64, ..TILE };
    load(forms, "interleaved at 64 bytes", slices(1, U16, 3), &copy);
    let four = [16, 7, 6, 3];
    let column = || Tensor::im2col(U16, &four, (&[-1, -1], &[-1, -1]), (8, 20));
    let tile = Tensor::tile(U16, &four, &[8, 4, 3, 2]);
    let copy = Copy { coordinates: &[0; 4], offsets: &[0, 0], ..IM2COL };
    load(forms, "of the map of a tile", tile, &copy);
    load(forms, "of the map of a column", column(), &Copy { coordinates: &[0; 4], ..TILE });
    let mut other = plane();
    let form =
        load(forms, "of a map of two dimensions", plane(), &Copy { coordinates: &[0; 2], ..TILE });
    form.code = form.code.replace(".2d.", ".3d.").replace("{%c0, %c1}", "{%c0, %c1, 0}");
    let form = load(forms, "of a map of zeros", plane(), &Copy { coordinates: &[0; 2], ..TILE });
    form.code = form
        .code
        .replace("[%map,", "[%g,")
        .replace("st.shared.v2.b64 [%y],", "mov.u64 %g, zeros#;\nst.shared.v2.b64 [%y],");
    form.declare(".global .align 128 .b8 zeros#[128];");
    other.dims[1] = 1 << 30;
    load(forms, "of memory outside", other, &Copy { coordinates: &[0, 1 << 29], ..TILE });
    let copy = Copy { coordinates: &[0, 0], at: 1 << 20, ..TILE };
    let form = load(forms, "to memory outside", plane(), &Copy { at: 0, ..copy });
    form.code = form.code.replace("[%x+0]", "[%x+1048576]");
    let code = format!(
        "{}{}cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%g, {{%c0, %c1}}];\nmov.b32 %d0, %t;",
        begin(32),
        ".reg .b32 %c<2>;\nmov.b32 %c0, 0;\nmov.b32 %c1, 0;\nmov.u64 %g, zeros#;\n"
    );
    let form = forms.code("cp.async.bulk.prefetch.tensor of a map of zeros", &code, &[], &[U32]);
    form.tensor(plane())
        .declare(".global .align 128 .b8 zeros#[128];")
        .shape([1, 1, 1], [32, 1, 1]);
}
