//! Creation and destruction of contexts, and the views of green contexts that are current.

use super::objects::{Context, ContextKind, Settings, Stream};
use super::{Answer, World};
use crate::account::misuse;
use crate::thread;
use std::collections::BTreeMap;

impl World {
    /// Creates a context for a handle, with its default stream.
    pub(crate) fn make_context(
        &mut self,
        handle: usize,
        device: usize,
        flags: u32,
        kind: ContextKind,
    ) {
        let (id, stream_id) = (self.new_id(), self.new_id());
        // The default stream of a view belongs to the primary context and runs on the SMs of the view.
        let (owner, green) = match kind {
            ContextKind::View(green) => (self.objects.primaries[device].0, Some(green)),
            ContextKind::Primary | ContextKind::Created => (handle, None),
        };
        let legacy = self.add_stream(Stream {
            is_default: true,
            is_legacy: true,
            ..Stream::new(owner, green, stream_id)
        });
        self.objects.created_contexts += usize::from(kind == ContextKind::Created);
        self.objects.contexts.revive(
            handle,
            Context {
                device,
                id,
                kind,
                legacy,
                settings: Settings { flags, ..Settings::default() },
                attached: 0,
                after: None,
                given: BTreeMap::new(),
                given_kept: 0,
            },
        );
    }

    /// Destroys a context with everything that was created in it. The real driver waits for its work;
    /// the inner result is that of the work.
    pub(crate) fn end_context(&mut self, handle: usize) -> Answer<Answer> {
        let waited = match self.objects.contexts.get(handle).map(|its| its.device) {
            Some(device) => self.run_down_device(device)?,
            None => self.run_down()?,
        };
        let before = self.alive();
        let streams: Vec<usize> = self.objects.members.streams.of(handle).collect();
        for stream in streams {
            // The default stream of a view belongs to the primary context but is destroyed with the
            // view.
            let is_of_view = |its: &Stream| its.is_legacy && its.green.is_some();
            if !self.objects.streams.get(stream).is_some_and(is_of_view) {
                self.remove_stream(stream);
                self.runs.executor.forget(stream);
            }
        }
        for event in self.objects.members.events.of(handle).collect::<Vec<_>>() {
            self.remove_event(event);
        }
        for module in self.objects.members.modules.of(handle).collect::<Vec<_>>() {
            self.remove_module(module);
        }
        self.forget_arrays_of(handle);
        self.forget_externals_of(handle);
        self.objects.memory.free_of_context(handle);
        let after = self.alive();
        self.objects.ended_with_contexts.add_difference(&before, &after);
        if let Some(context) = self.objects.contexts.remove(handle) {
            self.objects.created_contexts -= usize::from(context.kind == ContextKind::Created);
        }
        Ok(waited)
    }

    /// Returns the context that owns host memory allocated or registered now, and its device.
    pub(crate) fn home(&self) -> Answer<(usize, usize)> {
        let owner = self.owner_of(self.current()?)?;
        Ok((owner, self.context(owner)?.device))
    }

    /// Tracks which views of green contexts are current on which threads. NVIDIA's documentation forbids
    /// that a view is current on two threads at the same time (unverified, from documentation).
    pub(crate) fn note_current(&mut self) {
        let this = thread::id();
        if let Some(before) = self.objects.current_views.remove(&this) {
            if let Some(threads) = self.objects.view_threads.get_mut(&before) {
                *threads -= 1;
                if *threads == 0 {
                    self.objects.view_threads.remove(&before);
                }
            }
        }
        let view = thread::current().filter(|current| {
            let its = self.objects.contexts.get(*current);
            its.is_some_and(|its| matches!(its.kind, ContextKind::View(_)))
        });
        let Some(view) = view else {
            return;
        };
        self.objects.current_views.insert(this, view);
        let threads = self.objects.view_threads.entry(view).or_default();
        *threads += 1;
        if *threads > 1 {
            misuse("the view of a green context is current on two threads at once");
        }
    }
}
