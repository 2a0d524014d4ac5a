//! Bulk asynchronous copies of bytes. Those of tensors are in `tensor.rs`.

use crate::form::Kind::U64;
use crate::form::{Forms, expand};

pub(super) fn add(forms: &mut Forms) {
    copies(forms);
    stores(forms);
}

/// Declares shared memory and registers. `%x` is the address of the block's cells, `%y` that of the thread's, and `%p`
/// whether the thread is the first one of its block.
const BEGIN: &str = ".shared .align 128 .b8 cells[1024];\n.shared .align 8 .b64 gate;\n.reg .b64 %x, %y, %s, %g, %z;\n\
    .reg .b32 %n, %r, %k;\n.reg .b16 %h;\n.reg .pred %p, %q;\nsetp.eq.u32 %p, %t, 0;\nmov.u64 %x, cells;\n\
    mul.wide.u32 %s, %t, 16;\nadd.u64 %y, %x, %s;\ncreatepolicy.fractional.L2::evict_last.b64 %z, 1.0;\n";

/// Adds copies of all operands or to all results.
fn copies(forms: &mut Forms) {
    let begin = ".shared .align 16 .b8 cells[512];\n.shared .align 8 .b64 gate;\n.reg .b64 %x, %y, %s, %g;\n\
                 .reg .pred %p, %q;\nsetp.eq.u32 %p, %t, 0;\nmov.u64 %x, cells;\nmul.wide.u32 %s, %t, 16;\n\
                 add.u64 %y, %x, %s;\n";
    let code = format!(
        "{begin}st.shared.v2.b64 [%y], {{0, 0}};\n@%p mbarrier.init.shared.b64 [gate], 1;\n\
         fence.proxy.async.shared::cta;\nbar.warp.sync -1;\n@!%p bra $wait;\n\
         mbarrier.arrive.expect_tx.shared::cta.b64 _, [gate], 512;\n\
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%x], [%in], 512, [gate];\n\
         $wait:\nmbarrier.try_wait.parity.shared::cta.b64 %q, [gate], 0;\n@!%q bra $wait;\n\
         ld.shared.v2.b64 {{%d0, %d1}}, [%y];"
    );
    forms.code("cp.async.bulk.shared::cluster.global", &code, &[U64; 2], &[U64; 2]);
    let wait = "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\n";
    let flow = |copy: &str| {
        format!(
            "{begin}st.shared.v2.b64 [%y], {{%a0, %a1}};\nst.global.v2.b64 [%out], {{%a1, %a0}};\n\
             fence.proxy.async;\nbar.warp.sync -1;\n@!%p bra $end;\n{copy}\n{wait}$end:\nbar.warp.sync -1;\n\
             fence.proxy.async.global;\nld.global.v2.b64 {{%d0, %d1}}, [%out];"
        )
    };
    let code = flow("cp.async.bulk.global.shared::cta.bulk_group [%out], [%x], 512;");
    forms.code("cp.async.bulk.global.shared::cta", &code, &[U64; 2], &[U64; 2]);
    for name in expand(
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.{add.u32,add.u64,add.s32,min.s32,max.u64,inc.u32,dec.u32,and.b32,or.b64,xor.b64,add.f32,add.f64,add.noftz.f16,min.f16,max.bf16,add.noftz.bf16}",
    ) {
        let copy = format!("{name} [%out], [%x], 512;");
        forms.code(&name, &flow(&copy), &[U64; 2], &[U64; 2]);
    }
}

/// Returns code that stores operands to shared memory and their reverse to the results, and lets the first thread copy.
fn flow(copy: &str) -> String {
    format!(
        "{BEGIN}st.shared.v2.b64 [%y], {{%a0, %a1}};\nst.global.v2.b64 [%out], {{%a1, %a0}};\n\
         fence.proxy.async;\nbar.sync 0;\n@!%p bra $end;\n{copy}\n$end:\nbar.sync 0;\n\
         fence.proxy.async.global;\nld.global.v2.b64 {{%d0, %d1}}, [%out];"
    )
}

/// Adds copies from shared to global memory.
fn stores(forms: &mut Forms) {
    let store = "cp.async.bulk.global.shared::cta.bulk_group";
    let commit = "cp.async.bulk.commit_group;\n";
    let wait = "cp.async.bulk.wait_group 0;";
    for (remark, code) in [
        ("with a policy", format!("{store}.L2::cache_hint [%out], [%x], 512, %z;\n{commit}{wait}")),
        ("of 16 bytes", format!("{store} [%out+32], [%x+16], 16;\n{commit}{wait}")),
        (
            "of a number of bytes",
            format!("mov.u32 %r, 256;\n{store} [%out+256], [%x], %r;\n{commit}{wait}"),
        ),
        (
            "in two groups",
            format!(
                "{store} [%out], [%x], 256;\n{commit}{store} [%out+256], [%x+256], 256;\n{commit}\
                 cp.async.bulk.wait_group 1;\n{wait}"
            ),
        ),
        (
            "whose source is read",
            format!(
                "{store} [%out], [%x], 512;\n{commit}cp.async.bulk.wait_group.read 0;\n\
                 st.shared.b64 [%x], 0;\n{wait}"
            ),
        ),
        (
            "that an empty group follows",
            format!("{store} [%out], [%x], 512;\n{commit}{commit}{wait}"),
        ),
    ] {
        forms.code(&format!("{store} {remark}"), &flow(&code), &[U64; 2], &[U64; 2]);
    }
}
