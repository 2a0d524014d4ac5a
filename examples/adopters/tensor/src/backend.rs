//! The state that all tensors of a device share.

use crate::eager::Eager;
use crate::element::Element;
use crate::error::Result;
use crate::kernels::Kernels;
use crate::recording::Recording;
use cuda_memory::{CacheStats, CachingManager};
use cuda_nvrtc::Cache;
use cuda_safe::manager::set_default_memory_manager;
use cuda_safe::{Context, Device, Graph, Stream};
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The number of streams. If there are more threads, some of them share a stream, which is correct but
/// less concurrent.
const STREAMS: usize = 16;

/// A device with the compiled kernels and the streams of the library. Clones share them.
#[derive(Clone, Debug)]
pub struct Backend(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    context: Context,
    cache: Cache,
    /// The `Kernels<T>` of each element type `T` that was used.
    kernels: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
    streams: [OnceLock<Stream>; STREAMS],
}

impl Backend {
    /// Sets a caching pool as the allocator of the process, unless the program has chosen one, and returns a
    /// backend for a device.
    ///
    /// An allocator that the program has set, and that of a context that exists already, are kept:
    /// [`memory`](Self::memory) then returns `None`.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn with_pool(device: u32) -> Result<Self> {
        set_default_memory_manager(CachingManager::new)?;
        Self::new(Context::primary(&Device::get(device)?)?)
    }

    /// Returns a backend for a context, which allocates from the allocator of the context.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn new(context: Context) -> Result<Self> {
        // Without a folder, so that an example writes nothing into the home of its user.
        let cache = Cache::in_memory();
        Ok(Self(Arc::new(Shared {
            context,
            cache,
            kernels: Mutex::default(),
            streams: Default::default(),
        })))
    }

    /// Returns an executor that enqueues work on the stream of the calling thread.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn eager(&self) -> Result<Eager> {
        Ok(Eager::new(self.clone(), self.stream()?))
    }

    /// Returns an executor that records a graph.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn record(&self) -> Result<Recording> {
        let graph = Graph::new(&self.0.context)?;
        let recorder = graph.into_recorder(&self.stream()?)?;
        Ok(Recording::new(self.clone(), recorder))
    }

    /// Returns the statistics of the pool, or `None` if the context has another allocator.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn memory(&self) -> Result<Option<CacheStats>> {
        let pool = self.0.context.memory_manager_as::<CachingManager>()?;
        Ok(pool.map(CachingManager::stats))
    }

    /// Returns the stream of the calling thread.
    fn stream(&self) -> Result<Stream> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
        }
        let slot = &self.0.streams[NUMBER.with(|number| number % STREAMS)];
        if let Some(stream) = slot.get() {
            return Ok(stream.clone());
        }
        let stream = self.0.context.stream()?;
        Ok(slot.get_or_init(|| stream).clone())
    }

    /// Returns the kernels of an element type. The first call compiles them; other threads wait for it.
    pub(crate) fn kernels<T: Element>(&self) -> Result<Arc<Kernels<T>>> {
        let Shared { context, cache, kernels, .. } = &*self.0;
        let mut kernels = kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = kernels.get(&TypeId::of::<T>()).cloned();
        if let Some(Ok(loaded)) = loaded.map(Arc::downcast) {
            return Ok(loaded);
        }
        let loaded = Arc::new(Kernels::<T>::load(context, cache)?);
        kernels.insert(TypeId::of::<T>(), loaded.clone());
        Ok(loaded)
    }
}
