//! Operations on matrices that the lanes of a warp share.

use crate::device::{Memory, kernel, launch, launch_with, link};
use cuda_ptx::FaultKind;
use cuda_ptx::check::Checks;

/// Runs code on a warp, in which `%r0` is the lane and `%r1` the address of 1 KiB of shared memory whose elements of 16
/// bits are their own index. Returns `%r10` to `%r13` of each lane, and the shared memory.
fn warp(body: &str) -> Result<(Vec<[u32; 4]>, Vec<u16>), FaultKind> {
    let text = kernel(
        2,
        &format!(
            ".shared .align 16 .b8 s[1024]; ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1];
             mov.u32 %r0, %tid.x; mov.u32 %r1, s; shl.b32 %r2, %r0, 5; add.u32 %r3, %r1, %r2;
             mul.lo.u32 %r4, %r0, 0x100010; add.u32 %r4, %r4, 0x10000; mov.u32 %r5, 0;
             FILL: st.shared.u32 [%r3], %r4; add.u32 %r4, %r4, 0x20002; add.u32 %r3, %r3, 4;
             add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 8; @%p1 bra FILL; bar.warp.sync -1;
             {body}
             bar.warp.sync -1; mul.wide.u32 %d2, %r0, 16; add.u64 %d0, %d0, %d2;
             st.global.v4.u32 [%d0], {{%r10, %r11, %r12, %r13}};
             mul.wide.u32 %d2, %r0, 32; add.u64 %d1, %d1, %d2; add.u32 %r3, %r1, %r2;
             ld.shared.v4.u32 {{%r20, %r21, %r22, %r23}}, [%r3];
             st.global.v4.u32 [%d1], {{%r20, %r21, %r22, %r23}};
             ld.shared.v4.u32 {{%r20, %r21, %r22, %r23}}, [%r3+16];
             st.global.v4.u32 [%d1+16], {{%r20, %r21, %r22, %r23}};"
        ),
    );
    let mut memory = Memory::default();
    let (registers, shared) = (memory.words(&[0; 128]), memory.words(&[0; 256]));
    launch(&text, &memory, (1, 32), &[registers, shared]).map_err(|fault| fault.kind)?;
    let registers = memory.read(registers);
    let lanes = registers.chunks_exact(4).map(|lane| [lane[0], lane[1], lane[2], lane[3]]);
    let shared = memory.read(shared);
    let elements = shared.iter().flat_map(|word| [*word as u16, (word >> 16) as u16]);
    Ok((lanes.collect(), elements.collect()))
}

fn pair(low: u32, high: u32) -> u32 {
    low | high << 16
}

#[test]
fn a_load_of_matrices_gives_each_lane_two_elements_of_a_row_or_column() {
    for (count, list) in [(1, "%r10"), (2, "%r10, %r11"), (4, "%r10, %r11, %r12, %r13")] {
        for (is_transposed, trans) in [(false, ""), (true, ".trans")] {
            // The row of lane n is the (31 − n)-th of 32 bytes, and begins in their middle.
            let (lanes, _) = warp(&format!(
                "mad.lo.u32 %r6, %r0, -32, %r1; add.u32 %r6, %r6, 1008;
                 ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{list}}}, [%r6];"
            ))
            .unwrap();
            let element =
                |matrix: u32, row: u32, column: u32| (31 - 8 * matrix - row) * 16 + 8 + column;
            for (lane, registers) in (0..).zip(lanes) {
                for (matrix, found) in (0u32..).zip(registers) {
                    let (line, place) = (lane / 4, lane % 4 * 2);
                    let expected = match is_transposed {
                        _ if matrix >= count => 0,
                        false => {
                            pair(element(matrix, line, place), element(matrix, line, place + 1))
                        }
                        true => {
                            pair(element(matrix, place, line), element(matrix, place + 1, line))
                        }
                    };
                    assert_eq!(found, expected, "x{count}{trans}, lane {lane}, matrix {matrix}");
                }
            }
        }
    }
}

