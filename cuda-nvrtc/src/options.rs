//! Options of a compilation.

use crate::architecture::Target;
use crate::call::{c_string, path_bytes};
use crate::error::Result;
use std::ffi::CString;
use std::path::PathBuf;

/// Options of [`Program::compile`](crate::Program::compile).
///
/// ```
/// use cuda_nvrtc::{Architecture, CompileOptions, Standard, Target};
///
/// let options = CompileOptions {
///     target: Some(Target::Cubin(Architecture::new(9, 0))),
///     standard: Some(Standard::Cpp20),
///     defines: vec![("BLOCK".to_owned(), Some("256".to_owned()))],
///     line_info: true,
///     ..Default::default()
/// };
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CompileOptions {
    /// The kind of code and its architecture (`--gpu-architecture`, `-dlto`). `None` is PTX for the oldest
    /// architecture that the library supports.
    pub target: Option<Target>,
    /// The C++ standard (`--std`). `None` is the default of the library, C++17 since CUDA 11.
    pub standard: Option<Standard>,
    /// Macros with their values (`--define-macro`). The value `None` is `1`.
    pub defines: Vec<(String, Option<String>)>,
    /// The folders in which `#include` searches for files (`--include-path`). There are none by default, not
    /// even those of the toolkit. [`Program::new`](crate::Program::new) lists the other places.
    pub include_paths: Vec<PathBuf>,
    /// Generates debug information, and disables most optimizations (`--device-debug`).
    pub debug: bool,
    /// Generates line numbers for profilers (`--generate-line-info`).
    pub line_info: bool,
    /// Uses approximations of mathematical functions (`--use_fast_math`).
    pub fast_math: bool,
    /// The maximum number of registers of a thread (`--maxrregcount`).
    pub max_registers: Option<u32>,
    /// Generates code that is linked with other units (`--relocatable-device-code`). LTO-IR does not need it.
    pub relocatable: bool,
    /// The use of precompiled headers.
    pub precompiled_headers: PrecompiledHeaders,
    /// Other options, which are passed to the library unchanged, after all others. The architecture belongs into
    /// [`target`](Self::target), because the code is loaded and linked according to it.
    pub extra: Vec<String>,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// A C++ standard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Standard {
    /// C++11.
    Cpp11,
    /// C++14.
    Cpp14,
    /// C++17.
    Cpp17,
    /// C++20. Since CUDA 12.0.
    Cpp20,
    /// C++23. NVRTC of CUDA 13.5 supports it; old versions reject it.
    Cpp23,
}

/// The use of precompiled headers, which are files with the parsed form of the headers at the start of a source
/// text. Since CUDA 12.8.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PrecompiledHeaders {
    /// None are created or used.
    #[default]
    None,
    /// The library creates and uses them (`--pch`) in a temporary folder of the process, or in this folder
    /// (`--pch-dir`).
    Automatic(Option<PathBuf>),
    /// Creates this file (`--create-pch`).
    Create(PathBuf),
    /// Uses this file (`--use-pch`), which must have been created with the same version of the library and the
    /// same options.
    Use(PathBuf),
}

impl CompileOptions {
    /// Returns the arguments for the library.
    #[inline]
    pub(crate) fn arguments(&self) -> Result<Vec<CString>> {
        let Self {
            target,
            standard,
            defines,
            include_paths,
            debug,
            line_info,
            fast_math,
            max_registers,
            relocatable,
            precompiled_headers,
            extra,
            _non_exhaustive: (),
        } = self;
        let mut arguments: Vec<Vec<u8>> = Vec::new();
        let mut path = |option: &str, path: &PathBuf| -> Result<()> {
            let mut argument = option.as_bytes().to_owned();
            argument.extend(path_bytes(path)?);
            arguments.push(argument);
            Ok(())
        };
        for folder in include_paths {
            path("--include-path=", folder)?;
        }
        match precompiled_headers {
            PrecompiledHeaders::None | PrecompiledHeaders::Automatic(None) => {}
            PrecompiledHeaders::Automatic(Some(folder)) => path("--pch-dir=", folder)?,
            PrecompiledHeaders::Create(file) => path("--create-pch=", file)?,
            PrecompiledHeaders::Use(file) => path("--use-pch=", file)?,
        }
        let mut push = |text: String| arguments.push(text.into_bytes());
        if let PrecompiledHeaders::Automatic(_) = precompiled_headers {
            push("--pch".to_owned());
        }
        match target {
            None => {}
            Some(Target::Ptx(architecture)) => {
                push(format!("--gpu-architecture=compute_{architecture}"))
            }
            Some(Target::Cubin(architecture)) => {
                push(format!("--gpu-architecture=sm_{architecture}"))
            }
            Some(Target::LtoIr(architecture)) => {
                push(format!("--gpu-architecture=compute_{architecture}"));
                push("-dlto".to_owned());
            }
        }
        if let Some(standard) = standard {
            push(format!("--std={}", standard.name()));
        }
        for (name, value) in defines {
            push(match value {
                Some(value) => format!("--define-macro={name}={value}"),
                None => format!("--define-macro={name}"),
            });
        }
        for (is_set, option) in [
            (debug, "--device-debug"),
            (line_info, "--generate-line-info"),
            (fast_math, "--use_fast_math"),
            (relocatable, "--relocatable-device-code=true"),
        ] {
            if *is_set {
                push(option.to_owned());
            }
        }
        if let Some(count) = max_registers {
            push(format!("--maxrregcount={count}"));
        }
        extra.iter().cloned().for_each(push);
        let c_option = |argument: Vec<u8>| c_string(argument, || "a compiler option".to_owned());
        arguments.into_iter().map(c_option).collect()
    }
}

impl Standard {
    #[inline]
    fn name(self) -> &'static str {
        match self {
            Self::Cpp11 => "c++11",
            Self::Cpp14 => "c++14",
            Self::Cpp17 => "c++17",
            Self::Cpp20 => "c++20",
            Self::Cpp23 => "c++23",
        }
    }
}
