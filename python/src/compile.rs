//! `compile`: CUDA C++ to a module.

use crate::current;
use crate::error::{Failure, Result};
use crate::kernel::PyCodeModule;
use crate::lifetime::ending::{calling, detached};
use crate::objects::PyContext;
use crate::primary::primary;
use cuda_nvrtc::{Cache, CompileOptions, Program, Standard, Target, sys::NVRTC};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Compiles a program in CUDA C++ with NVRTC for the device of a context, and loads it.
///
/// `headers` are texts for `#include`, and `include_paths` folders; there are none by default, but `#include "name"`
/// also finds files in the current folder, or in the folder of `name`. `names` are names of
/// kernels and variables that are templates or in namespaces, for example `"scale<float, 4>"`. `defines` are macros.
/// `std` is the C++ standard, for example `"c++20"`. `options` are other options of NVRTC. `name` appears in the
/// messages of the compiler.
///
/// NVRTC is found in the packages of this Python (`pip install nvidia-cuda-nvrtc`) and in the usual places of
/// toolkits; the environment variable `CUDA_NVRTC_LIBRARY` names another file. The result is kept in a cache on disk
/// (`CUDA_NVRTC_CACHE_DIR`), unless `cache` is false or the program reads files.
///
/// The default context is the primary context of the current device.
#[pyfunction]
#[pyo3(signature = (
    source, *, name = "program.cu", headers = None, names = Vec::new(), defines = None, include_paths = Vec::new(),
    std = None, fast_math = false, line_info = false, debug = false, options = Vec::new(), cache = true,
    context = None
))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments")]
pub(crate) fn compile(
    py: Python<'_>,
    source: String,
    name: &str,
    headers: Option<BTreeMap<String, String>>,
    names: Vec<String>,
    defines: Option<BTreeMap<String, Option<String>>>,
    include_paths: Vec<PathBuf>,
    std: Option<&str>,
    fast_math: bool,
    line_info: bool,
    debug: bool,
    options: Vec<String>,
    cache: bool,
    context: Option<&PyContext>,
) -> Result<PyCodeModule> {
    let context = match context {
        Some(context) => context.0.clone(),
        None => primary(py, current::device(py)?)?,
    };
    find_nvrtc(py)?;
    let mut program = Program::new(source).with_name(name);
    for (name, text) in headers.unwrap_or_default() {
        program = program.with_header(name, text);
    }
    for name in names {
        program = program.with_name_expression(name);
    }
    let mut options = CompileOptions {
        standard: std.map(standard).transpose()?,
        defines: defines.unwrap_or_default().into_iter().collect(),
        include_paths,
        fast_math,
        line_info,
        debug,
        extra: options,
        ..CompileOptions::default()
    };
    detached(py, move || {
        options.target = Some(Target::of_device(&context.device())?);
        let compiled = match cache {
            true => self::cache().compile(&program, &options)?,
            false => program.compile(&options)?.into(),
        };
        let module = compiled.load(&context)?;
        Ok::<_, cuda_nvrtc::Error>(PyCodeModule::new(module, compiled))
    })
}

fn standard(name: &str) -> Result<Standard> {
    match name {
        "c++11" => Ok(Standard::Cpp11),
        "c++14" => Ok(Standard::Cpp14),
        "c++17" => Ok(Standard::Cpp17),
        "c++20" => Ok(Standard::Cpp20),
        "c++23" => Ok(Standard::Cpp23),
        _ => {
            Err(Failure::invalid(format!("{name:?} is not a standard from \"c++11\" to \"c++23\"")))
        }
    }
}

/// Returns the cache of the process. If its folder cannot be used, it keeps programs in memory only.
fn cache() -> &'static Cache {
    static CACHE: OnceLock<Cache> = OnceLock::new();
    CACHE.get_or_init(|| Cache::new().unwrap_or_else(|_| Cache::in_memory()))
}

/// Opens NVRTC if it is only in the packages of this interpreter, of which the search of `cuda-nvrtc` knows those
/// that the environment names.
fn find_nvrtc(py: Python<'_>) -> Result<()> {
    const FILES: [&str; 2] = ["cu13/lib/libnvrtc.so.13", "cuda_nvrtc/lib/libnvrtc.so.12"];
    if NVRTC.path().is_some() {
        return Ok(());
    }
    let loaded = detached(py, || Ok::<_, Failure>(NVRTC.load().is_ok()))?;
    if loaded || std::env::var_os("CUDA_NVRTC_LIBRARY").is_some() {
        return Ok(());
    }
    // The packages of NVIDIA share this one. If there are none, `compile` raises an error with all places.
    let folders = calling(py, || -> PyResult<Vec<PathBuf>> {
        let Ok(package) = py.import("nvidia") else {
            return Ok(Vec::new());
        };
        package.getattr("__path__")?.try_iter()?.map(|path| path?.extract()).collect()
    })?;
    let files = folders.iter().flat_map(|folder| FILES.map(|file| folder.join(file)));
    for file in files.filter(|file| file.is_file()) {
        let is_open = detached(py, || {
            // SAFETY: the file is the library of NVIDIA's package.
            Ok::<_, Failure>(unsafe { NVRTC.load_from(&file) }.is_ok())
        })?;
        if is_open {
            break;
        }
    }
    Ok(())
}
