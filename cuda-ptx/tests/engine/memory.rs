//! Memory of all spaces, and output.

use crate::device::{Memory, kernel, launch, launch_with};
use cuda_ptx::{Program, syntax};

#[test]
fn small_stores_leave_the_bytes_around_them() {
    let text = kernel(
        1,
        "ld.param.u64 %d1, [p0]; mov.u32 %r1, %tid.x; mul.wide.u32 %d2, %r1, 3;
         add.s64 %d3, %d1, %d2; st.global.u8 [%d3], %r1;",
    );
    let mut memory = Memory::default();
    let out = memory.words(&[u32::MAX; 24]);
    launch(&text, &memory, (1, 32), &[out]).unwrap();
    let bytes: Vec<u8> = memory.read(out).iter().flat_map(|word| word.to_le_bytes()).collect();
    for (at, byte) in bytes.iter().enumerate() {
        let expected = if at % 3 == 0 { (at / 3) as u8 } else { 0xff };
        assert_eq!(*byte, expected, "byte {at}");
    }
}

#[test]
fn loads_extend_the_sign() {
    let text = kernel(
        1,
        "ld.param.u64 %d1, [p0]; ld.global.s8 %r1, [%d1]; ld.global.u8 %r2, [%d1];
         ld.global.s16 %d2, [%d1]; st.global.u32 [%d1+8], %r1; st.global.u32 [%d1+12], %r2;
         st.global.u64 [%d1+16], %d2;",
    );
    let mut memory = Memory::default();
    let out = memory.words(&[0x0000_8180, 0, 0, 0, 0, 0]);
    launch(&text, &memory, (1, 1), &[out]).unwrap();
    assert_eq!(memory.read(out)[2..], [0xffff_ff80, 0x80, 0xffff_8180, u32::MAX]);
}

#[test]
fn local_memory_belongs_to_a_thread() {
    let text = kernel(
        1,
        ".local .align 8 .b8 stack[64];
         mov.u64 %d1, stack; cvta.local.u64 %d2, %d1; mov.u32 %r1, %tid.x;
         and.b32 %r2, %r1, 7; mul.wide.u32 %d3, %r2, 8; add.s64 %d4, %d2, %d3;
         st.u32 [%d4], %r1; add.s64 %d5, %d1, %d3; ld.local.u32 %r3, [%d5];
         ld.param.u64 %d6, [p0]; mul.wide.u32 %d7, %r1, 4; add.s64 %d6, %d6, %d7;
         st.global.u32 [%d6], %r3;",
    );
    let mut memory = Memory::default();
    let out = memory.words(&[0; 40]);
    launch(&text, &memory, (1, 40), &[out]).unwrap();
    assert_eq!(memory.read(out), (0..40).collect::<Vec<u32>>());
}

#[test]
fn a_declaration_has_at_most_1048576_registers() {
    let link = |count: u32| {
        let text = kernel(0, &format!(".reg .b32 %many<{count}>;"));
        Program::link(&[syntax::parse(&text).unwrap()]).map(drop)
    };
    link(1 << 20).unwrap();
    assert!(link((1 << 20) + 1).unwrap_err().to_string().contains("too many registers"));
}

#[test]
fn a_conversion_reads_the_low_bits_of_a_wider_register() {
    let text = kernel(
        1,
        "ld.param.u64 %d1, [p0]; mov.u64 %d2, 0x700000005; cvt.rn.f64.s32 %g1, %d2;
         st.global.f64 [%d1], %g1;",
    );
    let mut memory = Memory::default();
    let out = memory.words(&[0; 2]);
    launch(&text, &memory, (1, 1), &[out]).unwrap();
    let five = 5.0f64.to_bits();
    assert_eq!(memory.read(out), [five as u32, (five >> 32) as u32]);
}

#[test]
fn dynamic_shared_memory_follows_the_static() {
    let text = ".version 8.3\n.target sm_90\n.address_size 64
        .extern .shared .align 16 .b8 dynamic[];
        .visible .entry k(.param .u64 p0)
        {
            .reg .b32 %r<9>; .reg .b64 %d<9>; .shared .align 4 .b32 fixed;
            mov.u32 %r1, dynamic; mov.u32 %r2, 5; st.shared.u32 [fixed], %r2;
            mov.u32 %r3, 6; st.shared.u32 [dynamic+4], %r3; ld.shared.u32 %r4, [%r1+4];
            ld.shared.u32 %r5, [fixed]; mov.u32 %r6, %dynamic_smem_size;
            ld.param.u64 %d1, [p0]; st.global.v4.u32 [%d1], {%r1, %r4, %r5, %r6};
            ret;
        }";
    let mut memory = Memory::default();
    let out = memory.words(&[0; 4]);
    launch_with(text, &memory, (1, 1), &[out], |launch| launch.dynamic_shared = 64).unwrap();
    assert_eq!(memory.read(out), [16, 6, 5, 64]);
}

