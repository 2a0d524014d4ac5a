//! Programs, options and what a compilation returns.

use crate::common::scratch;
use crate::{libraries, or_skip};
use cuda_nvrtc::{
    Architecture, CompileOptions, Error, Features, Invalid, PrecompiledHeaders, Program, Standard,
    Target, supported_architectures, version,
};
use cuda_sys::CudaVersion;
use std::fs;

const SAXPY: &str = include_str!("saxpy.cu");

/// Returns the newest architecture that the library supports.
fn newest() -> Architecture {
    let supported = supported_architectures().expect("NVRTC");
    *supported.last().expect("an architecture")
}

fn for_target(target: Target) -> CompileOptions {
    CompileOptions { target: Some(target), ..Default::default() }
}

#[test]
fn without_a_target_the_result_is_ptx_for_the_oldest_architecture() {
    or_skip!(libraries::nvrtc());
    let compiled = Program::new(SAXPY).compile(&CompileOptions::default());
    let compiled = compiled.expect("a correct program");
    let oldest = supported_architectures().expect("NVRTC")[0];
    assert_eq!(compiled.target(), Target::Ptx(oldest));
    let ptx = compiled.ptx().expect("PTX");
    assert!(ptx.contains(&format!(".target sm_{oldest}\n")), "{ptx}");
    assert!(ptx.contains(".entry saxpy("), "{ptx}");
    assert!(!ptx.contains('\0'));
    assert_eq!((compiled.cubin(), compiled.lto_ir()), (None, None));
    assert_eq!(compiled.log(), "");
}

#[test]
fn a_real_architecture_gives_a_cubin_and_its_ptx() {
    or_skip!(libraries::nvrtc());
    let compiled = Program::new(SAXPY).compile(&for_target(Target::Cubin(newest())));
    let compiled = compiled.expect("a correct program");
    let cubin = compiled.cubin().expect("a cubin");
    assert_eq!(&cubin[..4], b"\x7fELF");
    assert!(compiled.ptx().is_some());
    assert!(compiled.lto_ir().is_none());
}

#[test]
fn lto_ir_has_neither_ptx_nor_a_cubin() {
    or_skip!(libraries::nvrtc());
    if version().expect("NVRTC") < CudaVersion::new(12, 0) {
        return libraries::skip("LTO-IR needs CUDA 12.0");
    }
    let compiled = Program::new(SAXPY).compile(&for_target(Target::LtoIr(newest())));
    let compiled = compiled.expect("a correct program");
    assert!(compiled.lto_ir().is_some_and(|code| !code.is_empty()));
    assert_eq!((compiled.ptx(), compiled.cubin()), (None, None));
}

#[test]
fn features_of_one_architecture_are_part_of_the_target() {
    or_skip!(libraries::nvrtc());
    let hopper = Architecture::new(9, 0);
    if version().expect("NVRTC") < CudaVersion::new(12, 0) {
        return libraries::skip("sm_90a needs CUDA 12.0");
    }
    let target = Target::Ptx(hopper.with_features(Features::Specific));
    let compiled = Program::new(SAXPY).compile(&for_target(target));
    let compiled = compiled.expect("a correct program");
    assert!(compiled.ptx().expect("PTX").contains(".target sm_90a"));
}

