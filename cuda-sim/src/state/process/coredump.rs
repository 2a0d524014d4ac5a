//! Core dumps of the device: settings, callbacks, and what a fault does while dumps are on.

use crate::state::handles::Handles;
use crate::state::world::{World, lock};
use crate::thread;
use cuda_sys::{CUCoredumpGenerationFlags, CUcoredumpStatusCallback, CUresult};
use std::collections::HashMap;
use std::ffi::c_void;

/// The settings of the process or of a context.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) on_exception: bool,
    pub(crate) trigger_host: bool,
    pub(crate) lightweight: bool,
    pub(crate) user_trigger: bool,
    pub(crate) file: String,
    pub(crate) pipe: String,
    pub(crate) flags: u32,
}

/// A registered callback.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callback {
    pub(crate) function: CUcoredumpStatusCallback,
    pub(crate) data: *mut c_void,
}

// SAFETY: the program that registers a callback promises that it can be called on any thread.
unsafe impl Send for Callback {}

pub(crate) struct Coredumps {
    pub(crate) global: Settings,
    /// The settings of contexts that have their own.
    pub(crate) of_contexts: HashMap<usize, Settings>,
    pub(crate) start_callbacks: Handles<Callback>,
    pub(crate) complete_callbacks: Handles<Callback>,
    /// Whether the dump of the fatal error has been written.
    is_written: bool,
}

impl Coredumps {
    pub(crate) fn new() -> Self {
        let process = std::process::id();
        Self {
            global: Settings {
                on_exception: false,
                trigger_host: true,
                lightweight: false,
                user_trigger: false,
                file: format!("core.cuda.localhost.{process}"),
                pipe: format!("corepipe.cuda.localhost.{process}"),
                flags: 0,
            },
            of_contexts: HashMap::new(),
            start_callbacks: Handles::new(32),
            complete_callbacks: Handles::new(33),
            is_written: false,
        }
    }
}

/// Returns the code that a call returns instead of a fatal error while dumps on exceptions are on.
///
/// As measured, the first call that waits after the fault returns success, while another thread of the
/// driver writes the dump. Then the process aborts, or calls return the fatal error. This driver writes
/// the dump in that first call.
pub(crate) fn fatal_answer(function: &str, code: CUresult) -> CUresult {
    if !code.is_fatal() {
        return code;
    }
    let mut locked = lock();
    let Some(world) = locked.as_mut().filter(|world| has_dump(world, code)) else {
        return code;
    };
    let dumps = &mut world.settings.coredumps;
    let settings = dumps.global.clone();
    let has = |flag: CUCoredumpGenerationFlags| settings.flags & flag.0 as u32 != 0;
    if std::mem::replace(&mut dumps.is_written, true) {
        if has(CUCoredumpGenerationFlags::CU_COREDUMP_SKIP_ABORT) || !settings.trigger_host {
            return code;
        }
        eprintln!(
            "cuda-sim: the core dump is written, and the process aborts as with a real driver"
        );
        std::process::abort();
    }
    let all = |callbacks: &Handles<Callback>| -> Vec<Callback> {
        callbacks.iter().map(|(_, callback)| *callback).collect()
    };
    let (start, complete) = (all(&dumps.start_callbacks), all(&dumps.complete_callbacks));
    drop(locked);
    run(&start);
    if !has(CUCoredumpGenerationFlags::CU_COREDUMP_LOG_ONLY) {
        // A dump that cannot be written has no effect on calls.
        let _ = std::fs::write(&settings.file, "a core dump of the software driver\n");
    }
    run(&complete);
    if function.contains("Synchronize") { CUresult::CUDA_SUCCESS } else { code }
}

/// Returns whether the fatal error of the process causes a dump.
fn has_dump(world: &World, code: CUresult) -> bool {
    world.settings.coredumps.global.on_exception && world.runs.fatal == Some(code)
}

/// Runs callbacks, without the lock.
fn run(callbacks: &[Callback]) {
    for Callback { function, data } in callbacks {
        if let Some(function) = function {
            let process = std::process::id() as i32;
            thread::dump_callback(|| {
                // SAFETY: the program registered a callback with its argument.
                unsafe { function(*data, process, 0) };
            });
        }
    }
}
