//! Python objects that are created once and then kept.
//!
//! In `PyO3`'s `PyOnceLock`, and therefore in its `intern!`, a thread may wait for the GIL during
//! the initialization. A child process that is forked while a thread waits finds the initialization
//! in progress and blocks forever. Here each initialization completes before the GIL is released, and
//! Python does not fork without the GIL.

use pyo3::prelude::*;
use pyo3::types::PyString;
use std::sync::OnceLock;

/// A cell that is initialized at its first use. If two threads initialize it, the cell keeps the
/// value that is stored first.
pub(crate) struct Once<T>(OnceLock<T>);

impl<T> Once<T> {
    pub(crate) const fn new() -> Self {
        Self(OnceLock::new())
    }

    pub(crate) fn get(&self) -> Option<&T> {
        self.0.get()
    }

    /// Stores a value unless one is already stored, and returns the stored value.
    pub(crate) fn keep(&self, _has_the_gil: Python<'_>, value: T) -> &T {
        self.0.get_or_init(|| value)
    }
}

/// An interned Python string, for [`intern!`].
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

/// Replaces `pyo3::intern!`, which can block forever in a forked child process.
macro_rules! intern {
    ($py:expr, $text:literal) => {{
        static INTERNED: $crate::lifetime::once::Interned =
            $crate::lifetime::once::Interned::new($text);
        INTERNED.get($py)
    }};
}
pub(crate) use intern;
