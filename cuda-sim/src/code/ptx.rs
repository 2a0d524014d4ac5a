//! The contents of PTX.

use super::{Contents, KernelInfo, Variable};
use cuda_ptx::{Kernel, LinkError, Program, syntax};
use std::sync::Arc;

/// The reason why a text cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The text does not begin with `.version`.
    NotPtx,
    /// The compiler rejects the text. This is its message.
    Invalid(String),
    /// The PTX version is newer than the driver supports.
    Version(u32, u32),
}

/// Returns the contents of a text, for a compiler that supports PTX up to `newest`.
pub(crate) fn parse(text: &str, newest: (u32, u32)) -> Result<Contents, Refusal> {
    let invalid = |error: syntax::ParseError| match error.expected {
        "`.version`" => Refusal::NotPtx,
        expected => Refusal::Invalid(format!(
            "application ptx input, line {}; fatal   : Parsing error near {}: expected {expected}",
            error.position.line, error.found
        )),
    };
    // A newer version may have syntax that is not known.
    let version = syntax::version(text).map_err(invalid)?;
    if version > newest {
        return Err(Refusal::Version(version.0, version.1));
    }
    let module = syntax::parse(text).map_err(invalid)?;
    let target = module.target.iter().find_map(|word| word.strip_prefix("sm_"));
    let target = target.map(|digits| digits.trim_end_matches(|c: char| c.is_alphabetic()));
    let target = target.and_then(|digits| digits.parse().ok()).unwrap_or(0);
    let program = Program::link(&[module]).map_err(|error| Refusal::Invalid(message(&error)))?;
    let constant =
        program.variables().iter().filter(|its| its.is_const).map(|its| its.size).sum::<u64>();
    let constant = u32::try_from(constant).unwrap_or(u32::MAX);
    Ok(Contents {
        kernels: program.kernels().iter().filter_map(|its| info(its, target, constant)).collect(),
        variables: program.variables().iter().map(variable).collect(),
        wanted: program.undefined().to_vec(),
        offered: program.functions().to_vec(),
        texts: vec![Arc::from(text)],
        program: Some(Arc::new(program)),
    })
}

/// Returns the contents of texts that a linker has linked.
pub(crate) fn parse_linked(texts: &[&str], newest: (u32, u32)) -> Result<Contents, Refusal> {
    let mut all = Contents::default();
    for text in texts {
        all.append(parse(text, newest)?);
    }
    // The linker has found all symbols.
    all.wanted.clear();
    all.link().map_err(Refusal::Invalid)?;
    Ok(all)
}

/// Returns the program of several texts.
pub(crate) fn link(texts: &[Arc<str>]) -> Result<Program, String> {
    let modules = texts.iter().map(|text| syntax::parse(text).map_err(|error| error.to_string()));
    let modules: Vec<_> = modules.collect::<Result<_, _>>()?;
    Program::link(&modules).map_err(|error| message(&error))
}

/// Returns the message of a compiler.
fn message(LinkError { position, text, .. }: &LinkError) -> String {
    format!("application ptx input, line {}; error   : {text}", position.line)
}

/// Returns `None` for a name that contains a NUL, which PTX does not allow.
fn info(its: &Kernel, target: u32, constant: u32) -> Option<KernelInfo> {
    let params = its.params.iter().map(|param| (param.offset, param.size)).collect();
    let mut info = KernelInfo::new(&its.name, params)?;
    info.limits.target = target;
    info.limits.threads = its.max_threads.unwrap_or(1024);
    info.limits.shared = its.shared;
    info.limits.local = its.local;
    info.limits.constant = constant;
    info.limits.cluster = its.cluster.unwrap_or_default();
    Some(info)
}

fn variable(its: &cuda_ptx::Variable) -> Variable {
    Variable {
        name: its.name.clone(),
        size: usize::try_from(its.size).unwrap_or(usize::MAX),
        align: usize::try_from(its.align).unwrap_or(1),
        initial: its.initial.clone(),
        managed: its.is_managed,
    }
}

#[cfg(test)]
mod tests {
    use super::{Contents, Refusal, parse};

