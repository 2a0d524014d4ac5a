//! Decides whether the result of a compilation depends on the program and the options only.

use crate::options::{CompileOptions, PrecompiledHeaders};
use crate::program::Program;
use std::collections::HashSet;

/// Words in directives that read files. The compiler searches for headers in memory first, so a header in memory
/// is never replaced by a file.
const READS: [&str; 3] = ["include", "import", "embed"];

/// Macros whose values depend on files or on the time, also outside of directives.
const CHANGES: [&str; 6] =
    ["__has_include", "__has_include_next", "__has_embed", "__DATE__", "__TIME__", "__TIMESTAMP__"];

/// Parts of options that name files, or that write them.
const FILE_OPTIONS: [&str; 8] = ["include", "-I", "pch", "@", "file", "-optf", "time", "-dir"];

/// The spellings of `#` in a directive.
const HASHES: [&str; 3] = ["#", "%:", "??="];

/// Returns whether the result of a compilation does not depend on any file. The answer may be `false` for a
/// program that reads no file, but never `true` for one that does.
#[inline]
pub(super) fn check(program: &Program, options: &CompileOptions) -> bool {
    if options.precompiled_headers != PrecompiledHeaders::None {
        return false;
    }
    let names_a_file = |option: &String| FILE_OPTIONS.iter().any(|part| option.contains(part));
    if options.extra.iter().any(names_a_file) {
        return false;
    }
    let headers = program.headers.iter().map(|(_, text)| text);
    let texts: Vec<String> =
        std::iter::once(&program.source).chain(headers).map(|text| joined(text)).collect();
    // Each of these becomes a line of the program.
    let defines = options.defines.iter();
    let lines: Vec<&String> = defines
        .flat_map(|(name, value)| std::iter::once(name).chain(value))
        .chain(&options.extra)
        .chain(&program.name_expressions)
        .collect();
    let is_known = |name: &str| program.headers.iter().any(|(header, _)| header == name);
    lines.iter().all(|line| text_reads_nothing(line))
        && texts.iter().all(|text| reads_only(text, &is_known))
        && !may_change(texts.iter().chain(lines))
}

/// Returns whether texts contain a macro whose value changes, or could make its name with `##`.
fn may_change<'a>(texts: impl Iterator<Item = &'a String> + Clone) -> bool {
    let contains = |part: &str| texts.clone().any(|text| text.contains(part));
    if CHANGES.iter().any(|name| contains(name)) {
        return true;
    }
    if !HASHES.iter().any(|hash| contains(&hash.repeat(2))) {
        return false;
    }
    let is_in_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words: HashSet<&str> = texts
        .flat_map(|text| text.split(|letter: char| !is_in_word(letter)))
        .filter(|word| !word.is_empty())
        .collect();
    CHANGES.iter().any(|name| is_made_of(name, &words))
}

/// Returns whether a name is one of the words, or several of them in a row.
#[inline]
fn is_made_of(name: &str, words: &HashSet<&str>) -> bool {
    // Whether the first bytes of the name, as many as the index, are made of words.
    let mut starts = vec![true];
    for end in 1..=name.len() {
        let mut ends_with = (0..end).filter(|start| starts[*start]);
        let is_start = ends_with.any(|start| words.contains(&name[start..end]));
        starts.push(is_start);
    }
    starts[name.len()]
}

/// Returns whether every directive of a text without joined lines that reads a file names a known header.
#[inline]
fn reads_only(text: &str, is_known: &impl Fn(&str) -> bool) -> bool {
    // A backslash of old standards, which joins lines. A carriage return alone could end a line.
    if text.contains("??/") || text.contains("\\\r") {
        return false;
    }
    // NVRTC reads a carriage return alone as a space.
    text.split('\n').all(|line| {
        let hash = HASHES.iter().filter_map(|hash| line.find(hash)).min();
        let Some(directive) = hash.map(|at| &line[at..]) else {
            return true;
        };
        // A comment that does not end here could hide the end of the line from this function. In `/*/` it does not
        // end.
        let comment = directive.rfind("/*").map(|at| &directive[at + 2..]);
        if comment.is_some_and(|comment| !comment.contains("*/")) && !text_reads_nothing(text) {
            return false;
        }
        text_reads_nothing(directive) || included(directive).is_some_and(is_known)
    })
}

/// Returns the text with each line that ends with a backslash joined to the next one. Compilers ignore white space
/// after the backslash.
#[inline]
fn joined(text: &str) -> String {
    let mut joined = String::new();
    for line in text.split_inclusive('\n') {
        match line.trim_end().strip_suffix('\\') {
            Some(start) => joined.push_str(start),
            None => joined.push_str(line),
        }
    }
    joined
}

