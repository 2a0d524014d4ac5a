//! Errors of compilations.

use crate::common::{child::in_child, scratch};
use crate::{libraries, or_skip};
use cuda_nvrtc::sys::nvrtcResult;
use cuda_nvrtc::{Architecture, CompileError, CompileOptions, Error, Invalid, Program, Target};

#[track_caller]
fn refused(program: &Program, options: &CompileOptions) -> CompileError {
    match program.compile(options) {
        Err(Error::Compile(error)) => *error,
        other => panic!("expected an error of the compiler, got {other:?}"),
    }
}

#[track_caller]
fn invalid(program: &Program, options: &CompileOptions) -> Invalid {
    match program.compile(options) {
        Err(Error::Invalid(error)) => *error,
        other => panic!("expected an invalid argument, got {other:?}"),
    }
}

#[test]
fn an_error_has_the_log_and_the_line_of_the_first_error() {
    or_skip!(libraries::nvrtc());
    let source =
        "__global__ void run(int *x)\n{\n    int unused;\n    *x = missing;\n    *x = absent;\n}\n";
    let error = refused(&Program::new(source).with_name("wrong.cu"), &CompileOptions::default());
    assert_eq!(error.code, nvrtcResult::NVRTC_ERROR_COMPILATION);
    let first = error.first.as_ref().expect("a line");
    assert_eq!((first.file.as_str(), first.line), ("wrong.cu", 4));
    assert!(first.message.contains("missing"), "{}", first.message);
    assert_eq!(first.source.as_deref(), Some("*x = missing;"));
    assert!(error.log.contains("absent"), "{}", error.log);
    let text = Error::Compile(Box::new(error.clone())).to_string();
    assert!(text.contains(error.log.trim_end()), "{text}");
    let first = text.lines().next().expect("a line");
    for part in ["\"wrong.cu\"", "line 4 of wrong.cu", "in `*x = missing;`"] {
        assert!(first.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_library_that_is_not_found_is_unavailable() {
    in_child(&[("CUDA_NVRTC_LIBRARY", "/no/library")], || {
        let program = Program::new("");
        let error = program.compile(&CompileOptions::default());
        let error = error.expect_err("no library");
        assert!(matches!(error, Error::Load { .. }) && error.is_unavailable(), "{error:?}");
    });
}

#[test]
fn a_mistake_in_the_program_does_not_count_as_a_missing_compiler() {
    or_skip!(libraries::nvrtc());
    let options = CompileOptions::default();
    for source in ["int f( {", "int a;\0"] {
        let error = Program::new(source).compile(&options).expect_err("refused");
        assert!(!error.is_unavailable(), "{error:?}");
    }
}

#[test]
fn an_error_in_a_header_names_the_header() {
    or_skip!(libraries::nvrtc());
    let program = Program::new("#include \"bad.h\"\n").with_header("bad.h", "\n\nint f( {\n");
    let first = refused(&program, &CompileOptions::default()).first.expect("a line");
    assert_eq!((first.file.as_str(), first.line), ("bad.h", 3));
}

#[test]
fn an_unknown_option_is_named() {
    or_skip!(libraries::nvrtc());
    let options = CompileOptions {
        extra: vec!["--fly".into()],
        max_registers: Some(32),
        ..Default::default()
    };
    let error = refused(&Program::new(""), &options);
    assert_eq!(error.code, nvrtcResult::NVRTC_ERROR_INVALID_OPTION);
    assert!(error.log.contains("--fly"), "{}", error.log);
    assert!(error.options.contains(&"--fly".to_owned()), "{:?}", error.options);
    assert!(error.options.contains(&"--maxrregcount=32".to_owned()), "{:?}", error.options);
    assert_eq!(error.first, None);
}

#[test]
fn a_name_that_the_program_does_not_have_is_an_error() {
    or_skip!(libraries::nvrtc());
    let program = Program::new("__global__ void run() {}").with_name_expression("walk<int>");
    let error = refused(&program, &CompileOptions::default());
    assert!(error.log.contains("walk"), "{}", error.log);
}

#[test]
fn an_architecture_that_the_library_does_not_support_is_refused_with_a_list() {
    or_skip!(libraries::nvrtc());
    let options = CompileOptions {
        target: Some(Target::Cubin(Architecture::new(2, 0))),
        ..Default::default()
    };
    let error = invalid(&Program::new(""), &options);
    let Invalid::UnsupportedArchitecture { supported, .. } = &error else {
        panic!("{error:?}");
    };
    assert!(supported.contains(&Architecture::new(9, 0)) || supported.len() > 1);
    let text = error.to_string();
    assert!(text.contains("architecture 20") && text.contains("80"), "{text}");
}

#[test]
fn a_nul_is_refused_in_every_text() {
    or_skip!(libraries::nvrtc());
    let options = CompileOptions::default();
    let good = || Program::new("");
    for (program, what) in [
        (Program::new("a\0b"), "the source text"),
        (good().with_name("a\0b"), "the name of the program"),
        (good().with_header("a\0b", ""), "the name of a header"),
        (good().with_header("h", "a\0b"), "the header \"h\""),
        (good().with_name_expression("a\0b"), "a name expression"),
    ] {
        let expected = Invalid::Nul { what: what.to_owned(), position: 1 };
        assert_eq!(invalid(&program, &options), expected);
    }
    let options =
        CompileOptions { defines: vec![("A".into(), Some("\0".into()))], ..Default::default() };
    assert!(matches!(invalid(&good(), &options), Invalid::Nul { .. }));
}

#[test]
fn a_log_that_is_not_unicode_is_returned() {
    or_skip!(libraries::nvrtc());
    let folder = scratch().join("nvrtc-not-unicode");
    std::fs::create_dir_all(&folder).expect("creating a folder");
    std::fs::write(folder.join("a.h"), b"#warning \xff\xfe is wrong\nint a = \xff;\n")
        .expect("a header");
    let options = CompileOptions { include_paths: vec![folder], ..Default::default() };
    let error = refused(&Program::new("#include \"a.h\""), &options);
    assert!(error.log.contains("is wrong"), "{}", error.log);
    let first = error.first.expect("an error with a line");
    assert!(first.file.ends_with("a.h"), "{first:?}");
    assert_eq!(first.line, 2);
}

#[test]
fn two_headers_with_the_same_name_are_refused() {
    or_skip!(libraries::nvrtc());
    let program =
        Program::new("").with_header("a.h", "").with_header("b.h", "").with_header("a.h", "int x;");
    let name = "a.h".to_owned();
    assert_eq!(invalid(&program, &CompileOptions::default()), Invalid::TwoHeaders { name });
}
