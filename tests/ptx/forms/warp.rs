//! Functions of a warp.

use crate::form::Kind::{self, Few32, Few64, Lane, Pred, U32};
use crate::form::{Forms, expand};

/// Masks of lanes, all of which call the function; the others skip it.
const MASKS: [u32; 5] = [0xffff_ffff, 0x0000_ffff, 0xaaaa_aaaa, 0x8000_0001, 0x0000_0400];

pub(super) fn add(forms: &mut Forms) {
    for mask in MASKS {
        for (name, result) in [
            ("vote.sync.all.pred", Pred),
            ("vote.sync.any.pred", Pred),
            ("vote.sync.uni.pred", Pred),
            ("vote.sync.ballot.b32", U32),
        ] {
            masked(forms, name, mask, "%d0, %a0", &[Pred], &[result]);
        }
        masked(forms, "vote.sync.ballot.b32 negated", mask, "%d0, !%a0", &[Pred], &[U32]);
        masked(forms, "match.any.sync.b32", mask, "%d0, %a0", &[Few32], &[U32]);
        masked(forms, "match.any.sync.b64", mask, "%d0, %a0", &[Few64], &[U32]);
        masked(forms, "match.all.sync.b32", mask, "%d0|%d1, %a0", &[Few32], &[U32, Pred]);
        masked(forms, "match.all.sync.b64", mask, "%d0|%d1, %a0", &[Few64], &[U32, Pred]);
        masked(forms, "match.all.sync.b32 one", mask, "%d0|%d1, 5", &[U32], &[U32, Pred]);
        for name in expand("redux.sync.{add,min,max}.{u32,s32}") {
            masked(forms, &name, mask, "%d0, %a0", &[U32], &[U32]);
        }
        for name in expand("redux.sync.{and,or,xor}.b32") {
            masked(forms, &name, mask, "%d0, %a0", &[U32], &[U32]);
        }
        for name in expand("shfl.sync.{up,down,bfly,idx}.b32") {
            // The last operand has the last lane of a segment, and the mask of the segment at 8.
            for (segment, clamp) in
                [("", 0x1f), (" of 8", 0x1807), (" of 16", 0x100f), (" to 20", 0x14)]
            {
                let up = name.contains("up");
                let clamp = if up { clamp & 0x1f00 } else { clamp };
                let list = format!("%d0|%d1, %a0, %a1, {clamp}");
                let name = format!("{name}{segment}");
                masked(forms, &name, mask, &list, &[U32, Lane], &[U32, Pred]);
            }
        }
        let code = guarded(mask, &format!("elect.sync %d0|%d1, {mask:#x};"), &[U32, Pred]);
        forms.code(&format!("elect.sync {mask:#010x}"), &code, &[], &[U32, Pred]);
        let code = guarded(mask, "activemask.b32 %d0;", &[U32]);
        forms.code(&format!("activemask.b32 {mask:#010x}"), &code, &[], &[U32]);
    }
    forms.code(
        "shfl.sync.idx.b32 constant",
        "shfl.sync.idx.b32 %d0, %a0, 3, 31, -1;",
        &[U32],
        &[U32],
    );
    forms.code(
        "shfl.sync.bfly.b32 variable",
        "shfl.sync.bfly.b32 %d0|%d1, %a0, %a1, %a2, -1;",
        &[U32, Lane, Lane],
        &[U32, Pred],
    );
    // Instructions without `.sync`, which sm_70 removed.
    forms.typed("vote.all.pred", &[Pred], &[Pred]);
    forms.typed("vote.ballot.b32", &[Pred], &[U32]);
    forms.code("shfl.up.b32", "shfl.up.b32 %d0, %a0, 1, 0;", &[U32], &[U32]);
    diverged(forms);
}

/// Adds a function of the lanes of a mask. A remark may follow the instruction in the name.
fn masked(
    forms: &mut Forms,
    name: &str,
    mask: u32,
    list: &str,
    operands: &[Kind],
    results: &[Kind],
) {
    let instruction = name.split(' ').next().unwrap_or_default();
    let code = guarded(mask, &format!("{instruction} {list}, {mask:#x};"), results);
    forms.code(&format!("{name} {mask:#010x}"), &code, operands, results);
}

