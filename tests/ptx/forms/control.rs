//! Branches, calls, barriers and dynamic memory.

use crate::form::Kind::{self, Pred, U16, U32, U64};
use crate::form::{Forms, expand};

pub(super) fn add(forms: &mut Forms) {
    branches(forms);
    calls(forms);
    stacks(forms);
    barriers(forms);
    mbarriers(forms);
}

fn branches(forms: &mut Forms) {
    let code = ".reg .b32 %x;\nand.b32 %x, %a0, 3;\n$targets: .branchtargets $one, $two, $three, $two;\n\
                brx.idx %x, $targets;\n$one:\nmov.b32 %d0, 1;\nbra $end;\n$two:\nmov.b32 %d0, 2;\n\
                bra $end;\n$three:\nmov.b32 %d0, 3;\n$end:\nadd.u32 %d0, %d0, %x;";
    forms.code("brx.idx", code, &[U32], &[U32]);
    let code = ".reg .pred %p;\nmov.b32 %d0, %a0;\nst.global.b32 [%out], %d0;\nand.b32 %d0, %d0, 1;\n\
                setp.eq.u32 %p, %d0, 0;\n@%p exit;\nmov.b32 %d0, 7;";
    forms.code("exit of some lanes", code, &[U32], &[U32]);
    let code = ".reg .pred %p;\nst.global.b32 [%out], %a0;\nsetp.gt.s32 %p, %a0, 0;\n@!%p ret;\n\
                mov.b32 %d0, 9;";
    forms.code("ret of some lanes", code, &[U32], &[U32]);
    // Two loops, one in the other, left in the middle.
    let code = ".reg .b32 %x, %y;\n.reg .pred %p;\nmov.b32 %d0, 0;\nand.b32 %x, %a0, 7;\n$outer:\n\
                mov.b32 %y, %x;\n$inner:\nmad.lo.u32 %d0, %d0, 5, %y;\nsetp.gt.u32 %p, %d0, 1000000;\n\
                @%p bra $end;\nsub.u32 %y, %y, 1;\nsetp.gt.s32 %p, %y, 0;\n@%p bra $inner;\n\
                sub.u32 %x, %x, 1;\nsetp.gt.s32 %p, %x, 0;\n@%p bra $outer;\n$end:\nadd.u32 %d0, %d0, %y;";
    forms.code("loops left in the middle", code, &[U32], &[U32]);
}

