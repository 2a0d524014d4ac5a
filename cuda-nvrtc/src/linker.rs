//! Linking with nvJitLink.

use crate::architecture::{Architecture, Target};
use crate::call::{absent, c_string, displayed, path_bytes, pointers, text};
use crate::compiled::Compiled;
use crate::error::{Error, Invalid, LinkError, Result};
use crate::sys::{self, nvJitLinkHandle, nvJitLinkInputType, nvJitLinkResult};
use cuda_sys::SymbolError;
use cuda_sys::image::{self, CodeKind};
use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

/// Links several units of device code to one, without a GPU.
///
/// LTO-IR is optimized across its units. A `Linker` is data: the linker of the library exists only while
/// [`link`](Self::link) runs.
///
/// The linker of the driver, [`cuda_safe::module::Linker`], links cubins and PTX for the device of a context. It does not
/// need nvJitLink.
///
/// ```no_run
/// use cuda_nvrtc::{Architecture, CompileOptions, LinkOptions, Linker, Program, Target};
///
/// let hopper = Architecture::new(9, 0);
/// let lto = CompileOptions { target: Some(Target::LtoIr(hopper)), ..Default::default() };
/// let twice = Program::new("__device__ float twice(float x) { return 2 * x; }").compile(&lto)?;
/// let kernel = Program::new(
///     "__device__ float twice(float x);
///      extern \"C\" __global__ void run(float *x) { *x = twice(*x); }",
/// )
/// .compile(&lto)?;
/// let linked = Linker::new(hopper).with_compiled("twice", &twice)?.with_compiled("run", &kernel)?.link()?;
/// assert!(linked.cubin().is_some());
/// # Ok::<_, cuda_nvrtc::Error>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "nvJitLinkHandle")]
pub struct Linker {
    architecture: Architecture,
    options: LinkOptions,
    inputs: Vec<Input>,
}

/// Options of a [`Linker`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LinkOptions {
    /// Produces PTX rather than a cubin (`-ptx`). Every input must be LTO-IR.
    pub ptx: bool,
    /// Generates debug information (`-g`).
    pub debug: bool,
    /// Generates line numbers for profilers (`-lineinfo`).
    pub line_info: bool,
    /// The maximum number of registers of a thread (`-maxrregcount`).
    pub max_registers: Option<u32>,
    /// The symbols of the kernels that are used (`-kernels-used`). The linker may remove others. An empty list
    /// keeps all kernels.
    pub kernels_used: Vec<String>,
    /// Other options, which are passed to the library unchanged, after all others.
    pub extra: Vec<String>,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// The format of an input of a [`Linker`] (`nvJitLinkInputType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LinkInput {
    /// A cubin.
    Cubin,
    /// PTX text.
    Ptx,
    /// LTO-IR.
    LtoIr,
    /// A fatbin.
    Fatbin,
    /// A host object file with device code.
    Object,
    /// A host archive with device code.
    Library,
    /// An index file.
    Index,
    /// Any of these formats: the library recognizes it.
    Any,
}

#[derive(Clone, Debug)]
struct Input {
    kind: LinkInput,
    name: String,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    /// The data, followed by a NUL.
    Bytes(Vec<u8>),
    File(PathBuf),
}

impl Linker {
    /// Returns a linker for code of this architecture, without inputs.
    #[inline]
    pub fn new(architecture: Architecture) -> Self {
        Self::with(architecture, LinkOptions::default())
    }

    /// Returns a linker with options.
    #[inline]
    pub fn with(architecture: Architecture, options: LinkOptions) -> Self {
        Self { architecture, options, inputs: Vec::new() }
    }

