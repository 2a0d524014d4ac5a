//! The operations of tensors, for all executors.

use crate::backend::Backend;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::kernels::{Kernel, Kernels, THREADS};
use crate::tensor::{Tensor, elements};
use cuda_safe::LaunchConfig;

/// The part of an executor that differs between executors. The module is private, so only this crate
/// implements it, and the operations can rely on the memory.
pub trait Run {
    /// The memory of a tensor.
    type Memory<T: Element>;

    /// Returns the backend.
    fn backend(&self) -> &Backend;

    /// Allocates memory for exactly `len` elements.
    fn allocate<T: Element>(&mut self, len: usize) -> Result<Self::Memory<T>>;

    /// Launches a kernel with the arguments `(a, b, out, x, y, z)`.
    ///
    /// # Safety
    /// With these numbers, the kernel accesses the memory within its length.
    unsafe fn launch<T: Element>(
        &mut self,
        kernel: &Kernel<T>,
        config: LaunchConfig,
        inputs: [&Self::Memory<T>; 2],
        out: &mut Self::Memory<T>,
        numbers: [u32; 3],
    ) -> Result<()>;
}

/// The operations of tensors: [`Eager`](crate::Eager) enqueues them, and
/// [`Recording`](crate::Recording) records them.
///
/// Each operation allocates its result. All tensors must be bound to the stream of the executor; see
/// [`Eager::adopt`](crate::Eager::adopt).
pub trait Executor: Run + Sized {
    /// Adds two tensors of one shape, or a number to each element of `a`.
    ///
    /// # Errors
    /// [`Error::Shapes`]; errors of the driver and, at the first use of a type, of the compiler.
    fn add<T: Element>(
        &mut self,
        a: &Tensor<T, Self>,
        b: &Tensor<T, Self>,
    ) -> Result<Tensor<T, Self>> {
        elementwise(self, "add", |kernels| &kernels.add, [a, b])
    }

    /// Multiplies two tensors of one shape element by element, or each element of `a` by a number.
    ///
    /// # Errors
    /// See [`add`](Self::add).
    fn mul<T: Element>(
        &mut self,
        a: &Tensor<T, Self>,
        b: &Tensor<T, Self>,
    ) -> Result<Tensor<T, Self>> {
        elementwise(self, "mul", |kernels| &kernels.mul, [a, b])
    }

    /// Returns the larger elements of two tensors of one shape, or of a tensor and a number.
    ///
    /// # Errors
    /// See [`add`](Self::add).
    fn max<T: Element>(
        &mut self,
        a: &Tensor<T, Self>,
        b: &Tensor<T, Self>,
    ) -> Result<Tensor<T, Self>> {
        elementwise(self, "max", |kernels| &kernels.max, [a, b])
    }

    /// Adds the elements along the last dimension, which the result does not have.
    ///
    /// # Errors
    /// [`Error::Shapes`] if the tensor is a single number. See also [`add`](Self::add).
    fn sum<T: Element>(&mut self, a: &Tensor<T, Self>) -> Result<Tensor<T, Self>> {
        let Some((columns, outer)) = a.shape().split_last() else {
            return Err(refused("sum", [a, a]));
        };
        let (rows, columns) = (elements(outer)?, elements(&[*columns])?);
        let config = LaunchConfig::linear(rows, THREADS);
        // SAFETY: the kernel reads `rows * columns` elements of `a`, which has this shape, and writes one
        // element for each row.
        unsafe {
            launch(self, |kernels| &kernels.sum, config, [a, a], outer.to_vec(), [rows, columns, 0])
        }
    }

    /// Returns the product of two matrices.
    ///
    /// # Errors
    /// [`Error::Shapes`] if they are not a matrix of `r` by `k` and one of `k` by `c` elements. See also
    /// [`add`](Self::add).
    fn matmul<T: Element>(
        &mut self,
        a: &Tensor<T, Self>,
        b: &Tensor<T, Self>,
    ) -> Result<Tensor<T, Self>> {
        let (&[rows, inner], &[b_rows, columns]) = (a.shape(), b.shape()) else {
            return Err(refused("matmul", [a, b]));
        };
        if inner != b_rows {
            return Err(refused("matmul", [a, b]));
        }
        let shape = vec![rows, columns];
        let config = LaunchConfig::linear(elements(&shape)?.div_ceil(THREADS), THREADS);
        let numbers = [elements(&[rows])?, elements(&[inner])?, elements(&[columns])?];
        // SAFETY: the kernel reads matrices of `rows` by `inner` and of `inner` by `columns` elements, which
        // are the shapes of `a` and `b`, and writes one element for each element of `shape`.
        unsafe { launch(self, |kernels| &kernels.matmul, config, [a, b], shape, numbers) }
    }
}

impl<X: Run> Executor for X {}

fn elementwise<X: Executor, T: Element>(
    executor: &mut X,
    operation: &'static str,
    kernel: fn(&Kernels<T>) -> &Kernel<T>,
    [a, b]: [&Tensor<T, X>; 2],
) -> Result<Tensor<T, X>> {
    let step = match b.shape() {
        shape if shape == a.shape() => 1,
        [] => 0,
        _ => return Err(refused(operation, [a, b])),
    };
    let n = elements(a.shape())?;
    let config = LaunchConfig::linear(n.div_ceil(THREADS), THREADS);
    // SAFETY: the kernel accesses the first `n` elements of `a` and of the result, which has the shape of
    // `a`. It reads as many elements of `b` if the shapes are equal, and otherwise the first one.
    unsafe { launch(executor, kernel, config, [a, b], a.shape().to_vec(), [n, step, 0]) }
}

/// Allocates a tensor and launches the kernel that writes it. Nothing is launched for an empty tensor.
///
/// # Safety
/// With these numbers, the kernel accesses the elements of the tensors and of the result, and nothing
/// else.
unsafe fn launch<X: Executor, T: Element>(
    executor: &mut X,
    kernel: fn(&Kernels<T>) -> &Kernel<T>,
    config: LaunchConfig,
    [a, b]: [&Tensor<T, X>; 2],
    shape: Vec<usize>,
    numbers: [u32; 3],
) -> Result<Tensor<T, X>> {
    let len = elements(&shape)?;
    let mut out = executor.allocate(len as usize)?;
    if len != 0 {
        let kernels = executor.backend().kernels::<T>()?;
        // SAFETY: the caller guarantees this for the elements of the tensors, and their memory has as many.
        unsafe {
            executor.launch(kernel(&kernels), config, [&a.memory, &b.memory], &mut out, numbers)
        }?;
    }
    Ok(Tensor::new(shape, out))
}

fn refused<T: Element, X: Executor>(
    operation: &'static str,
    operands: [&Tensor<T, X>; 2],
) -> Error {
    Error::Shapes { operation, shapes: operands.map(|tensor| tensor.shape().to_vec()) }
}