/// Adds calls with parameters of all types, in registers and memory, direct and indirect.
fn calls(forms: &mut Forms) {
    for name in expand("{b8,u8,b16,u16,b32,u32,s32,f32,b64,u64,s64,f64}") {
        let kind = Kind::of(&name);
        let register = kind.register();
        let kind = if kind.bytes() == 1 { U16 } else { kind };
        let declaration = format!(
            ".func (.param .{name} result) same#(.param .{name} value)\n{{\n  .reg .{register} %x;\n  \
             ld.param.{name} %x, [value];\n  st.param.{name} [result], %x;\n  ret;\n}}"
        );
        let code = format!(
            ".param .{name} value;\n.param .{name} result;\nst.param.{name} [value], %a0;\n\
             call.uni (result), same#, (value);\nld.param.{name} %d0, [result];"
        );
        forms.code(&format!("call with {name}"), &code, &[kind], &[kind]).declare(&declaration);
    }
    let structure = ".func (.param .align 16 .b8 result[16]) swap#(.param .align 16 .b8 pair[16])\n{\n  \
                     .reg .b64 %x, %y;\n  ld.param.b64 %x, [pair];\n  ld.param.b64 %y, [pair+8];\n  \
                     st.param.v2.b64 [result], {%y, %x};\n  ret;\n}";
    let code = ".param .align 16 .b8 pair[16];\n.param .align 16 .b8 result[16];\n\
                st.param.b64 [pair], %a0;\nst.param.b64 [pair+8], %a1;\ncall.uni (result), swap#, (pair);\n\
                ld.param.v2.b64 {%d0, %d1}, [result];";
    forms.code("call with a structure", code, &[U64; 2], &[U64; 2]).declare(structure);
    let registers = ".func (.reg .b32 %r) sum#(.reg .b32 %x, .reg .b32 %y)\n{\n  \
                     add.u32 %r, %x, %y;\n  ret;\n}";
    let code = "call (%d0), sum#, (%a0, %a1);";
    forms.code("call with registers", code, &[U32; 2], &[U32]).declare(registers);
    let registers =
        ".func (.reg .b32 %r) twice#(.reg .b32 %x)\n{\n  add.u32 %r, %x, %x;\n  ret;\n}";
    let code = "mov.b32 %d0, %a0;\n@%a1 call (%d0), twice#, (%a0);\ncall (%d1), twice#, (5);";
    forms.code("call with a guard", code, &[U32, Pred], &[U32; 2]).declare(registers);
    let factorial = ".func (.param .b64 result) factorial#(.param .b64 value)\n{\n  .reg .b64 %x, %y;\n  \
                     .reg .pred %p;\n  ld.param.b64 %x, [value];\n  setp.gt.u64 %p, %x, 1;\n  @%p bra $more;\n  \
                     st.param.b64 [result], 1;\n  ret;\n$more:\n  sub.u64 %y, %x, 1;\n  {\n  .param .b64 next;\n  \
                     .param .b64 product;\n  st.param.b64 [next], %y;\n  call (product), factorial#, (next);\n  \
                     ld.param.b64 %y, [product];\n  }\n  mul.lo.u64 %y, %y, %x;\n  st.param.b64 [result], %y;\n  \
                     ret;\n}";
    let code = ".reg .b64 %x;\nand.b64 %x, %a0, 15;\n.param .b64 value;\n.param .b64 result;\n\
                st.param.b64 [value], %x;\ncall (result), factorial#, (value);\nld.param.b64 %d0, [result];";
    forms.code("call of itself", code, &[U64], &[U64]).declare(factorial);
    indirect(forms);
    let never = ".func stop#() .noreturn\n{\n  exit;\n}";
    let code = "st.global.b32 [%out], %a0;\n.reg .pred %p;\nsetp.gt.u32 %p, %a0, 100;\n@!%p bra $end;\n\
                call.uni stop#;\n$end:\nadd.u32 %d0, %a0, 1;";
    forms.code("call without return", code, &[U32], &[U32]).declare(never);
}

fn indirect(forms: &mut Forms) {
    let functions = ".func (.param .b32 r) plus#(.param .b32 x)\n{\n  .reg .b32 %x;\n  ld.param.b32 %x, [x];\n  \
                     add.u32 %x, %x, 1;\n  st.param.b32 [r], %x;\n  ret;\n}\n\
                     .func (.param .b32 r) minus#(.param .b32 x)\n{\n  .reg .b32 %x;\n  ld.param.b32 %x, [x];\n  \
                     sub.u32 %x, 1000, %x;\n  st.param.b32 [r], %x;\n  ret;\n}\n\
                     .global .align 8 .u64 functions#[2] = {plus#, minus#};";
    let call = ".param .b32 x;\n.param .b32 r;\nst.param.b32 [x], %a0;\n";
    let choice = ".reg .b64 %f, %g;\n.reg .pred %p;\nmov.u64 %f, plus#;\nmov.u64 %g, minus#;\n\
                  setp.gt.s32 %p, %a0, 100;\nselp.b64 %f, %f, %g, %p;\n";
    let code = format!(
        "{choice}{call}$form: .callprototype (.param .b32 _) _ (.param .b32 _);\n\
         call (r), %f, (x), $form;\nld.param.b32 %d0, [r];"
    );
    forms.code("call of a prototype", &code, &[U32], &[U32]).declare(functions);
    let code = format!(
        "{choice}{call}$any: .calltargets plus#, minus#;\ncall (r), %f, (x), $any;\nld.param.b32 %d0, [r];"
    );
    forms.code("call of targets", &code, &[U32], &[U32]).declare(functions);
    let code = format!(
        ".reg .b64 %f, %x;\n.reg .b32 %y;\nand.b32 %y, %a0, 1;\nmul.wide.u32 %x, %y, 8;\n\
         mov.u64 %f, functions#;\nadd.u64 %f, %f, %x;\nld.global.u64 %f, [%f];\n{call}\
         $form: .callprototype (.param .b32 _) _ (.param .b32 _);\ncall (r), %f, (x), $form;\n\
         ld.param.b32 %d0, [r];"
    );
    forms.code("call through a table", &code, &[U32], &[U32]).declare(functions);
}

