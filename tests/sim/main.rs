//! The software driver itself, and behavior of the safe layer that only it can show: call logs,
//! faults, and other devices and drivers. Each test runs in a child process with its own driver.

#![cfg_attr(miri, feature(custom_test_frameworks, test), test_runner(common::miri::run))]

#[path = "../common/mod.rs"]
mod common;
#[path = "../libraries/mod.rs"]
mod libraries;
#[path = "../programs/mod.rs"]
mod programs;

/// In the parent process, runs the rest of the function in a child process, checks that it succeeded,
/// and returns from the function. In the child, evaluates the set-up of the test.
macro_rules! in_child {
    ($($setup:expr)?) => {{
        if !crate::common::child::entered(&[]) {
            return;
        }
        $($setup)?
    }};
}

mod arguments;
mod array;
mod call;
mod capture;
mod context;
mod device;
mod event;
mod external;
mod graph;
mod green;
mod interop;
mod launch;
mod leaks;
mod library_calls;
mod manager;
mod memory;
mod module;
mod process;
mod races;
mod regressions;
mod release;
mod software;
mod stream;
mod virtual_memory;

use prelude::*;

/// A check at the end of a test, which the drop of this value runs unless the test panics. The first
/// variable of a test is dropped after all others.
struct AtEnd(Option<Box<dyn FnOnce()>>);

impl AtEnd {
    fn new(check: impl FnOnce() + 'static) -> Self {
        Self(Some(Box::new(check)))
    }

    /// Runs another check before this one.
    fn after(self, check: impl FnOnce() + 'static) -> Self {
        Self::new(move || {
            check();
            drop(self);
        })
    }
}

impl Drop for AtEnd {
    fn drop(&mut self) {
        if let (Some(check), false) = (self.0.take(), std::thread::panicking()) {
            check();
        }
    }
}

/// Starts the software driver, and returns the primary context of its first device. At the end
/// nothing may be alive, there must be no misuse, and the stack of the thread must be empty.
fn on(profile: Profile) -> (AtEnd, Context) {
    start(profile);
    (AtEnd::new(check), context())
}

/// Starts the software driver like [`on`] as an H200, and creates a stream.
fn on_stream() -> (AtEnd, Context, Stream) {
    let (end, context) = on(Profile::h200());
    let stream = context.stream().expect("a stream");
    (end, context, stream)
}

/// Starts the software driver like [`on`] as an H200, with a manager in each context.
fn with<M: MemoryManager>(
    make: impl Fn(&Context) -> Result<M> + Send + Sync + 'static,
) -> (AtEnd, Context) {
    set_memory_manager(make).expect("a matching version");
    on(Profile::h200())
}

fn start(profile: Profile) {
    let profile = profile.with_environment();
    let profile = profile.unwrap_or_else(|why| panic!("{why}"));
    cuda_sim::install(profile).expect("nothing was called before");
    #[cfg(feature = "freed")]
    cuda_safe::set_freed_hook(cuda_sim::data_freed);
}

fn context() -> Context {
    let device = cuda_safe::Device::get(0).expect("a device");
    Context::primary(&device).expect("a primary context")
}

#[track_caller]
fn check() {
    assert_eq!(cuda_sim::misuses(), [""; 0]);
    assert_eq!(cuda_sim::alive(), cuda_sim::Alive::default());
    assert_eq!(cuda_sim::stack_depth(), 0);
    assert_eq!(cuda_sim::stack_depths(), []);
}

const VECTOR: &str = include_str!("../kernels/vector.ptx");

/// The names that most tests use.
mod prelude {
    pub(crate) use crate::{
        AtEnd, VECTOR, check,
        common::{self, invalid},
        context,
        graph::{
            calls::{
                Bench, INVALID, Side, UNSUPPORTED, code, copy, copy_node, destroy, destroy_event,
                destroy_executable, empty_node, event, fill, fill_node, free_memory, graph,
                instantiate, memory, misused, moved, out, read, refused, succeeds, without_misuse,
                without_misuse_on,
            },
            drain,
        },
        on, on_stream,
        release::{fail, fail_from, leaking},
        software::{
            call_log::{calls, count, persistent},
            misuses::{expecting_misuse, found},
        },
        start,
        virtual_memory::{PAGE, READ_WRITE, reserve},
        with,
    };
    pub(crate) use core::{
        ffi::{c_int, c_void},
        ptr::{
            NonNull, from_ref, null, null_mut, with_exposed_provenance_mut, without_provenance_mut,
        },
    };
    pub(crate) use cuda_memory::{
        CachingManager, CachingOptions, Fallback, FallbackManager, LeakManager, LimitManager,
        LoggingManager, OrderedManager, StatisticsManager,
    };
    pub(crate) use cuda_safe::sys::*;
    pub(crate) use cuda_safe::{
        Context, ContextFlags, CudaVersion, Device, DeviceBuffer, Error, Event, EventOptions,
        ExecutableGraph, Graph, Invalid, LaunchConfig, Module, PinnedBuffer, Result, Stream,
        StreamOptions, TypedKernel,
        array::{Array, ArrayShape},
        capture::CaptureMode,
        deferred_releases,
        graph::{AllocOptions, ConditionalHandle, GraphBuffer, InstantiateOptions, kind},
        green::{
            GreenContext, GreenPool, GreenPoolOptions, GroupRequest, PartitionRequest,
            PartitionSize, SmResource, SplitByCount, SplitFlags,
        },
        interop::StreamSync,
        launch::LaunchAttributes,
        manager::{
            AutoFreePointer, Block, DeferOptions, DriverManager, DriverMemory, IpcHandle,
            MappedMemory, MemoryManager, MemoryPointer, Order, StreamEnd, set_memory_manager,
        },
        memory::{
            CopyBatch, Extent, ManagedBuffer, MappedBuffer, MemoryAccess, MemoryLocation,
            MemoryPool, MemoryPoolOptions, PinnedFlags, PinnedOptions, PitchedBuffer, Region,
            RegisterOptions,
        },
        module::{Library, Linker},
        process::{coredump::DumpCallback, logs::LogCallback},
        set_report_hook,
        stream::MemoryOperation,
        sys,
        virtual_memory::{
            Mapping, MulticastOptions, MulticastTeam, PhysicalMemory, PhysicalOptions, Reservation,
            Shareable,
        },
    };
    pub(crate) use cuda_sim::{
        Alive, Call, Profile, alive,
        fault::{Fault, Injected, Scope, limit_memory},
        kernel,
        races::Place,
        set_call_hook,
    };
    pub(crate) use std::{
        cell::RefCell,
        ffi::CString,
        fmt::Debug,
        panic::{AssertUnwindSafe, catch_unwind},
        sync::{
            Arc, Mutex,
            atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
            mpsc::{self, Sender, channel},
        },
        time::Duration,
    };
}
