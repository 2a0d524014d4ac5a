//! Parser for the declarations in PTX: version, variables, and the names, parameters and limits of
//! kernels.
//!
//! The text is not compiled. Text that a real compiler rejects may be accepted here, except for the
//! errors of [`Refusal`].

mod declare;

use super::{Contents, KernelInfo};
use std::collections::HashSet;
use std::sync::Arc;

/// The reason why a text cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The text does not begin with `.version`.
    NotPtx,
    /// A missing directive, or one that does not end.
    Invalid(String),
    /// The PTX version is newer than the driver supports.
    Version(u32, u32),
}

/// Returns the contents of a text, for a compiler that supports PTX up to `newest`.
pub(crate) fn parse(text: &str, newest: (u32, u32)) -> Result<Contents, Refusal> {
    let whole = Arc::from(text);
    let text = without_comments(text);
    let invalid = |what: &str| Refusal::Invalid(what.to_owned());
    let rest = text.trim_start().strip_prefix(".version").ok_or(Refusal::NotPtx)?;
    let version = rest.split_whitespace().next().unwrap_or_default();
    let version = version
        .split_once('.')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
        .ok_or_else(|| invalid("line 1; fatal   : .version has no number"))?;
    if version > newest {
        return Err(Refusal::Version(version.0, version.1));
    }
    if !rest.contains(".target") {
        return Err(invalid("fatal   : missing .target directive"));
    }
    let declared = declared_registers(&text);
    for line in text.lines() {
        check_registers(&declared, line)?;
    }
    let wrong = || invalid("an .entry without an end, or with too many parameters");
    let items = declare::items(rest).ok_or_else(wrong)?;
    let mut contents = Contents { texts: vec![whole], ..Contents::default() };
    let mut shared = Vec::new();
    // The parameters of a function are declared with the same words as variables.
    let is_data = |head: &str| !head.contains(".func") && !head.contains(".entry");
    for head in items.iter().map(|item| item.head).filter(|head| is_data(head)) {
        let of_space = |space: &str| {
            let (before, declared) = head.split_once(space)?;
            declare::variable(declared).map(|its| (before.trim_end().ends_with(".extern"), its))
        };
        if let Some((_, its)) = of_space(".shared ") {
            shared.push(its);
        } else if let Some((is_extern, its)) = of_space(".global ").or_else(|| of_space(".const "))
        {
            if is_extern {
                contents.wanted.push(its.name);
            } else {
                contents.variables.push(its);
            }
        }
    }
    for item in &items {
        if let Some((name, is_wanted)) = declare::function(item) {
            let list = match is_wanted {
                true => &mut contents.wanted,
                false => &mut contents.offered,
            };
            list.push(name);
        }
        let entry = item.head.split_once(".entry");
        if let (Some((_, entry)), Some(body)) = (entry, item.body) {
            let mut kernel = kernel(entry).ok_or_else(wrong)?;
            kernel.limits = declare::limits(entry, body, &shared, declare::target(rest));
            contents.kernels.push(kernel);
        }
    }
    Ok(contents)
}

/// The predefined registers.
const SPECIAL: [&str; 35] = [
    "aggr_smem_size",
    "clock",
    "clock64",
    "clock_hi",
    "cluster_ctaid",
    "cluster_ctarank",
    "cluster_nctaid",
    "cluster_nctarank",
    "clusterid",
    "ctaid",
    "current_graph_exec",
    "dynamic_smem_size",
    "globaltimer",
    "globaltimer_hi",
    "globaltimer_lo",
    "gridid",
    "is_explicit_cluster",
    "laneid",
    "lanemask_eq",
    "lanemask_ge",
    "lanemask_gt",
    "lanemask_le",
    "lanemask_lt",
    "nclusterid",
    "nctaid",
    "nsmid",
    "ntid",
    "nwarpid",
    "reserved_smem_offset_begin",
    "reserved_smem_offset_cap",
    "reserved_smem_offset_end",
    "smid",
    "tid",
    "total_smem_size",
    "warpid",
];
/// The predefined registers with a number in their names, without the number.
const NUMBERED: [&str; 4] = ["envreg", "pm", "pm_64", "reserved_smem_offset_"];

fn is_special(name: &str) -> bool {
    if SPECIAL.contains(&name) {
        return true;
    }
    // In `%pm0_64` the number is not at the end.
    let (stem, wide) = match name.strip_suffix("_64") {
        Some(stem) => (stem, "_64"),
        None => (name, ""),
    };
    let family = stem.trim_end_matches(|c: char| c.is_ascii_digit());
    family != stem && NUMBERED.contains(&format!("{family}{wide}").as_str())
}

/// Detects an operand `%name` that is not declared. This is a common error that a compiler rejects.
fn check_registers(declared: &HashSet<&str>, line: &str) -> Result<(), Refusal> {
    let instruction = line.trim();
    if instruction.starts_with('.') {
        return Ok(());
    }
    for operand in instruction.split('%').skip(1) {
        let name: String =
            operand.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        if !is_declared(declared, &name) && !is_special(&name) {
            return Err(Refusal::Invalid(format!("error   : Unknown symbol '%{name}'")));
        }
    }
    Ok(())
}

