//! The speed of kernels, beside a Rust loop of the same work, on one core: `cargo bench -p cuda-ptx --bench run`.
//! `-- NAME` runs one of them: `mixed`, `saxpy` or `product`, or `checks`: the factor of each check on these kernels
//! and on one with shared memory and barriers.

use cuda_ptx::check::{Check, Checks, SiteId};
use cuda_ptx::{Access, Device, Launch, Program, Region, Validity, run, syntax};
use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

/// Memory with one allocation, and the bits of it that were written.
struct Memory(Vec<AtomicU64>, Vec<AtomicU64>);

const BASE: u64 = 0x7000_0000_0000;

impl Device for Memory {
    fn region(
        &self,
        address: u64,
        _len: u64,
        _access: Access,
        _: SiteId,
    ) -> Result<Region<'_>, String> {
        let end = BASE + 8 * self.0.len() as u64;
        if !(BASE..end).contains(&address) {
            return Err("nothing is allocated there".to_owned());
        }
        Ok(Region::new(BASE, &self.0))
    }
    fn validity(&self, _address: u64, _len: u64) -> Validity<'_> {
        let end = BASE + 8 * self.1.len() as u64;
        let written = Region::new(BASE, &self.1);
        Validity { start: BASE, end, written: Some(written), is_host_visible: false }
    }
    fn print(&self, _text: &str) {}
    fn allocate(&self, _size: u64) -> Option<u64> {
        None
    }
    fn free(&self, _address: u64) -> Result<(), String> {
        Ok(())
    }
    fn set_conditional(&self, _handle: u64, _value: u32) -> Result<(), String> {
        Ok(())
    }
}

const HEAD: &str = ".version 8.3\n.target sm_90\n.address_size 64\n";

/// The loop of 14 instructions.
fn mixed() -> String {
    format!(
        "{HEAD}.visible .entry k(.param .u64 out) {{
         .reg .pred %p<3>; .reg .b32 %r<13>; .reg .b64 %d<3>; .reg .f32 %f<3>;
         mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
         mad.lo.u32 %r4, %r1, %r2, %r3; ld.param.u64 %d1, [out];
         mul.wide.u32 %d2, %r4, 4; add.u64 %d1, %d1, %d2;
         mov.u32 %r5, 0; mov.u32 %r6, %r4; mov.f32 %f1, 0f3F800000;
         LOOP:
         mad.lo.u32 %r6, %r6, 1664525, 1013904223;
         add.u32 %r7, %r6, %r5; xor.b32 %r8, %r7, %r4; shl.b32 %r9, %r8, 3;
         mul.rn.f32 %f2, %f1, 0f3F7FFF00; add.rn.f32 %f1, %f2, 0f3A83126F;
         ld.global.u32 %r10, [%d1]; add.u32 %r11, %r10, %r9; st.global.u32 [%d1], %r11;
         setp.gt.u32 %p2, %r11, 2147483648; selp.u32 %r6, %r11, %r6, %p2;
         add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 200; @%p1 bra LOOP;
         cvt.rzi.u32.f32 %r12, %f1; add.u32 %r11, %r11, %r12; st.global.u32 [%d1], %r11; ret; }}"
    )
}

fn saxpy() -> String {
    format!(
        "{HEAD}.visible .entry k(.param .u64 x, .param .u64 y, .param .u32 n) {{
         .reg .pred %p<2>; .reg .b32 %r<6>; .reg .b64 %d<8>; .reg .f32 %f<4>;
         mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
         mad.lo.s32 %r4, %r1, %r2, %r3; ld.param.u32 %r5, [n]; setp.ge.u32 %p1, %r4, %r5;
         @%p1 bra DONE;
         ld.param.u64 %d1, [x]; ld.param.u64 %d2, [y]; cvta.to.global.u64 %d3, %d1;
         cvta.to.global.u64 %d4, %d2; mul.wide.s32 %d5, %r4, 4; add.s64 %d6, %d3, %d5;
         add.s64 %d7, %d4, %d5; ld.global.f32 %f1, [%d6]; ld.global.f32 %f2, [%d7];
         fma.rn.f32 %f3, %f1, 0f40000000, %f2; st.global.f32 [%d7], %f3;
         DONE: ret; }}"
    )
}