    const TEXT: &str = "// .entry of a comment\n.version 6.0 /* .entry */\n.target sm_52\n.address_size 64\n\
        .visible .entry add(\n .param .u64 a,\n .param .u32 n, .param .align 8 .b8 s[24]\n)\n\
        { .reg .b32 %r<3>; .reg .f32 %x, %y;\n mov.u32 %r1, %tid.x;\n add.f32 %x, %y, %y;\n ret; }\n\
        .entry nothing() { ret; }\n";

    fn refused(text: &str, newest: (u32, u32)) -> Refusal {
        parse(text, newest).map(|Contents { kernels, .. }| kernels).expect_err(text)
    }

    #[test]
    fn kernels_have_names_and_parameters_with_their_offsets() {
        let kernels = parse(TEXT, (8, 0)).expect("it is PTX").kernels;
        assert_eq!(kernels.len(), 2);
        assert_eq!(kernels[0].name, "add");
        assert_eq!(kernels[0].params, [(0, 8), (8, 4), (16, 24)]);
        assert_eq!(kernels[1].name, "nothing");
        assert_eq!(kernels[1].params, []);
    }

    #[test]
    fn a_newer_version_and_what_a_compiler_rejects_are_refused() {
        let newer = TEXT.replace("6.0", "9.9").replace("ret", "new syntax");
        assert_eq!(refused(&newer, (9, 0)), Refusal::Version(9, 9));
        let wrong = TEXT.replace("%y, %y", "%y, %nonsense");
        match refused(&wrong, (9, 0)) {
            Refusal::Invalid(what) => {
                assert!(what.contains("line 11") && what.contains("nonsense"), "{what}");
            }
            other => panic!("{other:?}"),
        }
        for text in ["", "no PTX", "// .version 6.0", ".target sm_90\n.version 6.0"] {
            assert_eq!(refused(text, (9, 0)), Refusal::NotPtx, "{text}");
        }
        for text in [".version", ".version six", ".version 6.0\n"] {
            assert!(matches!(refused(text, (9, 0)), Refusal::Invalid(_)), "{text}");
        }
        let large = TEXT.replace("s[24]", "s[40000]");
        assert!(matches!(refused(&large, (9, 0)), Refusal::Invalid(_)));
    }

    #[test]
    fn variables_have_sizes_and_initial_values() {
        let text = ".version 6.0\n.target sm_70\n.address_size 64\n\
            .visible .global .align 4 .u32 table[2][2] = {1, -1, 0x10};\n\
            .const .f32 one = 0f3F800000;\n .extern .global .u64 elsewhere;\n\
            .visible .global .attribute(.managed) .v2 .u16 both;\n\
            .shared .align 8 .b8 of_all[24];\n .shared .b8 unused[100];\n\
            .extern .shared .b8 dynamic[];\n\
            .extern .func (.param .b32 r) twice(.param .b32 x);\n\
            .visible .func (.param .b32 r) half(.param .b32 x) { ret; }\n\
            .visible .entry k() .maxntid 8, 16 .reqnctapercluster 2, 1, 1\n\
            { .local .align 8 .b8 depot[40]; .reg .b64 %d; .shared .f32 own[3]; mov.u64 %d, of_all; ret; }\n";
        let contents = parse(text, (8, 0)).expect("it is PTX");
        let [table, one, both] = &contents.variables[..] else {
            panic!("{contents:?}");
        };
        assert_eq!((&*table.name, table.size, table.align), ("table", 16, 4));
        let bytes = [1, 0, 0, 0, 255, 255, 255, 255, 16, 0, 0, 0];
        assert_eq!(table.initial, bytes);
        assert_eq!(one.initial, 1.0f32.to_le_bytes());
        assert_eq!((&*both.name, both.size, both.managed), ("both", 4, true));
        assert_eq!(contents.wanted, ["elsewhere", "twice"]);
        assert_eq!(contents.offered, ["half", "k"]);
        let limits = &contents.kernels[0].limits;
        assert_eq!((limits.threads, limits.target), (128, 70));
        assert_eq!((limits.shared, limits.cluster), (40, [2, 1, 1]));
        assert_eq!((limits.local, limits.constant), (40, 4));
    }
}
