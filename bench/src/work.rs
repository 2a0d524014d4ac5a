//! The measured operations, each with the layers that implement it.

use std::cell::RefCell;
use std::fmt::Display;
use std::rc::Rc;

/// A layer to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Layer {
    C,
    /// Plain C again, which shows how much equal measurements differ.
    CAgain,
    Sys,
    Safe,
    /// cudarc in its initial state: on the default stream, without tracking.
    Cudarc,
    /// cudarc after a stream was created: it tracks every use of memory with events.
    CudarcStreams,
}

impl Layer {
    pub(crate) const ALL: [Self; 6] =
        [Self::C, Self::CAgain, Self::Sys, Self::Safe, Self::Cudarc, Self::CudarcStreams];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::C => "C",
            Self::CAgain => "C again",
            Self::Sys => "cuda-sys",
            Self::Safe => "cuda-safe",
            Self::Cudarc => "cudarc",
            Self::CudarcStreams => "cudarc, with streams",
        }
    }
}

/// One layer's implementation of an operation.
pub(crate) struct Work {
    /// Runs the operation `n` times. This is measured.
    pub(crate) run: Box<dyn FnMut(usize)>,
    /// Prepares the next run, directly before it, so that the objects of all layers are equally new. All
    /// enqueued work is complete when it is called, also if nothing ran since.
    pub(crate) before: Box<dyn FnMut()>,
}

impl Work {
    /// Returns a work that runs `body` in a loop.
    pub(crate) fn each(mut body: impl FnMut() + 'static) -> Self {
        Self::batch(move |n| {
            for _ in 0..n {
                body();
            }
        })
    }

    pub(crate) fn batch(run: impl FnMut(usize) + 'static) -> Self {
        Self { run: Box::new(run), before: Box::new(|| ()) }
    }

    /// Returns a work with state that must be restored after each run.
    pub(crate) fn with_rest<S: 'static>(
        state: S,
        mut run: impl FnMut(&mut S, usize) + 'static,
        mut before: impl FnMut(&mut S) + 'static,
    ) -> Self {
        let state = Rc::new(RefCell::new(state));
        let same = Rc::clone(&state);
        Self {
            run: Box::new(move |n| run(&mut state.borrow_mut(), n)),
            before: Box::new(move || before(&mut same.borrow_mut())),
        }
    }
}

/// The works of a layer, with the names of their operations.
pub(crate) type Works = Vec<(&'static str, Work)>;

/// An operation, with the layers that implement it.
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    /// The calls of plain C.
    pub(crate) calls: &'static str,
    /// Number of repetitions in a batch.
    pub(crate) batch: usize,
    /// Maximum number of rounds.
    pub(crate) rounds: usize,
    /// Whether no context may be current.
    pub(crate) bare: bool,
    /// The number of graph nodes that an operation concerns, or 0.
    pub(crate) nodes: usize,
    pub(crate) works: Vec<(Layer, Work)>,
}

/// Returns the value, or exits after an error.
#[inline]
pub(crate) fn ok<T, E: Display>(result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => fail(&error),
    }
}

#[cold]
#[inline(never)]
pub(crate) fn fail(error: &dyn Display) -> ! {
    eprintln!("cuda-bench: {error}");
    std::process::exit(3)
}