/// A product of square matrices of this size.
fn product(size: u32) -> String {
    format!(
        "{HEAD}.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c) {{
         .reg .pred %p<2>; .reg .b32 %r<12>; .reg .b64 %d<7>; .reg .f32 %f<4>;
         mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
         mad.lo.u32 %r4, %r1, %r2, %r3; mov.u32 %r5, %ctaid.y; mov.u32 %r6, %tid.y;
         mov.u32 %r7, %ntid.y; mad.lo.u32 %r8, %r5, %r7, %r6;
         ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b]; ld.param.u64 %d3, [c];
         mul.lo.u32 %r9, %r8, {size}; mul.wide.u32 %d4, %r9, 4; add.u64 %d1, %d1, %d4;
         mul.wide.u32 %d5, %r4, 4; add.u64 %d2, %d2, %d5; mov.f32 %f1, 0f00000000; mov.u32 %r10, 0;
         LOOP: ld.global.f32 %f2, [%d1]; ld.global.f32 %f3, [%d2]; fma.rn.f32 %f1, %f2, %f3, %f1;
         add.u64 %d1, %d1, 4; add.u64 %d2, %d2, {row}; add.u32 %r10, %r10, 1;
         setp.lt.u32 %p1, %r10, {size}; @%p1 bra LOOP;
         add.u32 %r11, %r9, %r4; mul.wide.u32 %d6, %r11, 4; add.u64 %d3, %d3, %d6;
         st.global.f32 [%d3], %f1; ret; }}",
        row = 4 * size
    )
}

/// A sum of the 256 numbers of each block in shared memory, a hundred times.
fn sum() -> String {
    format!(
        "{HEAD}.visible .entry k(.param .u64 x) {{
         .reg .pred %p<3>; .reg .b32 %r<12>; .reg .b64 %d<4>; .shared .align 4 .b8 s[1024];
         mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
         mad.lo.u32 %r4, %r1, %r2, %r3; ld.param.u64 %d1, [x]; mul.wide.u32 %d2, %r4, 4;
         add.u64 %d1, %d1, %d2; mov.u32 %r5, s; shl.b32 %r6, %r3, 2; add.u32 %r6, %r5, %r6;
         mov.u32 %r10, 0;
         AGAIN: ld.global.u32 %r7, [%d1]; st.shared.u32 [%r6], %r7; mov.u32 %r8, 128;
         LOOP: bar.sync 0; setp.ge.u32 %p1, %r3, %r8; @%p1 bra NEXT;
         shl.b32 %r9, %r8, 2; add.u32 %r9, %r6, %r9; ld.shared.u32 %r11, [%r9];
         ld.shared.u32 %r7, [%r6]; add.u32 %r7, %r7, %r11; st.shared.u32 [%r6], %r7;
         NEXT: shr.u32 %r8, %r8, 1; setp.ne.u32 %p2, %r8, 0; @%p2 bra LOOP; bar.sync 0;
         add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 100; @%p1 bra AGAIN;
         st.global.u32 [%d1], %r7; ret; }}"
    )
}

