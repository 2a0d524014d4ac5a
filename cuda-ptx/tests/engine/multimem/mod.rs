//! `multimem` instructions. No GPU was measured: the expectations are those of the PTX manual.

mod checks;
mod decoder;

use crate::device::{Memory, kernel, launch, launch_with, link, params};
use cuda_ptx::check::SiteId;
use cuda_ptx::{Access, Device, FaultKind, Launch, Region};

/// Loads the parameters: a multicast address into `%d0`, and other addresses into `%d1` and `%d2`.
const HEAD: &str = "ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; ld.param.u64 %d2, [p2];
    mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x;";

fn text(body: &str) -> String {
    kernel(3, &format!("{HEAD}\n{body}"))
}

/// Runs a body with a multicast address that reaches memory with these words. Returns the words afterwards, and those of
/// the memory at `%d1`.
fn run(body: &str, shape: (u32, u32), devices: &[&[u32]]) -> (Vec<Vec<u32>>, Vec<u32>) {
    let mut memory = Memory::default();
    let members: Vec<u64> = devices.iter().map(|words| memory.words(words)).collect();
    let address = memory.multicast_of(&members);
    let out = memory.words(&[0; 4]);
    launch(&text(body), &memory, shape, &[address, out, members[0]])
        .unwrap_or_else(|fault| panic!("{fault}"));
    (members.into_iter().map(|its| memory.read(its)).collect(), memory.read(out))
}

fn words<const N: usize>(values: [f32; N]) -> [u32; N] {
    values.map(f32::to_bits)
}

