//! The log of failed calls, and the callbacks that receive its entries.
//!
//! A failing call writes its reasons, if it has any, and one entry with its code and name. Reasons are
//! written for some failures only; a real driver has more.

use crate::state::handles::Handles;
use crate::state::world::lock;
use cuda_sys::{CUlogLevel, CUlogsCallback, CUresult, CudaVersion};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{CString, c_void};
use std::mem::ManuallyDrop;

/// The number of entries that the log keeps.
const CAPACITY: usize = 100;
const SINCE: CudaVersion = CudaVersion::new(12, 9);

thread_local! {
    /// The reasons of the current call. Never dropped, because a program may still call the driver when the
    /// thread-local variables of the thread are destroyed.
    static REASONS: ManuallyDrop<RefCell<Vec<String>>> =
        const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

/// Notes why the current call fails. If the call succeeds, nothing is logged.
pub(crate) fn because(reason: impl Into<String>) {
    let reason = reason.into();
    // A call after the end of the thread's variables is logged without its reasons.
    let _ = REASONS.try_with(|reasons| reasons.borrow_mut().push(reason));
}

pub(crate) struct ErrorLog {
    entries: VecDeque<String>,
    /// The number of entries written so far. An iterator is such a number.
    pub(crate) written: u32,
    pub(crate) callbacks: Handles<Callback>,
}

/// A registered callback.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callback {
    pub(crate) function: CUlogsCallback,
    pub(crate) data: *mut c_void,
}

// SAFETY: the program that registers a callback promises that it can be called on any thread.
unsafe impl Send for Callback {}

impl ErrorLog {
    pub(crate) fn new() -> Self {
        Self { entries: VecDeque::new(), written: 0, callbacks: Handles::new(31) }
    }

    fn write(&mut self, text: &str) {
        if self.entries.len() == CAPACITY {
            self.entries.pop_front();
        }
        let thread = own_thread();
        // The time is constant, so that a log can be compared.
        self.entries.push_back(format!("[00:00:00.000][{thread}][CUDA][E] {text}\n"));
        self.written += 1;
    }

    /// Returns the entries from an iterator on.
    pub(crate) fn dump(&self, from: u32) -> String {
        let first = self.written - self.entries.len() as u32;
        let mut text = String::new();
        if from < first {
            text.push_str("Log buffer has rolled over and earlier entries are lost\n");
        }
        let lost = from.saturating_sub(first) as usize;
        text.extend(self.entries.iter().skip(lost).map(String::as_str));
        text
    }
}

/// The name of the calling thread in the log.
fn own_thread() -> usize {
    #[cfg(unix)]
    {
        unsafe extern "C" {
            // A POSIX function of the C library. `pthread_t` has the size of a pointer.
            safe fn pthread_self() -> usize;
        }
        pthread_self()
    }
    #[cfg(not(unix))]
    1
}

/// Logs a failed call, and runs the callbacks on this thread, without the lock. A failing call in a
/// callback runs the callbacks again.
pub(crate) fn note(function: &str, code: CUresult) {
    let reasons = REASONS.try_with(|reasons| std::mem::take(&mut *reasons.borrow_mut()));
    // Unverified: a query of work that is not complete is not logged.
    if code.is_success() || code == CUresult::CUDA_ERROR_NOT_READY {
        return;
    }
    let mut entries = reasons.unwrap_or_default();
    let name = code.name().unwrap_or("unknown error");
    entries.push(format!("Returning {} ({name}) from {function}", code.0));
    let callbacks: Vec<Callback> = {
        let mut locked = lock();
        let has_log = |world: &&mut crate::state::World| {
            world.settings.initialised && world.settings.profile.driver >= SINCE
        };
        let Some(world) = locked.as_mut().filter(has_log) else {
            return;
        };
        let log = &mut world.settings.error_log;
        entries.iter().for_each(|text| log.write(text));
        log.callbacks.iter().map(|(_, callback)| *callback).collect()
    };
    for text in entries {
        let length = text.len();
        let Ok(text) = CString::new(text) else {
            continue;
        };
        for Callback { function, data } in &callbacks {
            if let Some(function) = function {
                let level = CUlogLevel::CU_LOG_LEVEL_ERROR;
                // SAFETY: the program registered a callback with its argument, and the text ends with a
                // NUL.
                unsafe { function(*data, level, text.as_ptr().cast_mut(), length) };
            }
        }
    }
}
