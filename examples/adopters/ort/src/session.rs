//! A session of ONNX Runtime that works on a stream and on memory of this library. The guide shows this file
//! (`bridge_ort`).

use cuda_safe::{DeviceBuffer, Stream};
use ort::environment::Environment;
use ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
use ort::session::{OutputSelector, RunOptions, Session};
use ort::sys::ONNXTensorElementDataType;
use ort::value::{Tensor, Value};
use ort::{AsPointer, ep, ortsys};
use std::error::Error;
use std::ptr::{null_mut, with_exposed_provenance_mut};

/// A session, and the stream on which its work runs.
pub struct StreamSession {
    session: Session,
    /// The memory of the device, for tensors.
    memory: MemoryInfo<'static>,
    /// Dropped after the session.
    stream: Stream,
}

impl StreamSession {
    /// Loads a model for the device of the stream.
    ///
    /// # Safety
    /// The stream belongs to the primary context of its device, in which ONNX Runtime works.
    pub unsafe fn new(
        stream: &Stream,
        environment: &Environment,
        model: &[u8],
    ) -> Result<Self, Box<dyn Error>> {
        let device = i32::try_from(stream.context().device().ordinal())?;
        let (kind, place) = (AllocatorType::Device, MemoryType::Default);
        let memory = MemoryInfo::new(AllocationDevice::CUDA, device, kind, place)?;
        let cuda = ep::CUDA::default().with_device_id(device);
        // SAFETY: the session is dropped before its clone of the stream.
        let cuda = unsafe { cuda.with_compute_stream(stream.as_raw().cast()) };
        let mut builder = Session::builder(environment)?
            .with_execution_providers([cuda.build().error_on_failure()])?;
        Ok(Self { session: builder.commit_from_memory(model)?, memory, stream: stream.clone() })
    }

    /// Enqueues a run of a model with one input and one output. The host does not wait for it.
    ///
    /// # Safety
    /// The stream is not captured.
    pub unsafe fn run(
        &mut self,
        (input, from): (&DeviceBuffer<f32>, &[i64]),
        (output, to): (&mut DeviceBuffer<f32>, &[i64]),
    ) -> Result<(), Box<dyn Error>> {
        // SAFETY: the tensors are dropped in this function, which borrows the buffers. ONNX Runtime writes only to the
        // output, which is borrowed mutably.
        let input = unsafe { self.tensor(input, from) }?;
        // SAFETY: as above.
        let output = unsafe { self.tensor(output, to) }?;
        let name = self.session.outputs()[0].name().to_owned();
        let outputs = OutputSelector::no_default().with(&name).preallocate(&name, output);
        let mut options = RunOptions::new()?;
        options.disable_device_sync()?;
        self.session.run_with_options([input.into()], &options.with_outputs(outputs))?;
        Ok(())
    }

    /// Returns a tensor in the memory of a buffer.
    ///
    /// # Safety
    /// The buffer outlives the tensor, and nothing else writes to it meanwhile.
    unsafe fn tensor(&self, buffer: &DeviceBuffer<f32>, shape: &[i64]) -> ort::Result<Tensor<f32>> {
        let len = shape.iter().try_fold(1i64, |product, extent| product.checked_mul(*extent));
        if buffer.stream() != &self.stream || len != i64::try_from(buffer.len()).ok() {
            let problem = "the buffer has another size, or is bound to another stream";
            return Err(ort::Error::new(problem));
        }
        let data = with_exposed_provenance_mut(buffer.as_raw() as usize);
        let bytes = size_of::<f32>() * buffer.len();
        let (shape, dimensions) = (shape.as_ptr(), shape.len());
        let float = ONNXTensorElementDataType::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
        let mut value = null_mut();
        // SAFETY (the macro calls the C function): the memory has this size, and the shape this length. The value does
        // not own the memory.
        ortsys![
            unsafe CreateTensorWithDataAsOrtValue(
                self.memory.ptr(), data, bytes, shape, dimensions, float, &mut value
            )?;
            nonNull(value)
        ];
        // SAFETY: the value is a tensor of this type and has no other owner. It uses no allocator.
        Ok(unsafe { Value::from_ptr(value, Some(self.session.allocator())) })
    }
}
