//! Errors in a library whose error type implements only `From<cuda_safe::Error>`.

use crate::common;
use crate::green::resource_alone;
use crate::module::kernels::pinned;
use cuda_safe::capture::{CaptureMode, CaptureStatus};
use cuda_safe::green::{GreenContext, PartitionRequest, PartitionSize, SmResource, SplitByCount};
use cuda_safe::memory::{MappedBuffer, PinnedRange};
use cuda_safe::{Context, DeviceBuffer, Error, Invalid, PinnedBuffer, Stream};

/// The crate `thiserror` would derive the conversion from `#[from] cuda_safe::Error`.
#[derive(Debug, PartialEq)]
enum LibraryError {
    Cuda(Error),
    Empty,
}

impl From<Error> for LibraryError {
    fn from(error: Error) -> Self {
        Self::Cuda(error)
    }
}

type Result<T> = std::result::Result<T, LibraryError>;

/// Moves the elements through each kind of memory, with one `?` after each call.
fn through_all_memory(context: &Context, elements: Vec<u32>) -> Result<Vec<u32>> {
    let (first, second) = (context.stream()?, context.stream()?);
    let mut buffer = DeviceBuffer::from_slice(&first, &elements)?.cast::<[u16; 2]>()?;
    buffer.rebind(&second)?;
    let shared = buffer.cast::<u32>()?.share()?;
    let mut copy = DeviceBuffer::<u32>::uninit(&first, shared.len())?;
    copy.copy_from(&shared.on(&first)?)?;
    let host = PinnedBuffer::zeroed(context, copy.len())?;
    let host = copy.copy_to_pinned(host)?.synchronize()?;
    let host = PinnedRange::join(host.into_chunks(2)?)?;
    let mut host = MappedBuffer::new(host, &second)?.into_pinned()?;
    first.copy_scope(|scope| scope.copy_to_pinned(&copy, &mut host))?;
    let pending = copy.copy_from_pinned(PinnedBuffer::register(context, host.to_vec())?)?;
    Ok(pending.synchronize()?.unregister()?)
}

fn partitioned(resource: &SmResource) -> Result<Vec<Stream>> {
    let request =
        PartitionRequest { sizes: vec![PartitionSize::Rest], ..PartitionRequest::default() };
    let mut streams = Vec::new();
    for part in resource.partition(&request)?.parts {
        streams.push(part.create()?.stream()?);
    }
    drop(streams);
    let split = resource.split_by_count(SplitByCount::default())?;
    Ok(vec![GreenContext::new(split.groups.into_iter().take(1))?.stream()?])
}

#[test]
fn one_question_mark_converts_each_error() {
    let context = or_skip!(common::context());
    let elements = vec![1, 2, 3, 4, u32::MAX];
    assert_eq!(through_all_memory(&context, elements.clone()), Ok(elements));

    let stream = context.stream().expect("a stream");
    let memory = DeviceBuffer::<u8>::zeroed(&stream, 6).expect("memory");
    let share = || -> Result<()> {
        // SAFETY: the memory outlives the borrowed buffer and is not used meanwhile.
        let borrowed = unsafe { DeviceBuffer::<u8>::borrow_raw(memory.as_raw(), 6, &stream) };
        borrowed?.share()?;
        Ok(())
    };
    let foreign = LibraryError::Cuda(Invalid::ForeignMemory.into());
    assert_eq!(share(), Err(foreign));
}

#[test]
fn one_question_mark_converts_each_error_of_partitions() {
    let (_alone, resource) = or_skip!(resource_alone());
    let streams = partitioned(&resource).expect("a partition");
    assert!(matches!(
        partitioned(&resource).expect_err("the stream is alive"),
        LibraryError::Cuda(Error::Invalid(why)) if matches!(*why, Invalid::SplitInUse { .. })
    ));
    drop(streams);
}

#[test]
fn closures_of_captures_and_scopes_return_the_error_of_a_library() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let mut buffer = DeviceBuffer::from_slice(&stream, &[7; 4]).expect("a copy");
    let graph = stream.capture(CaptureMode::default(), |_| {
        buffer.fill(8)?;
        Err(LibraryError::Empty)
    });
    assert_eq!(graph.expect_err("of the closure"), LibraryError::Empty);
    assert_eq!(stream.capture_status().expect("a status"), CaptureStatus::None);

    let mut host = pinned(&context, &[0; 4]);
    let copied: Result<()> = stream.copy_scope(|scope| {
        scope.copy_to_pinned(&buffer, &mut host)?;
        Err(LibraryError::Empty)
    });
    assert_eq!(copied, Err(LibraryError::Empty));
    // The scope has waited for its copy, and the fill was only captured.
    assert_eq!(*host, [7; 4]);
}
