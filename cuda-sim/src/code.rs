//! Code that programs load: kernels and variables, as PTX and cubins declare them.

pub(crate) mod binary;
pub(crate) mod linked;
pub(crate) mod ptx;

use cuda_ptx::Program;
use std::sync::Arc;

/// The contents of a PTX text or an image.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    pub(crate) kernels: Vec<KernelInfo>,
    pub(crate) variables: Vec<Variable>,
    /// Symbols that it uses and does not define.
    pub(crate) wanted: Vec<String>,
    /// Functions that other images may use.
    pub(crate) offered: Vec<String>,
    /// The PTX, if the image has it.
    pub(crate) texts: Vec<Arc<str>>,
    /// What runs: the program of all texts, unless some of the code is machine code without PTX.
    pub(crate) program: Option<Arc<Program>>,
}

/// What a kernel executes, unless a function is registered for it.
#[derive(Clone, Debug)]
pub(crate) enum Code {
    Ptx(Arc<Program>),
    Machine,
    /// Only registered functions run.
    None,
}

impl Contents {
    /// Adds the contents of another text or image. The program of one text is that of all; several are not linked.
    pub(crate) fn append(&mut self, other: Self) {
        let Self { kernels, variables, wanted, offered, texts, program } = other;
        self.program = program.filter(|_| self.texts.is_empty());
        self.kernels.extend(kernels);
        self.variables.extend(variables);
        self.wanted.extend(wanted);
        self.offered.extend(offered);
        self.texts.extend(texts);
    }

    /// Links the texts, if there are several.
    pub(crate) fn link(&mut self) -> Result<(), String> {
        if self.program.is_none() {
            self.program = Some(Arc::new(ptx::link(&self.texts)?));
        }
        Ok(())
    }
}

/// A variable of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) size: usize,
    pub(crate) align: usize,
    /// The first bytes. The rest are zero.
    pub(crate) initial: Vec<u8>,
    pub(crate) managed: bool,
}

/// The limits that a kernel was compiled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Maximum number of threads in a block.
    pub(crate) threads: u32,
    /// Static shared memory of a block, in bytes.
    pub(crate) shared: u32,
    /// Registers of a thread, if the image has its machine code.
    pub(crate) registers: u32,
    /// Local memory of a thread in bytes. For PTX, the variables that the kernel declares.
    pub(crate) local: u32,
    /// The size of the variables in constant memory of the image or module, in bytes.
    pub(crate) constant: u32,
    /// Required cluster size, or zeros if none is required.
    pub(crate) cluster: [u32; 3],
    /// The target architecture, for example 52.
    pub(crate) target: u32,
}

/// A kernel that PTX declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelInfo {
    pub(crate) name: String,
    /// The name as a C string.
    pub(crate) c_name: std::ffi::CString,
    /// The offset and size of each parameter.
    pub(crate) params: Vec<(usize, usize)>,
    pub(crate) limits: Limits,
}

impl KernelInfo {
    /// Returns `None` for a name that contains a NUL.
    pub(crate) fn new(name: &str, params: Vec<(usize, usize)>) -> Option<Self> {
        Some(Self {
            name: name.to_owned(),
            c_name: std::ffi::CString::new(name).ok()?,
            params,
            limits: Limits {
                threads: 1024,
                shared: 0,
                registers: 0,
                local: 0,
                constant: 0,
                cluster: [0; 3],
                target: 0,
            },
        })
    }
}
