//! Modules, libraries and the linker: compiler options, and input kinds.

use super::{Act, Row, Stage, VECTOR, value};
use crate::prelude::*;
use cuda_safe::module::{JitOptions, LinkInput};

const GLOBALS: &str = include_str!("../../kernels/globals.ptx");

/// The options that every request contains: a buffer for errors.
const ERRORS: [CUjit_option; 2] =
    [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];

/// Finds the value of an option, if it is the only one besides the buffer for errors.
fn only(key: CUjit_option) -> impl Fn(&Call) -> Option<usize> {
    let of_key = of(key);
    move |call| {
        let keys = call.values::<CUjit_option>("keys")?;
        let is_alone = keys.iter().filter(|its| !ERRORS.contains(its)).eq([&key]);
        is_alone.then(|| of_key(call))?
    }
}

/// Finds the value of an option.
fn of(key: CUjit_option) -> impl Fn(&Call) -> Option<usize> {
    move |call| {
        let place = call.values::<CUjit_option>("keys")?.iter().position(|its| *its == key)?;
        Some(call.values::<*mut c_void>("values")?.get(place)?.addr())
    }
}

/// Each way to pass options to the driver, with the function that takes them.
fn ways(options: JitOptions) -> [(Act, &'static str); 3] {
    [
        (
            Box::new(move |s| Module::from_ptx_with(&s.context, VECTOR, &options).map(drop)),
            "cuModuleLoadDataEx",
        ),
        (
            Box::new(move |_| Library::from_ptx_with(VECTOR, &options).map(drop)),
            "cuLibraryLoadData",
        ),
        (Box::new(move |s| Linker::with(&s.context, &options).map(drop)), "cuLinkCreate_v2"),
    ]
}

fn options() -> impl Iterator<Item = Row> {
    let set = |change: fn(&mut JitOptions)| {
        let mut options = JitOptions::default();
        change(&mut options);
        options
    };
    let target = CUjit_target::CU_TARGET_COMPUTE_90;
    [
        ("MAX_REGISTERS", set(|its| its.max_registers = Some(40)), 40),
        ("THREADS_PER_BLOCK", set(|its| its.threads_per_block = Some(96)), 96),
        ("OPTIMIZATION_LEVEL", set(|its| its.optimization_level = Some(3)), 3),
        (
            "TARGET",
            set(|its| its.target = Some(CUjit_target::CU_TARGET_COMPUTE_90)),
            target.0 as usize,
        ),
        ("FALLBACK_STRATEGY", set(|its| its.fallback = Some(CUjit_fallback::CU_PREFER_BINARY)), 1),
        ("GENERATE_DEBUG_INFO", set(|its| its.debug_info = true), 1),
        ("GENERATE_LINE_INFO", set(|its| its.line_info = true), 1),
        (
            "CACHE_MODE",
            set(|its| its.cache_mode = Some(CUjit_cacheMode::CU_JIT_CACHE_OPTION_CA)),
            CUjit_cacheMode::CU_JIT_CACHE_OPTION_CA.0 as usize,
        ),
        ("POSITION_INDEPENDENT_CODE", set(|its| its.position_independent = true), 1),
        ("MIN_CTA_PER_SM", set(|its| its.min_blocks_per_sm = Some(5)), 5),
        ("MAX_THREADS_PER_BLOCK", set(|its| its.max_threads_per_block = Some(160)), 160),
        ("OVERRIDE_DIRECTIVE_VALUES", set(|its| its.override_directives = true), 1),
        ("SPLIT_COMPILE", set(|its| its.split_compile = Some(6)), 6),
        ("BINARY_LOADER_THREAD_COUNT", set(|its| its.loader_threads = Some(7)), 7),
        ("LOG_VERBOSE", set(|its| its.verbose = true), 1),
    ]
    .into_iter()
    .flat_map(|(name, options, number)| {
        ways(options).map(|(act, function)| {
            let key = format!("CU_JIT_{name}");
            let found = only(CUjit_option::from_name(&key).expect("a C name"));
            Row::new(&format!("CUjit_option::{key}"), act, function, found, number)
        })
    })
}

fn logs() -> impl Iterator<Item = Row> {
    let info = JitOptions { info_log: true, ..Default::default() };
    [
        ("ERROR_LOG_BUFFER", JitOptions::default(), None),
        ("ERROR_LOG_BUFFER_SIZE_BYTES", JitOptions::default(), Some(8192)),
        ("INFO_LOG_BUFFER", info, None),
        ("INFO_LOG_BUFFER_SIZE_BYTES", info, Some(8192)),
    ]
    .into_iter()
    .flat_map(|(name, options, size)| {
        ways(options).map(|(act, function)| {
            let key = format!("CU_JIT_{name}");
            let found = of(CUjit_option::from_name(&key).expect("a C name"));
            // For a buffer, only its presence is checked.
            let found = move |call: &Call| {
                let value = found(call).filter(|value| *value != 0)?;
                Some(size.map(|_| value))
            };
            Row::new(&format!("CUjit_option::{key}"), act, function, found, size)
        })
    })
}

fn inputs() -> impl Iterator<Item = Row> {
    [
        ("CUBIN", LinkInput::Cubin, CUjitInputType::CU_JIT_INPUT_CUBIN),
        ("PTX", LinkInput::Ptx, CUjitInputType::CU_JIT_INPUT_PTX),
        ("FATBINARY", LinkInput::Fatbin, CUjitInputType::CU_JIT_INPUT_FATBINARY),
        ("OBJECT", LinkInput::Object, CUjitInputType::CU_JIT_INPUT_OBJECT),
        ("LIBRARY", LinkInput::Library, CUjitInputType::CU_JIT_INPUT_LIBRARY),
    ]
    .into_iter()
    .map(|(name, kind, raw)| {
        let name = format!("CUjitInputType::CU_JIT_INPUT_{name}");
        let file = move |s: &Stage| {
            let mut linker = Linker::new(&s.context)?;
            // SAFETY: the file does not exist.
            unsafe { linker.add_file(kind, "/there/is/none") }
        };
        Row::new(&name, file, "cuLinkAddFile_v2", value("kind"), raw).refused()
    })
}

fn module(s: &Stage) -> Result<Module> {
    Module::from_ptx(&s.context, VECTOR)
}

fn library() -> Result<Library> {
    Library::from_ptx(VECTOR)
}

fn calls() -> Vec<Row> {
    let names = |s: &Stage| module(s)?.kernel_names().map(drop);
    let library_names = |_: &Stage| library()?.kernel_names().map(drop);
    let linked = |s: &Stage| {
        let mut linker = Linker::new(&s.context)?;
        linker.add_ptx("a piece", VECTOR)?;
        linker.complete().map(drop)
    };
    let kernel = |s: &Stage| library()?.kernel(&s.context, "nothing").map(drop);
    let parameters = |s: &Stage| module(s)?.kernel("add")?.parameters().map(drop);
    let ptx = |s: &Stage| {
        let mut linker = Linker::new(&s.context)?;
        // SAFETY: the data is PTX.
        unsafe { linker.add_data(LinkInput::Ptx, "a piece", VECTOR.as_bytes()) }
    };
    let in_data = |call: &_| {
        let kind = value::<CUjitInputType>("kind")(call)?;
        Some((kind, value::<usize>("size")(call)?))
    };
    // With the terminating NUL.
    let piece = (CUjitInputType::CU_JIT_INPUT_PTX, VECTOR.len() + 1);
    vec![
        Row::new("CUjitInputType::CU_JIT_INPUT_PTX", ptx, "cuLinkAddData_v2", in_data, piece),
        Row::call("cuModuleLoadDataEx", module),
        Row::call("cuModuleUnload", module),
        Row::call("cuModuleGetFunction", |s| module(s)?.kernel("nothing")),
        Row::call("cuModuleGetFunctionCount", names),
        Row::call("cuModuleEnumerateFunctions", names),
        Row::call("cuFuncGetName", names),
        Row::call("cuFuncGetParamCount", parameters),
        Row::call("cuFuncGetParamInfo", parameters),
        Row::call("cuModuleGetGlobal_v2", |s| {
            Module::from_ptx(&s.context, GLOBALS)?.global("counter")
        }),
        Row::call("cuModuleGetLoadingMode", |_| Module::loading_mode()),
        Row::call("cuLibraryLoadData", |_| library()),
        Row::call("cuLibraryUnload", |_| library()),
        Row::call("cuLibraryGetKernel", kernel),
        Row::call("cuKernelGetFunction", kernel),
        Row::call("cuLibraryGetKernelCount", library_names),
        Row::call("cuLibraryEnumerateKernels", library_names),
        Row::call("cuKernelGetName", library_names),
        Row::call("cuLibraryGetGlobal", |s| {
            Library::from_ptx(GLOBALS)?.global(&s.context, "counter")
        }),
        Row::call("cuLibraryGetManaged", |s| {
            Library::from_ptx(GLOBALS)?.managed(&s.context, "everywhere")
        }),
        Row::call("cuLinkComplete", linked),
        Row::call("cuLinkDestroy", linked),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    options().chain(logs()).chain(inputs()).chain(calls()).collect()
}
