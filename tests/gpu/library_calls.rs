//! NVIDIA's libraries on streams of this crate.

use crate::libraries::{self, cublas::CUBLAS, cufft::CUFFT};
use crate::{common, or_skip};
use cuda_safe::sys::Library;
use cuda_safe::{Context, Stream};

/// Returns two streams, or reports a skip if there is no GPU or the library is missing.
fn streams(library: &Library) -> Option<[Stream; 2]> {
    let device = common::real_gpu()?;
    if let Err(error) = library.load() {
        common::skip(&error.to_string());
        return None;
    }
    let context = Context::primary(&device).expect("a context");
    Some([(); 2].map(|()| context.stream().expect("a stream")))
}

#[test]
fn cublas_works_on_a_stream() {
    let [stream, other] = or_skip!(streams(&CUBLAS));
    libraries::products_are_ordered_with_the_work_of_the_stream(&stream, &other);
}

#[test]
fn cufft_works_on_a_stream() {
    let [stream, other] = or_skip!(streams(&CUFFT));
    libraries::transforms_are_ordered_with_the_work_of_the_stream(&stream, &other);
}
