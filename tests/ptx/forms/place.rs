//! Special registers, state spaces and clusters.

use crate::form::Kind::{F32, Pred, U32, U64};
use crate::form::{Forms, expand};

pub(super) fn add(forms: &mut Forms) {
    registers(forms);
    spaces(forms);
    clusters(forms);
}

fn registers(forms: &mut Forms) {
    for name in expand("%{tid,ntid,ctaid,nctaid}.{x,y,z}") {
        let code = format!("mov.u32 %d0, {name};");
        forms.code(&name, &code, &[], &[U32]).shape([3, 2, 2], [8, 4, 3]);
    }
    for name in
        expand("%{laneid,warpid,lanemask_eq,lanemask_le,lanemask_lt,lanemask_ge,lanemask_gt}")
    {
        let code = format!("mov.u32 %d0, {name};");
        forms.code(&name, &code, &[], &[U32]).shape([2, 1, 1], [8, 4, 3]);
    }
    for name in ["%dynamic_smem_size", "%total_smem_size", "%aggr_smem_size"] {
        let code = format!(
            ".shared .align 4 .b8 some[100];\nst.shared.u8 [some], 1;\nmov.u32 %d0, {name};"
        );
        forms.code(name, &code, &[], &[U32]);
    }
    for name in expand("%reserved_smem_offset_{begin,end,cap}") {
        forms.code(&name, &format!("mov.b32 %d0, {name};"), &[], &[U32]);
    }
    // The low half of a coordinate, as PTX 1.x read it.
    for name in expand("%{tid,ntid,ctaid,nctaid}.x") {
        let code = format!("mov.u16 %d0, {name};");
        forms.code(&format!("{name} of 16 bits"), &code, &[], &[crate::form::Kind::U16]);
    }
    for (name, condition) in [
        (
            "%smid",
            ".reg .b32 %y;\nmov.u32 %x, %smid;\nmov.u32 %y, %nsmid;\nsetp.lt.u32 %d0, %x, %y;",
        ),
        (
            "%warpid",
            ".reg .b32 %y;\nmov.u32 %x, %warpid;\nmov.u32 %y, %nwarpid;\nsetp.lt.u32 %d0, %x, %y;",
        ),
        ("%envreg1", "mov.b32 %x, %envreg1;\nsetp.eq.u32 %d0, %x, 0;"),
        ("%envreg2", "mov.b32 %x, %envreg2;\nsetp.eq.u32 %d0, %x, 0;"),
    ] {
        let code = format!(".reg .b32 %x;\n{condition}");
        forms.code(&format!("{name} compared"), &code, &[], &[Pred]);
    }
    for (name, bits) in [("%clock", 32), ("%clock_hi", 32), ("%clock64", 64), ("%globaltimer", 64)]
    {
        let code = format!(
            ".reg .b{bits} %x, %y;\nmov.u{bits} %x, {name};\nbar.warp.sync -1;\nmov.u{bits} %y, {name};\n\
             sub.u{bits} %y, %y, %x;\nsetp.ge.s{bits} %d0, %y, 0;"
        );
        forms.code(&format!("{name} grows"), &code, &[], &[Pred]);
    }
}

fn spaces(forms: &mut Forms) {
    let variables = ".const .align 8 .u64 constant# = 5;\n.global .align 8 .u64 word# = 6;";
    let own = ".shared .align 8 .b64 near;\n.local .align 8 .b64 mine;\n.reg .b64 %x;\n";
    for (name, address) in [
        ("shared", "mov.u64 %x, near;\ncvta.shared.u64 %x, %x;"),
        ("local", "mov.u64 %x, mine;\ncvta.local.u64 %x, %x;"),
        ("const", "mov.u64 %x, constant#;\ncvta.const.u64 %x, %x;"),
        ("global", "mov.u64 %x, word#;\ncvta.global.u64 %x, %x;"),
        ("argument", "mov.b64 %x, %out;"),
        ("null", "mov.b64 %x, 0;"),
        ("param", "mov.b64 %x, in;\ncvta.param.u64 %x, %x;"),
    ] {
        for space in
            expand("{global,shared,local,const,param,shared::cta,shared::cluster,param::entry}")
        {
            let code = format!("{own}{address}\nisspacep.{space} %d0, %x;");
            let form = forms.code(&format!("isspacep.{space} of {name}"), &code, &[], &[Pred]);
            form.declare(variables);
        }
    }
    for (space, variable) in
        [("shared", "near"), ("local", "mine"), ("global", "word#"), ("const", "constant#")]
    {
        // There and back again; both addresses lead to the same memory.
        let store = match space {
            "const" => String::new(),
            "global" => "mov.u64 %x, %out;\n".to_owned(),
            _ => format!("st.{space}.u64 [%x], %a0;\n"),
        };
        let code = format!(
            "{own}.reg .b64 %y, %z;\nmov.u64 %x, {variable};\n{store}cvta.{space}.u64 %y, %x;\n\
             ld.u64 %d0, [%y];\ncvta.to.{space}.u64 %z, %y;\nsub.u64 %d1, %z, %x;"
        );
        forms.code(&format!("cvta.{space}.u64"), &code, &[U64], &[U64; 2]).declare(variables);
    }
    // Addresses of variables, with offsets.
    let code = format!(
        "{own}st.shared.u64 [near], %a0;\nld.shared.u32 %d0, [near+4];\nst.local.u64 [mine], %a0;\n\
         ld.local.u32 %d1, [mine+4];"
    );
    forms.code("addresses of variables", &code, &[U64], &[U32; 2]);
    let code = ".reg .b64 %x, %y;\nmov.u64 %x, word#;\ncvta.global.u64 %x, %x;\ncvta.to.global.u64 %x, %x;\n\
                mov.u64 %y, word#;\nsub.u64 %d0, %x, %y;\nmov.u64 %x, word#+8;\nsub.u64 %d1, %x, %y;";
    forms.code("cvta.to.global.u64 of a variable", code, &[], &[U64; 2]).declare(variables);
    let code = ".reg .b64 %x;\nld.param.u64 %x, [in];\nsub.u64 %x, %x, %in;\nneg.s64 %d0, %x;\n\
                mov.b64 %x, out;\nld.param.u64 %x, [%x];\nsub.u64 %d1, %out, %x;";
    forms.code("ld.param by address", code, &[U32], &[U64; 2]);
}

