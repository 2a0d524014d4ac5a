//! Which manager a context has.

use super::current;
use super::{INTERFACE_VERSION, MemoryManager};
use crate::attempts;
use crate::context::Context;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::fork;
use crate::invalid::Invalid;
use crate::release;
use crate::stream::{refuse_inside, same_context};
use crate::sync::{Mutex, RwLock};
use cuda_sys::CUcontext;
use std::cell::Cell;
use std::sync::{Arc, OnceLock, PoisonError, Weak};

type Make = Arc<dyn Fn(&Context) -> Result<Box<dyn MemoryManager>> + Send + Sync>;

/// What makes the managers of the contexts that are made from now on.
static MAKE: RwLock<Option<Make>> = RwLock::new(None);

/// The contexts that there are, as often as somebody may be making one: by handle and, where there are
/// such, number.
static CONTEXTS: Mutex<Vec<(Key, Weak<Choice>)>> = Mutex::new(Vec::new());

type Key = (usize, Option<u64>);

thread_local! {
    /// Whether this thread makes a manager: what that allocates meanwhile is the driver's.
    static MAKING: Cell<bool> = const { Cell::new(false) };
}

/// Chooses who allocates in the contexts that are made from now on: `make` is called for each, before
/// its first allocation, with that context (the one [without a manager](crate::manager#whose-is-what), for the
/// manager to keep). What buffers need meanwhile on that thread is plain memory of the driver's.
///
/// A context that there is keeps what it has, a manager or none; so does a device's primary context, as
/// long as somebody has a clone of it or something made in it. To choose comes first in a program.
///
/// # Errors
/// [`Invalid::ManagerVersion`]. (Errors of `make` and of [`MemoryManager::initialize`] are those of the
/// allocation that they were called for; the next one tries again. An allocation on another thread fails with
/// [`Invalid::ManagerCannot`] if `make` takes longer than ten seconds.)
pub fn set_memory_manager<M: MemoryManager>(
    make: impl Fn(&Context) -> Result<M> + Send + Sync + 'static,
) -> Result<()> {
    check_version::<M>()?;
    replace(Some(Arc::new(move |context: &Context| {
        let manager: Box<dyn MemoryManager> = Box::new(make(context)?);
        Ok(manager)
    })));
    Ok(())
}

/// An error, unless the manager is written for this version of the interface.
pub(super) fn check_version<M: MemoryManager>() -> Result<()> {
    let version = M::interface_version();
    if version != INTERFACE_VERSION {
        return Err(Invalid::ManagerVersion {
            version,
            expected: INTERFACE_VERSION,
        }
        .into());
    }
    Ok(())
}

/// Contexts that are made from now on have no manager: their memory is the driver's.
pub fn clear_memory_manager() {
    replace(None);
}

fn replace(make: Option<Make>) {
    let mut current = MAKE.write().unwrap_or_else(PoisonError::into_inner);
    let before = std::mem::replace(&mut *current, make);
    // What it owns is not dropped under the lock.
    drop(current);
    drop(before);
}

/// Who allocates in a context, for all objects that are that context.
pub(crate) struct Choice {
    make: Option<Make>,
    made: OnceLock<Box<dyn MemoryManager>>,
    /// Held while a thread makes the manager, which calls the user's function and so the driver. It is not made
    /// twice, as making it may create a file or a memory pool, and the end of a manager waits for all work. So no
    /// thread waits for this lock: each repeats its attempt for a limited time, and then fails.
    making: Mutex<()>,
}

impl Choice {
    /// That of a context: what it has already, or what is chosen now.
    pub(crate) fn of(raw: CUcontext, id: Option<u64>) -> Arc<Self> {
        let key = (raw.addr(), id);
        let mut contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        let known = contexts.iter().find(|(its, _)| *its == key);
        if let Some(choice) = known.and_then(|(_, choice)| choice.upgrade()) {
            return choice;
        }
        contexts.retain(|(_, choice)| choice.strong_count() != 0);
        let choice = Arc::new(Self {
            make: MAKE.read().unwrap_or_else(PoisonError::into_inner).clone(),
            made: OnceLock::new(),
            making: Mutex::new(()),
        });
        contexts.push((key, Arc::downgrade(&choice)));
        choice
    }

    pub(crate) fn is_some_manager(&self) -> bool {
        self.make.is_some()
    }

    /// The manager, if it has been made.
    #[inline]
    pub(crate) fn made(&self) -> Option<&dyn MemoryManager> {
        self.made.get().map(|manager| &**manager)
    }

