//! The log of failed calls.

use crate::api::prelude::*;
use crate::state::handles::State;
use crate::state::process::error_log::{Callback, because};
use core::ffi::CStr;
use cuda_sys::{CUlogIterator, CUlogsCallback, CUlogsCallbackHandle};

pub(crate) fn register(
    world: &mut World,
    function: CUlogsCallback,
    data: *mut c_void,
    handle: Out<CUlogsCallbackHandle>,
) -> Answer {
    function.ok_or(INVALID)?;
    let callback = Callback { function, data };
    handle.put(pointer(world.settings.error_log.callbacks.insert(callback)))
}

pub(crate) fn unregister(world: &mut World, handle: CUlogsCallbackHandle) -> Answer {
    let callbacks = &mut world.settings.error_log.callbacks;
    match callbacks.state(handle.addr()) {
        State::Alive => {
            callbacks.remove(handle.addr());
            return Ok(());
        }
        State::Dead => misuse(
            "a log callback is unregistered twice; a real driver uses the freed entry and crashes",
        ),
        State::Unknown => misuse(
            "a handle that is not a log callback is unregistered; a real driver dereferences it and \
             crashes",
        ),
    }
    Err(INVALID)
}

/// A real driver accepts the flag 1 too, although the documentation forbids it.
pub(crate) fn current(world: &mut World, _flags: c_uint) -> Answer<CUlogIterator> {
    Ok(world.settings.error_log.written)
}

pub(crate) fn dump_to_memory(
    world: &mut World,
    iterator: &mut Option<&mut CUlogIterator>,
    buffer: *mut c_char,
    size: &mut Option<&mut usize>,
    _flags: c_uint,
) -> Answer {
    let size = size.as_deref_mut().ok_or(INVALID)?;
    if buffer.is_null() {
        because("buffer cannot be NULL");
        return Err(INVALID);
    }
    let text = entries(world, iterator.as_deref())?;
    let room = std::mem::replace(size, 0).saturating_sub(1);
    let mut shown = text.as_str();
    while shown.len() > room {
        // The last entries are written.
        shown = shown.split_once('\n').map_or("", |(_, rest)| rest);
    }
    fail_if(shown.is_empty() && !text.is_empty(), INVALID)?;
    // SAFETY: the caller guarantees a buffer of `size` bytes, and the text is shorter.
    unsafe { buffer.cast::<u8>().copy_from_nonoverlapping(shown.as_ptr(), shown.len()) };
    // SAFETY: the buffer has more than `shown.len()` bytes, unless it has none.
    let end = unsafe { buffer.add(shown.len()) };
    if room != 0 {
        // SAFETY: see above.
        unsafe { end.write(0) };
    }
    *size = shown.len();
    advance(world, iterator);
    Ok(())
}

pub(crate) fn dump_to_file(
    world: &mut World,
    iterator: &mut Option<&mut CUlogIterator>,
    path: *const c_char,
    _flags: c_uint,
) -> Answer {
    fail_if(path.is_null(), INVALID)?;
    // SAFETY: the caller guarantees a string that ends with a NUL.
    let path = unsafe { CStr::from_ptr(path) };
    let path = path.to_str().map_err(|_| INVALID)?;
    let text = entries(world, iterator.as_deref())?;
    // Unverified: the code for a file that cannot be written.
    std::fs::write(path, text).map_err(|_| INVALID)?;
    advance(world, iterator);
    Ok(())
}

/// Returns the entries from an iterator on, or all of them.
fn entries(world: &World, iterator: Option<&CUlogIterator>) -> Answer<String> {
    match iterator {
        Some(from) if *from > world.settings.error_log.written => {
            because("the iterator is beyond the end of the log");
            Err(INVALID)
        }
        from => Ok(world.settings.error_log.dump(from.copied().unwrap_or(0))),
    }
}

fn advance(world: &World, iterator: &mut Option<&mut CUlogIterator>) {
    if let Some(iterator) = iterator {
        **iterator = world.settings.error_log.written;
    }
}
