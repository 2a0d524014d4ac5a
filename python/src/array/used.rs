//! Arrays that a kernel uses.

use super::memory::Order;
use super::{Kept, PyDeviceArray, as_cuda_array, has_interface};
use crate::current;
use crate::error::Result;
use crate::lifetime::ending::detached;
use crate::primary::default_stream;
use crate::stream_handle::StreamHandle;
use cuda_safe::Stream;
use pyo3::prelude::*;
use std::any::Any;
use std::sync::Arc;

/// An array that a kernel uses, of this package or of another library.
pub(crate) struct UsedArray {
    kept: Kept,
    address: u64,
}

impl UsedArray {
    /// Returns the array, or None if the object is none.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> Result<Option<Self>> {
        let py = object.py();
        let of = |array: &PyDeviceArray| -> Result<Option<Self>> {
            Ok(Some(Self { kept: array.kept(py)?, address: array.array.address }))
        };
        if let Ok(own) = object.cast::<PyDeviceArray>() {
            return of(own.get());
        }
        match has_interface(object)? {
            true => of(&as_cuda_array(object, true)?),
            false => Ok(None),
        }
    }

    /// Returns the address of the first element.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }
}

/// Runs work that uses arrays, on `stream`, or else on the stream of the first array or the current one. It is
/// ordered with the streams of all arrays. If the stream is captured by this package, the graph keeps the arrays
/// and `object` alive.
pub(crate) fn run(
    py: Python<'_>,
    stream: Option<StreamHandle>,
    ordinal: u32,
    arrays: Vec<UsedArray>,
    object: Arc<dyn Any + Send + Sync>,
    work: impl FnOnce(&Stream) -> Result<()> + Send,
) -> Result<()> {
    let order = order(py, stream, ordinal, &arrays);
    let done = order.and_then(|order| {
        let objects = || {
            let arrays = arrays.iter().map(|array| array.kept.in_graphs());
            std::iter::once(object).chain(arrays).collect()
        };
        detached(py, || order.run(objects, |lane| lane.with_stream(work)))
    });
    for array in arrays {
        array.kept.release(py);
    }
    done
}

fn order(
    py: Python<'_>,
    stream: Option<StreamHandle>,
    ordinal: u32,
    arrays: &[UsedArray],
) -> Result<Order> {
    let lane = match stream {
        Some(lane) => lane,
        None => match arrays.iter().find_map(|array| array.kept.memory.lane()) {
            Some(lane) => lane.clone(),
            None => current::lane(py)?,
        },
    };
    let mut order = match lane {
        // Kernels are launched on stream objects. This one is in order with the legacy default stream.
        StreamHandle::Legacy(_) | StreamHandle::PerThread(_) => {
            Order::on(StreamHandle::Stream(default_stream(py, ordinal)?)).with_stream(lane)
        }
        lane => Order::on(lane),
    };
    for array in arrays {
        order = order.and(&array.kept.memory)?;
    }
    Ok(order)
}