#[inline]
fn text_reads_nothing(text: &str) -> bool {
    !READS.iter().any(|word| text.contains(word))
}

/// Returns the name in `#include "name"` or `#include <name>`, if the line has exactly this form.
#[inline]
fn included(directive: &str) -> Option<&str> {
    let rest = directive.strip_prefix('#')?.trim_start().strip_prefix("include")?;
    let rest = rest.trim_start();
    let (name, after) = match rest.strip_prefix('"') {
        Some(rest) => rest.split_once('"')?,
        None => rest.strip_prefix('<')?.split_once('>')?,
    };
    let after = after.trim();
    let is_end = after.is_empty() || (after.starts_with("//") && text_reads_nothing(after));
    is_end.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::{CompileOptions, PrecompiledHeaders, Program};

    fn is_self_contained(source: &str) -> bool {
        let program = Program::new(source).with_header("a.h", "#pragma once\n");
        check(&program, &CompileOptions::default())
    }

    #[test]
    fn headers_in_memory_are_a_part_of_the_program() {
        for source in [
            "__global__ void f() {}",
            "#include \"a.h\"\n#include <a.h> // again\r\n",
            "  #  include \"a.h\"\n#define INCLUDED\n#if 1\n#endif",
            "// this would include another file\nint x; /* a\ncomment */",
            "#define A /* long\ncomment */ 1\n",
            "#define NAME(T) __fill_##T##__\n__global__ void NAME(int)() {}",
        ] {
            assert!(is_self_contained(source), "{source}");
        }
    }

    #[test]
    fn a_program_that_may_read_a_file_is_not_self_contained() {
        for source in [
            "#include \"b.h\"",
            "#include <cuda_fp16.h>",
            "%:include \"b.h\"",
            "#inc\\\nlude \"b.h\"",
            "#inc\\ \t\r\nlude \"b.h\"",
            "#inc??/\nlude \"b.h\"",
            "#/**/include \"b.h\"",
            "#/*\n*/include \"b.h\"",
            "/*\n*/ #include \"b.h\"",
            "#define H \"b.h\"\n#include H",
            "#include \"a.h\" /*\n*/ \n#include \"b.h\"",
            "#if __has_include(\"b.h\")\n#endif",
            "#import \"b.h\"",
            "const char x[] = {\n#embed \"b\"\n};",
            "int x = __TIME__[0];",
            "%:include \"b.h\" // #",
            "#\rinclude \"b.h\"",
            "#inc\\\rlude \"b.h\"",
            "#include \"a.h\"\r#include \"b.h\"",
            "#/*/\n*/include \"b.h\"",
            "#if /*/\n*/ __has_include(\"b.h\")\n#endif",
            "int x = __has_include(\"b.h\");",
            "int x = __TI\\\nME__[0];",
            "#define P(a, b) a##b\n#if P(__has_inc, lude)(\"b.h\")\n#endif",
            "#define P(a, b, c) a %:%: b %:%: c\nint x = P(__, TIME, __)[0];",
        ] {
            assert!(!is_self_contained(source), "{source}");
        }
        let nested = Program::new("#include \"a.h\"").with_header("a.h", "#include \"b.h\"");
        assert!(!check(&nested, &CompileOptions::default()));
    }

    #[test]
    fn options_for_files_are_not_self_contained() {
        let options =
            |extra: &str| CompileOptions { extra: vec![extra.to_owned()], ..Default::default() };
        let program = Program::new("");
        assert!(check(&program, &options("-default-device")));
        for extra in [
            "-I/usr/include",
            "--pre-include=x.h",
            "--use-pch=x",
            "@options",
            "--device-time-trace=x",
            "-DT=__TIME__",
            "-DH=__has_embed(<x>)",
        ] {
            assert!(!check(&program, &options(extra)), "{extra}");
        }
        for value in ["__has_include(<b.h>)", "__TIME__", "1\n#include \"b.h\""] {
            let defines = vec![("H".to_owned(), Some(value.to_owned()))];
            let options = CompileOptions { defines, ..Default::default() };
            assert!(!check(&program, &options), "{value}");
            let program = Program::new("").with_name_expression(value);
            assert!(!check(&program, &CompileOptions::default()), "{value}");
        }
        let pch = CompileOptions {
            precompiled_headers: PrecompiledHeaders::Automatic(None),
            ..Default::default()
        };
        assert!(!check(&program, &pch));
    }
}
