//! Comparisons.

use crate::form::Kind::{self, Pred};
use crate::form::{Forms, expand};

const FLOAT: &str = "{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}";

/// The comparisons of each type, as patterns.
fn comparisons() -> Vec<String> {
    [
        "{eq,ne}#.{b16,b32,b64}",
        "{eq,ne,lt,le,gt,ge}#.{s16,s32,s64,u16,u32,u64}",
        "{lo,ls,hi,hs}#.{u16,u32,u64}",
        "FLOAT#{.f32,.ftz.f32,.f64}",
    ]
    .map(|pattern| pattern.replace("FLOAT", FLOAT))
    .to_vec()
}

pub(super) fn add(forms: &mut Forms) {
    for pattern in comparisons() {
        forms.each(&format!("setp.{}", pattern.replace('#', "")), |name| {
            (vec![Kind::of(name); 2], vec![Pred; 2])
        });
    }
    forms.each(&format!("setp.{FLOAT}{{.f16,.ftz.f16,.bf16}}"), |name| {
        (vec![Kind::of(name); 2], vec![Pred])
    });
    // The two predicates are those of the two halves.
    forms.each(&format!("setp.{FLOAT}{{.f16x2,.ftz.f16x2,.bf16x2}}"), |name| {
        (vec![Kind::of(name); 2], vec![Pred; 2])
    });
    for name in expand("setp.{eq,ltu}.{and,or,xor}.{b32,s16,u64,f32,f64}") {
        let (integer, unordered) = (!name.contains(".f"), name.contains("ltu"));
        if name.contains(".b32") && unordered {
            continue;
        }
        let name = if integer { name.replace("ltu", "lt") } else { name };
        let kind = Kind::of(&name);
        let code = format!("{name} %d0|%d1, %a0, %a1, %a2;");
        forms.code(&name, &code, &[kind, kind, Pred], &[Pred; 2]);
        let code = format!("{name} %d0, %a0, %a1, !%a2;");
        forms.code(&format!("{name} negated"), &code, &[kind, kind, Pred], &[Pred]);
    }
    for name in expand("setp.lt.{and,or,xor}.{f16,bf16,f16x2,bf16x2}") {
        let kind = Kind::of(&name);
        let results = if name.contains("x2") { 2 } else { 1 };
        let list = ["%d0", "%d0|%d1"][results - 1];
        let code = format!("{name} {list}, %a0, %a1, %a2;");
        forms.code(&name, &code, &[kind, kind, Pred], &[Pred; 2][..results]);
    }
    set(forms);
}

fn set(forms: &mut Forms) {
    let result = |name: &str| {
        let types = name.split('.').filter(|word| {
            let digits = word.trim_start_matches(['b', 'f', 's', 'u']);
            digits.starts_with(|c: char| c.is_ascii_digit())
        });
        vec![Kind::of(types.into_iter().next().unwrap_or_default())]
    };
    let kinds = |name: &str| (vec![Kind::of(name); 2], result(name));
    for pattern in comparisons() {
        // The flag `.ftz` is before both types.
        let pattern = pattern.replace("#{.f32,.ftz.f32,.f64}", "{,.ftz}#.{f32,f64}");
        for name in expand(&format!("set.{}", pattern.replace('#', ".{u32,s32,f32}"))) {
            if !name.contains(".ftz") || !name.ends_with(".f64") {
                forms.each(&name, kinds);
            }
        }
    }
    for name in [
        format!("set.{FLOAT}.{{f16,u16,s16,u32,s32}}.f16"),
        format!("set.{FLOAT}.{{bf16,u16,s16,u32,s32}}.bf16"),
        format!("set.{FLOAT}.{{f16x2.f16x2,bf16x2.bf16x2}}"),
        "set.{eq,ltu}.ftz.{f16,u16,s32}.f16".to_owned(),
        "set.{eq,ltu}.ftz.f16x2.f16x2".to_owned(),
        "set.{eq,ne}.{f16,bf16}.{b16,b32,b64}".to_owned(),
        "set.{lt,ge}.{f16,bf16}.{s16,u16,s32,u32,s64,u64,f32,f64}".to_owned(),
        "set.{lt,num}.{u32,s32}.f16x2".to_owned(),
    ] {
        forms.each(&name, kinds);
    }
    for name in expand("set.{lt,gt}.{and,or,xor}.{u32,s32,f32}.{s32,u64,f32,f64}") {
        let kind = Kind::of(&name);
        let code = format!("{name} %d0, %a0, %a1, %a2;");
        forms.code(&name, &code, &[kind, kind, Pred], &result(&name));
        let code = format!("{name} %d0, %a0, %a1, !%a2;");
        forms.code(&format!("{name} negated"), &code, &[kind, kind, Pred], &result(&name));
    }
    for name in expand("set.lt.{and,xor}.{f16.f16,f16x2.f16x2,bf16.bf16,bf16x2.bf16x2}") {
        let kind = Kind::of(&name);
        let code = format!("{name} %d0, %a0, %a1, %a2;");
        forms.code(&name, &code, &[kind, kind, Pred], &result(&name));
    }
}