fn stacks(forms: &mut Forms) {
    let code = ".reg .b64 %x, %y;\n.reg .b64 %n;\nand.b64 %n, %a0, 63;\nadd.u64 %n, %n, 16;\n\
                stacksave.u64 %y;\nalloca.u64 %x, %n, 16;\nst.local.b64 [%x], %a0;\n\
                st.local.b64 [%x+8], %a1;\nld.local.b64 %d0, [%x+8];\nand.b64 %d1, %x, 15;\n\
                stackrestore.u64 %y;";
    forms.code("alloca", code, &[U64; 2], &[U64; 2]);
    let heap =
        ".extern .func (.param .b64 r) malloc(.param .b64 n);\n.extern .func free(.param .b64 p);";
    let code = ".reg .b64 %x;\n{\n.param .b64 n;\n.param .b64 r;\nst.param.b64 [n], 64;\n\
                call.uni (r), malloc, (n);\nld.param.b64 %x, [r];\n}\nst.b64 [%x+8], %a0;\n\
                ld.b64 %d0, [%x+8];\nand.b64 %d1, %x, 15;\n{\n.param .b64 p;\nst.param.b64 [p], %x;\n\
                call.uni free, (p);\n}";
    forms.code("malloc and free", code, &[U64], &[U64; 2]).declare(heap);
    let print = ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n\
                 .global .align 1 .b8 format#[7] = {37, 100, 32, 37, 117, 10, 0};";
    let code = ".local .align 8 .b8 list[8];\n.reg .b64 %x;\n.reg .pred %p;\nmov.b32 %d0, 2;\n\
                setp.ne.u32 %p, %i, 3;\n@%p bra $end;\nst.local.b32 [list], 41;\nst.local.b32 [list+4], 42;\n\
                {\n.param .b64 f;\n.param .b64 a;\n.param .b32 r;\nmov.u64 %x, format#;\ncvta.global.u64 %x, %x;\n\
                st.param.b64 [f], %x;\nmov.u64 %x, list;\ncvta.local.u64 %x, %x;\nst.param.b64 [a], %x;\n\
                call.uni (r), vprintf, (f, a);\nld.param.b32 %d0, [r];\n}\n$end:\nbar.warp.sync -1;";
    forms.code("vprintf", code, &[], &[U32]).declare(print);
}