#[test]
fn a_store_of_matrices_writes_the_rows_that_lanes_name() {
    for (count, list) in [(1, "%r20"), (2, "%r20, %r21"), (4, "%r20, %r21, %r22, %r23")] {
        for (is_transposed, trans) in [(false, ""), (true, ".trans")] {
            let (_, shared) = warp(&format!(
                "mad.lo.u32 %r20, %r0, 0x20002, 0xa001a000; add.u32 %r21, %r20, 0x01000100;
                 add.u32 %r22, %r21, 0x01000100; add.u32 %r23, %r22, 0x01000100;
                 mad.lo.u32 %r6, %r0, 32, %r1;
                 stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%r6], {{{list}}};"
            ))
            .unwrap();
            for (at, found) in (0..).zip(shared) {
                let (line, column) = (at / 16, at % 16);
                let (matrix, row) = (line / 8, line % 8);
                let (row, place) = if is_transposed { (column, row) } else { (row, column) };
                let expected = match matrix < count && column < 8 {
                    true => 0xa000 + 0x100 * matrix + 8 * row + place,
                    false => at,
                };
                assert_eq!(found, expected, "x{count}{trans}, element {at}");
            }
        }
    }
}

#[test]
fn a_transposition_exchanges_rows_and_columns() {
    let (lanes, _) = warp(
        "mad.lo.u32 %r20, %r0, 0x20002, 0x10000; movmatrix.sync.aligned.m8n8.trans.b16 %r10, %r20;",
    )
    .unwrap();
    for (lane, [found, ..]) in (0..).zip(lanes) {
        let (row, column) = (lane / 4, lane % 4 * 2);
        assert_eq!(found, pair(8 * column + row, 8 * (column + 1) + row), "lane {lane}");
    }
}

#[test]
fn only_the_lanes_of_the_matrices_give_addresses() {
    let load = "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r10, %r11}, [%r6];";
    let address = |wrong: u32| {
        format!(
            "shl.b32 %r6, %r0, 4; add.u32 %r6, %r6, %r1; setp.eq.u32 %p1, %r0, {wrong};
             @%p1 mov.u32 %r6, -3; {load}"
        )
    };
    assert!(warp(&address(16)).is_ok());
    assert_eq!(warp(&address(15)).unwrap_err(), FaultKind::MisalignedAddress);
}

#[test]
fn rows_are_aligned_and_in_the_shared_memory_of_the_block() {
    for (address, kind) in [
        (
            "add.u32 %r6, %r1, 8; cvt.u64.u32 %d5, %r6; cvta.shared.u64 %d5, %d5;",
            FaultKind::MisalignedAddress,
        ),
        ("mov.u64 %d5, 1024; cvta.shared.u64 %d5, %d5;", FaultKind::IllegalAddress),
        ("mov.u64 %d5, %d1;", FaultKind::IllegalAddress),
    ] {
        for access in [
            "ldmatrix.sync.aligned.m8n8.x1.b16 {%r10}, [%d5];",
            "stmatrix.sync.aligned.m8n8.x1.b16 [%d5], {%r10};",
        ] {
            assert_eq!(
                warp(&format!("{address} {access}")).unwrap_err(),
                kind,
                "{address} {access}"
            );
        }
    }
    let generic = "cvt.u64.u32 %d5, %r1; cvta.shared.u64 %d5, %d5;
                   ldmatrix.sync.aligned.m8n8.x1.b16 {%r10}, [%d5+16];";
    assert_eq!(warp(generic).unwrap().0[5][0], pair(8 + 2, 8 + 3));
}

#[test]
fn rows_are_in_the_shared_memory_of_the_own_block_of_a_cluster() {
    let of_block = |other: u32| {
        let text = kernel(
            0,
            &format!(
                ".shared .align 16 .b8 s[128]; mov.u32 %r1, s; cvt.u64.u32 %d1, %r1; cvta.shared.u64 %d1, %d1;
                 mov.u32 %r2, %cluster_ctarank; xor.b32 %r2, %r2, {other}; mapa.u64 %d2, %d1, %r2;
                 ldmatrix.sync.aligned.m8n8.x1.b16 {{%r10}}, [%d2];"
            ),
        );
        let memory = Memory::default();
        launch_with(&text, &memory, (2, 32), &[], |launch| launch.cluster = [2, 1, 1])
    };
    assert_eq!(of_block(0), Ok(()));
    let fault = of_block(1).unwrap_err();
    assert_eq!(fault.kind, FaultKind::IllegalAddress);
    assert!(fault.text.contains("not in the shared memory of the block"), "{}", fault.text);
}

#[test]
fn lanes_meet_at_an_operation_on_matrices() {
    let (lanes, _) = warp(
        "setp.lt.u32 %p2, %r0, 7; @%p2 bra LOW; mov.u32 %r20, 0x50005; bra MEET;
         LOW: mov.u32 %r20, 0x30003; mov.u32 %r21, 0;
         WAIT: add.u32 %r21, %r21, 1; setp.lt.u32 %p3, %r21, 9; @%p3 bra WAIT;
         MEET: movmatrix.sync.aligned.m8n8.trans.b16 %r10, %r20;",
    )
    .unwrap();
    // The first seven lanes have the first row and six elements of the second.
    for (lane, [found, ..]) in (0..).zip(lanes) {
        let element = |row, column| if 8 * row + column < 14 { 3 } else { 5 };
        let (row, column) = (lane / 4, lane % 4 * 2);
        assert_eq!(found, pair(element(column, row), element(column + 1, row)), "lane {lane}");
    }
}