    /// Returns the linker with another input, which NVRTC or another link has produced: LTO-IR, a cubin, or PTX,
    /// the first of these that it has. Cubins and PTX must be
    /// [relocatable](crate::CompileOptions::relocatable). `name` appears in error messages.
    ///
    /// # Errors
    /// [`Invalid::NoCode`] if it has none of them; [`Invalid::LinkedArchitecture`] if it is a cubin for an
    /// architecture that does not match that of the linker.
    pub fn with_compiled(self, name: impl Into<String>, compiled: &Compiled) -> Result<Self> {
        let name = name.into();
        let Compiled { ptx, cubin, lto_ir, .. } = compiled;
        let architecture = compiled.target.architecture();
        if lto_ir.is_none() && cubin.is_some() && !architecture.links_to(self.architecture) {
            // `link` would find out too, except for features of exactly one architecture.
            return Err(Invalid::LinkedArchitecture {
                input: name,
                architecture,
                linker: self.architecture,
            }
            .into());
        }
        let (kind, bytes) = match (lto_ir, cubin, ptx) {
            (Some(code), ..) => (LinkInput::LtoIr, code.clone()),
            (None, Some(cubin), _) => (LinkInput::Cubin, cubin.clone()),
            (None, None, Some(ptx)) => (LinkInput::Ptx, ptx.clone().into_bytes()),
            (None, None, None) => {
                return Err(Invalid::NoCode {
                    operation: "a link",
                    needed: "LTO-IR, a cubin or PTX",
                    target: compiled.target.to_string(),
                }
                .into());
            }
        };
        Ok(self.with_bytes(kind, name, bytes))
    }

    /// Returns the linker with PTX text from any source as another input. It must be relocatable.
    #[must_use]
    pub fn with_ptx(self, name: impl Into<String>, ptx: impl Into<String>) -> Self {
        self.with_bytes(LinkInput::Ptx, name.into(), ptx.into().into_bytes())
    }

    /// Returns the linker with data from any source as another input.
    ///
    /// # Safety
    /// Unless it is PTX, `data` must be complete and must have been made by NVIDIA's tools, because the library
    /// trusts its contents.
    ///
    /// The cubins in a fatbin, an archive or a host object should be for the architecture of the linker. nvJitLink of
    /// CUDA 13.5 rejects others, but does not unlock a lock of the process then: later links on other threads never
    /// return. [`link`](Self::link) rejects a single cubin for another architecture itself.
    ///
    /// Raw: [`nvJitLinkAddData`](fn@crate::sys::nvJitLinkAddData).
    #[must_use]
    #[doc(alias = "nvJitLinkAddData")]
    pub unsafe fn with_data(self, kind: LinkInput, name: impl Into<String>, data: Vec<u8>) -> Self {
        self.with_bytes(kind, name.into(), data)
    }

    /// Returns the linker with a file as another input.
    ///
    /// # Safety
    /// When the linker runs, the file must fulfill the conditions of [`with_data`](Self::with_data).
    ///
    /// Raw: [`nvJitLinkAddFile`](fn@crate::sys::nvJitLinkAddFile).
    #[must_use]
    #[doc(alias = "nvJitLinkAddFile")]
    pub unsafe fn with_file(self, kind: LinkInput, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        self.with_input(kind, path.display().to_string(), Content::File(path))
    }

    /// Adds data. The library ignores the size of PTX and reads the text up to a NUL (nvJitLink of CUDA 13.5), so
    /// a NUL follows the data.
    #[inline]
    fn with_bytes(self, kind: LinkInput, name: String, mut data: Vec<u8>) -> Self {
        data.push(0);
        self.with_input(kind, name, Content::Bytes(data))
    }

    #[inline]
    fn with_input(mut self, kind: LinkInput, name: String, content: Content) -> Self {
        self.inputs.push(Input { kind, name, content });
        self
    }

