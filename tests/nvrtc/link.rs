//! Linking with nvJitLink.

use crate::common::scratch;
use crate::{libraries, or_skip};
use cuda_nvrtc::sys::nvJitLinkResult;
use cuda_nvrtc::{
    Architecture, CompileOptions, Compiled, Error, LinkError, LinkInput, LinkOptions, Linker,
    Program, Target, supported_architectures,
};

const TWICE: &str = "extern \"C\" __device__ float twice(float x) { return 2 * x; }";
const RUN: &str = "extern \"C\" __device__ float twice(float x);
    extern \"C\" __global__ void run(float *x) { *x = twice(*x); }";

fn architecture() -> Architecture {
    let supported = supported_architectures().expect("NVRTC");
    *supported.last().expect("an architecture")
}

fn compile(source: &str, target: Target) -> Compiled {
    let options = CompileOptions {
        target: Some(target),
        relocatable: !matches!(target, Target::LtoIr(_)),
        ..Default::default()
    };
    Program::new(source).compile(&options).expect("a correct program")
}

fn linker(options: LinkOptions, target: Target) -> Linker {
    let linker = Linker::with(target.architecture(), options);
    let linker = linker.with_compiled("twice", &compile(TWICE, target));
    let linker = linker.expect("code").with_compiled("run", &compile(RUN, target));
    linker.expect("code")
}

#[track_caller]
fn refused(linker: &Linker) -> LinkError {
    match linker.link() {
        Err(Error::Link(error)) => *error,
        other => panic!("expected an error of the linker, got {other:?}"),
    }
}

#[test]
fn units_of_every_kind_are_linked_to_a_cubin() {
    or_skip!(libraries::nvrtc());
    or_skip!(libraries::nvjitlink());
    let architecture = architecture();
    for target in
        [Target::LtoIr(architecture), Target::Cubin(architecture), Target::Ptx(architecture)]
    {
        let linked = linker(LinkOptions::default(), target).link().expect("complete code");
        assert_eq!(linked.target(), Target::Cubin(architecture));
        let cubin = linked.cubin().expect("a cubin");
        assert_eq!(&cubin[..4], b"\x7fELF");
        assert!(linked.ptx().is_none());
    }
}

#[test]
fn lto_ir_is_linked_to_ptx_without_the_call() {
    or_skip!(libraries::nvrtc());
    or_skip!(libraries::nvjitlink());
    let options = LinkOptions { ptx: true, ..Default::default() };
    let linked = linker(options, Target::LtoIr(architecture())).link().expect("complete code");
    let ptx = linked.ptx().expect("PTX");
    assert!(ptx.contains(".entry run("), "{ptx}");
    assert!(!ptx.contains("call"), "inlined: {ptx}");
    assert!(linked.cubin().is_none());
}

#[test]
fn ptx_of_any_source_is_an_input() {
    or_skip!(libraries::nvrtc());
    or_skip!(libraries::nvjitlink());
    let target = Target::Ptx(architecture());
    let ptx = compile(TWICE, target).ptx().expect("PTX").to_owned();
    let linker = Linker::new(architecture()).with_ptx("twice", ptx);
    let linker = linker.with_compiled("run", &compile(RUN, target)).expect("code");
    assert!(linker.link().expect("complete code").cubin().is_some());

    let wrong = Linker::new(architecture()).with_ptx("not PTX", "this is not PTX");
    let error = refused(&wrong);
    assert_eq!(error.input.as_deref(), Some("not PTX"));
}

#[test]
fn an_undefined_symbol_is_named() {
    or_skip!(libraries::nvrtc());
    or_skip!(libraries::nvjitlink());
    for target in [Target::LtoIr(architecture()), Target::Cubin(architecture())] {
        let linker = Linker::new(architecture()).with_compiled("run", &compile(RUN, target));
        let error = refused(&linker.expect("code"));
        assert_eq!(error.call, "nvJitLinkComplete");
        assert!(error.log.contains("twice"), "{}", error.log);
    }
}

#[test]
fn an_input_for_another_architecture_is_refused() {
    or_skip!(libraries::nvrtc());
    or_skip!(libraries::nvjitlink());
    let supported = supported_architectures().expect("NVRTC");
    let newest = compile(RUN, Target::Cubin(architecture()));
    // The library would reject it too, and leave a lock locked that all threads share.
    let error = Linker::new(supported[0]).with_compiled("run", &newest);
    let error = error.expect_err("another architecture").to_string();
    assert!(error.contains(&format!("sm_{}", supported[0])), "{error}");
    assert!(error.contains("\"run\""), "{error}");

    // Also as data or a file of unknown origin.
    let cubin = newest.cubin().expect("a cubin");
    let file = scratch().join("nvrtc-newest.cubin");
    std::fs::write(&file, cubin).expect("writing a file");
    for kind in [LinkInput::Cubin, LinkInput::Any] {
        let linkers = [
            // SAFETY: the compiler has made the cubin.
            unsafe { Linker::new(supported[0]).with_data(kind, "data", cubin.to_vec()) },
            // SAFETY: as above.
            unsafe { Linker::new(supported[0]).with_file(kind, &file) },
        ];
        for linker in linkers {
            let error = linker.link().expect_err("another architecture").to_string();
            assert!(error.contains(&format!("cubin for sm_{}", architecture())), "{error}");
        }
    }

    let ptx = compile(RUN, Target::Ptx(architecture()));
    let linker = Linker::new(supported[0]).with_compiled("run", &ptx);
    let error = refused(&linker.expect("PTX"));
    assert_eq!((error.call, error.input.as_deref()), ("nvJitLinkAddData", Some("run")));
}

#[test]
fn wrong_options_are_named() {
    or_skip!(libraries::nvjitlink());
    let options = LinkOptions { extra: vec!["-fly".into()], ..Default::default() };
    let error = refused(&Linker::with(Architecture::new(9, 0), options));
    assert_eq!(error.code, nvJitLinkResult::NVJITLINK_ERROR_UNRECOGNIZED_OPTION);
    assert!(error.log.contains("-fly"), "{}", error.log);
    let error = refused(&Linker::new(Architecture::new(2, 0)));
    assert_eq!(error.call, "nvJitLinkCreate");
    assert!(error.to_string().contains("sm_20"), "{error:?}");
}

#[test]
fn only_the_kernels_that_are_used_remain() {
    or_skip!(libraries::nvrtc());
    or_skip!(libraries::nvjitlink());
    let source = "extern \"C\" __global__ void first(int *x) { *x = 1; }
        extern \"C\" __global__ void second(int *x) { *x = 2; }";
    let unit = compile(source, Target::LtoIr(architecture()));
    let options = LinkOptions {
        ptx: true,
        kernels_used: vec!["second".into()],
        max_registers: Some(24),
        line_info: true,
        ..Default::default()
    };
    let linker = Linker::with(architecture(), options).with_compiled("unit", &unit);
    let linked = linker.expect("code").link().expect("complete code");
    let ptx = linked.ptx().expect("PTX");
    assert!(ptx.contains(".entry second("), "{ptx}");
    assert!(!ptx.contains(".entry first("), "{ptx}");
}