/// The rows, columns and inner extent of a product, and those of the part that a block computes.
const PRODUCT: [usize; 3] = [64, 32, 48];
const BLOCK: [usize; 2] = [32, 16];

/// Blocks of two warps, each of which computes 16 rows and 16 columns: a kernel with `ldmatrix` and `mma` as compilers
/// make it. The parameters are `a` and `b` in rows, and `d`.
fn product() -> String {
    let [_, n, k] = PRODUCT;
    kernel(
        3,
        &format!(
            ".shared .align 16 .b8 sa[1024]; .shared .align 16 .b8 sb[512];
             ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; ld.param.u64 %d2, [p2];
             mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; mov.u32 %r3, sa; mov.u32 %r4, sb;
             and.b32 %r5, %r0, 31; shr.u32 %r6, %r0, 5;
             // Each thread copies 16 bytes of a, and half of them those of b.
             shr.u32 %r7, %r0, 1; and.b32 %r8, %r0, 1; shl.b32 %r9, %r8, 4;
             mad.lo.u32 %r10, %r7, 32, %r9; add.u32 %r11, %r10, %r3; add.u32 %r12, %r10, %r4;
             mad.lo.u32 %r13, %r1, 32, %r7; mad.lo.u32 %r13, %r13, {a_line}, %r9;
             cvt.u64.u32 %d3, %r13; add.u64 %d3, %d0, %d3;
             mad.lo.u32 %r14, %r7, {b_line}, %r9; mad.lo.u32 %r14, %r2, 32, %r14;
             cvt.u64.u32 %d4, %r14; add.u64 %d4, %d1, %d4;
             // The row of a and b that a lane names.
             and.b32 %r15, %r5, 15; shr.u32 %r16, %r5, 4; shl.b32 %r16, %r16, 4;
             mad.lo.u32 %r17, %r6, 16, %r15; mad.lo.u32 %r17, %r17, 32, %r16; add.u32 %r17, %r17, %r3;
             mad.lo.u32 %r18, %r15, 32, %r16; add.u32 %r18, %r18, %r4;
             setp.lt.u32 %p1, %r0, 32; mov.u32 %r19, 0;
             LOOP: cp.async.cg.shared.global [%r11], [%d3], 16; @%p1 cp.async.cg.shared.global [%r12], [%d4], 16;
             cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;
             ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r20, %r21, %r22, %r23}}, [%r17];
             ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {{%r24, %r25, %r26, %r27}}, [%r18];
             mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%f0, %f1, %f2, %f3}},
                 {{%r20, %r21, %r22, %r23}}, {{%r24, %r25}}, {{%f0, %f1, %f2, %f3}};
             mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%f4, %f5, %f6, %f7}},
                 {{%r20, %r21, %r22, %r23}}, {{%r26, %r27}}, {{%f4, %f5, %f6, %f7}};
             bar.sync 0; add.u64 %d3, %d3, 32; add.u64 %d4, %d4, {b_step};
             add.u32 %r19, %r19, 16; setp.lt.u32 %p2, %r19, {k}; @%p2 bra LOOP;
             mad.lo.u32 %r28, %r1, 2, %r6; shr.u32 %r29, %r5, 2; mad.lo.u32 %r28, %r28, 16, %r29;
             and.b32 %r30, %r5, 3; shl.b32 %r30, %r30, 1; mad.lo.u32 %r30, %r2, 16, %r30;
             mad.lo.u32 %r30, %r28, {n}, %r30; mul.wide.u32 %d5, %r30, 4; add.u64 %d2, %d2, %d5;
             st.global.v2.f32 [%d2], {{%f0, %f1}}; st.global.v2.f32 [%d2+{d_half}], {{%f2, %f3}};
             st.global.v2.f32 [%d2+32], {{%f4, %f5}}; st.global.v2.f32 [%d2+{d_last}], {{%f6, %f7}};",
            a_line = 2 * k,
            b_line = 2 * n,
            b_step = 16 * 2 * n,
            d_half = 8 * 4 * n,
            d_last = 8 * 4 * n + 32,
        ),
    )
}

