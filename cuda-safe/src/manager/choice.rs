//! The memory manager of each context.

use super::{INTERFACE_VERSION, MemoryManager, StreamEnd, current};
use crate::call::{Error, Invalid, Result, fork, refuse_if, refuse_in_host_function};
use crate::context::{Context, Extension, set_factory, set_first_factory};
use crate::device::Device;
use crate::release::attempts;
use crate::stream::same_context;
use crate::sync::Mutex;
use cuda_sys::CUstream;
use std::cell::Cell;
use std::sync::{Arc, OnceLock};

type Make = Arc<dyn Fn(&Context) -> Result<Box<dyn MemoryManager>> + Send + Sync>;

thread_local! {
    /// Whether this thread is creating a manager. Memory that is allocated meanwhile comes directly
    /// from the driver.
    static MAKING: Cell<bool> = const { Cell::new(false) };
}

/// Sets the memory manager of contexts that are created from now on.
///
/// `make` is called for each context before its first allocation. Its argument is the context [without
/// a manager](crate::manager#ownership), for the manager to keep. If `make` allocates buffers, they are
/// synchronous memory directly from the driver.
///
/// An existing context keeps its manager, or stays without one. A device's primary context counts as
/// existing while there is a clone of it or an object created in it. So call this first in a program.
/// [`Context::memory_manager_as`] returns whether a context has the manager. A library calls
/// [`set_default_memory_manager`], which keeps the manager of the program.
///
/// # Errors
/// [`Invalid::ManagerVersion`]. An error of `make` or of [`MemoryManager::initialize`] is returned by
/// the allocation that caused the call; the next allocation tries again. An allocation on another
/// thread fails with [`Invalid::ManagerCannot`] if `make` takes longer than ten seconds.
pub fn set_memory_manager<M: MemoryManager>(
    make: impl Fn(&Context) -> Result<M> + Send + Sync + 'static,
) -> Result<()> {
    set_factory(Some(new_slots(make)?));
    Ok(())
}

/// Sets the memory manager of contexts that are created from now on, unless one is set. Returns whether it
/// was set.
///
/// For libraries: a program that [sets](set_memory_manager) a manager first keeps it, and one that sets a
/// manager later replaces this one. In both cases, and if the context exists already, the context that the
/// library uses may have another manager or none. [`Context::memory_manager_as`] of that context returns
/// which:
///
/// ```no_run
/// use cuda_safe::manager::{DriverManager, set_default_memory_manager};
/// use cuda_safe::{Context, Device};
///
/// set_default_memory_manager(DriverManager::new)?;
/// let context = Context::primary(&Device::get(0)?)?;
/// if context.memory_manager_as::<DriverManager>()?.is_none() {
///     println!("the context keeps the allocator that it had");
/// }
/// # Ok::<_, cuda_safe::Error>(())
/// ```
///
/// # Errors
/// See [`set_memory_manager`].
pub fn set_default_memory_manager<M: MemoryManager>(
    make: impl Fn(&Context) -> Result<M> + Send + Sync + 'static,
) -> Result<bool> {
    Ok(set_first_factory(new_slots(make)?))
}

/// Returns a function that creates the slot of a context.
fn new_slots<M: MemoryManager>(
    make: impl Fn(&Context) -> Result<M> + Send + Sync + 'static,
) -> Result<impl Fn() -> ManagerSlot + Send + Sync + 'static> {
    check_version::<M>()?;
    let make: Make = Arc::new(move |context: &Context| {
        let manager: Box<dyn MemoryManager> = Box::new(make(context)?);
        Ok(manager)
    });
    Ok(move || ManagerSlot::new(Arc::clone(&make)))
}

/// Returns an error unless the manager implements this version of the interface.
fn check_version<M: MemoryManager>() -> Result<()> {
    let version = M::interface_version();
    if version != INTERFACE_VERSION {
        return Err(Invalid::ManagerVersion { version, expected: INTERFACE_VERSION }.into());
    }
    Ok(())
}

/// Removes the memory manager of contexts that are created from now on. Their memory comes directly
/// from the driver.
#[inline]
pub fn clear_memory_manager() {
    set_factory(None::<fn() -> ManagerSlot>);
}

/// The memory manager of a context, shared by all `Context` objects for it.
pub(crate) struct ManagerSlot {
    make: Make,
    made: OnceLock<Box<dyn MemoryManager>>,
    /// Held while a thread creates the manager, which calls the user's function and so the driver. The
    /// manager is not created twice, as creating it may create a file or a memory pool, and dropping it
    /// waits for all work. So no thread waits for this lock: each repeats its attempt for a limited
    /// time, and then fails.
    making: Mutex<()>,
}