fn clusters(forms: &mut Forms) {
    let directives = ".explicitcluster\n.reqnctapercluster 2, 1, 1";
    for name in expand("%{clusterid,nclusterid,cluster_ctaid,cluster_nctaid}.{x,y,z}")
        .into_iter()
        .chain(expand("%{cluster_ctarank,cluster_nctarank}"))
    {
        let form = forms.code(&name, &format!("mov.u32 %d0, {name};"), &[], &[U32]);
        form.shape([4, 2, 1], [32, 1, 1]).direct(directives);
        let form = forms.code(
            &format!("{name} without clusters"),
            &format!("mov.u32 %d0, {name};"),
            &[],
            &[U32],
        );
        form.shape([4, 2, 1], [32, 1, 1]);
    }
    let code = "mov.pred %d0, %is_explicit_cluster;";
    forms
        .code("%is_explicit_cluster", code, &[], &[Pred])
        .direct(directives)
        .shape([4, 1, 1], [32, 1, 1]);
    forms.code("%is_explicit_cluster without clusters", code, &[], &[Pred]);
    // Each block reads what the other wrote.
    let meet = "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n";
    let begin = ".shared .align 8 .b64 cells[32];\n.reg .b64 %x, %y;\n.reg .b32 %r;\nmov.u64 %x, cells;\n\
                 mul.wide.u32 %y, %t, 8;\nadd.u64 %x, %x, %y;\nst.shared.b64 [%x], %a0;\n\
                 mov.u32 %r, %cluster_ctarank;\nxor.b32 %r, %r, 1;\n";
    let mapped = [
        (
            "mapa.shared::cluster.u64",
            "mapa.shared::cluster.u64 %y, %x, %r;\nld.shared::cluster.b64 %d0, [%y];\ngetctarank.shared::cluster.u64 %d1, %y;",
        ),
        (
            "mapa.u64",
            "cvta.shared.u64 %x, %x;\nmapa.u64 %y, %x, %r;\nld.b64 %d0, [%y];\ngetctarank.u64 %d1, %y;",
        ),
        (
            "atom.shared::cluster",
            "mapa.shared::cluster.u64 %y, %x, %r;\natom.shared::cluster.add.u64 %d0, [%y], 5;\nmov.b32 %d1, 0;",
        ),
        (
            "st.shared::cluster",
            "mapa.shared::cluster.u64 %y, %x, %r;\nst.shared::cluster.b64 [%y], %in;\nst.shared::cluster.b32 [%y], %r;\nst.shared::cluster.b32 [%y+4], %t;\nmov.b32 %d1, 1;",
        ),
    ];
    for (name, access) in mapped {
        let last = match name {
            "st.shared::cluster" => "\nld.shared.b64 %d0, [%x];",
            _ => "",
        };
        let code = format!(
            "{begin}{meet}{access}\n{meet}{last}",
            meet = meet.trim_end().to_owned() + "\n"
        );
        let form = forms.code(name, code.trim_end(), &[U64], &[U64, U32]);
        form.shape([4, 1, 1], [32, 1, 1]).direct(directives);
    }
    for name in expand("barrier.cluster.arrive{,.release,.relaxed}{,.aligned}") {
        let aligned = if name.contains("aligned") { ".aligned" } else { "" };
        let code = format!("mov.b32 %d0, %a0;\n{name};\nbarrier.cluster.wait{aligned};");
        forms.code(&name, &code, &[F32], &[F32]).shape([4, 1, 1], [64, 1, 1]).direct(directives);
    }
}
