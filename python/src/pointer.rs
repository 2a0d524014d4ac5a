//! Attributes of the memory at an address.

use crate::array::address_of;
use crate::current;
use crate::error::Result;
use crate::lifetime::ending::{calling, detached};
use crate::objects::PyDevice;
use crate::primary::primary;
use cuda_safe::Device;
use cuda_safe::memory::{MemoryType, PointerInfo};
use pyo3::prelude::*;

fn name(memory_type: MemoryType) -> String {
    match memory_type {
        MemoryType::Host => "host".to_owned(),
        MemoryType::Device => "device".to_owned(),
        MemoryType::Array => "array".to_owned(),
        MemoryType::Unified => "unified".to_owned(),
        MemoryType::Other(number) => format!("unknown ({number})"),
        _ => "unknown".to_owned(),
    }
}

/// Returns what the driver reports about the memory of an array, or about the memory at an address,
/// as a `PointerAttributes`. Returns None if the driver knows no memory there, and for an array
/// without elements.
///
/// The array is a `DeviceArray` or any other object that has `__cuda_array_interface__`. Any number
/// is allowed as an address. The driver is asked in the primary context of the current device,
/// which is created if it does not exist.
#[pyfunction]
pub(crate) fn pointer_attributes<'py>(
    array_or_address: &Bound<'py, PyAny>,
) -> Result<Option<Bound<'py, PyAny>>> {
    let py = array_or_address.py();
    let address = match array_or_address.extract::<u64>() {
        Ok(address) => address,
        Err(_) => address_of(array_or_address)?,
    };
    if address == 0 {
        return Ok(None);
    }
    let context = primary(py, current::device(py)?)?;
    let info = detached(py, || context.pointer_info(address))?;
    info.map(|info| attributes(py, &info)).transpose()
}

fn attributes<'py>(py: Python<'py>, info: &PointerInfo) -> Result<Bound<'py, PyAny>> {
    let device = info.device.map(Device::get).transpose()?.map(PyDevice);
    let range = &info.range;
    calling(py, || {
        let class = py.import("cuda_safe._types")?.getattr("PointerAttributes")?;
        class.call1((
            device,
            name(info.memory_type),
            range.start,
            range.end - range.start,
            info.managed,
            (!info.context.is_null()).then(|| info.context.addr()),
            info.host_address,
        ))
    })
}
