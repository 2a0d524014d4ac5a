//! Executing operations at once, on a stream.

use crate::backend::Backend;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::executor::Run;
use crate::kernels::Kernel;
use crate::tensor::{Tensor, elements};
use cuda_safe::{DeviceBuffer, LaunchConfig, Stream};

/// Enqueues operations on the stream of the thread that created it. Returned by [`Backend::eager`].
#[derive(Debug)]
pub struct Eager {
    backend: Backend,
    stream: Stream,
}

impl Eager {
    pub(crate) fn new(backend: Backend, stream: Stream) -> Self {
        Self { backend, stream }
    }

    /// Copies values to a new tensor. Blocks until the copy and the earlier work of this executor have
    /// completed.
    ///
    /// # Errors
    /// [`Error::Length`]; errors of the driver.
    pub fn tensor<T: Element>(&self, shape: &[usize], values: &[T]) -> Result<Tensor<T>> {
        if elements(shape)? as usize != values.len() {
            return Err(Error::Length { shape: shape.to_vec(), values: values.len() });
        }
        let memory = DeviceBuffer::from_slice(&self.stream, values)?;
        Ok(Tensor::new(shape.to_vec(), memory))
    }

    /// Moves a tensor from the stream of another thread to this executor. The stream waits for the work
    /// on the tensor, and the host does not.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn adopt<T: Element>(&self, tensor: &mut Tensor<T>) -> Result<()> {
        Ok(tensor.memory.rebind(&self.stream)?)
    }

    /// Blocks until all work of this executor has completed.
    ///
    /// # Errors
    /// Errors of the driver, including those of earlier work.
    pub fn synchronize(&self) -> Result<()> {
        Ok(self.stream.synchronize()?)
    }
}

impl Run for Eager {
    type Memory<T: Element> = DeviceBuffer<T>;

    fn backend(&self) -> &Backend {
        &self.backend
    }

    fn allocate<T: Element>(&mut self, len: usize) -> Result<DeviceBuffer<T>> {
        Ok(DeviceBuffer::uninit(&self.stream, len)?)
    }

    unsafe fn launch<T: Element>(
        &mut self,
        kernel: &Kernel<T>,
        config: LaunchConfig,
        [a, b]: [&DeviceBuffer<T>; 2],
        out: &mut DeviceBuffer<T>,
        [x, y, z]: [u32; 3],
    ) -> Result<()> {
        // SAFETY: the caller guarantees that the kernel stays within the memory. It writes numbers, and
        // every bit pattern is valid for an element.
        Ok(unsafe { kernel.launch(&self.stream, config, (a, b, out, x, y, z)) }?)
    }
}

impl<T: Element> Tensor<T> {
    /// Returns the elements. Blocks until the work on the tensor's stream has completed.
    ///
    /// # Errors
    /// Errors of the driver, including those of earlier work.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        Ok(self.memory.to_vec()?)
    }
}
