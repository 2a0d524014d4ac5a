//! An example: the CUDA backend of a tensor library, as its author writes it on the public interface of
//! `cuda-safe`, `cuda-memory` and `cuda-nvrtc`.
//!
//! - A [`Backend`] has a context, the compiled kernels and the streams. Each thread gets its own stream.
//! - A [`Tensor`] has an element type, a shape and device memory.
//! - An [`Executor`] has the operations. [`Eager`] enqueues them on a stream. [`Recording`] records them as
//!   a graph that owns its memory, and [`Replay`] launches the graph.
//!
//! The same function runs on both executors:
//!
//! ```no_run
//! use tensor_backend::{Backend, Executor, Result, Tensor};
//!
//! fn layer<X: Executor>(x: &mut X, [input, weights, zero]: [&Tensor<f32, X>; 3]) -> Result<Tensor<f32, X>> {
//!     let product = x.matmul(input, weights)?;
//!     x.max(&product, zero)
//! }
//!
//! # fn main() -> Result<()> {
//! let backend = Backend::with_pool(0)?;
//! let mut eager = backend.eager()?;
//! let input = eager.tensor(&[1, 2], &[1.0, -2.0])?;
//! let weights = eager.tensor(&[2, 2], &[1.0, 0.0, 0.0, 1.0])?;
//! let zero = eager.tensor(&[], &[0.0])?;
//! assert_eq!(layer(&mut eager, [&input, &weights, &zero])?.to_vec()?, [1.0, 0.0]);
//!
//! let mut recording = backend.record()?;
//! let mut input = recording.input(input)?;
//! let (weights, zero) = (recording.input(weights)?, recording.input(zero)?);
//! let output = layer(&mut recording, [&input, &weights, &zero])?;
//! let mut replay = recording.finish()?;
//! replay.write(&mut input, &[-3.0, 4.0])?;
//! replay.run()?;
//! assert_eq!(replay.read(&output)?, [0.0, 4.0]);
//! # Ok(())
//! # }
//! ```

mod backend;
mod eager;
mod element;
mod error;
mod executor;
mod kernels;
mod recording;
mod tensor;

pub use backend::Backend;
pub use eager::Eager;
pub use element::Element;
pub use error::{Error, Result};
pub use executor::Executor;
pub use recording::{Recording, Replay};
pub use tensor::Tensor;
