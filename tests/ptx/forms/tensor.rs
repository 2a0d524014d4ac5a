//! Bulk asynchronous copies of tensors.

use crate::common::random::Random;
use crate::form::Kind::{U32, U64};
use crate::form::{Form, Forms};
use crate::tensor::{Content, Tensor};

pub(super) fn add(forms: &mut Forms) {
    prefetches(forms);
    reductions(forms);
}

const U16: u32 = 1;
const UINT32: u32 = 2;

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

/// Adds prefetches, which have no effect that a thread sees.
fn prefetches(forms: &mut Forms) {
    let plane = || Tensor::tile(UINT32, &[37, 20], &[8, 6]);
    let at = Copy { coordinates: &[3, 16], ..TILE };
    let column = Tensor::im2col(U16, &[16, 7, 6, 3], (&[-1, -1], &[-1, -1]), (8, 20));
    let copy = Copy { coordinates: &[0, 1, 2, 1], offsets: &[1, 1], ..TILE };
    let copy = &copy;
    for (name, tensor, copy) in [
        ("cp.async.bulk.prefetch.tensor.2d.L2.global", plane(), &at),
        ("cp.async.bulk.prefetch.tensor.2d.L2.global.tile", plane(), &at),
        ("cp.async.bulk.prefetch.tensor.2d.L2.global.tile.L2::cache_hint", plane(), &at),
        ("cp.async.bulk.prefetch.tensor.4d.L2.global.im2col", column.clone(), copy),
    ] {
        let (code, from, mut offsets) = operands(copy, &tensor);
        if name.ends_with("hint") {
            offsets += ", %policy";
        }
        let code = format!("{}{code}{name} {from}{offsets};\nmov.b32 %d0, %t;", begin(32));
        forms.code(name, &code, &[], &[U32]).tensor(tensor).shape([1, 1, 1], [32, 1, 1]);
    }
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

fn reductions(forms: &mut Forms) {
    let reduce = "cp.reduce.async.bulk.tensor";
    let tile = |function: &str| format!("global.shared::cta.{function}.tile.bulk_group");
    for (tensor, places) in &ranks()[..3] {
        let (place, coordinates) = &places[2];
        let copy = Copy { modifiers: &tile("add"), coordinates, ..TILE };
        store(forms, place, tensor.clone(), (reduce, &copy));
    }
    let mut tensor = Tensor::tile(UINT32, &[40, 16], &[32, 13]);
    tensor.steps = vec![1, 2];
    let copy = Copy { modifiers: &tile("xor"), coordinates: &[3, 5], at: 128, ..TILE };
    store(forms, "with steps", tensor, (reduce, &copy));
    for modifiers in
        ["global.shared::cta.add.bulk_group", "global.shared::cta.add.bulk_group.L2::cache_hint"]
    {
        let has_policy = modifiers.ends_with("hint");
        let copy = Copy { modifiers, coordinates: &[31, 3], has_policy, ..TILE };
        store(forms, "", Tensor::tile(UINT32, &[37, 20], &[8, 6]), (reduce, &copy));
    }
    let copy = Copy { modifiers: &tile("add"), coordinates: &[1, 0], is_exact: true, ..TILE };
    store(forms, "from 1", Tensor::tile(UINT32, &[37, 20], &[8, 6]), (reduce, &copy));
}
