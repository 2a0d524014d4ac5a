//! Streams, events, modules and contexts.

use crate::calls::{
    PTX, blocking_stream, call, context, destroy_event, destroy_stream, event, fill, free,
    function, handle, launch, memory, module, stream, synchronize,
};
use crate::measure::{Measure, pick};
use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
use cuda_sys::{CUcontext, CUresult, CUstreamWaitValue_flags};
use std::ffi::CString;
use std::fmt::Write as _;

pub(crate) fn measure(measure: &Measure, primary: CUcontext) {
    events(measure);
    streams(measure);
    pending(measure);
    modules(measure);
    contexts(measure, primary);
}

fn events(measure: &Measure) {
    let (own, other) = (stream(), stream());
    let start = event();
    call!(cuEventRecord(start, own));
    synchronize(own);
    measure.kind(
        "events",
        100_000,
        |_| event(),
        &mut [
            ("create, destroy", &mut |_, _| destroy_event(event())),
            ("record, synchronize", &mut |all, at| {
                let its = all[at % all.len()];
                call!(cuEventRecord(its, own));
                call!(cuEventSynchronize(its));
            }),
            ("query", &mut |all, at| {
                call!(cuEventQuery(all[at % all.len()]));
            }),
            ("record, wait on a stream, synchronize", &mut |all, at| {
                let its = all[at % all.len()];
                call!(cuEventRecord(its, own));
                call!(cuStreamWaitEvent(other, its, 0));
                synchronize(other);
            }),
            ("record, synchronize, elapsed time", &mut |all, at| {
                let (its, mut time) = (all[at % all.len()], 0.0);
                call!(cuEventRecord(its, own));
                synchronize(own);
                call!(cuEventElapsedTime_v2(&raw mut time, start, its));
            }),
        ],
        |all| all.into_iter().for_each(destroy_event),
    );
    destroy_event(start);
    destroy_stream(own);
    destroy_stream(other);
}

fn streams(measure: &Measure) {
    let loaded = module(PTX);
    let nothing = function(loaded, c"nothing");
    let own = stream();
    let default = null_mut();
    for (name, make) in
        [("idle streams", stream as fn() -> _), ("idle blocking streams", blocking_stream)]
    {
        measure.kind(
            name,
            100_000,
            |_| make(),
            &mut [
                ("create, destroy", &mut |_, _| destroy_stream(make())),
                ("launch, synchronize", &mut |all, at| {
                    let its = all[at % all.len()];
                    launch(nothing, its);
                    synchronize(its);
                }),
                ("launch on the legacy stream, synchronize", &mut |_, _| {
                    launch(nothing, default);
                    synchronize(default);
                }),
                ("query", &mut |all, at| {
                    call!(cuStreamQuery(all[at % all.len()]));
                }),
                ("synchronize the context", &mut |_, _| {
                    call!(cuCtxSynchronize());
                }),
            ],
            |all| all.into_iter().for_each(destroy_stream),
        );
    }
    let target = memory(64);
    let busy = |make: fn() -> _| {
        let stream = make();
        fill(target, stream);
        stream
    };
    for (name, make) in
        [("busy streams", stream as fn() -> _), ("busy blocking streams", blocking_stream)]
    {
        measure.kind(
            name,
            100_000,
            |_| busy(make),
            &mut [
                ("launch, run one operation", &mut |_, _| {
                    launch(nothing, own);
                    // A query makes the software driver run one operation of one stream.
                    // SAFETY: the stream is alive.
                    let _ = unsafe { cuda_sys::cuStreamQuery(own) };
                }),
                ("enqueue", &mut |all, at| fill(target, all[at % all.len()])),
                ("create with work, destroy", &mut |_, _| destroy_stream(busy(make))),
            ],
            |all| {
                all.into_iter().for_each(destroy_stream);
                call!(cuCtxSynchronize());
            },
        );
    }
    waiting(measure, target);
    free(target);
    destroy_stream(own);
    call!(cuModuleUnload(loaded));
}

/// Streams that wait for a value in memory.
fn waiting(measure: &Measure, target: u64) {
    let own = stream();
    let word = memory(4);
    let at_least = CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ.0;
    call!(cuMemsetD32_v2(word, 0, 1));
    measure.kind(
        "streams that wait for a value",
        10_000,
        |_| {
            let stream = stream();
            call!(cuStreamWaitValue32_v2(stream, word, 1, at_least));
            stream
        },
        &mut [("memset on another stream, synchronize", &mut |_, _| {
            fill(target, own);
            synchronize(own);
        })],
        |all| {
            call!(cuStreamWriteValue32_v2(own, word, 1, 0));
            all.into_iter().for_each(destroy_stream);
            call!(cuCtxSynchronize());
            call!(cuMemsetD32_v2(word, 0, 1));
        },
    );
    free(word);
    destroy_stream(own);
}

unsafe extern "C" fn do_nothing(_: *mut c_void) {}