#[test]
fn values_are_printed_as_in_c() {
    let format = b"%d %5u|%-5x|%+.2f %s %c %lld %e %g %%\n\0";
    let mut text = kernel(
        2,
        ".local .align 8 .b8 buffer[64]; .reg .b32 %n<2>;
         mov.u64 %d1, buffer; cvta.local.u64 %d2, %d1;
         mov.u32 %r1, -7; st.local.u32 [buffer], %r1; mov.u32 %r2, 42; st.local.u32 [buffer+4], %r2;
         mov.u32 %r3, 255; st.local.u32 [buffer+8], %r3;
         mov.f64 %g1, 0d4004000000000000; st.local.f64 [buffer+16], %g1;
         ld.param.u64 %d3, [p1]; st.local.u64 [buffer+24], %d3;
         mov.u32 %r4, 90; st.local.u32 [buffer+32], %r4;
         mov.u64 %d4, -5000000000; st.local.u64 [buffer+40], %d4;
         st.local.f64 [buffer+48], %g1; st.local.f64 [buffer+56], %g1;
         ld.param.u64 %d5, [p0];
         {
             .param .b64 a; .param .b64 b; .param .b32 out;
             st.param.b64 [a], %d5; st.param.b64 [b], %d2;
             call.uni (out), vprintf, (a, b);
             ld.param.b32 %r5, [out];
         }",
    );
    let prototype = ".extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);\n";
    text = text.replace(".visible .entry", &format!("{prototype}.visible .entry"));
    let mut memory = Memory::default();
    let (format, name) = (memory.bytes(format), memory.bytes(b"name\0"));
    launch(&text, &memory, (1, 1), &[format, name]).unwrap();
    let printed = memory.printed.lock().unwrap();
    assert_eq!(*printed, "-7    42|ff   |+2.50 name Z -5000000000 2.500000e+00 2.5 %\n");
}

#[test]
fn floats_are_printed_in_hexadecimal_as_in_c() {
    let numbers = [
        (1.0, "0x1p+0 0x1.0p+0"),
        (-2.5, "-0x1.4p+1 -0x1.4p+1"),
        (0.0, "0x0p+0 0x0.0p+0"),
        // A half and more is rounded, and a half to an even digit.
        (1.0 + 17.0 / 256.0, "0x1.11p+0 0x1.1p+0"),
        (1.0 + 25.0 / 256.0, "0x1.19p+0 0x1.2p+0"),
        (1.0 + 40.0 / 256.0, "0x1.28p+0 0x1.2p+0"),
        (1.0 + 56.0 / 256.0, "0x1.38p+0 0x1.4p+0"),
        (1.0 + 255.0 / 256.0, "0x1.ffp+0 0x2.0p+0"),
        (f64::MIN_POSITIVE / 2.0, "0x0.8p-1022 0x0.8p-1022"),
    ];
    let mut text = kernel(
        2,
        ".local .align 8 .b8 buffer[16]; mov.u64 %d1, buffer; cvta.local.u64 %d2, %d1;
         ld.param.u64 %d3, [p1]; st.local.b64 [buffer], %d3; st.local.b64 [buffer+8], %d3;
         ld.param.u64 %d5, [p0];
         {
             .param .b64 a; .param .b64 b; .param .b32 out;
             st.param.b64 [a], %d5; st.param.b64 [b], %d2;
             call.uni (out), vprintf, (a, b);
         }",
    );
    let prototype = ".extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);\n";
    text = text.replace(".visible .entry", &format!("{prototype}.visible .entry"));
    for (number, expected) in numbers {
        let mut memory = Memory::default();
        let format = memory.bytes(b"%a %.1a\0");
        launch(&text, &memory, (1, 1), &[format, f64::to_bits(number)]).unwrap();
        assert_eq!(*memory.printed.lock().unwrap(), expected, "{number}");
    }
}

#[test]
fn bf16_becomes_an_integer_of_8_bits_in_a_register_of_8_bits() {
    let body = "ld.param.u64 %d1, [p0]; .reg .b8 %b;
         ld.global.u16 %h1, [%d1]; cvt.rzi.s8.bf16 %b, %h1; mov.b16 %h2, {%b, 0};
         st.global.u16 [%d1+8], %h2;
         ld.global.u16 %h1, [%d1+2]; cvt.rzi.u8.bf16 %b, %h1; mov.b16 %h2, {%b, 0};
         st.global.u16 [%d1+10], %h2;
         cvt.rn.bf16.u8 %h3, %b; st.global.u16 [%d1+12], %h3;";
    let mut memory = Memory::default();
    // -3.5 and 300.
    let out = memory.words(&[0x4396_c060, 0, 0, 0]);
    launch(&kernel(1, body), &memory, (1, 1), &[out]).unwrap();
    assert_eq!(memory.read(out)[2..], [0x00ff_00fd, 0x437f]);

    let wider = kernel(1, &body.replace("cvt.rzi.s8.bf16 %b", "cvt.rzi.s8.bf16 %h2"));
    assert!(Program::link(&[syntax::parse(&wider).unwrap()]).is_err());
}
