//! Decides whether the result of a compilation depends on the program and the options only.

use crate::options::{CompileOptions, PrecompiledHeaders};
use crate::program::Program;

/// Words in directives that read files. The compiler searches for headers in memory first, so a header in memory
/// is never replaced by a file.
const READS: [&str; 3] = ["include", "import", "embed"];

/// Macros whose values change.
const CHANGES: [&str; 3] = ["__DATE__", "__TIME__", "__TIMESTAMP__"];

/// Parts of options that name files, or that write them.
const FILE_OPTIONS: [&str; 8] = ["include", "-I", "pch", "@", "file", "-optf", "time", "-dir"];

/// Returns whether the result of a compilation does not depend on any file. The answer may be `false` for a
/// program that reads no file, but never `true` for one that does.
pub(super) fn check(program: &Program, options: &CompileOptions) -> bool {
    if options.precompiled_headers != PrecompiledHeaders::None {
        return false;
    }
    let names_a_file = |option: &String| FILE_OPTIONS.iter().any(|part| option.contains(part));
    if options.extra.iter().any(names_a_file) {
        return false;
    }
    // A macro of an option could be a part of a directive, such as the name of a header.
    let is_known = |name: &str| program.headers.iter().any(|(header, _)| header == name);
    let headers = program.headers.iter().map(|(_, text)| text);
    let mut texts = std::iter::once(&program.source).chain(headers);
    texts.all(|text| reads_only(text, &is_known))
}

/// Returns whether every directive of a text that reads a file names a known header.
fn reads_only(text: &str, is_known: &impl Fn(&str) -> bool) -> bool {
    if CHANGES.iter().any(|word| text.contains(word)) {
        return false;
    }
    if text.contains("??/") {
        // A backslash of old standards, which joins lines.
        return false;
    }
    let text = joined(text);
    text.split(['\n', '\r']).all(|line| {
        let hash = line
            .find('#')
            .or_else(|| line.find("%:"))
            .or_else(|| line.find("??="));
        let Some(directive) = hash.map(|at| &line[at..]) else {
            return true;
        };
        // A comment that does not end here could hide the end of the line from this function.
        let comment = directive.rfind("/*").map(|at| &directive[at..]);
        if comment.is_some_and(|comment| !comment.contains("*/")) && !text_reads_nothing(&text) {
            return false;
        }
        text_reads_nothing(directive) || included(directive).is_some_and(is_known)
    })
}

/// Returns the text with each line that ends with a backslash joined to the next one. Compilers ignore white space
/// after the backslash.
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

fn text_reads_nothing(text: &str) -> bool {
    !READS.iter().any(|word| text.contains(word))
}

/// Returns the name in `#include "name"` or `#include <name>`, if the line has exactly this form.
fn included(directive: &str) -> Option<&str> {
    let rest = directive
        .strip_prefix('#')?
        .trim_start()
        .strip_prefix("include")?;
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
        ] {
            assert!(!is_self_contained(source), "{source}");
        }
        let nested = Program::new("#include \"a.h\"").with_header("a.h", "#include \"b.h\"");
        assert!(!check(&nested, &CompileOptions::default()));
    }

    #[test]
    fn options_for_files_are_not_self_contained() {
        let options = |extra: &str| CompileOptions {
            extra: vec![extra.to_owned()],
            ..Default::default()
        };
        let program = Program::new("");
        assert!(check(&program, &options("-default-device")));
        for extra in [
            "-I/usr/include",
            "--pre-include=x.h",
            "--use-pch=x",
            "@options",
            "--device-time-trace=x",
        ] {
            assert!(!check(&program, &options(extra)), "{extra}");
        }
        let pch = CompileOptions {
            precompiled_headers: PrecompiledHeaders::Automatic(None),
            ..Default::default()
        };
        assert!(!check(&program, &pch));
    }
}