#[test]
fn a_load_combines_the_values_of_all_devices() {
    let eight = "{%h1, %h2, %h3, %h4, %h5, %h6, %h7, %h8}";
    let store_eight = "st.global.v4.b16 [%d1], {%h1, %h2, %h3, %h4};
        st.global.v4.b16 [%d1+8], {%h5, %h6, %h7, %h8};";
    let double = |value: f64| [value.to_bits() as u32, (value.to_bits() >> 32) as u32];
    let (half, brain) = (0x3c00_6800, 0x3f80_4380);
    for (name, d, store, devices, expected) in [
        ("add.u32", "%r5", "st.global.u32 [%d1], %r5;", vec![vec![7], vec![u32::MAX]], vec![6]),
        ("add.s32", "%r5", "st.global.u32 [%d1], %r5;", vec![vec![7], vec![u32::MAX]], vec![6]),
        (
            "add.u64",
            "%d5",
            "st.global.u64 [%d1], %d5;",
            vec![vec![u32::MAX, 1]; 2],
            vec![u32::MAX - 1, 3],
        ),
        ("min.u32", "%r5", "st.global.u32 [%d1], %r5;", vec![vec![7], vec![u32::MAX]], vec![7]),
        (
            "min.s32",
            "%r5",
            "st.global.u32 [%d1], %r5;",
            vec![vec![7], vec![u32::MAX]],
            vec![u32::MAX],
        ),
        (
            "max.s64",
            "%d5",
            "st.global.u64 [%d1], %d5;",
            vec![vec![9, u32::MAX], vec![5, 0]],
            vec![5, 0],
        ),
        (
            "max.u64",
            "%d5",
            "st.global.u64 [%d1], %d5;",
            vec![vec![9, u32::MAX], vec![5, 0]],
            vec![9, u32::MAX],
        ),
        (
            "and.b32",
            "%r5",
            "st.global.u32 [%d1], %r5;",
            vec![vec![0b1100], vec![0b1010]],
            vec![0b1000],
        ),
        ("or.b64", "%d5", "st.global.u64 [%d1], %d5;", vec![vec![1, 8], vec![2, 4]], vec![3, 12]),
        ("xor.b32", "%r5", "st.global.u32 [%d1], %r5;", vec![vec![1], vec![3], vec![6]], vec![4]),
        // The order is that of the devices.
        (
            "add.f32",
            "%f5",
            "st.global.f32 [%d1], %f5;",
            [1e8, 1.0, -1e8].map(|value| words([value]).to_vec()).to_vec(),
            words([0.0]).to_vec(),
        ),
        (
            "add.f32",
            "%f5",
            "st.global.f32 [%d1], %f5;",
            [1e8, -1e8, 1.0].map(|value| words([value]).to_vec()).to_vec(),
            words([1.0]).to_vec(),
        ),
        // Subnormal numbers are kept.
        ("add.f32", "%f5", "st.global.f32 [%d1], %f5;", vec![vec![3], vec![4]], vec![7]),
        (
            "add.v4.f32",
            "{%f5, %f6, _, %f8}",
            "st.global.v4.f32 [%d1], {%f5, %f6, %f7, %f8};",
            vec![words([1.0, 2.0, 3.0, 4.0]).to_vec(), words([0.5; 4]).to_vec()],
            words([1.5, 2.5, 0.0, 4.5]).to_vec(),
        ),
        (
            "add.f64",
            "%g5",
            "st.global.f64 [%d1], %g5;",
            vec![double(1.0).to_vec(), double(1e-16).to_vec(), double(1e-16).to_vec()],
            double(1.0).to_vec(),
        ),
        // 2048 + 1 + 1 rounds twice in halves. The other half is 1 + 1 + 1.
        (
            "add.f16x2",
            "%r5",
            "st.global.u32 [%d1], %r5;",
            vec![vec![half], vec![0x3c00_3c00]],
            vec![0x4000_6800],
        ),
        (
            "add.f16x2",
            "%r5",
            "st.global.u32 [%d1], %r5;",
            vec![vec![half], vec![0x3c00_3c00], vec![0x3c00_3c00]],
            vec![0x4200_6800],
        ),
        (
            "add.acc::f32.f16x2",
            "%r5",
            "st.global.u32 [%d1], %r5;",
            vec![vec![half], vec![0x3c00_3c00], vec![0x3c00_3c00]],
            vec![0x4200_6801],
        ),
        (
            "add.v2.bf16",
            "{%h1, %h2}",
            "st.global.v2.b16 [%d1], {%h1, %h2};",
            vec![vec![brain], vec![0x3f80_3f80], vec![0x3f80_3f80]],
            vec![0x4040_4380],
        ),
        (
            "add.acc::f32.v2.bf16",
            "{%h1, %h2}",
            "st.global.v2.b16 [%d1], {%h1, %h2};",
            vec![vec![brain], vec![0x3f80_3f80], vec![0x3f80_3f80]],
            vec![0x4040_4381],
        ),
        (
            "add.acc::f32.v2.bf16x2",
            "{%r5, %r6}",
            "st.global.v2.u32 [%d1], {%r5, %r6};",
            vec![vec![brain, 0], vec![0x3f80_3f80, 1], vec![0x3f80_3f80, 1]],
            vec![0x4040_4381, 2],
        ),
        // A number is less and greater than NaN.
        (
            "min.v8.f16",
            eight,
            store_eight,
            vec![vec![0x7e00_3c00, 0, 1, 0x8000_8000], vec![0x3c00_4000, 0x8000_0000, 2, 0]],
            vec![0x3c00_3c00, 0x8000_0000, 1, 0x8000_8000],
        ),
        (
            "max.v4.bf16x2",
            "{%r5, %r6, %r7, %r8}",
            "st.global.v4.u32 [%d1], {%r5, %r6, %r7, %r8};",
            vec![vec![0x7fc0_3f80, 0, 1, 0xbf80_0000], vec![0x3f80_4000, 0x8000_8000, 2, 0]],
            vec![0x3f80_4000, 0, 2, 0],
        ),
        // The value of a single device is not changed.
        (
            "add.bf16x2",
            "%r5",
            "st.global.u32 [%d1], %r5;",
            vec![vec![0x7fc1_ffc1]],
            vec![0x7fc1_ffc1],
        ),
    ] {
        let padded: Vec<Vec<u32>> = devices
            .iter()
            .map(|words| words.iter().copied().chain([0; 4]).take(4).collect())
            .collect();
        let padded: Vec<&[u32]> = padded.iter().map(Vec::as_slice).collect();
        for semantics in ["", ".weak.global", ".relaxed.cta", ".acquire.sys.global"] {
            let body = format!("multimem.ld_reduce{semantics}.{name} {d}, [%d0];\n{store}");
            let (after, result) = run(&body, (1, 1), &padded);
            assert_eq!(result[..expected.len()], expected, "{body}");
            assert_eq!(after, padded, "{body}");
        }
    }
}