    /// The manager, made now if it is not yet; none while this thread makes one.
    #[inline]
    pub(crate) fn manager(&self, context: &Context) -> Result<Option<&dyn MemoryManager>> {
        match self.made() {
            Some(manager) if !fork::in_child() => Ok(Some(manager)),
            Some(_) => Err(Error::Forked),
            None => self.make(context),
        }
    }

    #[cold]
    fn make(&self, context: &Context) -> Result<Option<&dyn MemoryManager>> {
        // A lock may be another thread's, for ever, in a forked child.
        if fork::in_child() {
            return Err(Error::Forked);
        }
        let Some(make) = &self.make else {
            return Ok(None);
        };
        // The thread that makes it may be waiting for this host function.
        refuse_inside()?;
        if MAKING.with(Cell::get) {
            return Ok(None);
        }
        let making = attempts::lock(&self.making);
        if let Some(manager) = self.made() {
            return Ok(Some(manager));
        }
        let Some(_making) = making else {
            let what = "be used yet: another thread is making it";
            return Err(Invalid::ManagerCannot { what }.into());
        };
        let manager = {
            let _making = Making::new();
            let manager = current::with_current(make(&context.without_manager())?);
            // One of another context would wait for that one's work.
            same_context("the manager", manager.base().context(), context)?;
            manager.initialize()?;
            manager
        };
        Ok(Some(&**self.made.get_or_init(|| manager)))
    }
}

impl Drop for Choice {
    /// Nobody has the context any more.
    fn drop(&mut self) {
        if let Some(manager) = self.made().filter(|_| !fork::in_child()) {
            manager.reset();
        }
    }
}

/// Resets the manager of a device's primary context, before that is reset.
pub(crate) fn reset_primary_manager(device: Device) {
    // A lock may be another thread's, for ever, in a forked child.
    if fork::in_child() {
        return;
    }
    // Where there is no manager, the context is not retained: after a fatal error that fails.
    let is_its = |choice: &Arc<Choice>| {
        let manager = choice.made();
        manager.is_some_and(|manager| manager.base().context().device() == device)
    };
    if !choices().iter().any(is_its) || !release::may_wait() {
        return;
    }
    let state = device.primary_state();
    if !state.is_ok_and(|state| state.active) {
        return;
    }
    if let Ok(context) = Context::primary(&device) {
        if let Some(manager) = context.made_manager() {
            manager.reset();
        }
        forget(&context);
    }
}

/// All choices of contexts that there are.
fn choices() -> Vec<Arc<Choice>> {
    let contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    let choices = contexts.iter().filter_map(|(_, choice)| choice.upgrade());
    choices.collect()
}

/// Has a context of the same handle, which is made later, take what is chosen then. (Before CUDA 12.0 its number
/// does not tell it apart.)
fn forget(context: &Context) {
    let mut contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    let is_its = |choice: &Weak<Choice>| {
        let its = context.choice().map(std::ptr::from_ref);
        its == Some(choice.as_ptr())
    };
    contexts.retain(|(_, choice)| !is_its(choice));
}

/// While it lives, this thread makes a manager.
struct Making;

impl Making {
    fn new() -> Self {
        MAKING.with(|making| making.set(true));
        Self
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        MAKING.with(|making| making.set(false));
    }
}

impl Context {
    /// Who allocates in this context, if a manager was [chosen](set_memory_manager) when it was made. The
    /// first call makes it.
    ///
    /// # Errors
    /// The manager could not be made.
    #[inline]
    pub fn memory_manager(&self) -> Result<Option<&dyn MemoryManager>> {
        match self.choice() {
            None => Ok(None),
            Some(choice) => choice.manager(self),
        }
    }

    /// The same as what it is, if it is of that type.
    ///
    /// # Errors
    /// As for [`memory_manager`](Self::memory_manager).
    pub fn memory_manager_as<M: MemoryManager>(&self) -> Result<Option<&M>> {
        let manager = self.memory_manager()?.map(current::without_current);
        Ok(manager.and_then(|manager| manager.as_any().downcast_ref()))
    }

    /// The manager that something was allocated by.
    #[inline]
    pub(crate) fn made_manager(&self) -> Option<&dyn MemoryManager> {
        self.choice().and_then(Choice::made)
    }

    /// Whether both have the same manager.
    pub(crate) fn has_manager_of(&self, other: &Self) -> bool {
        match (self.choice(), other.choice()) {
            (Some(its), Some(others)) => std::ptr::eq(its, others),
            _ => false,
        }
    }

    /// The manager for what needs one.
    pub(crate) fn expect_manager(&self) -> Result<&dyn MemoryManager> {
        self.memory_manager()?
            .ok_or_else(|| Invalid::NoMemoryManager.into())
    }
}
