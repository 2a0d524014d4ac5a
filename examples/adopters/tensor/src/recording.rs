//! Recording operations as a graph, and launching it again and again.

use crate::backend::Backend;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::executor::Run;
use crate::kernels::Kernel;
use crate::tensor::Tensor;
use cuda_safe::graph::{GraphBuffer, GraphRecorder};
use cuda_safe::{ExecutableGraph, LaunchConfig, Stream};

/// Records operations as a graph, which owns the memory of all its tensors. Returned by
/// [`Backend::record`].
#[derive(Debug)]
pub struct Recording {
    backend: Backend,
    recorder: GraphRecorder,
}

/// A recorded sequence of operations. Each run executes it again, on the same memory. Returned by
/// [`Recording::finish`].
#[derive(Debug)]
pub struct Replay {
    executable: ExecutableGraph,
    stream: Stream,
}

impl Recording {
    pub(crate) fn new(backend: Backend, recorder: GraphRecorder) -> Self {
        Self { backend, recorder }
    }

    /// Moves a tensor into the graph, with its elements.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn input<T: Element>(&mut self, tensor: Tensor<T>) -> Result<Tensor<T, Self>> {
        let shape = tensor.shape().to_vec();
        Ok(Tensor::new(shape, self.recorder.own(tensor.memory)?))
    }

    /// Ends the recording.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn finish(self) -> Result<Replay> {
        let stream = self.recorder.stream().clone();
        let executable = self.recorder.into_graph()?.instantiate()?;
        Ok(Replay { executable, stream })
    }
}

impl Run for Recording {
    type Memory<T: Element> = GraphBuffer<T>;

    fn backend(&self) -> &Backend {
        &self.backend
    }

    fn allocate<T: Element>(&mut self, len: usize) -> Result<GraphBuffer<T>> {
        Ok(self.recorder.uninit(len)?)
    }

    unsafe fn launch<T: Element>(
        &mut self,
        kernel: &Kernel<T>,
        config: LaunchConfig,
        [a, b]: [&GraphBuffer<T>; 2],
        out: &mut GraphBuffer<T>,
        [x, y, z]: [u32; 3],
    ) -> Result<()> {
        // SAFETY: the caller guarantees that the kernel stays within the memory, which the graph owns. It
        // writes numbers, and every bit pattern is valid for an element.
        unsafe { self.recorder.launch(kernel, config, (a, b, out, x, y, z)) }?;
        Ok(())
    }
}

impl Replay {
    /// Enqueues one execution of the sequence. Does not block.
    ///
    /// # Errors
    /// Errors of the driver, including those of earlier work.
    pub fn run(&self) -> Result<()> {
        Ok(self.executable.launch(&self.stream)?)
    }

    /// Replaces the elements of a tensor, after all runs so far and before the next one. Blocks until
    /// they are copied.
    ///
    /// # Errors
    /// [`Error::Length`]; errors of the driver.
    pub fn write<T: Element>(
        &mut self,
        tensor: &mut Tensor<T, Recording>,
        values: &[T],
    ) -> Result<()> {
        if tensor.len() != values.len() {
            return Err(Error::Length { shape: tensor.shape().to_vec(), values: values.len() });
        }
        let mut memory = self.executable.access(&mut tensor.memory, &self.stream)?;
        Ok(memory.as_mut_slice().copy_from_slice(values)?)
    }

    /// Returns the elements of a tensor after all runs so far. Blocks until they are complete.
    ///
    /// # Errors
    /// Errors of the driver, including those of earlier work.
    pub fn read<T: Element>(&mut self, tensor: &Tensor<T, Recording>) -> Result<Vec<T>> {
        let memory = self.executable.read_access(&tensor.memory, &self.stream)?;
        Ok(memory.as_slice().to_vec()?)
    }
}