#[test]
fn a_store_and_a_reduction_change_the_memory_of_each_device() {
    let devices: [&[u32]; 2] = [&[1, 2, 3, 4], &[10, 20, 30, 40]];
    let sums = [words([1.5, 2.0, 3.0, 4.0]), words([0.5, 1.0, 1.0, 1.0])];
    let sums: [&[u32]; 2] = [&sums[0], &sums[1]];
    for (code, before, expected) in [
        ("st.u32 [%d0+4], 7", devices, [vec![1, 7, 3, 4], vec![10, 7, 30, 40]]),
        (
            "st.weak.b64 [%d0+8], -1",
            devices,
            [vec![1, 2, u32::MAX, u32::MAX], vec![10, 20, u32::MAX, u32::MAX]],
        ),
        (
            "st.release.gpu.global.v4.f16 [%d0], {%h5, %h5, %h6, %h5}",
            devices,
            [vec![0x0005_0005, 0x0005_0006, 3, 4], vec![0x0005_0005, 0x0005_0006, 30, 40]],
        ),
        ("st.v4.bf16x2 [%d0], {%r5, %r5, %r6, %r5}", devices, [vec![5, 5, 6, 5], vec![5, 5, 6, 5]]),
        ("red.add.u32 [%d0+8], 5", devices, [vec![1, 2, 8, 4], vec![10, 20, 35, 40]]),
        (
            "red.relaxed.gpu.global.max.s64 [%d0], %d5",
            devices,
            [vec![5, 5, 3, 4], vec![10, 20, 30, 40]],
        ),
        ("red.release.sys.and.b32 [%d0], 3", devices, [vec![1, 2, 3, 4], vec![2, 20, 30, 40]]),
        ("red.xor.b32 [%d0], 3", devices, [vec![2, 2, 3, 4], vec![9, 20, 30, 40]]),
        (
            "red.add.v4.f32 [%d0], {0f3F000000, 0f3F800000, %f5, %f5}",
            sums,
            [words([2.0, 3.0, 3.0, 4.0]).to_vec(), words([1.0, 2.0, 1.0, 1.0]).to_vec()],
        ),
        (
            "red.add.acc::f32.v2.bf16x2 [%d0], {0x3f803f80, 0x3f80}",
            sums,
            [
                vec![0x4020_3f80, 0x4000_3f80, 0x4040_0000, 0x4080_0000],
                vec![0x3fc0_3f80, 0x3f80_3f80, 0x3f80_0000, 0x3f80_0000],
            ],
        ),
        ("red.min.v2.f16 [%d0], {%h5, %h6}", devices, [vec![1, 2, 3, 4], vec![5, 20, 30, 40]]),
        // Subnormal numbers are kept.
        ("red.add.f32 [%d0], 0f00000003", devices, [vec![4, 2, 3, 4], vec![13, 20, 30, 40]]),
    ] {
        let begin = "mov.b16 %h5, 5; mov.b16 %h6, 6; mov.b32 %r5, 5; mov.b32 %r6, 6;
            mov.b64 %d5, 0x500000005; mov.b32 %f5, 0;";
        let code = match code.contains("0x3f803f80") {
            true => code.replace("0x3f803f80, 0x3f80", "%r7, %r8"),
            false => code.to_owned(),
        };
        let begin = format!("{begin} mov.b32 %r7, 0x3f803f80; mov.b32 %r8, 0x3f80;");
        let (after, _) = run(&format!("{begin} multimem.{code};"), (1, 1), &before);
        assert_eq!(after, expected, "{code}");
    }
}

#[test]
fn reductions_of_all_threads_are_atomic_on_each_device() {
    let body = "multimem.red.add.u32 [%d0], 1; multimem.red.add.v2.f16 [%d0+4], {%h5, %h5};
        add.u32 %r2, %r0, 1; @%p1 multimem.st.u32 [%d0+8], %r2;";
    let begin = "mov.b16 %h5, 0x3c00; setp.eq.u32 %p1, %r0, 63;";
    let (after, _) = run(&format!("{begin}{body}"), (4, 64), &[&[0; 4], &[1000, 0, 0, 0]]);
    assert_eq!(after, [[256, 0x5c00_5c00, 64, 0], [1256, 0x5c00_5c00, 64, 0]]);
}

#[test]
fn a_result_may_replace_the_address() {
    let body = "multimem.ld_reduce.add.u64 %d0, [%d0]; st.global.u64 [%d1], %d0;";
    let (_, result) = run(body, (1, 32), &[&[3, 0], &[4, 0]]);
    assert_eq!(result[..2], [7, 0]);
}

/// Runs a body that ends with a fault. `%d0` is a multicast address of memory with 4 and 2 words, and `%d2` the address of
/// the first of them.
fn fault(body: &str) -> (FaultKind, String, Option<u64>, u64, u64) {
    let mut memory = Memory::default();
    let members = [memory.words(&[0; 4]), memory.words(&[0; 2])];
    let address = memory.multicast_of(&members);
    let values = [address, 0, members[0]];
    let fault = launch(&text(body), &memory, (1, 1), &values).expect_err(body);
    (fault.kind, fault.text, fault.address, address, members[0])
}

