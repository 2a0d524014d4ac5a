//! The extension slot of a context: one object of a room above that belongs to the context.
//!
//! All `Context` objects of one context share the slot, and it is dropped before the context is
//! released. The memory managers use it.

use super::Context;
use crate::call::fork;
use crate::device::Device;
use crate::release;
use crate::sync::{self, Mutex, MutexGuard};
use cuda_sys::{CUcontext, CUstream};
use std::any::TypeId;
use std::sync::{Arc, Weak};

/// An object in the slot of a context.
pub(crate) trait Extension: Send + Sync + 'static {
    /// Returns whether the extension refers to streams of the context, so that it must be notified when
    /// one of them is destroyed.
    fn refers_to_streams(&self) -> bool;

    /// Called before a stream of the context is destroyed, on a thread that may block.
    fn stream_ends(&self, stream: &CUstream);

    /// Returns the device of the context, if the extension has something to reset.
    fn device_to_reset(&self) -> Option<Device>;

    /// Called before the context is reset.
    fn reset(&self);
}

/// The slot of a context, empty if no factory was set when the context was created.
pub(crate) struct Slot {
    extension: Option<(TypeId, Box<dyn Extension>)>,
}

type Factory = Arc<dyn Fn() -> Slot + Send + Sync>;

/// The function that fills the slots of contexts which are created from now on.
static FACTORY: Mutex<Option<Factory>> = Mutex::new(None);

/// The slots of all contexts, by handle and, where the driver has one, ID.
static SLOTS: Mutex<Vec<(Key, Weak<Slot>)>> = Mutex::new(Vec::new());

type Key = (usize, Option<u64>);

/// Sets the function that creates the extensions of contexts which are created from now on.
pub(crate) fn set_factory<E: Extension>(create: Option<impl Fn() -> E + Send + Sync + 'static>) {
    let factory = create.map(factory_of);
    let mut current = sync::lock(&FACTORY);
    let previous = std::mem::replace(&mut *current, factory);
    // The objects that the old function owns are not dropped under the lock.
    drop(current);
    drop(previous);
}

/// Sets the function that creates the extensions of contexts which are created from now on, unless one is
/// set. Returns whether it was set.
pub(crate) fn set_first_factory<E: Extension>(
    create: impl Fn() -> E + Send + Sync + 'static,
) -> bool {
    let factory = factory_of(create);
    let mut current = sync::lock(&FACTORY);
    let is_first = current.is_none();
    // The objects that the rejected function owns are not dropped under the lock.
    let rejected = if is_first { current.replace(factory) } else { Some(factory) };
    drop(current);
    drop(rejected);
    is_first
}

fn factory_of<E: Extension>(create: impl Fn() -> E + Send + Sync + 'static) -> Factory {
    Arc::new(move || Slot { extension: Some((TypeId::of::<E>(), Box::new(create()))) })
}

impl Slot {
    /// Returns the slot of a context, or creates one with the current setting.
    #[inline]
    pub(super) fn of(raw: CUcontext, id: Option<u64>) -> Arc<Self> {
        let key = (raw.addr(), id);
        let mut slots = lock();
        let known = slots.iter().find(|(slot_key, _)| *slot_key == key);
        if let Some(slot) = known.and_then(|(_, slot)| slot.upgrade()) {
            return slot;
        }
        slots.retain(|(_, slot)| slot.strong_count() != 0);
        let factory = sync::lock(&FACTORY);
        let slot = Arc::new(match &*factory {
            Some(create) => create(),
            None => Self { extension: None },
        });
        drop(factory);
        slots.push((key, Arc::downgrade(&slot)));
        slot
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.extension.is_none()
    }

    #[inline]
    fn get(&self) -> Option<&dyn Extension> {
        self.extension.as_ref().map(|(_, extension)| &**extension)
    }

    #[inline]
    fn downcast<E: Extension>(&self) -> Option<&E> {
        let (id, extension) = self.extension.as_ref()?;
        let extension: *const dyn Extension = &raw const **extension;
        // SAFETY: the slot was filled with a value of the type with this ID, so the pointer is to an `E`,
        // which the slot keeps alive.
        (*id == TypeId::of::<E>()).then(|| unsafe { &*extension.cast::<E>() })
    }
}

#[inline]
fn lock() -> MutexGuard<'static, Vec<(Key, Weak<Slot>)>> {
    sync::lock(&SLOTS)
}

/// Resets the extension of a device's primary context, before that context is reset.
#[inline]
pub(super) fn reset_primary(device: Device) {
    // In a forked child, a lock may be held forever by a thread that does not exist there.
    if fork::in_child() {
        return;
    }
    // Without an extension to reset, the context is not retained, because that fails after a fatal error.
    let slots: Vec<_> = lock().iter().filter_map(|(_, slot)| slot.upgrade()).collect();
    let mut extensions = slots.iter().filter_map(|slot| slot.get());
    let has_extension = extensions.any(|extension| extension.device_to_reset() == Some(device));
    if !has_extension || !release::may_block() {
        return;
    }
    let state = device.primary_state();
    if !state.is_ok_and(|state| state.active) {
        return;
    }
    if let Ok(context) = Context::primary(&device) {
        if let Some(extension) = context.any_extension() {
            extension.reset();
        }
        context.forget_slot();
    }
}

impl Context {
    /// Returns the extension, or `None` if the slot is empty, or if this is the context object that the
    /// extension itself uses.
    #[inline]
    pub(crate) fn any_extension(&self) -> Option<&dyn Extension> {
        self.slot()?.get()
    }

    /// Returns the extension of the context by its type.
    #[inline]
    pub(crate) fn extension<E: Extension>(&self) -> Option<&E> {
        self.slot()?.downcast()
    }

    /// Removes the slot from the table, so that a later context with the same handle uses the setting of
    /// that time. (Before CUDA 12.0, no context ID distinguishes the two.)
    #[inline]
    fn forget_slot(&self) {
        let own_slot = self.slot().map(std::ptr::from_ref);
        lock().retain(|(_, slot)| own_slot != Some(slot.as_ptr()));
    }
}
