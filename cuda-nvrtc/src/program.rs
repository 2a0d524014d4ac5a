//! Programs and their compilation.

use crate::architecture::Target;
use crate::call::{c_string, displayed, nvrtc, pointers, supported_architectures, text, version};
use crate::compiled::Compiled;
use crate::error::{CompileError, Diagnostic, Error, Invalid, Result};
use crate::options::CompileOptions;
use crate::sys::{nvrtcProgram, nvrtcResult};
use cuda_safe::Device;
use std::collections::{BTreeMap, HashSet};
use std::ffi::{CStr, CString, c_int};

/// A program in CUDA C++: a source text, and headers in memory.
///
/// A `Program` is data. The compiler's program (`nvrtcProgram`) exists only while [`compile`](Self::compile)
/// runs, so one `Program` can be compiled for several targets, and on several threads at once.
///
/// ```no_run
/// use cuda_nvrtc::{CompileOptions, Program};
///
/// let program = Program::new("template <typename T> __global__ void fill(T *x, T y) { *x = y; }")
///     .with_name_expression("fill<float>");
/// let compiled = program.compile(&CompileOptions::default())?;
/// println!("{}: {}", compiled.lowered_name("fill<float>")?, compiled.ptx().unwrap_or_default());
/// # Ok::<_, cuda_nvrtc::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "nvrtcProgram")]
pub struct Program {
    pub(crate) source: String,
    pub(crate) name: String,
    /// Names in `#include` directives, and the texts.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) name_expressions: Vec<String>,
}

impl Program {
    /// Returns a program with the name `program.cu`, without headers.
    ///
    /// The library searches for headers in memory first, then in the folders of
    /// [`CompileOptions::include_paths`]. For `#include "name"`, it also searches the folder of the including file.
    /// The folder of a program without a folder in its name is the current one. The option `--no-source-include` in
    /// [`CompileOptions::extra`] prevents that, in versions that know it.
    pub fn new(source: impl Into<String>) -> Self {
        Self {
            source: source.into(),
            name: "program.cu".to_owned(),
            headers: Vec::new(),
            name_expressions: Vec::new(),
        }
    }

