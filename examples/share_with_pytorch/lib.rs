//! How do PyTorch and CuPy work on a partition that was made here? A library of three functions, which
//! share.py beside this calls through `ctypes`: it opens a partition with a stream, and gives the
//! stream's handle to `torch.cuda.ExternalStream` and `cupy.cuda.ExternalStream`.
//!
//! `cargo build --release --example share_with_pytorch`, then
//! `python3 examples/share_with_pytorch/share.py`.
//!
//! It works as both sides use the device's primary context, and the driver that is in the process.

use cuda_safe::green::{GreenContext, SmProbe, SmResource, SplitByCount};
use cuda_safe::{Context, Device, Result, Stream};
use std::fmt::Display;

/// A partition, a stream of it, and what tells where that runs. Opaque to C.
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
            // It holds the partition.
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

/// Makes a partition of at least so many SMs, and writes the handle of its stream, a `CUstream`. Null
/// if it cannot, with the reason on the standard error.
///
/// # Safety
/// `stream` points to a place for the handle. The handle is used until [`share_close`] and no longer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn share_open(device: u32, sms: u32, stream: *mut usize) -> *mut Shared {
    match Shared::open(device, sms) {
        Ok(shared) => {
            // SAFETY: the caller's promise.
            unsafe { stream.write(shared.stream.as_raw().addr()) };
            Box::into_raw(Box::new(shared))
        }
        Err(why) => {
            complain(why);
            std::ptr::null_mut()
        }
    }
}

/// Runs a probe on the stream, waits for it, and writes the numbers of the SMs that it ran on: how many
/// there are, of which at most `room` are written; below 0 if that failed, with the reason on the
/// standard error.
///
/// # Safety
/// `shared` is of [`share_open`] and not closed; `numbers` points to a place for `room` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn share_sms(shared: *const Shared, numbers: *mut u32, room: usize) -> isize {
    // SAFETY: the caller's promise.
    let shared = unsafe { &*shared };
    match shared.sms() {
        Ok(sms) => {
            let count = sms.len().min(room);
            // SAFETY: the caller's promise for the target; the source is as long, and elsewhere.
            unsafe { numbers.copy_from_nonoverlapping(sms.as_ptr(), count) };
            isize::try_from(sms.len()).unwrap_or(isize::MAX)
        }
        Err(why) => {
            complain(why);
            -1
        }
    }
}

/// Destroys the stream and its partition, which waits for all work of the device.
///
/// # Safety
/// `shared` is of [`share_open`], is not used any more, and nobody uses its stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn share_close(shared: *mut Shared) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(shared) });
}