impl ManagerSlot {
    #[inline]
    fn new(make: Make) -> Self {
        Self { make, made: OnceLock::new(), making: Mutex::new(()) }
    }

    /// Returns the manager, if it has been created.
    #[inline]
    pub(crate) fn made(&self) -> Option<&dyn MemoryManager> {
        self.made.get().map(|manager| &**manager)
    }

    /// Returns the manager, and creates it if necessary. Returns `None` while this thread is creating
    /// one.
    #[inline]
    pub(crate) fn manager(&self, context: &Context) -> Result<Option<&dyn MemoryManager>> {
        match self.made() {
            Some(manager) if !fork::in_child() => Ok(Some(manager)),
            Some(_) => Err(Error::Forked),
            None => self.make(context),
        }
    }

    #[cold]
    #[inline]
    fn make(&self, context: &Context) -> Result<Option<&dyn MemoryManager>> {
        // In a forked child, a lock may be held forever by a thread that does not exist there.
        refuse_if!(fork::in_child(), Error::Forked);
        // The thread that creates the manager may be waiting for this host function.
        refuse_in_host_function()?;
        if MAKING.with(Cell::get) {
            return Ok(None);
        }
        let making = attempts::lock(&self.making);
        if let Some(manager) = self.made() {
            return Ok(Some(manager));
        }
        let Some(_making) = making else {
            let what = "be used yet: another thread is creating it";
            return Err(Invalid::ManagerCannot { what }.into());
        };
        let manager = {
            let _making = Making::new();
            let manager = current::with_current_context((self.make)(&context.without_extension())?);
            // A manager of another context would wait for that context's work.
            same_context("the manager", manager.base().context(), context)?;
            manager.initialize()?;
            manager
        };
        Ok(Some(&**self.made.get_or_init(|| manager)))
    }
}

impl Drop for ManagerSlot {
    /// The last object of the context has been dropped.
    #[inline]
    fn drop(&mut self) {
        if let Some(manager) = self.made().filter(|_| !fork::in_child()) {
            manager.reset();
        }
    }
}

impl Extension for ManagerSlot {
    #[inline]
    fn refers_to_streams(&self) -> bool {
        self.made().is_some()
    }

    #[inline]
    fn stream_ends(&self, stream: &CUstream) {
        if let Some(manager) = self.made() {
            StreamEnd::of(stream).notify(manager);
        }
    }

    #[inline]
    fn device_to_reset(&self) -> Option<Device> {
        self.made().map(|manager| manager.base().context().device())
    }

    #[inline]
    fn reset(&self) {
        if let Some(manager) = self.made() {
            manager.reset();
        }
    }
}

/// Marks this thread as creating a manager, until this is dropped.
struct Making;

impl Making {
    #[inline]
    fn new() -> Self {
        MAKING.with(|making| making.set(true));
        Self
    }
}

impl Drop for Making {
    #[inline]
    fn drop(&mut self) {
        MAKING.with(|making| making.set(false));
    }
}

impl Context {
    /// Returns the choice of the memory manager, or `None` if the driver allocates.
    #[inline]
    pub(crate) fn choice(&self) -> Option<&ManagerSlot> {
        self.extension()
    }

    /// Returns the memory manager of this context, if one was [set](set_memory_manager) when the
    /// context was created. The first call creates it.
    ///
    /// # Errors
    /// The manager could not be created.
    #[inline]
    pub fn memory_manager(&self) -> Result<Option<&dyn MemoryManager>> {
        match self.choice() {
            None => Ok(None),
            Some(choice) => choice.manager(self),
        }
    }

    /// Returns the memory manager of this context as its concrete type, or `None` if it is of another
    /// type.
    ///
    /// # Errors
    /// See [`memory_manager`](Self::memory_manager).
    pub fn memory_manager_as<M: MemoryManager>(&self) -> Result<Option<&M>> {
        Ok(self.memory_manager()?.and_then(<dyn MemoryManager>::downcast_ref))
    }

    /// Returns the manager if it has been created, as it has for anything that it allocated.
    #[inline]
    pub(crate) fn made_manager(&self) -> Option<&dyn MemoryManager> {
        self.choice().and_then(ManagerSlot::made)
    }

    /// Returns whether both contexts have the same manager.
    #[inline]
    pub(crate) fn has_manager_of(&self, other: &Self) -> bool {
        match (self.choice(), other.choice()) {
            (Some(its), Some(others)) => std::ptr::eq(its, others),
            _ => false,
        }
    }

    /// Returns the manager, or [`Invalid::NoMemoryManager`].
    #[inline]
    pub(crate) fn expect_manager(&self) -> Result<&dyn MemoryManager> {
        self.memory_manager()?.ok_or_else(|| Invalid::NoMemoryManager.into())
    }
}