/// Returns the declared names: `name` of `.reg .b32 %name;`, and `n<` of `.reg .b32 %n<7>;`, which declares `%n0` to
/// `%n6`.
fn declared_registers(text: &str) -> HashSet<&str> {
    text.split(".reg")
        .skip(1)
        .filter_map(|declaration| declaration.split(['\n', ';']).next())
        .flat_map(|declaration| declaration.split([' ', ',', '\t']))
        .filter_map(|word| word.strip_prefix('%'))
        .map(|word| word.find('<').map_or(word, |end| &word[..=end]))
        .collect()
}

fn is_declared(declared: &HashSet<&str>, name: &str) -> bool {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    declared.contains(name) || declared.contains(format!("{stem}<").as_str())
}

fn without_comments(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    loop {
        let line = rest.find("//");
        let block = rest.find("/*");
        let (start, end) = match (line, block) {
            (None, None) => {
                kept.push_str(rest);
                return kept;
            }
            (Some(line), block) if block.is_none_or(|block| line < block) => {
                (line, rest[line..].find('\n').map(|end| line + end))
            }
            (_, Some(block)) => (block, rest[block..].find("*/").map(|end| block + end + 2)),
            (Some(line), None) => (line, None),
        };
        kept.push_str(&rest[..start]);
        match end {
            Some(end) => rest = &rest[end..],
            None => return kept,
        }
    }
}

/// Parses the text after `.entry`: ` name( .param .u64 a, .param .u32 b )`.
fn kernel(entry: &str) -> Option<KernelInfo> {
    let entry = entry.trim_start();
    let end = entry.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '$'));
    let end = end.unwrap_or(entry.len());
    let name = &entry[..end];
    let rest = entry[end..].trim_start();
    let params = match rest.strip_prefix('(') {
        Some(list) => params(&list[..list.find(')')?])?,
        None => Vec::new(),
    };
    KernelInfo::new(name, params)
}

/// Maximum size of a kernel's parameters since PTX 8.1, in bytes.
const ROOM: usize = 32_764;

/// Returns `None` if the parameters are larger. Without this check, a later computation overflows.
fn params(list: &str) -> Option<Vec<(usize, usize)>> {
    let mut params = Vec::new();
    let mut offset = 0usize;
    for param in list.split(',').map(str::trim).filter(|param| !param.is_empty()) {
        let words: Vec<&str> = param.split_whitespace().collect();
        let element = words
            .iter()
            .filter_map(|word| word.strip_prefix('.'))
            .find_map(|word| word.trim_start_matches(|c: char| c.is_alphabetic()).parse().ok())
            .map(|bits: usize| bits / 8)?;
        let align = words
            .iter()
            // An alignment after `.ptr` is that of the memory that the parameter points to.
            .take_while(|word| **word != ".ptr")
            .position(|word| *word == ".align")
            .and_then(|at| words.get(at + 1)?.parse().ok())
            .unwrap_or(element);
        // `.param .align 8 .b8 name[24]`
        let count = param
            .split_once('[')
            .and_then(|(_, count)| count.trim_end_matches(']').trim().parse().ok())
            .unwrap_or(1usize);
        offset = offset.checked_next_multiple_of(align.max(1))?;
        let size = element.checked_mul(count)?;
        params.push((offset, size));
        offset = offset.checked_add(size).filter(|end| *end <= ROOM)?;
    }
    Some(params)
}

#[cfg(test)]
mod tests {
    use super::{Refusal, parse};

    const TEXT: &str = "// .entry of a comment\n.version 6.0 /* .entry */\n.target sm_52\n\
        .visible .entry add(\n .param .u64 a,\n .param .u32 n, .param .align 8 .b8 s[24]\n)\n\
        { .reg .b32 %r<3>; .reg .f32 %x, %y;\n mov.u32 %r1, %tid.x;\n add.f32 %x, %y, %y;\n ret; }\n\
        .entry nothing() { ret; }\n";

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
    fn a_newer_version_and_an_unknown_register_are_refused() {
        let newer = TEXT.replace("6.0", "9.9");
        assert_eq!(parse(&newer, (9, 0)), Err(Refusal::Version(9, 9)));
        let wrong = TEXT.replace("%y, %y", "%y, %nonsense");
        match parse(&wrong, (9, 0)) {
            Err(Refusal::Invalid(what)) => assert!(what.contains("nonsense"), "{what}"),
            other => panic!("{other:?}"),
        }
        for text in ["", "no PTX", "// .version 6.0", ".target sm_90\n.version 6.0"] {
            assert_eq!(parse(text, (9, 0)), Err(Refusal::NotPtx), "{text}");
        }
        for text in [".version", ".version six", ".version 6.0\n"] {
            assert!(matches!(parse(text, (9, 0)), Err(Refusal::Invalid(_))), "{text}");
        }
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
            { .reg .b64 %d; .shared .f32 own[3]; mov.u64 %d, of_all; ret; }\n";
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
        assert_eq!(contents.offered, ["half"]);
        let limits = &contents.kernels[0].limits;
        assert_eq!((limits.threads, limits.target), (128, 70));
        assert_eq!((limits.shared, limits.cluster), (36, [2, 1, 1]));
    }
}
