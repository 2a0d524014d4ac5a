//! Bulk asynchronous copies of bytes. Those of tensors are in `tensor.rs`.

use crate::form::Kind::{self, Bf16x2, F16x2, F32, F64, U32, U64};
use crate::form::{Forms, expand};

pub(super) fn add(forms: &mut Forms) {
    copies(forms);
    loads(forms);
    stores(forms);
    reductions(forms);
    in_clusters(forms);
    without_effect(forms);
    faults(forms);
}

/// Waits for the phase 0 of `gate`, but not without end if the copy does not complete it.
pub(super) const WAIT: &str = "mov.u32 %n, 0;\n$again:\nmbarrier.test_wait.parity.shared::cta.b64 %q, [gate], 0;\n\
    @%q bra $done;\nnanosleep.u32 100;\nadd.u32 %n, %n, 1;\nsetp.lt.u32 %q, %n, 2000;\n@%q bra $again;\n\
    $done:\nbar.sync 0;\n";

/// Tells whether the phase 0 of `gate` is over, in the result `%d2`.
const OVER: &str =
    "mbarrier.test_wait.parity.shared::cta.b64 %q, [gate], 0;\nselp.u32 %d2, 1, 0, %q;";

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

/// Adds copies of 512 bytes or less from global to shared memory.
fn loads(forms: &mut Forms) {
    let complete = "mbarrier::complete_tx::bytes";
    for (name, operands, bytes) in [
        ("shared::cta.global", "[%x], [%in], 512, [gate]", 512),
        ("shared::cta.global.L2::cache_hint", "[%x], [%in], 512, [gate], %z", 512),
        ("shared::cluster.global.L2::cache_hint", "[%x], [%in], 512, [gate], %z", 512),
        ("shared::cluster.global", "[%x], [%in], 16, [gate]", 16),
        ("shared::cluster.global", "[%x+128], [%in+32], 48, [gate]", 48),
        ("shared::cluster.global", "[%x+496], [%in], %r, [gate]", 16),
        ("shared::cta.global", "[cells+16], [%in+16], 496, [gate]", 496),
    ] {
        let modifiers = name.replace(".L2", &format!(".{complete}.L2"));
        let modifiers = match modifiers.contains(complete) {
            true => modifiers,
            false => format!("{modifiers}.{complete}"),
        };
        let code = format!(
            "{BEGIN}st.shared.v2.b64 [%y], {{-1, -2}};\n@%p mbarrier.init.shared.b64 [gate], 1;\n\
             fence.proxy.async.shared::cta;\nbar.sync 0;\nmov.u32 %r, 16;\n\
             @%p mbarrier.arrive.expect_tx.shared::cta.b64 _, [gate], {bytes};\n\
             @%p cp.async.bulk.{modifiers} {operands};\n{WAIT}\
             ld.shared.v2.b64 {{%d0, %d1}}, [%y];\n{OVER}"
        );
        let name = format!("cp.async.bulk.{name} {operands}");
        forms.code(&name, &code, &[U64; 2], &[U64, U64, U32]);
    }
    // Two copies with one barrier, which also counts arrivals.
    let code = format!(
        "{BEGIN}@%p mbarrier.init.shared.b64 [gate], 32;\nfence.proxy.async.shared::cta;\nbar.sync 0;\n\
         mbarrier.arrive.expect_tx.shared::cta.b64 _, [gate], 16;\n\
         cp.async.bulk.shared::cta.global.{complete} [%y], [%in], 16, [gate];\n{WAIT}\
         ld.shared.v2.b64 {{%d0, %d1}}, [%y];\n{OVER}"
    );
    let name = "cp.async.bulk.shared::cta.global of each thread";
    forms.code(name, &code, &[U64; 2], &[U64, U64, U32]);
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

/// Adds reductions of elements with the edge cases of their type.
fn reductions(forms: &mut Forms) {
    let wait = "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;";
    let reduce = "cp.reduce.async.bulk.global.shared::cta.bulk_group";
    let patterns = [
        "{add,min,max}.{u32,s32,u64}",
        "{min,max}.s64",
        "{and,or,xor}.{b32,b64}",
        "{inc,dec}.u32",
        "add.{f32,f64}",
        "{add.noftz,min,max}.{f16,bf16}",
    ];
    for name in patterns.iter().flat_map(|pattern| expand(pattern)) {
        let kind = of(&name);
        let code = reduce_global(&format!("{reduce}.{name} [%g], [%x], %r;\n{wait}"), kind);
        let form = forms.code(&format!("{reduce}.{name} of pairs"), &code, &[kind; 2], &[kind]);
        form.declare(GLOBAL_CELLS);
    }
    let code =
        reduce_global(&format!("{reduce}.L2::cache_hint.add.u32 [%g], [%x], %r, %z;\n{wait}"), U32);
    let form = forms.code(&format!("{reduce}.L2::cache_hint.add.u32"), &code, &[U32; 2], &[U32]);
    form.declare(GLOBAL_CELLS);
}

/// Returns the kind of the operands of a reduction. Values of 16 bits are in pairs.
fn of(name: &str) -> Kind {
    match name.rsplit('.').next() {
        Some("f16") => F16x2,
        Some("bf16") => Bf16x2,
        Some("f32") => F32,
        Some("f64") => F64,
        Some("u64" | "s64" | "b64") => U64,
        _ => U32,
    }
}

/// The memory of reductions.
const GLOBAL_CELLS: &str = ".global .align 16 .b8 global#[8192];";

/// Returns code that combines the second operand of each thread with the first one in global memory. `%g` is the
/// address of the block's values there.
fn reduce_global(copy: &str, kind: Kind) -> String {
    let (size, shift) = (kind.bytes(), kind.bytes().ilog2());
    let bits = 8 * size;
    // The results of a thread are 8 bytes, so values of 4 bytes are collected before.
    format!(
        "{BEGIN}mov.u64 %g, global#;\nmov.u32 %r, %ctaid.x;\n\
         mul.wide.u32 %s, %r, {};\nadd.u64 %g, %g, %s;\nmul.wide.u32 %s, %t, {size};\n\
         add.u64 %y, %x, %s;\nadd.u64 %s, %g, %s;\nst.shared.b{bits} [%y], %a1;\n\
         st.global.b{bits} [%s], %a0;\nmov.u32 %r, {};\nfence.proxy.async;\nbar.sync 0;\n@!%p bra $end;\n\
         {copy}\n$end:\nbar.sync 0;\nfence.proxy.async.global;\nld.global.b{bits} %d0, [%s];",
        32 << shift,
        32 << shift
    )
}

/// Adds copies between the blocks of clusters of four.
fn in_clusters(forms: &mut Forms) {
    let meet = "barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;\n";
    let begin = format!(
        "{BEGIN}st.shared.v2.b64 [%y], {{%a0, %a1}};\nst.shared.v2.b64 [%y+512], {{%a1, %a0}};\n\
         @%p mbarrier.init.shared.b64 [gate], 1;\nfence.mbarrier_init.release.cluster;\n\
         fence.proxy.async;\n{meet}mov.u32 %r, %cluster_ctarank;\n"
    );
    let end = format!("{WAIT}{meet}ld.shared.v2.b64 {{%d0, %d1}}, [%y+512];\n{OVER}");
    let neighbor = "xor.b32 %k, %r, 3;\nmapa.shared::cluster.u64 %s, %x, %k;\nmov.u64 %z, gate;\n\
                    mapa.shared::cluster.u64 %z, %z, %k;\n";
    let complete = "mbarrier::complete_tx::bytes";
    let expect = "@%p mbarrier.arrive.expect_tx.shared::cta.b64 _, [gate], ";
    let mut one = |name: &str, code: String| {
        let code = format!("{begin}{code}{end}");
        let form = forms.code(name, &code, &[U64; 2], &[U64, U64, U32]);
        form.direct(".explicitcluster\n.reqnctapercluster 4, 1, 1").shape([8, 1, 1], [32, 1, 1]);
    };
    let name = "cp.async.bulk.shared::cluster.shared::cta";
    one(
        name,
        format!("{neighbor}{expect}512;\n@%p {name}.{complete} [%s+512], [%x], 512, [%z];\n"),
    );
    one(
        &format!("{name} of the own block"),
        format!("{expect}512;\n@%p {name}.{complete} [%x+512], [%x], 512, [gate];\n"),
    );
    let name = "cp.async.bulk.shared::cluster.global";
    one(
        &format!("{name} to another block"),
        format!("{neighbor}{expect}512;\n@%p {name}.{complete} [%s+512], [%in], 512, [%z];\n"),
    );
    let patterns = ["{add,min,max}.{u32,s32}", "{and,or,xor}.b32", "{inc,dec}.u32"];
    for function in patterns.iter().flat_map(|pattern| expand(pattern)) {
        let name = "cp.reduce.async.bulk.shared::cluster.shared::cta";
        one(
            &format!("{name}.{function} to another block"),
            format!(
                "{neighbor}{expect}512;\n@%p {name}.{complete}.{function} [%s+512], [%x], 512, [%z];\n"
            ),
        );
    }
    for (mask, policy) in [(1, ""), (2, ""), (6, ""), (15, ""), (13, ".L2::cache_hint"), (0x1d, "")]
    {
        let hint = if policy.is_empty() { "" } else { ", %z" };
        one(
            &format!("{name}.multicast::cluster{policy} to {mask:#x}"),
            format!(
                "mov.u32 %k, {mask};\nshr.u32 %k, %k, %r;\nand.b32 %k, %k, 1;\nmul.lo.u32 %k, %k, 512;\n\
                 {expect}%k;\nmov.u16 %h, {mask};\nsetp.eq.u32 %q, %r, 2;\nand.pred %q, %q, %p;\n\
                 @%q {name}.{complete}.multicast::cluster{policy} [%x+512], [%in], 512, [gate], %h{hint};\n"
            ),
        );
    }
}

/// Adds prefetches and fences, which have no effect that a thread sees.
fn without_effect(forms: &mut Forms) {
    for (name, code) in [
        ("cp.async.bulk.prefetch.L2.global", "cp.async.bulk.prefetch.L2.global [%g], 16;"),
        (
            "cp.async.bulk.prefetch.L2.global.L2::cache_hint",
            "mov.u32 %r, 32;\ncp.async.bulk.prefetch.L2.global.L2::cache_hint [%g], %r, %z;",
        ),
        ("cp.async.bulk.commit_group", "cp.async.bulk.commit_group;"),
        ("cp.async.bulk.wait_group 3", "cp.async.bulk.wait_group 3;"),
        ("cp.async.bulk.wait_group.read 0", "cp.async.bulk.wait_group.read 0;"),
    ] {
        let code = format!("{BEGIN}and.b64 %g, %in, -16;\n{code}\nmov.b64 %d0, %a0;");
        forms.code(name, &code, &[U64], &[U64]);
    }
    let mut names = expand("fence.proxy.tensormap::generic.release.{cta,cluster,gpu,sys}");
    names.push("fence.proxy.async.shared::cluster".to_owned());
    names.push("fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster".to_owned());
    names.extend(expand(
        "fence.{acquire.sync_restrict::shared::cluster,release.sync_restrict::shared::cta}.cluster",
    ));
    for name in names {
        let code = format!("st.global.b64 [%out], %a0;\n{name};\nld.global.b64 %d0, [%out];");
        forms.code(&name, &code, &[U64], &[U64]);
    }
}

/// Adds copies that end the kernel.
fn faults(forms: &mut Forms) {
    let load = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes";
    let store = "cp.async.bulk.global.shared::cta.bulk_group";
    for (name, code) in [
        ("a size of 8 bytes", format!("mov.u32 %r, 8;\n@%p {load} [%x], [%in], %r, [gate];")),
        ("a size of 0 bytes", format!("mov.u32 %r, 0;\n@%p {load} [%x], [%in], %r, [gate];")),
        ("a misaligned target", format!("@%p {load} [%x+8], [%in], 16, [gate];")),
        ("a misaligned source", format!("@%p {load} [%x], [%in+8], 16, [gate];")),
        ("a misaligned source of a store", format!("@%p {store} [%out], [%x+8], 16;")),
        ("a misaligned target of a store", format!("@%p {store} [%out+8], [%x], 16;")),
        ("a source outside", format!("mov.u64 %g, 4096;\n@%p {load} [%x], [%g], 16, [gate];")),
        ("a target outside", format!("@%p {load} [%x+1000000], [%in], 16, [gate];")),
        ("a barrier outside", format!("@%p {load} [%x], [%in], 16, [gate+1000000];")),
        ("a misaligned prefetch", "cp.async.bulk.prefetch.L2.global [%in+8], 16;".to_owned()),
        ("a prefetch of 8 bytes", "mov.u32 %r, 8;\ncp.async.bulk.prefetch.L2.global [%in], %r;".to_owned()),
        (
            "a prefetch outside",
            "mov.u64 %g, 4096;\ncp.async.bulk.prefetch.L2.global [%g], 16;".to_owned(),
        ),
        (
            "shared memory without a cluster",
            "@%p cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%x+512], [%x], 16, [gate];"
                .to_owned(),
        ),
        (
            "a reduction of shared memory without a cluster",
            "@%p cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [%x+512], [%x], 16, [gate];"
                .to_owned(),
        ),
        ("a misaligned barrier", format!("@%p {load} [%x], [%in], 16, [gate+4];")),
    ] {
        let code = format!(
            "{BEGIN}@%p mbarrier.init.shared.b64 [gate], 1;\nfence.proxy.async.shared::cta;\nbar.sync 0;\n\
             {code}\ncp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nnanosleep.u32 20000;\n\
             mov.b64 %d0, %a0;"
        );
        forms.code(&format!("cp.async.bulk with {name}"), &code, &[U64; 2], &[U64]);
    }
}
