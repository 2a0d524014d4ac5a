//! The driver's objects.

use crate::capture::{Branch, Node};
use crate::kernel::KernelFn;
use core::ffi::c_char;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) device: usize,
    pub(crate) id: u64,
    pub(crate) kind: ContextKind,
    /// The default stream that the context's blocking streams wait for.
    pub(crate) legacy: usize,
    pub(crate) settings: Settings,
    /// Number of `cuCtxAttach` calls without a `cuCtxDetach`.
    pub(crate) attached: usize,
    /// What work given to it from now on comes after.
    pub(crate) after: Option<u64>,
    /// The last operation of each blocking stream that was given one since the legacy default
    /// stream was. The latter comes after all of them, and forgets them then.
    pub(crate) given: BTreeMap<usize, u64>,
}

/// What a context can be set to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) flags: u32,
    pub(crate) cache: u32,
    /// By their numbers, where they are not the driver's.
    pub(crate) limits: BTreeMap<u32, usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContextKind {
    Primary,
    Created,
    /// The view of a green context.
    View(usize),
}

#[derive(Debug)]
pub(crate) struct Green {
    pub(crate) device: usize,
    pub(crate) id: u64,
    pub(crate) sms: BTreeSet<u32>,
    /// As the driver counts, which is more where groups overlap.
    pub(crate) sm_count: u32,
    /// The ids of the green contexts that it is a part of.
    pub(crate) wholes: Vec<u64>,
    pub(crate) queues: crate::api::workqueue::Queues,
    /// The context that stands for it, of `cuCtxFromGreenCtx`.
    pub(crate) view: usize,
}

#[derive(Debug)]
pub(crate) struct Stream {
    /// The context that its memory and kernels belong to: a green stream's is the primary one.
    pub(crate) context: usize,
    pub(crate) green: Option<usize>,
    /// Nobody made it, and nobody destroys it.
    pub(crate) is_default: bool,
    /// It is the legacy default stream of a context or of a green context's view.
    pub(crate) is_legacy: bool,
    /// Its green context is gone: it can only be destroyed.
    pub(crate) is_detached: bool,
    pub(crate) id: u64,
    pub(crate) blocking: bool,
    pub(crate) priority: i32,
    /// What it was set to, by the numbers of the attributes.
    pub(crate) attributes: BTreeMap<u32, [c_char; 64]>,
    /// The operation given to it last, done or not.
    pub(crate) last: Option<u64>,
    /// Where in a recording it is.
    pub(crate) capture: Option<Branch>,
}

#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) context: usize,
    pub(crate) timing: bool,
    /// Its place in a recording, if it was recorded last in a stream that is part of one.
    pub(crate) captured: Option<Branch>,
    /// The operation that records it, of the last record.
    pub(crate) recorded: Option<u64>,
    /// When that ran, in operations of the executor.
    pub(crate) time: Option<u64>,
}

/// A graph that can be launched.
pub(crate) struct Executable {
    pub(crate) nodes: Vec<Node>,
    /// The end of its last launch.
    pub(crate) last: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Module {
    /// None of a library's: it is of every context.
    pub(crate) context: Option<usize>,
    pub(crate) kernels: Arc<[KernelInfo]>,
    pub(crate) variables: Arc<[Variable]>,
    /// Where the variables are, in each context that has them.
    pub(crate) placed: BTreeMap<usize, Vec<u64>>,
    /// The functions handed out for its kernels.
    pub(crate) functions: Vec<usize>,
}

/// What a text or an image has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) kernels: Vec<KernelInfo>,
    pub(crate) variables: Vec<Variable>,
    /// What it uses, and has not.
    pub(crate) wanted: Vec<String>,
    /// The functions that others may use.
    pub(crate) offered: Vec<String>,
}

/// A variable of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) size: usize,
    pub(crate) align: usize,
    /// The first bytes; the rest are zeros.
    pub(crate) initial: Vec<u8>,
    pub(crate) managed: bool,
}

/// What a kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Threads in a block.
    pub(crate) threads: u32,
    /// Static shared memory of a block, in bytes.
    pub(crate) shared: u32,
    /// Zeros where no size is required.
    pub(crate) cluster: [u32; 3],
    /// The architecture in the text: 52.
    pub(crate) target: u32,
}

/// A kernel as PTX declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelInfo {
    pub(crate) name: String,
    /// With the NUL that C wants.
    pub(crate) c_name: std::ffi::CString,
    /// Offset and size of each parameter.
    pub(crate) params: Vec<(usize, usize)>,
    pub(crate) limits: Limits,
}

impl KernelInfo {
    /// None for a name with a NUL in it.
    pub(crate) fn new(name: &str, params: Vec<(usize, usize)>) -> Option<Self> {
        Some(Self {
            name: name.to_owned(),
            c_name: std::ffi::CString::new(name).ok()?,
            params,
            limits: Limits {
                threads: 1024,
                shared: 0,
                cluster: [0; 3],
                target: 0,
            },
        })
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) module: usize,
    pub(crate) context: Option<usize>,
    pub(crate) kernel: usize,
    pub(crate) settings: FunctionSettings,
}

/// What a kernel can be set to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FunctionSettings {
    /// Dynamic shared memory of a block, at most, where it is not the usual.
    pub(crate) dynamic_shared: Option<u32>,
    /// Percent; none: the driver's choice.
    pub(crate) carveout: Option<u32>,
    /// Zeros where the text's count.
    pub(crate) cluster: [u32; 3],
    pub(crate) non_portable: bool,
    pub(crate) policy: u32,
    pub(crate) shared_mode: u32,
    pub(crate) cache: u32,
    pub(crate) loaded: bool,
}

/// A linker at work.
#[derive(Debug)]
pub(crate) struct Linker {
    pub(crate) contents: Contents,
    pub(crate) log: crate::api::jit::Logs,
    /// What came out of it, which lives as long.
    pub(crate) image: Option<Vec<u8>>,
}

/// A kernel of a module with the host function that stands for it, if one is registered.
#[derive(Clone)]
pub(crate) struct Runnable {
    pub(crate) info: KernelInfo,
    /// The module or library that it is of.
    pub(crate) module: usize,
    pub(crate) body: Option<KernelFn>,
    pub(crate) settings: FunctionSettings,
    /// The variables of its module where it runs: name, address, size.
    pub(crate) variables: Vec<(String, u64, usize)>,
}

impl std::fmt::Debug for Runnable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runnable")
            .field("info", &self.info)
            .field("registered", &self.body.is_some())
            .finish()
    }
}
