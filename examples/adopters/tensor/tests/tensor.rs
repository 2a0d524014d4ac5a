//! The backend on the GPU of this machine, or on the software driver.

#[path = "../../../../tests/common/mod.rs"]
mod common;

use std::sync::OnceLock;
use tensor_backend::{Backend, Eager, Element, Error, Executor, Result, Tensor};

/// Returns the backend of all tests, or reports a skip.
fn backend() -> Option<&'static Backend> {
    static BACKEND: OnceLock<Backend> = OnceLock::new();
    common::gpu()?;
    Some(BACKEND.get_or_init(|| Backend::with_pool(0).expect("a backend")))
}

/// Returns an executor of the calling thread.
fn eager() -> Option<Eager> {
    Some(backend()?.eager().expect("an executor"))
}

fn matrix<T: Element>(eager: &Eager, rows: usize, columns: usize, f: fn(usize) -> T) -> Tensor<T> {
    let values: Vec<T> = (0..rows * columns).map(f).collect();
    eager.tensor(&[rows, columns], &values).expect("as many values")
}

#[test]
fn elementwise_operations_accept_tensors_and_numbers() -> Result<()> {
    let Some(mut eager) = eager() else {
        return Ok(());
    };
    // More than one block, and not a multiple of one.
    let a = matrix(&eager, 7, 100, |i| i as i32 - 300);
    let b = matrix(&eager, 7, 100, |i| 2 * i as i32);
    let (two, zero) = (eager.tensor(&[], &[2])?, eager.tensor(&[], &[0])?);
    let sum = eager.add(&a, &b)?;
    let relu = eager.max(&sum, &zero)?;
    let doubled = eager.mul(&relu, &two)?;
    let expected: Vec<i32> = (0..700).map(|i| 2 * (3 * i - 300).max(0)).collect();
    assert_eq!(doubled.to_vec()?, expected);
    assert_eq!(doubled.shape(), [7, 100]);
    Ok(())
}

#[test]
fn a_sum_removes_the_last_dimension() -> Result<()> {
    let Some(mut eager) = eager() else {
        return Ok(());
    };
    // Rows that are longer than a block has threads.
    let a = matrix(&eager, 3, 1000, |i| (i / 1000 + 1) as f32);
    let rows = eager.sum(&a)?;
    assert_eq!((rows.shape(), rows.to_vec()?), (&[3][..], vec![1000.0, 2000.0, 3000.0]));
    let total = eager.sum(&rows)?;
    assert_eq!((total.shape(), total.to_vec()?), (&[][..], vec![6000.0]));
    assert_eq!(eager.sum(&a.reshape(&[3000])?)?.to_vec()?, [6000.0]);
    Ok(())
}

#[test]
fn a_product_of_matrices_is_that_of_the_host() -> Result<()> {
    let Some(mut eager) = eager() else {
        return Ok(());
    };
    let a = matrix(&eager, 17, 5, |i| i as f32);
    let b = matrix(&eager, 5, 23, |i| (i % 7) as f32);
    let product = eager.matmul(&a, &b)?;
    let (x, y) = (a.to_vec()?, b.to_vec()?);
    let element = |i: usize| (0..5).map(|k| x[i / 23 * 5 + k] * y[k * 23 + i % 23]).sum();
    let expected: Vec<f32> = (0..17 * 23).map(element).collect();
    assert_eq!(product.to_vec()?, expected);
    Ok(())
}

#[test]
fn empty_tensors_launch_nothing() -> Result<()> {
    let Some(mut eager) = eager() else {
        return Ok(());
    };
    let none = eager.tensor::<f32>(&[0, 4], &[])?;
    let sum = eager.add(&none, &none)?;
    assert!(sum.is_empty());
    let four = matrix(&eager, 4, 2, |i| i as f32);
    assert_eq!(eager.matmul(&none, &four)?.shape(), [0, 2]);
    // A sum over nothing is 0, and so is a product over nothing.
    assert_eq!(eager.sum(&none.reshape(&[2, 0])?)?.to_vec()?, [0.0, 0.0]);
    Ok(())
}