    /// Links the inputs. Calls `nvJitLinkComplete`.
    ///
    /// The result has a cubin, or PTX with [`LinkOptions::ptx`]. If an input is LTO-IR, the linker optimizes
    /// across all units of LTO-IR.
    ///
    /// A symbol that two units of LTO-IR define is an error. If two units of PTX define it, nvJitLink of CUDA 13.5
    /// prints a message to the standard error stream, and links one of the definitions.
    ///
    /// # Errors
    /// [`Error::Link`] with the messages of the linker: an input is rejected (it is for another architecture, or
    /// from a newer toolkit), a symbol is undefined, or an option is unknown. [`Error::Load`] if nvJitLink is not
    /// installed; [`Error::Missing`] if it is older than CUDA 12.3; a text contains a NUL.
    ///
    /// Since CUDA 12.3. Raw: [`nvJitLinkCreate`](fn@crate::sys::nvJitLinkCreate),
    /// [`nvJitLinkComplete`](fn@crate::sys::nvJitLinkComplete).
    #[doc(alias = "nvJitLinkCreate")]
    #[doc(alias = "nvJitLinkComplete")]
    #[inline]
    pub fn link(&self) -> Result<Compiled> {
        for input in &self.inputs {
            self.check_architecture(input)?;
        }
        let is_lto = self.inputs.iter().any(|input| input.kind == LinkInput::LtoIr);
        let arguments = self.arguments(is_lto)?;
        // Declared before the linker, so that each name and file name lives until the linker is destroyed, as
        // the inputs do.
        let mut texts = Vec::new();
        for input in &self.inputs {
            let name = match &input.content {
                Content::Bytes(_) => input.name.clone().into_bytes(),
                Content::File(path) => path_bytes(path)?,
            };
            texts.push(c_string(name, || "the name of an input".to_owned())?);
        }
        let handle = Handle::create(&arguments)?;
        for (input, name) in self.inputs.iter().zip(&texts) {
            handle.add(input, name)?;
        }
        // SAFETY: the linker is valid.
        handle.check("nvJitLinkComplete", None, unsafe { sys::nvJitLinkComplete(handle.raw) })?;
        let log = handle.info_log()?;
        let (ptx, cubin, target) = match self.options.ptx {
            true => (Some(handle.ptx()?), None, Target::Ptx(self.architecture)),
            false => (None, Some(handle.cubin()?), Target::Cubin(self.architecture)),
        };
        Ok(Compiled { target, ptx, cubin, lto_ir: None, log, names: BTreeMap::new() })
    }

    /// Refuses a cubin for an architecture that does not match that of the linker.
    ///
    /// After such an input, nvJitLink (of CUDA 13.5) never unlocks a lock of the process, and every link on another
    /// thread waits forever.
    #[inline]
    fn check_architecture(&self, input: &Input) -> Result<()> {
        const HEADER: u64 = 64;
        let mut header = Vec::new();
        match &input.content {
            Content::Bytes(bytes) => header.extend(bytes.iter().take(HEADER as usize)),
            // The library reports a file that cannot be read.
            Content::File(path) => {
                drop(File::open(path).and_then(|file| file.take(HEADER).read_to_end(&mut header)))
            }
        }
        // A host object is an ELF file too, but has another format.
        let code = match image::codes(&header).as_deref() {
            Ok([code]) if code.kind == CodeKind::Cubin => *code,
            _ => return Ok(()),
        };
        match Architecture::from_number(code.architecture) {
            // A cubin does not show whether it uses features of exactly its architecture.
            Some(architecture) if !architecture.links_to(self.architecture) => {
                Err(Invalid::LinkedArchitecture {
                    input: input.name.clone(),
                    architecture,
                    linker: self.architecture,
                }
                .into())
            }
            _ => Ok(()),
        }
    }

    #[inline]
    fn arguments(&self, is_lto: bool) -> Result<Vec<CString>> {
        let LinkOptions {
            ptx,
            debug,
            line_info,
            max_registers,
            kernels_used,
            extra,
            _non_exhaustive: (),
        } = &self.options;
        let mut arguments = vec![format!("-arch=sm_{}", self.architecture)];
        for (is_set, option) in
            [(is_lto, "-lto"), (*ptx, "-ptx"), (*debug, "-g"), (*line_info, "-lineinfo")]
        {
            if is_set {
                arguments.push(option.to_owned());
            }
        }
        arguments.extend(max_registers.map(|count| format!("-maxrregcount={count}")));
        arguments.extend(kernels_used.iter().map(|name| format!("-kernels-used={name}")));
        arguments.extend(extra.iter().cloned());
        let c_option = |argument: String| c_string(argument, || "a linker option".to_owned());
        arguments.into_iter().map(c_option).collect()
    }
}