    /// Returns the program with another name, which appears in the messages of the compiler. The folder of the name
    /// is searched for headers; see [`new`](Self::new).
    #[must_use]
    pub fn with_name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Returns the program with another header in memory, for `#include "name"` and `#include <name>`. Each header
    /// needs its own name.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.headers.push((name.into(), text.into()));
        self
    }

    /// Returns the program with another name expression: the name of a kernel or variable, for example
    /// `"scale<float, 4>"` or `"&ns::table"`. The compiler instantiates a template that it names, and
    /// [`Compiled::lowered_name`] returns its symbol. If the program has nothing of this name, the compilation
    /// fails.
    #[must_use]
    #[doc(alias = "nvrtcAddNameExpression")]
    pub fn with_name_expression(mut self, expression: impl Into<String>) -> Self {
        self.name_expressions.push(expression.into());
        self
    }

    /// Compiles the program. Calls `nvrtcCompileProgram`.
    ///
    /// Other threads can work and compile at the same time, but NVRTC serializes compilations of one process
    /// for the most part.
    ///
    /// NVRTC parses with recursion on the stack of the calling thread. Thousands of nested parentheses overflow the
    /// 2 MiB that threads of Rust have by default, which ends the process. Compile sources of unknown origin in a
    /// process of their own.
    ///
    /// # Errors
    /// [`Error::Compile`] with the compiler's log, for errors in the program and unknown options;
    /// [`Error::Load`] if NVRTC is not installed; [`Invalid::UnsupportedArchitecture`];
    /// [`Invalid::TwoHeaders`]; a text contains a NUL.
    ///
    /// Since CUDA 11.2. Raw: [`nvrtcCreateProgram`](fn@crate::sys::nvrtcCreateProgram),
    /// [`nvrtcAddNameExpression`](fn@crate::sys::nvrtcAddNameExpression),
    /// [`nvrtcCompileProgram`](fn@crate::sys::nvrtcCompileProgram),
    /// [`nvrtcGetProgramLog`](fn@crate::sys::nvrtcGetProgramLog).
    #[doc(alias = "nvrtcCreateProgram")]
    #[doc(alias = "nvrtcCompileProgram")]
    #[doc(alias = "nvrtcGetProgramLog")]
    #[inline]
    pub fn compile(&self, options: &CompileOptions) -> Result<Compiled> {
        let target = resolve(options.target)?;
        let options = CompileOptions { target: Some(target), ..options.clone() };
        self.compile_with(target, &options.arguments()?)
    }

    /// Compiles the program for a device, with the default of the other options. The same as [`compile`](Self::compile)
    /// with the target [`Target::of_device`]: code of a newer NVRTC then runs on an older driver.
    ///
    /// ```no_run
    /// use cuda_nvrtc::Program;
    /// use cuda_safe::{Context, Device};
    ///
    /// # let source = "extern \"C\" __global__ void empty() {}";
    /// let context = Context::primary(&Device::get(0)?)?;
    /// let module = Program::new(source).compile_for(&context.device())?.load(&context)?;
    /// # Ok::<_, cuda_nvrtc::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Target::of_device`] and [`compile`](Self::compile).
    #[doc(alias = "compile_ptx")]
    #[inline]
    pub fn compile_for(&self, device: &Device) -> Result<Compiled> {
        self.compile(&CompileOptions {
            target: Some(Target::of_device(device)?),
            ..Default::default()
        })
    }

    /// Compiles the program with these arguments, which contain the target.
    #[inline]
    pub(crate) fn compile_with(&self, target: Target, arguments: &[CString]) -> Result<Compiled> {
        let expressions = self.name_expressions.iter();
        let expressions: Vec<CString> = expressions
            .map(|name| c_string(name.as_str(), || "a name expression".to_owned()))
            .collect::<Result<_>>()?;
        let handle = self.create()?;
        for expression in &expressions {
            // SAFETY: the program is valid, and the text ends with a NUL. The library copies it.
            unsafe { nvrtc!(nvrtcAddNameExpression(handle.0, expression.as_ptr())) }?;
        }
        let count = c_count("compiler options", arguments.len())?;
        let pointers = pointers(arguments);
        // SAFETY: the program is valid. There are `count` texts that end with a NUL.
        let result = unsafe { nvrtc!(nvrtcCompileProgram(handle.0, count, pointers.as_ptr())) };
        let log = match (&result, handle.log()) {
            // The error of the compilation says more than that of its log.
            (Err(_), log) => log.unwrap_or_default(),
            (Ok(()), log) => log?,
        };
        result.map_err(|error| match error {
            Error::Nvrtc { code, .. } => Error::Compile(Box::new(CompileError {
                code,
                program: self.name.clone(),
                options: displayed(arguments),
                first: Diagnostic::first_error(&log, |file| self.text_of(file)),
                log: log.clone(),
            })),
            other => other,
        })?;
        let mut names = BTreeMap::new();
        for (expression, name) in expressions.iter().zip(&self.name_expressions) {
            names.insert(name.clone(), handle.lowered_name(expression)?);
        }
        Ok(Compiled {
            target,
            ptx: handle.ptx()?,
            cubin: handle.cubin()?,
            lto_ir: handle.lto_ir()?,
            log,
            names,
        })
    }

    /// Returns the text of the program or of a header in memory.
    #[inline]
    fn text_of(&self, file: &str) -> Option<&str> {
        if file == self.name {
            return Some(&self.source);
        }
        let mut headers = self.headers.iter();
        headers.find(|(name, _)| name == file).map(|(_, text)| text.as_str())
    }

    #[inline]
    fn create(&self) -> Result<Handle> {
        let source = c_string(self.source.as_str(), || "the source text".to_owned())?;
        let name = c_string(self.name.as_str(), || "the name of the program".to_owned())?;
        let mut header_names = Vec::new();
        let mut headers = Vec::new();
        let mut seen = HashSet::new();
        for (name, text) in &self.headers {
            if !seen.insert(name) {
                return Err(Invalid::TwoHeaders { name: name.clone() }.into());
            }
            header_names.push(c_string(name.as_str(), || "the name of a header".to_owned())?);
            headers.push(c_string(text.as_str(), || format!("the header {name:?}"))?);
        }
        let count = c_count("headers", headers.len())?;
        let (header_texts, header_names_c) = (pointers(&headers), pointers(&header_names));
        let mut raw = std::ptr::null_mut();
        // SAFETY: the texts end with a NUL, and there are `count` headers and names of headers. The library
        // copies all texts.
        unsafe {
            nvrtc!(nvrtcCreateProgram(
                &raw mut raw,
                source.as_ptr(),
                name.as_ptr(),
                count,
                header_texts.as_ptr(),
                header_names_c.as_ptr(),
            ))
        }?;
        Ok(Handle(raw))
    }
}

