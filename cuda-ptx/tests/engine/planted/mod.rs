//! Small kernels with and without a defect, for the checks of the engine and for the tools of compute-sanitizer.
//!
//! The engine runs them under each seed (`checks`), and a GPU runs them under compute-sanitizer
//! (`tests/ptx/sanitize.rs`). `CHECKS.md` is the table of what both find.

mod bulk;
mod init;
mod memory;
mod patterns;
mod race;
mod sync;

use cuda_ptx::check::Check;

/// A kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// The blocks and the threads of a block.
    pub(crate) shape: (u32, u32),
    pub(crate) cluster: u32,
    pub(crate) body: &'static str,
    pub(crate) expected: Expected,
}

/// What the check of a class finds in a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// The kernel is correct.
    Nothing,
    /// A finding with this part of the text, under each seed.
    Found(&'static str),
    /// The kernel has a defect that the engine does not find, for this reason.
    Missed(&'static str),
}

/// The finding in a kernel whose threads wait without end.
pub(crate) const ENDLESS: &str = "wait without end";

pub(crate) const fn wrong(
    name: &'static str,
    shape: (u32, u32),
    body: &'static str,
    finding: &'static str,
) -> Row {
    Row { name, shape, cluster: 1, body, expected: Expected::Found(finding) }
}

pub(crate) const fn missed(
    name: &'static str,
    shape: (u32, u32),
    body: &'static str,
    reason: &'static str,
) -> Row {
    Row { name, shape, cluster: 1, body, expected: Expected::Missed(reason) }
}

pub(crate) const fn right(name: &'static str, shape: (u32, u32), body: &'static str) -> Row {
    Row { name, shape, cluster: 1, body, expected: Expected::Nothing }
}

/// The same with clusters of two blocks.
pub(crate) const fn pairs(row: Row) -> Row {
    Row { cluster: 2, ..row }
}

/// Kernels with one kind of defect, and correct ones that are similar.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Class {
    pub(crate) name: &'static str,
    /// The check that finds the defects.
    pub(crate) check: Check,
    pub(crate) rows: &'static [Row],
    /// Code that follows each body.
    pub(crate) tail: &'static str,
}

/// All classes.
pub(crate) const CLASSES: &[Class] = &[
    memory::OUT_OF_BOUNDS,
    memory::FREED,
    memory::MISALIGNED,
    init::LOADED,
    init::USED,
    race::SHARED,
    patterns::SHARED,
    race::GLOBAL,
    patterns::GLOBAL,
    sync::BARRIERS,
    sync::WARPS,
    sync::CLUSTERS,
    sync::OBJECTS,
    sync::COPIES,
    bulk::BOUNDS,
    bulk::VALUES,
    bulk::RACES,
    bulk::WAITS,
];

/// The bytes of each memory of a kernel. Its parameters are the addresses of
/// - memory that contains zeros,
/// - memory that nothing has written,
/// - memory of the host that contains zeros,
/// - memory for the results, which nothing has written,
/// - memory that was freed.
pub(crate) const BYTES: usize = 16384;

/// The registers of bodies: `%r0` is the index of the thread, `%r1` of the block, `%r3` of the thread in the grid,
/// `%r5` the address of shared memory, and `%r6` of the thread's word there. `%d0`, `%d10`, `%d20` and `%d50` are the
/// addresses of memory with zeros, without values, of the host, and freed; `%d1`, `%d11` and `%d21` those of the
/// thread's word.
pub(crate) const HEAD: &str = ".shared .align 16 .b8 s[4096]; .shared .align 8 .b64 bar; .local .align 16 .b8 l[64];
ld.param.u64 %d0, [p0]; ld.param.u64 %d10, [p1]; ld.param.u64 %d20, [p2]; ld.param.u64 %d40, [p3]; ld.param.u64 %d50, [p4];
mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %r0;
shl.b32 %r4, %r0, 2; mov.u32 %r5, s; add.u32 %r6, %r5, %r4; mul.wide.u32 %d9, %r3, 4;
add.u64 %d1, %d0, %d9; add.u64 %d11, %d10, %d9; add.u64 %d21, %d20, %d9; add.u64 %d41, %d40, %d9;
mov.u32 %r7, 0; mov.u32 %r8, 0; mov.u32 %r9, 0; mov.u32 %r10, 0; mov.u32 %r11, 0;
setp.eq.u32 %p0, %r0, 0; setp.lt.u32 %p1, %r0, 16; setp.lt.u32 %p2, %r0, 32;
";

/// Keeps the compiler from removing what a body loads.
const TAIL: &str = "
xor.b32 %r50, %r7, %r8; xor.b32 %r51, %r10, %r11; xor.b32 %r50, %r50, %r51; st.global.u32 [%d41], %r50;";

impl Class {
    /// Returns the module of a kernel with this name.
    pub(crate) fn module(&self, row: &Row, kernel: &str) -> String {
        module(kernel, &format!("{HEAD}{}{}{TAIL}", row.body, self.tail))
    }

    /// Returns a number that changes with the text and the launch of a row.
    pub(crate) fn hash(&self, row: &Row) -> String {
        let launch = (row.shape, row.cluster);
        let bytes = format!("{}{launch:?}", self.module(row, "k")).into_bytes();
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        format!("{:016x}", bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, mix))
    }

    /// Returns the name of a row among all rows.
    pub(crate) fn row_name(&self, row: &Row) -> String {
        format!("{}: {}", self.name, row.name)
    }
}

/// The tensors that tensor maps describe: words in rows, and the extents of a box.
pub(crate) const TENSOR: ([u64; 2], [u32; 2]) = ([32, 160], [8, 4]);

/// Returns whether a body uses tensor maps: `map0` in the memory with zeros, and `map1` in the memory without values.
pub(crate) fn has_maps(body: &str) -> bool {
    body.contains("map0") || body.contains("map1")
}

/// Returns the module of a kernel with five addresses as parameters, tensor maps if the body uses them, and registers
/// of all types.
pub(crate) fn module(kernel: &str, body: &str) -> String {
    let maps = match has_maps(body) {
        true => ", .param .align 64 .b8 map0[128], .param .align 64 .b8 map1[128]",
        false => "",
    };
    format!(
        ".version 8.3\n.target sm_90\n.address_size 64\n.visible .entry {kernel}(.param .u64 p0, .param .u64 p1, \
         .param .u64 p2, .param .u64 p3, .param .u64 p4{maps})\n{{\n\
         .reg .pred %p<20>; .reg .b16 %h<20>; .reg .b32 %r<60>; .reg .b64 %d<60>; .reg .f32 %f<20>;\n{body}\nret;\n}}\n"
    )
}

/// Returns each row with its class.
pub(crate) fn all() -> impl Iterator<Item = (&'static Class, &'static Row)> {
    CLASSES.iter().flat_map(|class| class.rows.iter().map(move |row| (class, row)))
}
