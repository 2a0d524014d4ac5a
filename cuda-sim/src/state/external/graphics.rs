//! Resources of OpenGL and EGL, which tests make, and their registrations.

use crate::account::misuse;
use crate::state::handles::{Handles, State};
use crate::state::{Answer, World};
use cuda_sys::{CUDA_ARRAY3D_DESCRIPTOR, CUresult};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::sync::Arc;
use std::thread::ThreadId;

/// The name of a resource in its API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name {
    OpenGlBuffer(u32),
    OpenGlImage(u32),
    EglImage(usize),
}

/// A resource that a test has made.
#[derive(Clone)]
pub(crate) struct Played {
    pub(crate) file: Arc<File>,
    pub(crate) size: u64,
    /// The description of an image, and the number of its levels.
    pub(crate) image: Option<(CUDA_ARRAY3D_DESCRIPTOR, u32)>,
    /// The thread where the context of OpenGL is current, or `None` for an image of EGL.
    pub(crate) thread: Option<ThreadId>,
}

impl Played {
    /// # Errors
    /// The context of OpenGL is current in another thread.
    pub(crate) fn check_thread(&self) -> Answer {
        match self.thread {
            Some(its) if its != crate::thread::id() => {
                Err(CUresult::CUDA_ERROR_INVALID_GRAPHICS_CONTEXT)
            }
            _ => Ok(()),
        }
    }
}

pub(crate) struct Registered {
    pub(crate) context: usize,
    pub(crate) device: usize,
    pub(crate) name: Name,
    pub(crate) played: Played,
    pub(crate) mapped: Option<Mapped>,
}

/// What a mapping has created.
#[derive(Clone, Copy)]
pub(crate) enum Mapped {
    /// The address of a buffer.
    Buffer(u64),
    /// A mipmapped array.
    Image(usize),
}

pub(crate) struct Graphics {
    pub(crate) played: BTreeMap<Name, Played>,
    pub(crate) registered: Handles<Registered>,
    /// Registrations that ended with their context.
    of_ended: BTreeSet<usize>,
    /// The connections of consumers, with the number of the image that is each frame of the stream.
    pub(crate) consumers: Handles<usize>,
}

impl Graphics {
    pub(crate) fn new() -> Self {
        let (played, of_ended) = (BTreeMap::new(), BTreeSet::new());
        Self { played, registered: Handles::new(18), of_ended, consumers: Handles::new(20) }
    }

    /// Returns the number of mipmapped arrays of mappings.
    pub(crate) fn mapped_images(&self) -> usize {
        let is_image = |its: &Registered| matches!(its.mapped, Some(Mapped::Image(_)));
        self.registered.iter().filter(|(_, its)| is_image(its)).count()
    }
}

impl World {
    /// Returns a registration.
    pub(crate) fn registered(&mut self, handle: usize) -> Answer<&mut Registered> {
        let its = &mut self.objects.externals.graphics;
        if its.of_ended.contains(&handle) {
            misuse("a registered resource is used after its context was destroyed");
        } else if its.registered.state(handle) == State::Dead {
            misuse("a registered resource is used after it was unregistered");
        }
        its.registered.get_mut(handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// Returns the number of the image that is each frame of a consumer.
    pub(crate) fn consumer(&self, handle: usize) -> Answer<usize> {
        let its = &self.objects.externals.graphics.consumers;
        if its.state(handle) == State::Dead {
            misuse("a consumer of a stream of EGL is used after it was disconnected");
        }
        its.get(handle).copied().ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    pub(crate) fn add_registered(&mut self, registered: Registered) -> usize {
        let size = registered.played.size;
        let handle = self.objects.externals.graphics.registered.insert(registered);
        self.objects.memory.note_site_of_handle(handle, "a registered resource", size);
        handle
    }

    /// Ends a registration, and a mapping that it has.
    pub(crate) fn remove_registered(&mut self, handle: usize) {
        let removed = self.objects.externals.graphics.registered.remove(handle);
        if let Some(mapped) = removed.and_then(|its| its.mapped) {
            self.remove_mapped(mapped);
        }
        self.objects.memory.forget_site_of_handle(handle);
    }

    /// Removes what a mapping has created. No work uses it.
    pub(crate) fn remove_mapped(&mut self, mapped: Mapped) {
        match mapped {
            Mapped::Buffer(address) => {
                self.objects.memory.free(address);
            }
            Mapped::Image(array) => self.remove_mipmapped(array),
        }
    }

    /// Ends the registrations of a context that is destroyed.
    pub(crate) fn forget_registered_of(&mut self, context: usize) {
        let its = &mut self.objects.externals.graphics;
        let found = its.registered.iter().filter(|(_, its)| its.context == context);
        let found: Vec<usize> = found.map(|(handle, _)| handle).collect();
        its.of_ended.extend(&found);
        for handle in found {
            self.objects.memory.end_site_of_handle(handle);
            // The arrays of the context are already removed.
            self.objects.externals.graphics.registered.remove(handle);
        }
    }
}
