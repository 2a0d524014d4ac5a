//! Streams, of this crate and of other code, and what their work finds in memory.

use crate::common::random::Random;
use cuda_safe::manager::StreamEnd;
use cuda_safe::sys::{CUstream, CUstream_flags, cuStreamCreate, cuStreamDestroy_v2};
use cuda_safe::{Context, DeviceBuffer, DeviceSlice, Stream};

/// The tags that the work of a stream has found.
pub(super) struct Log {
    pub(super) found: DeviceBuffer<u32>,
    expected: Vec<u32>,
    pub(super) stream: Stream,
    /// Declared last, so that it is dropped after the objects that use the stream.
    lent: Option<Lent>,
}

/// A stream that other code owns.
struct Lent {
    raw: CUstream,
    context: Context,
}

impl Drop for Lent {
    fn drop(&mut self) {
        // Memory was freed in the order of this stream, which was declared persistent.
        let manager = self.context.memory_manager().expect("made");
        // SAFETY: the stream is alive and not captured, and no other thread uses it.
        let end = unsafe { StreamEnd::of_raw(self.raw) };
        end.notify(manager.expect("chosen"));
        // SAFETY: everything that was created with the stream is dropped.
        let code = unsafe { cuStreamDestroy_v2(self.raw) };
        assert!(code.is_success() || std::thread::panicking(), "{code}");
    }
}

pub(super) const LOG: usize = 512;

impl Log {
    /// Creates the log of a stream of this crate, or of a borrowed stream that is destroyed at the
    /// end.
    pub(super) fn new(context: &Context, is_lent: bool) -> Self {
        if !is_lent {
            return Self::of(context.stream().expect("a stream"), None);
        }
        let (mut raw, flags) = (std::ptr::null_mut(), CUstream_flags::CU_STREAM_NON_BLOCKING);
        let create = |_: &_| {
            // SAFETY: the pointer refers to a local variable, and a context is current.
            unsafe { cuStreamCreate(&raw mut raw, flags.0) }
        };
        let code = context.with_current(create).expect("current");
        assert!(code.is_success(), "{code}");
        let context = context.clone();
        // SAFETY: the stream was just created, and is destroyed after everything that is created
        // with it.
        let stream = unsafe { Stream::borrow_raw(raw, &context) };
        Self::of(stream.expect("not a default stream"), Some(Lent { raw, context }))
    }

    fn of(stream: Stream, lent: Option<Lent>) -> Self {
        Self {
            found: DeviceBuffer::zeroed(&stream, LOG).expect("memory"),
            expected: Vec::new(),
            stream,
            lent,
        }
    }

    pub(super) fn is_lent(&self) -> bool {
        self.lent.is_some()
    }

    /// Makes the stream copy the tags at both ends of its memory.
    pub(super) fn look(&mut self, memory: &DeviceBuffer<u32>, tag: u32) {
        if self.expected.len() + 2 > LOG {
            self.compare();
        }
        for place in [0, memory.len() - 1] {
            self.copy(memory.slice(place..=place).expect("within"), tag);
        }
    }

    fn copy(&mut self, element: DeviceSlice<'_, u32>, tag: u32) {
        let end = self.expected.len();
        let target = self.found.slice_mut(end..=end);
        target.and_then(|mut its| its.copy_from(element)).expect("a copy");
        self.expected.push(tag);
    }

    /// Compares the tags that were found with the expected ones.
    pub(super) fn compare(&mut self) {
        let found = self.found.to_vec().expect("a copy");
        assert_eq!(found[..self.expected.len()], self.expected);
        self.expected.clear();
    }
}

/// Returns the log of a stream.
pub(super) fn log_of<'a>(logs: &'a mut [Log], stream: &Stream) -> &'a mut Log {
    let log = logs.iter_mut().find(|log| log.stream == *stream);
    log.expect("streams outlive their memory")
}

/// Returns one of the streams.
pub(super) fn any(logs: &[Log], random: &mut Random) -> Stream {
    logs[random.below(logs.len())].stream.clone()
}

/// Returns one of the streams of this crate.
pub(super) fn any_own<'a>(logs: &'a [Log], random: &mut Random) -> &'a Stream {
    let own: Vec<&Log> = logs.iter().filter(|log| !log.is_lent()).collect();
    &own[random.below(own.len())].stream
}