#[test]
fn a_product_of_halves_is_that_of_the_host() {
    let [m, n, k] = PRODUCT;
    // Halves of a small range, whose products and sums are singles.
    let value = |at: usize| (at * 37 % 61) as f32 / 4.0 - 7.5;
    let half = |at: usize| cuda_ptx::number::convert::f32_to_f16(value(at).to_bits());
    let words = |from: usize, count: usize| -> Vec<u32> {
        let pairs = (0..count / 2).map(|at| [half(from + 2 * at), half(from + 2 * at + 1)]);
        pairs.map(|[low, high]| pair(low.into(), high.into())).collect()
    };
    for seed in 0..4 {
        let mut memory = Memory::default();
        let (a, b) = (memory.words(&words(0, m * k)), memory.words(&words(5, k * n)));
        let d = memory.words(&vec![0; m * n]);
        launch_with(&product(), &memory, (1, 64), &[a, b, d], |launch| {
            launch.grid = [(m / BLOCK[0]) as u32, (n / BLOCK[1]) as u32, 1];
            launch.seed = seed;
            launch.checks = Checks::ALL;
        })
        .unwrap();
        assert_eq!(memory.findings.lock().unwrap().as_slice(), &[]);
        for (at, found) in memory.read(d).into_iter().enumerate() {
            let (row, column) = (at / n, at % n);
            let products =
                (0..k).map(|inner| value(row * k + inner) * value(5 + inner * n + column));
            assert_eq!(f32::from_bits(found), products.sum::<f32>(), "row {row}, column {column}");
        }
    }
}

/// Returns the registers of the lane 0 after a multiplication of matrices of which all elements have these bits. The
/// summand is `c`, and the numbers of registers are those of `d`, `a` and `b`.
fn multiplied(modifiers: &str, [d, a, b]: [usize; 3], [x, y, c]: [u64; 3]) -> Vec<u64> {
    let is_wide = modifiers.contains("f64");
    let (letter, ty) = if is_wide { ("d", "b64") } else { ("r", "b32") };
    let sets = |from: usize, count: usize, value: u64| -> String {
        (from..from + count).map(|at| format!("mov.{ty} %{letter}{at}, {value:#x};")).collect()
    };
    let list = |from: usize, count: usize| {
        let names = (from..from + count).map(|at| format!("%{letter}{at}"));
        format!("{{{}}}", names.collect::<Vec<_>>().join(", "))
    };
    let stores: String = (0..d)
        .map(|at| format!("st.global.{ty} [%d50+{}], %{letter}{};", 8 * at, 10 + at))
        .collect();
    let text = kernel(
        1,
        &format!(
            "{}{}{} mma.sync.aligned.{modifiers} {}, {}, {}, {};
             ld.param.u64 %d50, [p0]; mov.u32 %r59, %tid.x; setp.ne.u32 %p1, %r59, 0; @%p1 exit; {stores}",
            sets(20, a, x),
            sets(30, b, y),
            sets(40, d, c),
            list(10, d),
            list(20, a),
            list(30, b),
            list(40, d),
        ),
    );
    let mut memory = Memory::default();
    let out = memory.words(&[0; 16]);
    launch(&text, &memory, (1, 32), &[out]).unwrap();
    let words = memory.read(out);
    words.chunks(2).take(d).map(|word| u64::from(word[0]) | u64::from(word[1]) << 32).collect()
}

