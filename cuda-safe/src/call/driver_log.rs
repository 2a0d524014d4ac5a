//! The reasons that the driver logs beside an error code.
//!
//! The driver keeps one log for the process, with the last 100 entries of all threads. It is read only
//! when an error value is made, so calls that succeed pay nothing. A failing call writes its entries on
//! its own thread before it returns: the reasons, if there are any, and then
//! `Returning 1 (CUDA_ERROR_INVALID_VALUE) from cuMemAlloc_v2`. An entry of a dump begins with
//! `[time][thread][CUDA][E]`.

use crate::call::error::Result;
use crate::call::function::fail;
use crate::call::zone::in_host_function;
use crate::call::{init, refuse_if};
use cuda_sys::{CUlogIterator, CUresult};
use std::sync::Arc;

/// The size of the driver's log with all entries is at most 25,600 bytes, and a line may precede it.
const MAX_BYTES: usize = 32 * 1024;
/// The function that reads the log.
const DUMP: &str = "cuLogsDumpToMemory";

/// Returns the reasons that the driver logged for a call that has just failed on this thread, one on each
/// line.
#[cold]
#[inline]
pub(crate) fn of_failure(call: &str, code: CUresult) -> Option<Arc<String>> {
    if !may_have_reasons(call, code) {
        return None;
    }
    // An error of the query is ignored: it would replace the error that the caller asks about.
    let dump = read(None).ok()?;
    let own = own_thread();
    let reasons = reasons(&dump, call, code, |thread| is_one_of(&own, thread))?;
    Some(Arc::new(reasons))
}

/// Returns whether the log of a failed call is worth reading, and reading it is safe.
#[inline]
fn may_have_reasons(call: &str, code: CUresult) -> bool {
    // Work that is not complete is no failure, and a driver that shuts down must not be called.
    if call == DUMP {
        return false;
    }
    let is_expected =
        matches!(code, CUresult::CUDA_ERROR_NOT_READY | CUresult::CUDA_ERROR_DEINITIALIZED);
    // A process that has locked itself blocks in every call until another thread unlocks it.
    let may_be_locked = call.starts_with("cuCheckpoint");
    !is_expected && !may_be_locked && init::is_initialized() && !in_host_function()
}

/// Returns the entries from `iterator` on, and advances it. Without an iterator, returns all entries.
#[inline]
pub(crate) fn dump(iterator: Option<&mut CUlogIterator>) -> Result<String> {
    read(iterator).map_err(|code| fail(DUMP, code))
}

#[inline]
fn read(iterator: Option<&mut CUlogIterator>) -> Result<String, CUresult> {
    let iterator = iterator.map_or(std::ptr::null_mut(), std::ptr::from_mut);
    let mut bytes = vec![0_u8; MAX_BYTES];
    let mut size = bytes.len();
    let start = bytes.as_mut_ptr().cast();
    // SAFETY: the iterator is null, which stands for all entries, or that of the caller, and the buffer
    // has `size` bytes.
    let code = unsafe { cuda_sys::cuLogsDumpToMemory(iterator, start, &raw mut size, 0) };
    refuse_if!(!code.is_success(), code);
    bytes.truncate(size);
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.trim_end_matches('\0').to_owned())
}

/// Returns the names that an entry may have for the calling thread: its number and its `pthread_t`. Both
/// forms are documented. On a system other than Linux, the result is empty.
#[inline]
fn own_thread() -> Vec<String> {
    #[cfg(target_os = "linux")]
    {
        unsafe extern "C" {
            // A POSIX function of the C library. `pthread_t` is an integer of this size on Linux.
            safe fn pthread_self() -> usize;
        }
        let number = std::fs::read_link("/proc/thread-self").ok();
        let number = number.as_deref().and_then(std::path::Path::file_name);
        let number = number.map(|name| name.to_string_lossy().into_owned());
        number.into_iter().chain([pthread_self().to_string()]).collect()
    }
    #[cfg(not(target_os = "linux"))]
    Vec::new()
}

/// Returns whether an entry of `thread` may belong to the thread with these names. If the names are unknown, every
/// entry may.
#[inline]
fn is_one_of(names: &[String], thread: &str) -> bool {
    names.is_empty() || names.iter().any(|name| name == thread)
}

