//! What is measured: pieces of work, each of which several layers can do.

use std::cell::RefCell;
use std::fmt::Display;
use std::rc::Rc;

/// Who does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Layer {
    C,
    /// The same once more: what equals differ by.
    CAgain,
    Sys,
    Safe,
    /// cudarc as it starts: on the default stream, nothing tracked.
    Cudarc,
    /// cudarc once a stream was created: it tracks every use of memory by events.
    CudarcStreams,
}

impl Layer {
    pub(crate) const ALL: [Self; 6] = [
        Self::C,
        Self::CAgain,
        Self::Sys,
        Self::Safe,
        Self::Cudarc,
        Self::CudarcStreams,
    ];

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

/// One layer's way to do a piece of work.
pub(crate) struct Work {
    /// Does it so many times. This is what is measured.
    pub(crate) run: Box<dyn FnMut(usize)>,
    /// Makes it possible again. Everything given to the device is done by then.
    pub(crate) after: Box<dyn FnMut()>,
}

impl Work {
    /// Work that is the body of a loop.
    pub(crate) fn each(mut body: impl FnMut() + 'static) -> Self {
        Self::batch(move |n| {
            for _ in 0..n {
                body();
            }
        })
    }

    pub(crate) fn batch(run: impl FnMut(usize) + 'static) -> Self {
        Self {
            run: Box::new(run),
            after: Box::new(|| ()),
        }
    }

    /// Work that uses up, and leaves behind, what has to be dealt with afterwards.
    pub(crate) fn with_rest<S: 'static>(
        state: S,
        mut run: impl FnMut(&mut S, usize) + 'static,
        mut after: impl FnMut(&mut S) + 'static,
    ) -> Self {
        let state = Rc::new(RefCell::new(state));
        let same = Rc::clone(&state);
        Self {
            run: Box::new(move |n| run(&mut state.borrow_mut(), n)),
            after: Box::new(move || after(&mut same.borrow_mut())),
        }
    }
}

/// The works of a layer, by the name of the operation.
pub(crate) type Works = Vec<(&'static str, Work)>;

/// A piece of work, and who can do it.
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    /// What plain C calls.
    pub(crate) calls: &'static str,
    /// How often it is done in a row.
    pub(crate) batch: usize,
    /// Rounds, at most.
    pub(crate) rounds: usize,
    /// Whether no context is to be current.
    pub(crate) bare: bool,
    pub(crate) works: Vec<(Layer, Work)>,
}

/// The value, or the end of the program.
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