/// Returns the target to compile for, after checking that the library supports it.
#[inline]
pub(crate) fn resolve(target: Option<Target>) -> Result<Target> {
    let supported = supported_architectures()?;
    let Some(target) = target else {
        let oldest = supported.first().copied();
        // A library without any architecture does not exist.
        return oldest.map(Target::Ptx).ok_or(Error::Nvrtc {
            code: nvrtcResult::NVRTC_ERROR_INTERNAL_ERROR,
            call: "nvrtcGetSupportedArchs",
        });
    };
    let architecture = target.architecture();
    let capability = architecture.compute_capability();
    match supported.iter().any(|other| other.compute_capability() == capability) {
        true => Ok(target),
        false => {
            Err(Invalid::UnsupportedArchitecture { architecture, supported, version: version()? }
                .into())
        }
    }
}

#[inline]
fn c_count(what: &'static str, count: usize) -> Result<c_int> {
    c_int::try_from(count).map_err(|_| Invalid::TooMany { what, count }.into())
}

/// A program of the library.
struct Handle(nvrtcProgram);

impl Drop for Handle {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the program is valid, and nothing uses it after this. An error can only say that it is not.
        let _ = unsafe { nvrtc!(nvrtcDestroyProgram(&raw mut self.0)) };
    }
}

impl Handle {
    #[inline]
    fn log(&self) -> Result<String> {
        let mut size = 0;
        // SAFETY: the program is valid, and the pointer is valid for a write.
        unsafe { nvrtc!(nvrtcGetProgramLogSize(self.0, &raw mut size)) }?;
        let mut log = vec![0; size.max(1)];
        // SAFETY: the buffer has the size that the library returned.
        unsafe { nvrtc!(nvrtcGetProgramLog(self.0, log.as_mut_ptr().cast())) }?;
        Ok(text(&log))
    }

    /// Returns the PTX, or `None` if there is none. The library has an empty text then.
    #[inline]
    fn ptx(&self) -> Result<Option<String>> {
        let mut size = 0;
        // SAFETY: the program is valid, and the pointer is valid for a write.
        unsafe { nvrtc!(nvrtcGetPTXSize(self.0, &raw mut size)) }?;
        if size <= 1 {
            return Ok(None);
        }
        let mut ptx = vec![0; size];
        // SAFETY: the buffer has the size that the library returned.
        unsafe { nvrtc!(nvrtcGetPTX(self.0, ptx.as_mut_ptr().cast())) }?;
        Ok(Some(text(&ptx)))
    }

    #[inline]
    fn cubin(&self) -> Result<Option<Vec<u8>>> {
        let mut size = 0;
        // SAFETY: the program is valid, and the pointer is valid for a write.
        unsafe { nvrtc!(nvrtcGetCUBINSize(self.0, &raw mut size)) }?;
        if size == 0 {
            return Ok(None);
        }
        let mut cubin = vec![0; size];
        // SAFETY: the buffer has the size that the library returned.
        unsafe { nvrtc!(nvrtcGetCUBIN(self.0, cubin.as_mut_ptr().cast())) }?;
        Ok(Some(cubin))
    }

    #[inline]
    fn lto_ir(&self) -> Result<Option<Vec<u8>>> {
        let mut size = 0;
        // SAFETY: the program is valid, and the pointer is valid for a write.
        match unsafe { nvrtc!(nvrtcGetLTOIRSize(self.0, &raw mut size)) } {
            // CUDA 11 has no LTO-IR of this form.
            Err(Error::Missing(_)) => return Ok(None),
            result => result?,
        }
        if size == 0 {
            return Ok(None);
        }
        let mut code = vec![0; size];
        // SAFETY: the buffer has the size that the library returned.
        unsafe { nvrtc!(nvrtcGetLTOIR(self.0, code.as_mut_ptr().cast())) }?;
        Ok(Some(code))
    }

    #[inline]
    fn lowered_name(&self, expression: &CStr) -> Result<String> {
        let mut name = std::ptr::null();
        // SAFETY: the program was compiled, the text ends with a NUL, and the pointer is valid for a write.
        unsafe { nvrtc!(nvrtcGetLoweredName(self.0, expression.as_ptr(), &raw mut name)) }?;
        if name.is_null() {
            return Ok(String::new());
        }
        // SAFETY: on success the library returns a text that ends with a NUL and belongs to the program.
        let name = unsafe { CStr::from_ptr(name) };
        Ok(name.to_string_lossy().into_owned())
    }
}