#[test]
fn errors_name_the_operation_and_the_shapes() -> Result<()> {
    let Some(mut eager) = eager() else {
        return Ok(());
    };
    let (a, b) = (matrix(&eager, 2, 3, |_| 1), matrix(&eager, 2, 2, |_| 1));
    let texts = [
        eager.add(&a, &b).expect_err("other shapes").to_string(),
        eager.matmul(&a, &b).expect_err("3 is not 2").to_string(),
        eager.tensor(&[4], &[1, 2]).expect_err("2 values").to_string(),
        a.reshape(&[7]).expect_err("6 elements").to_string(),
        eager.tensor::<i32>(&[1 << 20, 1 << 20], &[]).expect_err("2^40 elements").to_string(),
    ];
    assert_eq!(
        texts,
        [
            "add does not accept the shapes [2, 3] and [2, 2]",
            "matmul does not accept the shapes [2, 3] and [2, 2]",
            "the shape [4] does not have 2 elements",
            "reshape does not accept the shapes [2, 3] and [7]",
            "the shape [1048576, 1048576] has more than 2147483647 elements",
        ]
    );
    Ok(())
}

/// A layer of a network, for any executor.
fn layer<X: Executor>(x: &mut X, inputs: [&Tensor<f32, X>; 4]) -> Result<Tensor<f32, X>> {
    let [input, weights, bias, zero] = inputs;
    let product = x.matmul(input, weights)?;
    let shifted = x.add(&product, bias)?;
    let active = x.max(&shifted, zero)?;
    x.sum(&active)
}

#[test]
fn a_recorded_function_replays_with_new_inputs() -> Result<()> {
    let Some(backend) = backend() else {
        return Ok(());
    };
    let mut eager = backend.eager()?;
    let tensors = |eager: &Eager, first: f32| -> Result<[Tensor<f32>; 4]> {
        let values: Vec<f32> = (0..8 * 4).map(|i| first + i as f32).collect();
        Ok([
            eager.tensor(&[8, 4], &values)?,
            matrix(eager, 4, 6, |i| 3.0 - i as f32),
            eager.tensor(&[], &[5.0])?,
            eager.tensor(&[], &[0.0])?,
        ])
    };
    let mut recording = backend.record()?;
    let [input, weights, bias, zero] = tensors(&eager, 0.0)?;
    let mut input = recording.input(input)?;
    let others = [weights, bias, zero].map(|tensor| recording.input(tensor));
    let [weights, bias, zero] = others;
    let output = layer(&mut recording, [&input, &weights?, &bias?, &zero?])?;
    let mut replay = recording.finish()?;
    for first in [-20.0, 0.0, 7.0] {
        let [expected_input, weights, bias, zero] = tensors(&eager, first)?;
        let expected = layer(&mut eager, [&expected_input, &weights, &bias, &zero])?;
        replay.write(&mut input, &expected_input.to_vec()?)?;
        // The second run computes the same again from the same memory.
        replay.run()?;
        replay.run()?;
        assert_eq!(replay.read(&output)?, expected.to_vec()?, "{first}");
    }
    let wrong = replay.write(&mut input, &[1.0]).expect_err("one value");
    assert!(matches!(wrong, Error::Length { values: 1, .. }), "{wrong}");
    Ok(())
}

#[test]
fn threads_have_streams_and_pass_tensors_to_each_other() -> Result<()> {
    let Some(backend) = backend() else {
        return Ok(());
    };
    let mut eager = backend.eager()?;
    let mut made = std::thread::scope(|scope| {
        let made = scope.spawn(|| {
            let mut eager = backend.eager()?;
            let a = matrix(&eager, 10, 10, |i| i as i32);
            eager.add(&a, &a)
        });
        made.join().expect("no panic")
    })?;
    let mine = matrix(&eager, 10, 10, |_| 1);
    let refused = eager.add(&mine, &made).expect_err("a tensor of another stream");
    let text = refused.to_string();
    assert!(text.contains("argument 1 (zero-based) of kernel \"add_i32\""), "{text}");
    eager.adopt(&mut made)?;
    let expected: Vec<i32> = (0..100).map(|i| 2 * i + 1).collect();
    assert_eq!(eager.add(&mine, &made)?.to_vec()?, expected);
    Ok(())
}

#[test]
fn memory_of_dropped_tensors_is_reused() -> Result<()> {
    let Some(backend) = backend() else {
        return Ok(());
    };
    let mut eager = backend.eager()?;
    let a = matrix(&eager, 64, 64, |i| i as f32);
    drop(eager.add(&a, &a)?);
    let before = backend.memory()?.expect("the pool is set").hits;
    for _ in 0..10 {
        drop(eager.add(&a, &a)?);
    }
    let after = backend.memory()?.expect("the pool is set").hits;
    assert!(after >= before + 10, "{before} hits, then {after}");
    Ok(())
}