/// Operations that have not run.
fn pending(measure: &Measure) {
    let own = stream();
    let streams: Vec<_> = (0..1_000).map(|_| stream()).collect();
    let (target, last) = (memory(64), event());
    measure.kind(
        "pending operations of a stream",
        100_000,
        |_| fill(target, own),
        &mut [
            ("enqueue", &mut |_, _| fill(target, own)),
            ("record", &mut |_, _| {
                call!(cuEventRecord(last, own));
            }),
            ("create an event, destroy", &mut |_, _| destroy_event(event())),
        ],
        |_| synchronize(own),
    );
    measure.kind(
        "pending operations of 1,000 streams",
        100_000,
        |at| fill(target, streams[at % 1_000]),
        &mut [
            ("enqueue", &mut |_, at| fill(target, streams[at % 1_000])),
            ("record, wait on another stream", &mut |_, at| {
                call!(cuEventRecord(last, streams[at % 1_000]));
                call!(cuStreamWaitEvent(streams[(at + 1) % 1_000], last, 0));
            }),
            ("enqueue, run one operation", &mut |_, at| {
                fill(target, streams[at % 1_000]);
                // SAFETY: the stream is alive.
                let code = unsafe { cuda_sys::cuStreamQuery(streams[at % 1_000]) };
                assert!(matches!(code, CUresult::CUDA_SUCCESS | CUresult::CUDA_ERROR_NOT_READY));
            }),
        ],
        |_| {
            call!(cuCtxSynchronize());
        },
    );
    measure.kind(
        "pending host functions",
        100_000,
        |_| {
            call!(cuLaunchHostFunc(own, Some(do_nothing), null_mut()));
        },
        &mut [
            ("enqueue", &mut |_, _| {
                call!(cuLaunchHostFunc(own, Some(do_nothing), null_mut()));
            }),
            ("create an event, destroy", &mut |_, _| destroy_event(event())),
        ],
        |_| synchronize(own),
    );
    free(target);
    destroy_event(last);
    streams.into_iter().for_each(destroy_stream);
    destroy_stream(own);
}

fn modules(measure: &Measure) {
    let own = stream();
    let unload = |module| {
        call!(cuModuleUnload(module));
    };
    measure.kind(
        "modules",
        100_000,
        |_| module(PTX),
        &mut [
            ("load, unload", &mut |_, _| unload(module(PTX))),
            ("get a function, launch, synchronize", &mut |all, at| {
                launch(function(all[at % all.len()], c"nothing"), own);
                synchronize(own);
            }),
        ],
        |all| all.into_iter().for_each(unload),
    );
    for of in ["functions of a module", "variables of a module"] {
        let is_variable = of.starts_with("variables");
        let loaded = std::cell::Cell::new((null_mut(), null_mut()));
        let names = std::cell::RefCell::new(Vec::<CString>::new());
        let begin = |count: usize| {
            let mut text = PTX.to_str().expect("text").to_owned();
            for at in 0..count {
                let _ = match is_variable {
                    true => writeln!(text, ".visible .global .u32 name{at};"),
                    false => writeln!(text, ".visible .entry name{at}() {{ ret; }}"),
                };
            }
            let text = CString::new(text).expect("no NUL");
            let made = module(&text);
            loaded.set((made, function(made, c"nothing")));
        };
        // The module is loaded when its functions are first used, with as many as were counted.
        let used = |names: &[usize]| {
            if loaded.get().0.is_null() {
                begin(names.len());
            }
        };
        measure.kind(
            of,
            10_000,
            |at| {
                names.borrow_mut().push(CString::new(format!("name{at}")).expect("no NUL"));
                at
            },
            &mut [
                ("find by name", &mut |all, at| {
                    used(all);
                    let names = names.borrow();
                    let name: &CStr = &names[pick(all, at)];
                    if is_variable {
                        let (mut address, mut size) = (0, 0);
                        let module = loaded.get().0;
                        call!(cuModuleGetGlobal_v2(
                            &raw mut address,
                            &raw mut size,
                            module,
                            name.as_ptr()
                        ));
                    } else {
                        function(loaded.get().0, name);
                    }
                }),
                ("launch, synchronize", &mut |all, _| {
                    used(all);
                    launch(loaded.get().1, own);
                    synchronize(own);
                }),
            ],
            |_| {
                unload(loaded.get().0);
                loaded.set((null_mut(), null_mut()));
                names.borrow_mut().clear();
            },
        );
    }
    destroy_stream(own);
}

fn contexts(measure: &Measure, primary: CUcontext) {
    let own = stream();
    let target = memory(64);
    let destroy = |context| {
        call!(cuCtxDestroy_v2(context));
    };
    measure.kind(
        "contexts",
        1_000,
        |_| context(),
        &mut [
            ("create, destroy", &mut |_, _| destroy(context())),
            ("push, pop", &mut |all, at| {
                let mut old: CUcontext = handle(0);
                call!(cuCtxPushCurrent_v2(all[at % all.len()]));
                call!(cuCtxPopCurrent_v2(&raw mut old));
            }),
            ("memset, synchronize", &mut |_, _| {
                fill(target, own);
                synchronize(own);
            }),
        ],
        |all| all.into_iter().for_each(destroy),
    );
    // What a context does not own does not make its destruction slower.
    measure.kind(
        "arrays and textures of another context",
        100_000,
        |_| crate::calls::array(16, 1),
        &mut [("create a context, destroy", &mut |_, _| destroy(context()))],
        |all| {
            for array in all {
                call!(cuArrayDestroy(array));
            }
        },
    );
    call!(cuCtxSetCurrent(primary));
    free(target);
    destroy_stream(own);
}