/// Adds barriers of blocks of several warps.
fn barriers(forms: &mut Forms) {
    let block = [96, 1, 1];
    // Each thread reads the operand of another warp.
    let begin = ".shared .align 4 .b32 cells[128];\n.reg .b64 %x, %y;\n.reg .b32 %o;\nmov.u64 %x, cells;\n\
                 mul.wide.u32 %y, %t, 4;\nadd.u64 %y, %x, %y;\nst.shared.b32 [%y], %a0;\n";
    let end = "\nadd.u32 %o, %t, 33;\nrem.u32 %o, %o, 96;\nmul.wide.u32 %y, %o, 4;\nadd.u64 %y, %x, %y;\n\
               ld.shared.b32 %d0, [%y];";
    for name in [
        "bar.sync 0",
        "bar.sync 3, 96",
        "bar.cta.sync 0",
        "barrier.sync 0",
        "barrier.sync.aligned 5, 96",
        "barrier.cta.sync.aligned 15",
        "bar.sync %w",
    ] {
        let register = if name.contains("%w") { ".reg .b32 %w;\nmov.b32 %w, 7;\n" } else { "" };
        let code = format!("{begin}{register}{name};{end}");
        forms.code(name, &code, &[U32], &[U32]).shape([3, 1, 1], block);
    }
    for name in expand("{bar,barrier.cta}.red{,.aligned}.{and,or}.pred")
        .into_iter()
        .filter(|name| !name.starts_with("bar.red.aligned"))
    {
        let code = format!("{name} %d0, 0, %a0;\n{name} %d1, 1, 96, !%a0;");
        forms.code(&name, &code, &[Pred], &[Pred; 2]).shape([6, 1, 1], block);
    }
    for name in ["bar.red.popc.u32", "barrier.red.popc.u32", "barrier.cta.red.popc.aligned.u32"] {
        let code = format!("{name} %d0, 0, %a0;\n{name} %d1, 1, 96, !%a0;");
        forms.code(name, &code, &[Pred], &[U32; 2]).shape([6, 1, 1], block);
    }
    let guard = ".reg .pred %p;\nsetp.lt.u32 %p, %t, 32;\n";
    // The first warp produces, the others wait for it.
    let code = format!(
        "{guard}.shared .align 4 .b32 cell;\n@!%p bra $wait;\nsetp.eq.u32 %p, %t, 0;\n\
         @%p st.shared.b32 [cell], %a0;\nbar.warp.sync -1;\nbar.arrive 1, 96;\nmov.b32 %d0, 0;\n\
         bra $end;\n$wait:\nbar.sync 1, 96;\nld.shared.b32 %d0, [cell];\n$end:\nbar.sync 0;"
    );
    forms.code("bar.arrive", &code, &[U32], &[U32]).shape([3, 1, 1], block);
    let code = format!(
        "{guard}@%p bra $end;\nbar.red.popc.u32 %d0, 2, 64, %a0;\nst.global.b32 [%out], %d0;\n$end:\n\
         @%p mov.b32 %d0, 99;"
    );
    forms.code("barrier of two warps of three", &code, &[Pred], &[U32]).shape([6, 1, 1], block);
    let code = format!("{guard}st.global.b32 [%out], 5;\n@%p exit;\nbar.red.popc.u32 %d0, 0, %a0;");
    forms.code("barrier after an exit", &code, &[Pred], &[U32]).shape([6, 1, 1], block);
    let code = "barrier.cta.red.popc.u32 %d0, 0, %a0;";
    forms.code("barrier of a partial warp", code, &[Pred], &[U32]).shape([4, 1, 1], [48, 1, 1]);
}