impl LinkInput {
    #[inline]
    fn as_raw(self) -> nvJitLinkInputType {
        match self {
            Self::Cubin => nvJitLinkInputType::NVJITLINK_INPUT_CUBIN,
            Self::Ptx => nvJitLinkInputType::NVJITLINK_INPUT_PTX,
            Self::LtoIr => nvJitLinkInputType::NVJITLINK_INPUT_LTOIR,
            Self::Fatbin => nvJitLinkInputType::NVJITLINK_INPUT_FATBIN,
            Self::Object => nvJitLinkInputType::NVJITLINK_INPUT_OBJECT,
            Self::Library => nvJitLinkInputType::NVJITLINK_INPUT_LIBRARY,
            Self::Index => nvJitLinkInputType::NVJITLINK_INPUT_INDEX,
            Self::Any => nvJitLinkInputType::NVJITLINK_INPUT_ANY,
        }
    }
}

/// A linker of the library, with the options that it was created with.
struct Handle<'a> {
    raw: nvJitLinkHandle,
    arguments: &'a [CString],
}

impl Drop for Handle<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.raw.is_null() {
            // The library is missing, or has not created a linker.
            return;
        }
        // SAFETY: the linker is valid, and nothing uses it after this. An error can only say that it is not.
        let _ = unsafe { sys::nvJitLinkDestroy(&raw mut self.raw) };
    }
}

/// The type of the functions that return a size, and of those that copy a text.
type SizeOfText = unsafe fn(nvJitLinkHandle, *mut usize) -> Result<nvJitLinkResult, SymbolError>;
type CopyText = unsafe fn(nvJitLinkHandle, *mut c_char) -> Result<nvJitLinkResult, SymbolError>;

impl<'a> Handle<'a> {
    /// Creates a linker. If the options are wrong, the library creates a linker that has only a log.
    #[inline]
    fn create(arguments: &'a [CString]) -> Result<Self> {
        let count = u32::try_from(arguments.len())
            .map_err(|_| Invalid::TooMany { what: "linker options", count: arguments.len() })?;
        let mut options = pointers(arguments);
        let mut raw = std::ptr::null_mut();
        // SAFETY: there are `count` texts that end with a NUL and live as long as the linker.
        let result = unsafe { sys::nvJitLinkCreate(&raw mut raw, count, options.as_mut_ptr()) };
        let handle = Self { raw, arguments };
        handle.check("nvJitLinkCreate", None, result)?;
        Ok(handle)
    }

    #[inline]
    fn add(&self, input: &Input, name: &CString) -> Result<()> {
        let kind = input.kind.as_raw();
        let (call, result) = match &input.content {
            Content::Bytes(bytes) => ("nvJitLinkAddData", {
                let (data, size) = (bytes.as_ptr().cast(), bytes.len().saturating_sub(1));
                // SAFETY: the linker is valid. The data and the name live until it is destroyed. A NUL follows the
                // data, where the library stops to read PTX. Binary data was made by the compiler, or the caller of
                // `with_data` guarantees that it is valid.
                unsafe { sys::nvJitLinkAddData(self.raw, kind, data, size, name.as_ptr()) }
            }),
            Content::File(_) => ("nvJitLinkAddFile", {
                // SAFETY: the linker is valid, and the name lives until it is destroyed. The caller of `with_file`
                // guarantees that the file is valid.
                unsafe { sys::nvJitLinkAddFile(self.raw, kind, name.as_ptr()) }
            }),
        };
        self.check(call, Some(input), result)
    }

    #[inline]
    fn check(
        &self,
        call: &'static str,
        input: Option<&Input>,
        result: Result<nvJitLinkResult, SymbolError>,
    ) -> Result<()> {
        match result {
            Ok(nvJitLinkResult::NVJITLINK_SUCCESS) => Ok(()),
            Ok(code) => Err(Error::Link(Box::new(LinkError {
                code,
                call,
                input: input.map(|input| input.name.clone()),
                options: displayed(self.arguments),
                log: self.error_log(),
            }))),
            Err(error) => Err(absent("nvJitLink", call, error)),
        }
    }

