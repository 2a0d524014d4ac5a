//! The classes that methods of other classes return or take: devices, contexts, events, streams and SM resources.
//! Their methods in Python are in the modules above, so that no module imports one that imports it.

mod context;
mod device;
mod event;
mod sm_resource;
mod stream;

pub(crate) use context::PyContext;
pub(crate) use device::{DeviceLike, PyDevice};
pub(crate) use event::PyEvent;
pub(crate) use sm_resource::{PySmResource, Whole};
pub(crate) use stream::{
    PyStream, check_context, foreign, lane_of_handle, lane_of_number, refuse_other,
    stream_or_current,
};
