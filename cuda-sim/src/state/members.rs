//! Ownership between objects: the streams, events and modules of a context, and the streams of a green
//! context. With these sets no call has to scan the objects of other contexts.

use super::World;
use super::objects::{Event, Module, Stream};
use std::collections::BTreeSet;

/// The last operations of streams are kept up to this number for each context before unneeded ones are removed.
const GIVEN: usize = 64;

/// Pairs of an owner's handle and a member's handle.
#[derive(Debug, Default)]
pub(crate) struct Members(BTreeSet<(usize, usize)>);

impl Members {
    pub(crate) fn insert(&mut self, owner: usize, member: usize) {
        self.0.insert((owner, member));
    }

    pub(crate) fn remove(&mut self, owner: usize, member: usize) {
        self.0.remove(&(owner, member));
    }

    /// Returns the members in the order of their handles.
    pub(crate) fn of(&self, owner: usize) -> impl Iterator<Item = usize> {
        let its = self.0.range((owner, 0)..=(owner, usize::MAX));
        its.map(|(_, member)| *member)
    }
}

/// The members of contexts and green contexts.
#[derive(Debug, Default)]
pub(crate) struct Belongings {
    /// Streams by context, and by green context.
    pub(crate) streams: Members,
    pub(crate) green_streams: Members,
    pub(crate) events: Members,
    pub(crate) modules: Members,
    /// Blocking streams that take part in a capture, by context.
    pub(crate) capturing: Members,
    /// All streams that take part in a capture, by green context, or by context if they have none.
    pub(crate) captured: Members,
    /// Number of streams that are not default streams.
    pub(crate) named_streams: usize,
}

impl World {
    pub(crate) fn add_stream(&mut self, stream: Stream) -> usize {
        let (context, green) = (stream.context, stream.green);
        self.objects.members.named_streams += usize::from(!stream.is_default);
        let handle = self.objects.streams.insert(stream);
        self.objects.members.streams.insert(context, handle);
        if let Some(green) = green {
            self.objects.members.green_streams.insert(green, handle);
        }
        self.note_stream(handle);
        handle
    }

    /// Removes a stream, except from the executor, which still has its work.
    pub(crate) fn remove_stream(&mut self, handle: usize) {
        self.leave_capture(handle);
        let Some(stream) = self.objects.streams.remove(handle) else {
            return;
        };
        if let Some(order) = &mut self.runs.executor.order {
            order.remove_stream(handle);
        }
        self.objects.members.named_streams -= usize::from(!stream.is_default);
        self.objects.members.streams.remove(stream.context, handle);
        if let Some(green) = stream.green {
            self.objects.members.green_streams.remove(green, handle);
        }
        self.remove_unneeded_given(stream.context);
    }

    /// Removes the last operations of destroyed streams that are complete, if there may be many. The legacy default
    /// stream still waits for work of a destroyed stream that is not complete (measured). If races are detected, it
    /// is also ordered after complete work that the host does not know to be complete.
    fn remove_unneeded_given(&mut self, context: usize) {
        let (streams, executor) = (&self.objects.streams, &mut self.runs.executor);
        let Some(context) = self.objects.contexts.get_mut(context) else {
            return;
        };
        if context.given.len() <= 2 * context.given_kept + GIVEN {
            return;
        }
        let legacy = context.legacy;
        context.given.retain(|stream, last| {
            let is_needed = streams.get(*stream).is_some() || !executor.is_done(*last);
            if let Some(order) = executor.order.as_mut().filter(|_| !is_needed) {
                order.retire(legacy, *last);
            }
            is_needed
        });
        context.given_kept = context.given.len();
    }

    pub(crate) fn add_event(&mut self, event: Event) -> usize {
        let context = event.context;
        let handle = self.objects.events.insert(event);
        self.objects.members.events.insert(context, handle);
        handle
    }

    pub(crate) fn remove_event(&mut self, handle: usize) {
        if let Some(event) = self.objects.events.remove(handle) {
            self.objects.members.events.remove(event.context, handle);
        }
    }

    pub(crate) fn add_module(&mut self, module: Module) -> usize {
        let context = module.context;
        let handle = self.objects.modules.insert(module);
        if let Some(context) = context {
            self.objects.members.modules.insert(context, handle);
        }
        handle
    }

    pub(crate) fn remove_module(&mut self, handle: usize) {
        let Some(module) = self.objects.modules.remove(handle) else {
            return;
        };
        if let Some(context) = module.context {
            self.objects.members.modules.remove(context, handle);
        }
        self.forget_functions(&module);
    }
}