/// Returns the entries that precede the last one of this thread, if that one is about this call and code.
fn reasons(
    dump: &str,
    call: &str,
    code: CUresult,
    is_own: impl Fn(&str) -> bool,
) -> Option<String> {
    let entries = entries(dump);
    let mut own =
        entries.iter().rev().filter(|entry| is_own(entry.thread)).map(|entry| entry.text.as_str());
    let last = own.next()?;
    let returned = returned(last)?;
    if returned != (code.0, without_version(call)) {
        return None;
    }
    let mut reasons: Vec<&str> = own.take_while(|text| self::returned(text).is_none()).collect();
    reasons.reverse();
    (!reasons.is_empty()).then(|| reasons.join("\n"))
}

/// Returns the code and the function, without its version, that the last entry of a failed call names.
#[inline]
fn returned(text: &str) -> Option<(u32, &str)> {
    let (_, rest) = text.split_once("Returning ")?;
    let (code, rest) = rest.split_once(" (")?;
    let (_, function) = rest.split_once(") from ")?;
    Some((code.parse().ok()?, without_version(function.trim_end())))
}

/// Removes the suffix of the version, as in `cuMemAlloc_v2`.
#[inline]
fn without_version(function: &str) -> &str {
    let version = function.rsplit_once("_v");
    match version {
        Some((name, number)) if number.parse::<u32>().is_ok() => name,
        _ => function,
    }
}

struct LogEntry<'a> {
    thread: &'a str,
    text: String,
}

/// Splits a dump into entries. A line without the four fields continues the entry before it.
#[inline]
fn entries(dump: &str) -> Vec<LogEntry<'_>> {
    let mut entries: Vec<LogEntry<'_>> = Vec::new();
    for line in dump.lines() {
        if let Some((thread, text)) = thread_and_text(line) {
            let text = text.to_owned();
            entries.push(LogEntry { thread, text });
        } else if let Some(last) = entries.last_mut() {
            last.text.push('\n');
            last.text.push_str(line);
        }
    }
    entries
}

/// Splits `[time][thread][CUDA][E] text`.
#[inline]
fn thread_and_text(line: &str) -> Option<(&str, &str)> {
    let (_time, rest) = field(line)?;
    let (thread, rest) = field(rest)?;
    let (_source, rest) = field(rest)?;
    let (_level, text) = field(rest)?;
    Some((thread, text.trim_start()))
}

/// Splits `[field]rest`.
#[inline]
fn field(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix('[')?.split_once(']')
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = "Log buffer has rolled over\n\
        [10:00:00.001][7][CUDA][E] Requested 0 byte allocation\n\
        [10:00:00.001][7][CUDA][E] Returning 1 (CUDA_ERROR_INVALID_VALUE) from cuMemAlloc_v2\n\
        [10:00:00.002][8][CUDA][E] Event handle is NULL\n\
        [10:00:00.003][7][CUDA][E] First line\n\
        second line\n\
        [10:00:00.003][7][CUDA][E] Another reason\n\
        [10:00:00.003][7][CUDA][E] Returning 1 (CUDA_ERROR_INVALID_VALUE) from cuMemAlloc_v2\n\
        [10:00:00.004][8][CUDA][E] Returning 400 (CUDA_ERROR_INVALID_HANDLE) from cuEventQuery\n";

    fn of(thread: &str, call: &str, code: CUresult) -> Option<String> {
        reasons(DUMP, call, code, |its| its == thread)
    }

    #[test]
    fn reasons_are_those_of_the_last_failure_of_the_thread() {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        let found = of("7", "cuMemAlloc_v2", invalid);
        let expected = "First line\nsecond line\nAnother reason";
        assert_eq!(found.as_deref(), Some(expected));
        let found = of("8", "cuEventQuery", CUresult::CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(found.as_deref(), Some("Event handle is NULL"));
    }

    #[test]
    fn an_entry_of_another_thread_is_recognized_unless_threads_have_no_names() {
        let names = ["7", "1234"].map(ToOwned::to_owned);
        assert_eq!(["7", "1234", "8"].map(|its| is_one_of(&names, its)), [true, true, false]);
        assert!(is_one_of(&[], "8"));
    }

    #[test]
    fn other_calls_codes_and_threads_have_no_reasons() {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        assert_eq!(of("7", "cuMemFree_v2", invalid), None);
        assert_eq!(of("7", "cuMemAlloc_v2", CUresult::CUDA_ERROR_UNKNOWN), None);
        assert_eq!(of("9", "cuMemAlloc_v2", invalid), None);
    }

    #[test]
    fn any_text_can_be_read() {
        for dump in ["", "[", "[a][b", "[a][b][c][d]", "x\n[a][b][c][d] Returning 1 ("] {
            let code = CUresult::CUDA_ERROR_INVALID_VALUE;
            assert_eq!(reasons(dump, "cuInit", code, |_| true), None);
        }
    }
}