#[test]
fn every_option_reaches_the_compiler() {
    or_skip!(libraries::nvrtc());
    let folder = scratch().join("nvrtc-include");
    fs::create_dir_all(&folder).expect("creating a folder");
    fs::write(folder.join("from_disk.h"), "#define FROM_DISK 5\n").expect("writing a header");
    let source = "
        #include \"from_memory.h\"
        #include <from_disk.h>
        static_assert(FROM_DISK == 5 && FROM_MEMORY == 6 && VALUE == 7 && FLAG == 1 && RAW == 8, \"\");
        static_assert(__cplusplus == 201402L, \"\");
        extern \"C\" __global__ void divide(float *x, float y) { *x /= y; }";
    let program = Program::new(source).with_header("from_memory.h", "#define FROM_MEMORY 6");
    let options = CompileOptions {
        standard: Some(Standard::Cpp14),
        defines: vec![("VALUE".into(), Some("3 + 4".into())), ("FLAG".into(), None)],
        include_paths: vec![folder],
        line_info: true,
        fast_math: true,
        extra: vec!["-DRAW=8".into()],
        ..Default::default()
    };
    let compiled = program.compile(&options).expect("a correct program");
    let ptx = compiled.ptx().expect("PTX");
    assert!(ptx.contains(".loc"), "line numbers: {ptx}");
    assert!(ptx.contains("div.approx.ftz.f32"), "fast mathematics: {ptx}");

    let debug = CompileOptions { debug: true, ..Default::default() };
    let compiled = Program::new(SAXPY).compile(&debug).expect("a correct program");
    assert!(compiled.ptx().expect("PTX").contains(".debug_info"));
}

#[test]
fn relocatable_code_may_refer_to_other_units() {
    or_skip!(libraries::nvrtc());
    let source = "__device__ int other(); __global__ void run(int *x) { *x = other(); }";
    let mut options = for_target(Target::Cubin(newest()));
    let error = Program::new(source).compile(&options);
    assert!(matches!(error, Err(Error::Compile(_))), "{error:?}");
    options.relocatable = true;
    Program::new(source).compile(&options).expect("relocatable code");
}

#[test]
fn precompiled_headers_are_created_and_used() {
    or_skip!(libraries::nvrtc());
    if version().expect("NVRTC") < CudaVersion::new(12, 8) {
        return libraries::skip("precompiled headers need CUDA 12.8");
    }
    let folder = scratch().join("nvrtc-pch");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("creating a folder");
    let program = Program::new(format!("#include \"twice.h\"\n{SAXPY}"))
        .with_name("with_header.cu")
        .with_header("twice.h", "template <class T> __device__ T twice(T x) { return 2 * x; }");
    let options =
        |precompiled_headers| CompileOptions { precompiled_headers, ..Default::default() };
    let file = folder.join("twice.pch");
    let created = program.compile(&options(PrecompiledHeaders::Create(file.clone())));
    let log = created.expect("a correct program").log().to_owned();
    assert!(log.contains("creating precompiled header"), "{log}");
    assert!(file.is_file());
    let used = program.compile(&options(PrecompiledHeaders::Use(file)));
    let log = used.expect("a correct program").log().to_owned();
    assert!(log.contains("using precompiled header"), "{log}");
    for place in [None, Some(folder)] {
        let automatic = program.compile(&options(PrecompiledHeaders::Automatic(place)));
        let log = automatic.expect("a correct program").log().to_owned();
        assert!(log.contains("precompiled header"), "{log}");
    }
}

#[test]
fn templates_are_instantiated_by_their_name() {
    or_skip!(libraries::nvrtc());
    let source = "namespace a {
        __constant__ int table[4];
        template <class T, int N> __global__ void fill(T *x) { *x = N + table[0]; }
    }";
    let program = Program::new(source)
        .with_name_expression("a::fill<float, 3>")
        .with_name_expression("&a::table");
    let compiled = program.compile(&CompileOptions::default());
    let compiled = compiled.expect("a correct program");
    let kernel = compiled.lowered_name("a::fill<float, 3>").expect("registered");
    assert_eq!(kernel, "_ZN1a4fillIfLi3EEEvPT_");
    assert!(compiled.ptx().expect("PTX").contains(&format!(".entry {kernel}(")));
    assert_eq!(compiled.lowered_name("&a::table").expect("registered"), "_ZN1a5tableE");

    let error = compiled.lowered_name("a::fill<int, 3>").expect_err("not registered");
    assert!(
        matches!(&error, Error::Invalid(invalid) if matches!(**invalid, Invalid::UnknownName { .. })),
        "{error:?}"
    );
    assert!(error.to_string().contains("a::fill<float, 3>"), "{error}");
}

#[test]
fn warnings_are_in_the_log_of_the_result() {
    or_skip!(libraries::nvrtc());
    let program = Program::new("__global__ void run() { int unused; }").with_name("w.cu");
    let compiled = program.compile(&CompileOptions::default()).expect("only a warning");
    assert!(compiled.log().contains("w.cu(1): warning"), "{}", compiled.log());
}

#[test]
fn sixteen_threads_compile_at_the_same_time() {
    or_skip!(libraries::nvrtc());
    let program = &Program::new(SAXPY);
    std::thread::scope(|scope| {
        for number in 0..16 {
            scope.spawn(move || {
                let options = CompileOptions {
                    defines: vec![("NUMBER".into(), Some(number.to_string()))],
                    ..Default::default()
                };
                let compiled = program.compile(&options).expect("a correct program");
                assert!(compiled.ptx().is_some());
            });
        }
    });
}

#[test]
fn a_header_in_quotes_is_searched_for_in_the_folder_of_the_program() {
    or_skip!(libraries::nvrtc());
    let folder = scratch().join("nvrtc-quotes");
    std::fs::create_dir_all(&folder).expect("creating a folder");
    std::fs::write(folder.join("value.h"), "#define VALUE 1234").expect("a header");
    let name = folder.join("program.cu").display().to_string();
    let source = "#include \"value.h\"\nextern \"C\" __device__ int value = VALUE;";
    let program = Program::new(source).with_name(name);
    let value = |program: &Program, options: &CompileOptions| {
        let compiled = program.compile(options).map_err(|error| error.to_string())?;
        Ok::<_, String>(compiled.ptx().expect("PTX").to_owned())
    };
    let plain = CompileOptions::default();
    assert!(value(&program, &plain).expect("the file").contains("1234"));
    let in_memory = program.clone().with_header("value.h", "#define VALUE 5678");
    assert!(value(&in_memory, &plain).expect("memory").contains("5678"));
    let only_memory =
        CompileOptions { extra: vec!["--no-source-include".into()], ..Default::default() };
    let error = value(&program, &only_memory).expect_err("no file, or an unknown option");
    assert!(error.contains("value.h") || error.contains("--no-source-include"), "{error}");
}
