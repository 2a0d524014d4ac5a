//! Buffers and textures of OpenGL, and images of EGL. Without them the tests are skipped with the reason.
#![cfg(target_os = "linux")]

mod device;
mod misuse;
mod shared;

use crate::common;
use cuda_safe::{Context, Stream};
use device::OpenGl;

struct Stage {
    context: Context,
    stream: Stream,
    opengl: OpenGl,
}

/// Returns a context of CUDA, and one of OpenGL on the same device that is current, or reports a skip.
#[track_caller]
fn stage() -> Option<Stage> {
    common::real_gpu()?;
    let (context, stream) = common::context_and_stream()?;
    match OpenGl::open(context.device().ordinal()) {
        Ok(opengl) => Some(Stage { context, stream, opengl }),
        Err(why) => {
            common::skip(&format!("needs OpenGL: {why}"));
            None
        }
    }
}
