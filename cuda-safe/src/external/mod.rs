//! Memory and semaphores of other APIs, such as Vulkan and Direct3D, and resources of OpenGL, EGL and VDPAU.
//!
//! | Type | What it is | C |
//! |---|---|---|
//! | [`ExternalMemory`] | an allocation of another API | `cuImportExternalMemory` |
//! | [`ExternalMapping`] | a range of it, mapped to device addresses | `cuExternalMemoryGetMappedBuffer` |
//! | [`MipmappedArray`](crate::array::MipmappedArray) | an image of it, [mapped](ExternalMemory::map_image) | `cuExternalMemoryGetMappedMipmappedArray` |
//! | [`TimelineSemaphore`] | a semaphore whose value grows | `cuSignalExternalSemaphoresAsync` |
//! | [`BinarySemaphore`] | a semaphore with one wait for each signal | `cuWaitExternalSemaphoresAsync` |
//! | [`ExportedMemory`] | memory of CUDA, with what an import by another API needs | `cuMemExportToShareableHandle` |
//! | [`RegisteredBuffer`], [`RegisteredImage`] | a buffer or texture of OpenGL, or a surface of VDPAU | `cuGraphicsGLRegisterBuffer` |
//! | [`Mapped`] | such a resource while CUDA uses it | `cuGraphicsMapResources` |
//! | [`EglImage`] | an image of EGL | `cuGraphicsEGLRegisterImage` |
//! | [`EglConsumer`], [`EglProducer`] | the ends of a stream of EGL | `cuEGLStreamConsumerConnect` |
//!
//! # One device
//! Both APIs must use the same GPU. [`Device::by_uuid`](crate::Device::by_uuid) finds that of
//! `VkPhysicalDeviceIDProperties::deviceUUID`, and on Windows `Device::by_luid` finds that of
//! `deviceLUID`. [`Device::of_opengl`](crate::Device::of_opengl) returns the devices of a context of OpenGL.
//!
//! # Handles
//! On Linux an import takes a file descriptor, which the other API has exported (`vkGetMemoryFdKHR`,
//! `vkGetSemaphoreFdKHR`). A successful import consumes the descriptor. If it fails, `try_import` returns the
//! descriptor. To import an object twice, pass a duplicate
//! ([`OwnedFd::try_clone`](std::os::fd::OwnedFd::try_clone)). An import keeps the memory or the
//! semaphore alive after the other API has destroyed its own.
//!
//! On Windows an import takes a handle, which it does not consume. These functions are compiled, but unverified (from
//! documentation).
//!
//! # Ordering
//! Nothing orders the accesses of two APIs but a semaphore that one of them signals and the other waits for. A frame of
//! a program with two [timeline semaphores](TimelineSemaphore) or one:
//!
//! 1. The other API ends its accesses, releases the resource, and signals the semaphore with `n`.
//! 2. [`Stream::wait_timeline`](crate::Stream::wait_timeline) with `n`, kernels,
//!    [`Stream::signal_timeline`](crate::Stream::signal_timeline) with `n + 1`.
//! 3. The other API waits for `n + 1`, acquires the resource, and accesses it.
//!
//! In Vulkan, the release and the acquire are barriers that transfer the queue family ownership of a resource with
//! `VK_SHARING_MODE_EXCLUSIVE`:
//!
//! ```text
//! release, before the signal:               acquire, after the wait:
//!   srcStageMask   that of the last access    srcStageMask   that of the wait (pWaitDstStageMask)
//!   srcAccessMask  its writes                 srcAccessMask  0
//!   dstStageMask   BOTTOM_OF_PIPE             dstStageMask   that of the next access
//!   dstAccessMask  0                          dstAccessMask  its accesses
//!   srcQueueFamilyIndex  the queue's family   srcQueueFamilyIndex  VK_QUEUE_FAMILY_EXTERNAL
//!   dstQueueFamilyIndex  …_FAMILY_EXTERNAL    dstQueueFamilyIndex  the queue's family
//!   images: oldLayout is the present layout, newLayout is VK_IMAGE_LAYOUT_GENERAL, the same pair in both
//! ```
//!
//! CUDA needs no barrier: all memory that earlier work of a stream has written is visible after the stream's signal, and
//! work after a wait sees what the other API has released.
//!
//! # After a fault
//! A fault of a kernel of any process can end draws of Vulkan on the GPU until it is reset. On an H200 with driver 580,
//! every draw after an illegal address timed out (Xid 109 in the system log), and copies and compute shaders
//! completed. A stream that waits for such a draw never completes.

mod binary;
mod egl;
mod egl_stream;
#[cfg(unix)]
mod export;
mod image;
mod mapping;
mod memory;
mod opengl;
mod registered;
mod semaphore;
mod timeline;
mod vdpau;
#[cfg(windows)]
mod windows;

pub use binary::BinarySemaphore;
pub use egl::{EglFrame, EglImage};
pub use egl_stream::{AcquiredFrame, EglConsumer, EglLocation, EglProducer};
#[cfg(unix)]
pub use export::ExportedMemory;
pub use image::ImageOptions;
pub use mapping::ExternalMapping;
pub use memory::{ExternalMemory, ExternalMemoryOptions, MemoryDescriptor};
pub use opengl::OpenGlDevices;
pub use registered::{
    AccessHint, Mapped, RegisteredBuffer, RegisteredImage, RegisteredImageOptions,
};
pub use timeline::TimelineSemaphore;
#[cfg(windows)]
pub use windows::{KeyedMutex, WindowsMemory, WindowsSemaphore, WindowsTimeline};