/// Adds barriers in shared memory.
fn mbarriers(forms: &mut Forms) {
    let begin = ".shared .align 8 .b64 gate;\n.shared .align 4 .b32 cells[32];\n.reg .b64 %x, %y, %s;\n\
                 .reg .b32 %o;\n.reg .pred %p, %q;\nsetp.eq.u32 %p, %t, 0;\n\
                 @%p mbarrier.init.shared.b64 [gate], 32;\nbar.warp.sync -1;\nmov.u64 %x, cells;\n\
                 mul.wide.u32 %y, %t, 4;\nadd.u64 %y, %x, %y;\nst.shared.b32 [%y], %a0;\n";
    let end = "\nxor.b32 %o, %t, 21;\nmul.wide.u32 %y, %o, 4;\nadd.u64 %y, %x, %y;\n\
               ld.shared.b32 %d0, [%y];\nbar.warp.sync -1;\n@%p mbarrier.inval.shared.b64 [gate];";
    for (arrive, wait) in [
        ("mbarrier.arrive.shared.b64 %s, [gate]", "mbarrier.test_wait.shared.b64 %q, [gate], %s"),
        (
            "mbarrier.arrive.shared::cta.b64 %s, [gate]",
            "mbarrier.try_wait.shared.b64 %q, [gate], %s",
        ),
        (
            "mbarrier.arrive.release.cta.shared.b64 %s, [gate], 1",
            "mbarrier.test_wait.acquire.cta.shared.b64 %q, [gate], %s",
        ),
        (
            "mbarrier.arrive.shared.b64 _, [gate]",
            "mbarrier.try_wait.parity.shared::cta.b64 %q, [gate], 0",
        ),
        (
            "mbarrier.arrive.shared.b64 _, [gate]",
            "mbarrier.test_wait.parity.shared.b64 %q, [gate], 0",
        ),
        (
            "mbarrier.arrive.expect_tx.shared::cta.b64 %s, [gate], 0",
            "mbarrier.try_wait.shared.b64 %q, [gate], %s, 100",
        ),
        (
            "mbarrier.arrive_drop.shared.b64 %s, [gate]",
            "mbarrier.test_wait.shared.b64 %q, [gate], %s",
        ),
    ] {
        let code = format!("{begin}{arrive};\n$wait:\n{wait};\n@!%q bra $wait;{end}");
        forms.code(&format!("{arrive}; {wait}"), &code, &[U32], &[U32]);
    }
    // The values of the object: phases, pending and expected arrivals.
    let code = ".shared .align 8 .b64 gates[32];\n.reg .b64 %x, %s;\n.reg .b32 %n;\nmov.u64 %x, gates;\n\
                mul.wide.u32 %s, %t, 8;\nadd.u64 %x, %x, %s;\nand.b32 %n, %a0, 7;\nadd.u32 %n, %n, 2;\n\
                mbarrier.init.shared.b64 [%x], %n;\nmbarrier.arrive.noComplete.shared.b64 %s, [%x], 1;\n\
                mbarrier.pending_count.b64 %d0, %s;\nmbarrier.arrive.shared.b64 %s, [%x];\n\
                mbarrier.pending_count.b64 %d1, %s;\nmbarrier.test_wait.shared.b64 %d2, [%x], %s;\n\
                mbarrier.test_wait.parity.shared.b64 %d3, [%x], 1;";
    forms.code("mbarrier.pending_count.b64", code, &[U32], &[U32, U32, Pred, Pred]);
    let code = ".shared .align 8 .b64 gates[32];\n.reg .b64 %x, %s;\nmov.u64 %x, gates;\n\
                mul.wide.u32 %s, %t, 8;\nadd.u64 %x, %x, %s;\nmbarrier.init.shared.b64 [%x], 1;\n\
                mbarrier.expect_tx.relaxed.cta.shared.b64 [%x], 16;\nmbarrier.arrive.shared.b64 %s, [%x];\n\
                mbarrier.test_wait.shared.b64 %d0, [%x], %s;\n\
                mbarrier.complete_tx.relaxed.cta.shared.b64 [%x], 16;\n\
                mbarrier.test_wait.shared.b64 %d1, [%x], %s;";
    forms.code("mbarrier.expect_tx", code, &[], &[Pred; 2]);
    let code = ".shared .align 8 .b64 gates[32];\n.shared .align 16 .b8 cells[512];\n.reg .b64 %x, %y, %s;\n\
                .reg .pred %q;\nmov.u64 %x, gates;\nmul.wide.u32 %s, %t, 8;\nadd.u64 %x, %x, %s;\n\
                mov.u64 %y, cells;\nmul.wide.u32 %s, %t, 16;\nadd.u64 %y, %y, %s;\n\
                mbarrier.init.shared.b64 [%x], 1;\ncp.async.ca.shared.global [%y], [%in], 16;\n\
                cp.async.mbarrier.arrive.noinc.shared.b64 [%x];\n$wait:\n\
                mbarrier.test_wait.parity.shared.b64 %q, [%x], 0;\n@!%q bra $wait;\n\
                ld.shared.v2.b64 {%d0, %d1}, [%y];";
    forms.code("cp.async.mbarrier.arrive", code, &[U64; 2], &[U64; 2]);
}