#[test]
fn an_instruction_for_other_memory_ends_the_kernel() {
    // Other instructions on a multicast address.
    for (code, verb) in [
        ("ld.global.u32 %r5, [%d0]", "load from"),
        ("ld.u32 %r5, [%d0]", "load from"),
        ("st.global.u32 [%d0], %r5", "store to"),
        ("red.global.add.u32 [%d0], 1", "atomic operation on"),
        ("atom.global.cas.b32 %r5, [%d0], 1, 2", "atomic operation on"),
    ] {
        let (kind, text, at, address, _) = fault(&format!("{code};"));
        assert_eq!((kind, at), (FaultKind::IllegalAddress, Some(address)), "{code}");
        assert!(text.starts_with(&format!("{verb} 4 bytes at {address:#x}: ")), "{text}");
    }
    // `multimem` on another address.
    for (code, verb) in [
        ("ld_reduce.add.u32 %r5, [%d2]", "load from"),
        ("st.u32 [%d2], %r5", "store to"),
        ("red.add.u32 [%d2], 1", "atomic operation on"),
    ] {
        let (kind, text, at, _, plain) = fault(&format!("multimem.{code};"));
        assert_eq!((kind, at), (FaultKind::IllegalAddress, Some(plain)), "{code}");
        assert_eq!(text, format!("{verb} 4 bytes at {plain:#x}: no device is there"));
    }
    let shared = ".shared .align 4 .b32 s[4]; mov.u64 %d3, s; cvta.shared.u64 %d3, %d3;";
    for (code, kind) in [
        (format!("{shared} multimem.st.u32 [%d3], 1;"), FaultKind::InvalidAddressSpace),
        (".shared .b32 s[4]; multimem.st.u32 [s], 1;".to_owned(), FaultKind::InvalidAddressSpace),
        ("multimem.st.u32 [%d0+2], 1;".to_owned(), FaultKind::MisalignedAddress),
        (
            "multimem.ld_reduce.add.v2.f32 {%f1, %f2}, [%d0+4];".to_owned(),
            FaultKind::MisalignedAddress,
        ),
        // Beyond the memory of the second device.
        ("multimem.st.u32 [%d0+8], 1;".to_owned(), FaultKind::IllegalAddress),
        (
            "multimem.red.add.v4.f32 [%d0], {%f1, %f1, %f1, %f1};".to_owned(),
            FaultKind::IllegalAddress,
        ),
    ] {
        let (found, text, at, ..) = fault(&code);
        assert_eq!(found, kind, "{code}");
        assert!(text.contains(&format!("{:#x}", at.unwrap())), "{text}");
    }
    // A guard that is false.
    let (after, _) = run("@%p1 multimem.st.u32 [%d0+2], 1;", (1, 32), &[&[3]]);
    assert_eq!(after, [[3]]);
}

#[test]
fn a_device_without_multicast_has_no_such_addresses() {
    struct Plain(Memory);
    impl Device for Plain {
        fn region(
            &self,
            address: u64,
            len: u64,
            access: Access,
            by: SiteId,
        ) -> Result<Region<'_>, String> {
            self.0.region(address, len, access, by)
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
    let program = link(&text("multimem.st.u32 [%d0], 1;"));
    let mut memory = Memory::default();
    let params = params(&[memory.words(&[0]), 0, 0]);
    let mut launch = Launch::new(&program, 0);
    launch.params = &params;
    let fault = cuda_ptx::run(&launch, &Plain(memory)).unwrap_err();
    assert!(fault.text.ends_with(": there are no multicast addresses"), "{fault}");
}

/// A thread of the first block writes words and sets a flag on each device; one of the second block waits for the flag of a
/// device.
fn message(flag: &str, wait: &str) -> String {
    format!(
        "setp.eq.u32 %p1, %r1, 0; @!%p1 bra W;
         multimem.st.u32 [%d0], 5; {flag}; bra E;
         W: {wait}; setp.eq.u32 %p2, %r5, 0; @%p2 bra W;
         ld.global.u32 %r6, [%d2]; st.global.u32 [%d1+16], %r6; E:"
    )
}

#[test]
fn interleavings_perform_delayed_stores_before_a_reduction() {
    // The store to the memory of one device alone may be delayed.
    let flag = "st.global.u32 [%d2], 7; multimem.red.release.gpu.add.u32 [%d0+8], 1";
    let text = text(&message(flag, "ld.acquire.gpu.global.u32 %r5, [%d2+8]"));
    for seed in 0..500 {
        let mut memory = Memory::default();
        let members = [memory.words(&[0; 8]), memory.words(&[0; 8])];
        let address = memory.multicast_of(&members);
        let values = [address, members[0], members[1]];
        let change = |launch: &mut Launch<'_>| launch.interleaving = Some(seed);
        launch_with(&text, &memory, (2, 1), &values, change).unwrap();
        assert_eq!(memory.read(members[0])[..5], [5, 0, 1, 0, 7], "interleaving {seed}");
        assert_eq!(memory.read(members[1])[..3], [7, 0, 1], "interleaving {seed}");
    }
}

#[test]
fn the_order_of_the_blocks_may_matter() {
    for code in ["ld_reduce.add.u32 %r5, [%d0]", "st.u32 [%d0], 1", "red.add.u32 [%d0], 1"] {
        let program = link(&text(&format!("multimem.{code};")));
        assert!(program.kernels()[0].depends_on_order(), "{code}");
    }
}
