//! Runs PyTorch and CuPy on a partition that cuda-safe created. This is a library of three functions,
//! which the script share.py in this folder calls through `ctypes`. It creates a partition with a
//! stream, and the script passes the stream's handle to `torch.cuda.ExternalStream` and
//! `cupy.cuda.ExternalStream`.
//!
//! Build it with `cargo build --release --example share_with_pytorch`, then run `python3
//! examples/share_with_pytorch/share.py`.
//!
//! This works because both sides use the device's primary context and the same driver library in the
//! process.

use cuda_safe::green::{GreenContext, SmProbe, SmResource, SplitByCount};
use cuda_safe::{Context, Device, Result, Stream};
use std::fmt::Display;

/// A partition, its stream, and a probe that finds out where the stream runs. Opaque to C.
#[derive(Debug)]
pub struct Shared {
    stream: Stream,
    probe: SmProbe,
}

impl Shared {
    fn open(device: u32, sms: u32) -> std::result::Result<Self, Box<dyn std::error::Error>> {
        let device = Device::get(device)?;
        let split = SmResource::of_device(&device)?.split_by_count(SplitByCount {
            min: sms,
            max_groups: Some(1),
            label: "the example".to_owned(),
            ..Default::default()
        })?;
        let partition = GreenContext::new(split.groups)?;
        Ok(Self {
            // The stream keeps the partition alive.
            stream: partition.stream()?,
            probe: SmProbe::new(&Context::primary(&device)?)?,
        })
    }

    fn sms(&self) -> Result<Vec<u32>> {
        Ok(self.probe.sms(&self.stream)?.into_iter().collect())
    }
}

fn complain(why: impl Display) {
    eprintln!("share_with_pytorch: {why}");
}

/// Creates a partition of at least `sms` SMs and writes the handle of its stream, a `CUstream`. Returns
/// null on failure, and prints the reason to stderr.
///
/// # Safety
/// `stream` points to a place for the handle. The handle must not be used after [`share_close`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn share_open(device: u32, sms: u32, stream: *mut usize) -> *mut Shared {
    match Shared::open(device, sms) {
        Ok(shared) => {
            // SAFETY: the caller guarantees that `stream` points to a place for the handle.
            unsafe { stream.write(shared.stream.as_raw().addr()) };
            Box::into_raw(Box::new(shared))
        }
        Err(why) => {
            complain(why);
            std::ptr::null_mut()
        }
    }
}

/// Runs a probe on the stream, waits for it, and writes the ids of the SMs on which it ran. Returns
/// their number; at most `room` of them are written. Returns a negative number on failure, and prints
/// the reason to stderr.
///
/// # Safety
/// `shared` was returned by [`share_open`] and is not closed. `numbers` points to a place for `room`
/// numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn share_sms(shared: *const Shared, numbers: *mut u32, room: usize) -> isize {
    // SAFETY: the caller guarantees that `shared` is alive.
    let shared = unsafe { &*shared };
    match shared.sms() {
        Ok(sms) => {
            let count = sms.len().min(room);
            // SAFETY: the caller guarantees room for the numbers in the target, and the source has
            // `count` numbers and does not overlap it.
            unsafe { numbers.copy_from_nonoverlapping(sms.as_ptr(), count) };
            isize::try_from(sms.len()).unwrap_or(isize::MAX)
        }
        Err(why) => {
            complain(why);
            -1
        }
    }
}

/// Destroys the stream and its partition. This waits for all work of the device.
///
/// # Safety
/// `shared` was returned by [`share_open`] and is not used again, and its stream is not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn share_close(shared: *mut Shared) {
    // SAFETY: the caller guarantees that `shared` was returned by `share_open` and is not used again.
    drop(unsafe { Box::from_raw(shared) });
}
