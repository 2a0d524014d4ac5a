//! Operations at multicast addresses. Their guard is false in each thread, because a single GPU has no such addresses: the
//! forms show that NVIDIA's compiler and the engine accept them.

use crate::form::{Forms, Kind, expand};

/// Operations with their types.
const OPERATIONS: [&str; 10] = [
    "{ld_reduce,red}.global.add.{u32,s32,u64,f16x2,bf16x2,f32,f64,v2.f32,v4.f32}",
    "{ld_reduce,red}.global.{min,max}.{u32,s32,u64,s64}",
    "{ld_reduce,red}.global.{and,or,xor}.{b32,b64}",
    "{ld_reduce,red}.relaxed.sys.global.{add,min,max}.{v2.f16,v4.bf16,v8.f16,v2.bf16x2,v4.f16x2}",
    "ld_reduce.{min,max}.{f16x2,bf16x2}",
    "ld_reduce.weak.global.add.acc::f32.{f16x2,bf16x2,v8.bf16,v4.f16x2}",
    "st.global.{b32,u64,s32,f16x2,f32,f64,v2.f32,v4.f32,v4.f16,v8.bf16,v4.bf16x2}",
    "ld_reduce{,.weak,.relaxed.cta,.acquire.gpu}.add.u32",
    "st{,.weak,.relaxed.cluster,.release.sys}.u32",
    "red{,.relaxed.gpu,.release.cta}.add.u32",
];

pub(super) fn add(forms: &mut Forms) {
    for operation in OPERATIONS.iter().flat_map(|pattern| expand(pattern)) {
        let kind = Kind::of(&operation);
        let vector = operation.split('.').find_map(|word| word.strip_prefix('v')?.parse().ok());
        let list = |letter: char| match vector {
            None => format!("%{letter}0"),
            Some(count) => {
                let names: Vec<_> = (0..count).map(|at| format!("%{letter}{at}")).collect();
                format!("{{{}}}", names.join(", "))
            }
        };
        let operands = match operation.starts_with("ld_reduce") {
            true => format!("{}, [%out]", list('d')),
            false => format!("[%out], {}", list('d')),
        };
        let count = vector.unwrap_or(1);
        let register = kind.register();
        let moves: Vec<_> =
            (0..count).map(|at| format!("mov.{register} %d{at}, %a{at};\n")).collect();
        let code = format!(
            ".reg .pred %p;\nsetp.gt.u32 %p, %t, 4096;\n{}@%p multimem.{operation} {operands};",
            moves.concat()
        );
        let kinds = vec![kind; count];
        forms.code(&format!("multimem.{operation}"), &code, &kinds, &kinds);
    }
}