#[test]
fn each_type_of_elements_is_multiplied() {
    let single = |value: f32| u64::from(value.to_bits());
    let halves = |bits: u64| bits << 16 | bits;
    for (modifiers, counts, operands, expected) in [
        // 16 · 1.5 · 2 + 0.5
        (
            "m16n8k16.row.col.f32.f16.f16.f32",
            [4, 4, 2],
            [halves(0x3e00), halves(0x4000), single(0.5)],
            single(48.5),
        ),
        (
            "m16n8k8.row.col.f16.f16.f16.f16",
            [2, 2, 1],
            [halves(0x3e00), halves(0x4000), halves(0x3800)],
            halves(0x4e20),
        ),
        (
            "m16n8k8.row.col.f32.bf16.bf16.f32",
            [4, 2, 1],
            [halves(0x3fc0), halves(0x4000), single(0.5)],
            single(24.5),
        ),
        // The low 13 bits are not used.
        (
            "m16n8k4.row.col.f32.tf32.tf32.f32",
            [4, 2, 1],
            [0x3fc0_1fff, single(2.0), single(0.5)],
            single(12.5),
        ),
        (
            "m16n8k32.row.col.f32.e4m3.e5m2.f32",
            [4, 4, 2],
            [0x3c3c_3c3c, 0x4040_4040, single(0.5)],
            single(96.5),
        ),
        (
            "m8n8k4.row.col.f64.f64.f64.f64",
            [2, 1, 1],
            [1.5f64.to_bits(), 2f64.to_bits(), 0.5f64.to_bits()],
            12.5f64.to_bits(),
        ),
        (
            "m16n8k32.row.col.s32.s8.u8.s32",
            [4, 4, 2],
            [0xfefe_fefe, 0xc8c8_c8c8, 7],
            (7 - 32 * 400) as u32 as u64,
        ),
        (
            "m16n8k32.row.col.s32.s8.u8.s32",
            [4, 4, 2],
            [0x7f7f_7f7f, 0xffff_ffff, 0x7fff_ffff],
            0x8000_0000 + 32 * 127 * 255 - 1,
        ),
        (
            "m16n8k32.row.col.satfinite.s32.s8.u8.s32",
            [4, 4, 2],
            [0x7f7f_7f7f, 0xffff_ffff, 0x7fff_ffff],
            0x7fff_ffff,
        ),
        (
            "m8n8k32.row.col.s32.u4.s4.s32",
            [2, 1, 1],
            [0xffff_ffff, 0x8888_8888, 0],
            (-32 * 120) as u32 as u64,
        ),
        (
            "m16n8k256.row.col.s32.b1.b1.s32.xor.popc",
            [4, 4, 2],
            [0x0000_ffff, 0x0f0f_0f0f, 3],
            128 + 3,
        ),
        (
            "m16n8k128.row.col.s32.b1.b1.s32.and.popc",
            [4, 2, 1],
            [0x0000_ffff, 0x0f0f_0f0f, 3],
            32 + 3,
        ),
        // The four products are rounded, and then the sum.
        (
            "m8n8k4.row.col.f32.f16.f16.f32",
            [8, 2, 2],
            [halves(0x3e00), halves(0x4000), single(0.5)],
            single(12.5),
        ),
    ] {
        assert_eq!(
            multiplied(modifiers, counts, operands),
            vec![expected; counts[0]],
            "{modifiers}"
        );
    }
}

#[test]
fn tensor_cores_cut_off_what_is_far_below_the_greatest_product() {
    // Products of 2⁻¹² · 2⁻¹² below a summand. Of each, 2⁻²⁴ is kept beside 2 and is cut off beside 4.
    let sum = |c: f32| {
        let operands = [0x0c00_0c00, 0x0c00_0c00, c.to_bits().into()];
        multiplied("m16n8k16.row.col.f32.f16.f16.f32", [4, 4, 2], operands)[0] as u32
    };
    assert_eq!(f32::from_bits(sum(2.0)), 2.0 + 16.0 * 2f32.powi(-24));
    assert_eq!(f32::from_bits(sum(4.0)), 4.0);
}

#[test]
fn a_sum_of_infinity_and_not_a_number_is_that_of_its_products() {
    let (one, zero, infinity) = (0x3c00_3c00, 0, 0x7c00_7c00);
    for (a, b, c, expected) in [
        (infinity, one, 0f32, 0x7f80_0000),
        (infinity, one, f32::NEG_INFINITY, 0x7fff_ffff),
        (infinity, zero, 0.0, 0x7fff_ffff),
        (zero, infinity | 0x8000_8000, 0.0, 0x7fff_ffff),
    ] {
        let operands = [a, b, c.to_bits().into()];
        let found = multiplied("m16n8k16.row.col.f32.f16.f16.f32", [4, 4, 2], operands);
        assert_eq!(found, [expected; 4], "{a:#x} · {b:#x} + {c}");
    }
}

#[test]
fn instructions_on_matrices_that_do_not_run_are_named() {
    for (instruction, name) in [
        (
            "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1}, {%r2, %r3},
                 {%f0, %f1, %f2, %f3}, %r4, 0x0;",
            "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        ),
        (
            "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32 {%f0, %f1, %f2, %f3},
                 {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%f0, %f1, %f2, %f3};",
            "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32",
        ),
        ("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r0, %r1}, [%r2];", "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8"),
        ("stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [%r2], {%r0};", "stmatrix.sync.aligned.m16n8.x1.trans.shared.b8"),
        ("wgmma.fence.sync.aligned;", "wgmma.fence.sync.aligned"),
    ] {
        let program = link(&kernel(0, instruction));
        let refused: Vec<&str> = program.kernels()[0].unsupported().map(|(name, _)| name).collect();
        assert_eq!(refused, [name]);
    }
}
