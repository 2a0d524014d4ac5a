//! What is made of Python's objects once, and kept.
//!
//! In `PyO3`'s `PyOnceLock`, and so in its `intern!`, a thread that has begun waits for the GIL: a child that is
//! forked just then finds it begun for ever, and waits. Here nothing is begun but what comes to its end before
//! the GIL is let go of, without which Python does not fork.

use pyo3::prelude::*;
use pyo3::types::PyString;
use std::sync::OnceLock;

/// A place for what is made at its first use. Two threads may make it; the first one's is kept.
pub(crate) struct Once<T>(OnceLock<T>);

impl<T> Once<T> {
    pub(crate) const fn new() -> Self {
        Self(OnceLock::new())
    }

    pub(crate) fn get(&self) -> Option<&T> {
        self.0.get()
    }

    /// What is kept: this, unless another was before.
    pub(crate) fn keep(&self, _has_the_gil: Python<'_>, value: T) -> &T {
        self.0.get_or_init(|| value)
    }
}

/// A string of Python's, for [`intern!`].
pub(crate) struct Interned {
    text: &'static str,
    made: Once<Py<PyString>>,
}

impl Interned {
    pub(crate) const fn new(text: &'static str) -> Self {
        let made = Once::new();
        Self { text, made }
    }

    pub(crate) fn get<'py>(&self, py: Python<'py>) -> &Bound<'py, PyString> {
        let made = self.made.get();
        let made = made.unwrap_or_else(|| {
            let made = PyString::intern(py, self.text);
            self.made.keep(py, made.unbind())
        });
        made.bind(py)
    }
}

/// `pyo3::intern!`, for programs that fork.
macro_rules! intern {
    ($py:expr, $text:literal) => {{
        static INTERNED: $crate::once::Interned = $crate::once::Interned::new($text);
        INTERNED.get($py)
    }};
}
pub(crate) use intern;
