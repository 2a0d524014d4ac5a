//! What the wrappers of `examples/libraries` do, with NVIDIA's libraries or with functions that play them.

#[path = "../../examples/libraries/cublas.rs"]
pub(crate) mod cublas;
#[path = "../../examples/libraries/cufft.rs"]
pub(crate) mod cufft;

use cublas::Blas;
use cuda_safe::{DeviceBuffer, Stream};
use cufft::Transform;

pub(crate) fn products_are_ordered_with_the_work_of_the_stream(stream: &Stream, other: &Stream) {
    let mut blas = Blas::new(stream).expect("a handle");
    let a = DeviceBuffer::from_slice(stream, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).expect("a matrix");
    let b = DeviceBuffer::from_slice(stream, &[1.0, 0.0, 0.0, 1.0, 2.0, 2.0]).expect("a matrix");
    let mut c = DeviceBuffer::<f32>::zeroed(stream, 4).expect("a matrix");
    // SAFETY: no stream of this test is captured.
    unsafe { blas.multiply([2, 2, 3], [&a, &b], &mut c) }.expect("a product");
    // No wait is between the product and the copy.
    assert_eq!(c.to_vec().expect("a copy"), [7.0, 8.0, 16.0, 17.0]);

    // SAFETY: as above.
    let error = unsafe { blas.multiply([2, 2, 2], [&a, &b], &mut c) }.expect_err("another size");
    assert!(error.to_string().contains("another size"), "{error}");
    let elsewhere = DeviceBuffer::<f32>::zeroed(other, 6).expect("a matrix");
    // SAFETY: as above.
    let error = unsafe { blas.multiply([2, 2, 3], [&a, &elsewhere], &mut c) };
    let error = error.expect_err("another stream");
    assert!(error.to_string().contains("another stream"), "{error}");
}

pub(crate) fn transforms_are_ordered_with_the_work_of_the_stream(stream: &Stream, other: &Stream) {
    let mut transform = Transform::new(stream, 4).expect("a plan");
    let impulse = [[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 0.0]];
    let mut data = DeviceBuffer::from_slice(stream, &impulse).expect("data");
    // SAFETY: no stream of this test is captured.
    unsafe { transform.run(&mut data, false) }.expect("a transform");
    close(&data, &[[1.0, 0.0], [0.0, -1.0], [-1.0, 0.0], [0.0, 1.0]]);
    // SAFETY: as above.
    unsafe { transform.run(&mut data, true) }.expect("a transform");
    close(&data, &impulse.map(|[re, im]| [4.0 * re, 4.0 * im]));

    for mut wrong in
        [DeviceBuffer::zeroed(stream, 3), DeviceBuffer::zeroed(other, 4)].map(Result::unwrap)
    {
        // SAFETY: as above.
        unsafe { transform.run(&mut wrong, false) }.expect_err("another size or stream");
    }
}

#[track_caller]
fn close(data: &DeviceBuffer<[f32; 2]>, expected: &[[f32; 2]]) {
    let data = data.to_vec().expect("a copy");
    let pairs = data.as_flattened().iter().zip(expected.as_flattened());
    assert!(
        pairs.into_iter().all(|(a, b)| (a - b).abs() < 1e-5),
        "{data:?} instead of {expected:?}"
    );
}
