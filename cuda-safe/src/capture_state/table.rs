//! The states of handles that foreign code knows. Objects created from the same handle share one state.

use super::state::{Kind, State};
use crate::call::fork;
use crate::sync::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};

type Table = BTreeMap<(Kind, usize), Weak<State>>;

static TABLE: Mutex<Table> = Mutex::new(BTreeMap::new());

/// Locks the table. Returns `None` in a forked child, where the lock may be held forever.
#[inline]
fn table() -> Option<MutexGuard<'static, Table>> {
    let lock = || TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    (!fork::in_child()).then(lock)
}

/// Inserts the state of a handle, and replaces an entry that an earlier object may have left.
#[inline]
pub(super) fn insert(state: &Arc<State>, handle: usize) {
    let Some(mut table) = table() else {
        return;
    };
    state.published.store(handle, Ordering::Release);
    table.insert((state.kind, handle), Arc::downgrade(state));
}

/// Removes a state.
#[inline]
pub(super) fn remove(state: &State) {
    let Some(mut table) = table() else {
        return;
    };
    let handle = state.published.swap(0, Ordering::AcqRel);
    let key = (state.kind, handle);
    let is_its = |its: &Weak<State>| std::ptr::eq(its.as_ptr(), state);
    if table.get(&key).is_some_and(is_its) {
        table.remove(&key);
    }
}

/// Returns the state of a handle that came from foreign code, and creates it if no object has one.
#[inline]
pub(super) fn find_or_insert(kind: Kind, handle: usize) -> Arc<State> {
    let new = State::new(kind);
    new.share();
    let Some(mut table) = table() else {
        return new;
    };
    let key = (kind, handle);
    match table.get(&key).and_then(Weak::upgrade) {
        Some(state) => {
            drop(table);
            state
        }
        None => {
            new.published.store(handle, Ordering::Release);
            table.insert(key, Arc::downgrade(&new));
            new
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, find_or_insert, table};

    #[test]
    fn a_state_leaves_the_table_when_its_last_object_is_dropped() {
        let key = (Kind::Event, usize::MAX);
        let is_listed = || table().is_some_and(|table| table.contains_key(&key));
        let state = find_or_insert(key.0, key.1);
        let same = find_or_insert(key.0, key.1);
        drop(state);
        assert!(is_listed());
        drop(same);
        assert!(!is_listed());
    }
}