fn link(text: &str) -> Program {
    let module = syntax::parse(text).unwrap_or_else(|error| panic!("{error}"));
    Program::link(&[module]).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the milliseconds of the fastest of some runs.
fn fastest(mut f: impl FnMut()) -> f64 {
    let times = (0..20).map(|_| {
        let start = Instant::now();
        f();
        start.elapsed().as_secs_f64() * 1e3
    });
    times.fold(f64::INFINITY, f64::min)
}

/// Returns the milliseconds of a kernel without checks, and the factor of each check, from alternate runs.
fn factors(
    text: &str,
    memory: &Memory,
    (grid, block): ([u32; 3], [u32; 3]),
    params: &[u64],
) -> (f64, Vec<(Checks, f64)>) {
    let program = link(text);
    let params: Vec<u8> = params.iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut launch = Launch::new(&program, 0);
    (launch.grid, launch.block, launch.params) = (grid, block, &params);
    let alone = Check::ALL.map(|check| Checks::MEMCHECK.with(check));
    let mut best = [f64::INFINITY; Check::ALL.len()];
    for _ in 0..10 {
        for (checks, best) in alone.iter().zip(&mut best) {
            launch.checks = *checks;
            let start = Instant::now();
            run(&launch, memory).unwrap_or_else(|fault| panic!("{fault}"));
            *best = best.min(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    let factors =
        alone.into_iter().zip(best).skip(1).map(|(checks, time)| (checks, time / best[0]));
    (best[0], factors.collect())
}

fn bench_checks(memory: &Memory) {
    let count = 1u64 << 20;
    let both = [BASE, BASE + 4 * count, count];
    let matrices = [BASE, BASE + (1 << 18), BASE + (2 << 18)];
    let wide = [(count / 256) as u32, 1, 1];
    for (name, text, shape, params) in [
        ("mixed loop", mixed(), ([64, 1, 1], [128, 1, 1]), &[BASE][..]),
        ("saxpy", saxpy(), (wide, [256, 1, 1]), &both),
        ("product", product(256), ([16, 16, 1], [16, 16, 1]), &matrices),
        ("sum", sum(), ([64, 1, 1], [256, 1, 1]), &[BASE]),
    ] {
        let (time, factors) = factors(&text, memory, shape, params);
        let factors = factors.iter().map(|(checks, factor)| format!("{checks} {factor:.2}"));
        println!("{name}: {time:.1} ms; factors: {}", factors.collect::<Vec<_>>().join(", "));
    }
}

fn kernel(
    text: &str,
    memory: &Memory,
    (grid, block): ([u32; 3], [u32; 3]),
    params: &[u64],
    threads: usize,
) -> f64 {
    let program = link(text);
    let params: Vec<u8> = params.iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut launch = Launch::new(&program, 0);
    (launch.grid, launch.block, launch.params, launch.threads) = (grid, block, &params, threads);
    fastest(|| run(&launch, memory).unwrap_or_else(|fault| panic!("{fault}")))
}

/// The work of [`mixed`], with memory as the kernel accesses it.
fn compiled_mixed(memory: &mut [u32]) {
    for (thread, word) in memory.iter_mut().enumerate() {
        let thread = thread as u32;
        let (mut state, mut f, mut last) = (thread, 1f32, 0u32);
        for round in 0..200u32 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let shifted = (state.wrapping_add(round) ^ thread) << 3;
            f = f * f32::from_bits(0x3f7f_ff00) + 0.001;
            last = black_box(*word).wrapping_add(shifted);
            *word = last;
            if last > 1 << 31 {
                state = last;
            }
        }
        *word = last.wrapping_add(f as u32);
    }
}

fn bench_mixed(memory: &Memory) {
    let ours = kernel(&mixed(), memory, ([64, 1, 1], [128, 1, 1]), &[BASE], 1);
    let mut words = vec![0u32; 8192];
    let compiled = fastest(|| compiled_mixed(black_box(&mut words)));
    let instructions = 8192.0 * 200.0 * 14.0;
    println!(
        "mixed loop: {ours:.1} ms, {:.2} ns per instruction of a thread; compiled {compiled:.1} ms; factor {:.1}",
        ours * 1e6 / instructions,
        ours / compiled
    );
}

fn bench_saxpy(memory: &Memory) {
    let count = 1u64 << 20;
    let both = [BASE, BASE + 4 * count, count];
    let grid = ([(count / 256) as u32, 1, 1], [256, 1, 1]);
    let one = kernel(&saxpy(), memory, grid, &both, 1);
    println!("saxpy of 2^20 threads: {one:.1} ms");
}

fn bench_product(memory: &Memory) {
    let matrices = [BASE, BASE + (1 << 18), BASE + (2 << 18)];
    let grid = ([16, 16, 1], [16, 16, 1]);
    let one = kernel(&product(256), memory, grid, &matrices, 1);
    let two = kernel(&product(256), memory, grid, &matrices, 2);
    println!(
        "product of 256 x 256 matrices: {one:.1} ms; with two threads {two:.1} ms, factor {:.2}",
        one / two
    );
}

fn main() {
    let words = |value| (0..1 << 21).map(|_| AtomicU64::new(value)).collect();
    let memory = Memory(words(0), words(u64::MAX));
    let chosen = std::env::args().nth(1).filter(|its| !its.starts_with("--"));
    let is_chosen = |name: &str| chosen.as_ref().is_none_or(|chosen| chosen == name);
    if is_chosen("mixed") {
        bench_mixed(&memory);
    }
    if is_chosen("saxpy") {
        bench_saxpy(&memory);
    }
    if is_chosen("product") {
        bench_product(&memory);
    }
    if is_chosen("checks") {
        bench_checks(&memory);
    }
}