    /// Returns the messages about errors. If they are not available, there are none.
    #[inline]
    fn error_log(&self) -> String {
        if self.raw.is_null() {
            return String::new();
        }
        let (size, copy) = (sys::nvJitLinkGetErrorLogSize, sys::nvJitLinkGetErrorLog);
        let mut bytes = 0;
        // SAFETY: the linker is valid, and the pointer is valid for a write.
        let result = unsafe { size(self.raw, &raw mut bytes) };
        if !matches!(result, Ok(nvJitLinkResult::NVJITLINK_SUCCESS)) {
            return String::new();
        }
        let mut buffer = vec![0; bytes.saturating_add(1)];
        // SAFETY: the linker is valid, and the buffer is larger than the size that the library returned.
        match unsafe { copy(self.raw, buffer.as_mut_ptr().cast()) } {
            Ok(nvJitLinkResult::NVJITLINK_SUCCESS) => text(&buffer),
            _ => String::new(),
        }
    }

    #[inline]
    fn info_log(&self) -> Result<String> {
        let calls = ("nvJitLinkGetInfoLogSize", "nvJitLinkGetInfoLog");
        let (size, copy) = (sys::nvJitLinkGetInfoLogSize, sys::nvJitLinkGetInfoLog);
        // SAFETY: these functions belong together.
        Ok(text(&unsafe { self.output(calls, size, copy) }?))
    }

    #[inline]
    fn ptx(&self) -> Result<String> {
        let calls = ("nvJitLinkGetLinkedPtxSize", "nvJitLinkGetLinkedPtx");
        let (size, copy) = (sys::nvJitLinkGetLinkedPtxSize, sys::nvJitLinkGetLinkedPtx);
        // SAFETY: these functions belong together.
        Ok(text(&unsafe { self.output(calls, size, copy) }?))
    }

    #[inline]
    fn cubin(&self) -> Result<Vec<u8>> {
        let mut size = 0;
        // SAFETY: the linker is valid, and the pointer is valid for a write.
        let result = unsafe { sys::nvJitLinkGetLinkedCubinSize(self.raw, &raw mut size) };
        self.check("nvJitLinkGetLinkedCubinSize", None, result)?;
        let mut cubin = vec![0_u8; size];
        // SAFETY: the buffer has the size that the library returned.
        let result = unsafe { sys::nvJitLinkGetLinkedCubin(self.raw, cubin.as_mut_ptr().cast()) };
        self.check("nvJitLinkGetLinkedCubin", None, result)?;
        Ok(cubin)
    }

    /// Returns a text, by a function that returns its size and one that copies it.
    ///
    /// # Safety
    /// `copy` must write at most as many bytes as `size` returns.
    #[inline]
    unsafe fn output(
        &self,
        calls: (&'static str, &'static str),
        size: SizeOfText,
        copy: CopyText,
    ) -> Result<Vec<u8>> {
        let mut bytes = 0;
        // SAFETY: the linker is valid, and the pointer is valid for a write.
        self.check(calls.0, None, unsafe { size(self.raw, &raw mut bytes) })?;
        // Without a text, some versions return the size 0 but write a NUL.
        let mut buffer = vec![0; bytes.saturating_add(1)];
        // SAFETY: the linker is valid. The caller guarantees that the buffer is large enough.
        self.check(calls.1, None, unsafe { copy(self.raw, buffer.as_mut_ptr().cast()) })?;
        Ok(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::{Content, LinkInput, Linker};
    use crate::{Architecture, Compiled, Target};
    use std::collections::BTreeMap;

    #[test]
    fn a_nul_follows_each_input_because_the_library_reads_ptx_up_to_it() {
        let architecture = Architecture::new(9, 0);
        let compiled = Compiled {
            target: Target::Ptx(architecture),
            ptx: Some(".version 8.0".to_owned()),
            cubin: None,
            lto_ir: None,
            log: String::new(),
            names: BTreeMap::new(),
        };
        let linker = Linker::new(architecture).with_ptx("text", ".version 8.0");
        let linker = linker.with_compiled("compiled", &compiled).expect("PTX");
        // SAFETY: the linker is not used.
        let linker = unsafe { linker.with_data(LinkInput::Any, "data", b".version 8.0".to_vec()) };
        assert_eq!(linker.inputs.len(), 3);
        for input in &linker.inputs {
            match &input.content {
                Content::Bytes(bytes) => assert_eq!(bytes, b".version 8.0\0", "{}", input.name),
                Content::File(path) => panic!("{}", path.display()),
            }
        }
    }
}