/// Returns an instruction for the lanes of a mask. In other lanes, results are 0.
fn guarded(mask: u32, instruction: &str, results: &[Kind]) -> String {
    if mask == u32::MAX {
        return instruction.to_owned();
    }
    let mut code = String::new();
    for (index, kind) in results.iter().enumerate() {
        code += &match kind {
            Pred => format!("setp.ne.u32 %d{index}, 0, 0;\n"),
            _ => format!("mov.b32 %d{index}, 0;\n"),
        };
    }
    format!(
        "{code}.reg .b32 %x;\n.reg .pred %p;\nshr.u32 %x, {mask:#x}, %t;\nand.b32 %x, %x, 1;\n\
         setp.eq.u32 %p, %x, 0;\n@%p bra $skip;\n{instruction}\n$skip:\nbar.warp.sync -1;"
    )
}

/// Adds functions of lanes that took different branches.
fn diverged(forms: &mut Forms) {
    let code = ".reg .pred %p;\nsetp.lt.u32 %p, %t, 12;\n@%p bra $low;\n\
                shfl.sync.down.b32 %d0, %a0, 1, 31, 0xfffff000;\n\
                vote.sync.ballot.b32 %d1, %a1, 0xfffff000;\nbra.uni $end;\n$low:\n\
                shfl.sync.idx.b32 %d0, %a0, 4, 31, 0xfff;\n\
                vote.sync.ballot.b32 %d1, %a1, 0xfff;\n$end:\nbar.warp.sync -1;";
    forms.code("warp functions in two branches", code, &[U32, Pred], &[U32, U32]);
    // Lanes meet at one instruction from two branches.
    let code = ".reg .pred %p;\nand.b32 %d1, %a0, 1;\nsetp.eq.u32 %p, %d1, 0;\n@%p bra $even;\n\
                add.u32 %d0, %a0, 100;\nbra $end;\n$even:\nmul.lo.u32 %d0, %a0, 3;\n$end:\n\
                bar.warp.sync -1;\nvote.sync.ballot.b32 %d1, %p, -1;\n\
                shfl.sync.bfly.b32 %d0, %d0, 1, 31, -1;";
    forms.code("warp functions after branches", code, &[U32], &[U32, U32]);
    // A scan, a sum and a loop whose count differs between lanes.
    let mut scan = ".reg .b32 %x;\n.reg .pred %p;\nmov.b32 %d0, %a0;\n".to_owned();
    for distance in [1, 2, 4, 8, 16] {
        scan += &format!(
            "shfl.sync.up.b32 %x|%p, %d0, {distance}, 0, -1;\n@%p add.u32 %d0, %d0, %x;\n"
        );
    }
    forms.code("scan of a warp", scan.trim_end(), &[U32], &[U32]);
    let code = ".reg .b32 %x;\n.reg .pred %p;\nmov.b32 %d0, 0;\nand.b32 %x, %a0, 31;\n$loop:\n\
                setp.eq.u32 %p, %x, 0;\n@%p bra $end;\nmad.lo.u32 %d0, %d0, 3, %x;\n\
                sub.u32 %x, %x, 1;\nbra $loop;\n$end:\nbar.warp.sync -1;\n\
                redux.sync.add.u32 %d1, %d0, -1;";
    forms.code("loop of different counts", code, &[U32], &[U32, U32]);
    // Each lane waits for the one before it.
    let code = ".shared .align 4 .b32 turn;\n.reg .b32 %x, %y;\n.reg .pred %p;\n\
                setp.eq.u32 %p, %t, 0;\n@%p st.volatile.shared.b32 [turn], 0;\nbar.warp.sync -1;\n\
                $wait:\nld.volatile.shared.b32 %x, [turn];\nsetp.ne.u32 %p, %x, %t;\n@%p bra $wait;\n\
                add.u32 %y, %x, 1;\nmul.lo.u32 %d0, %y, %a0;\nst.volatile.shared.b32 [turn], %y;\n\
                bar.warp.sync -1;";
    forms.code("lanes take turns", code, &[U32], &[U32]);
    let code = ".shared .align 4 .b32 lock;\n.shared .align 4 .b32 sum;\n.reg .b32 %x;\n.reg .pred %p;\n\
                setp.eq.u32 %p, %t, 0;\n@%p st.shared.b32 [lock], 0;\n@%p st.shared.b32 [sum], 0;\n\
                bar.warp.sync -1;\n$wait:\natom.acquire.cta.shared.cas.b32 %x, [lock], 0, 1;\n\
                setp.ne.u32 %p, %x, 0;\n@%p bra $wait;\nld.volatile.shared.b32 %x, [sum];\n\
                add.u32 %x, %x, %a0;\nst.volatile.shared.b32 [sum], %x;\n\
                atom.release.cta.shared.exch.b32 %x, [lock], 0;\nbar.warp.sync -1;\n\
                ld.volatile.shared.b32 %d0, [sum];\nbar.warp.sync -1;";
    forms.code("spin lock", code, &[U32], &[U32]);
}
