//! The check that a graph has a kernel in the green context of the stream that it is launched on.
//!
//! The driver runs a kernel in the context of its node. So a graph without a kernel in the green context
//! of its stream would use all SMs of the device, although the stream looks as if it confined the graph.

use crate::call::{Invalid, Result};
use crate::graph::kind::Kind;
use crate::graph::rules::owners::{ContentRef, Slots};
use crate::graph::{ExecutableGraph, Retained, kind};
use crate::stream::{ExecutionContext, Partition, Stream};

/// Where the kernels of a graph run.
#[derive(Default)]
struct Kernels<'a> {
    /// Whether one of them runs in the green context of the stream.
    any_inside: bool,
    /// The context of a kernel outside of it.
    outside: Option<&'a ExecutionContext>,
}

impl ExecutableGraph {
    /// Checks that one of the kernels runs in the green context of the stream, if there is one, before the
    /// first launch on the stream.
    ///
    /// # Errors
    /// [`Invalid::OtherPartition`].
    #[inline]
    pub(crate) fn check_partition(&self, stream: &Stream) -> Result<()> {
        match stream.partition() {
            Some(partition) if !self.launches.is_noted(stream)? => self.check_kernels(&**partition),
            _ => Ok(()),
        }
    }

    #[cold]
    #[inline]
    fn check_kernels(&self, partition: &dyn Partition) -> Result<()> {
        let mut kernels = Kernels::default();
        let updated = self.objects.updated.as_deref();
        kernels.add(updated.unwrap_or(&self.objects.slots), partition);
        match kernels.outside {
            Some(outside) if !kernels.any_inside => Err(Invalid::OtherPartition {
                stream: describe(partition),
                kernel: match outside {
                    ExecutionContext::Context(context) => context.to_string(),
                    ExecutionContext::Green(green) => describe(&**green),
                },
            }
            .into()),
            _ => Ok(()),
        }
    }
}

impl<'a> Kernels<'a> {
    /// Adds the kernels of a graph. Those of a captured graph run in the contexts of its streams, and each
    /// of these is taken for that of a kernel. They follow the context of the graph itself, which an error
    /// names last.
    #[inline]
    fn add(&mut self, slots: &'a Slots, partition: &dyn Partition) {
        if slots.is_captured {
            slots.common.iter().rev().for_each(|its| self.add_object(its, partition));
        }
        for (_, node) in slots.iter() {
            self.add_node(node.content, partition);
        }
    }

    #[inline]
    fn add_node(&mut self, content: ContentRef<'a>, partition: &dyn Partition) {
        if let Some(child) = content.child {
            self.add(child, partition);
        }
        if content.node_type == kind::Kernel::TYPE {
            content.owners.iter().for_each(|its| self.add_object(its, partition));
        }
    }

    #[inline]
    fn add_object(&mut self, object: &'a Retained, partition: &dyn Partition) {
        match object {
            Retained::ExecutionContext(ExecutionContext::Green(its)) if its.is_same(partition) => {
                self.any_inside = true;
            }
            Retained::ExecutionContext(its) => self.outside = self.outside.or(Some(its)),
            // The green context of such a stream is not known.
            Retained::Stream(_) => self.any_inside = true,
            // A capture wraps its objects.
            Retained::Object(object) => {
                if let Some(object) = object.as_any().downcast_ref() {
                    self.add_object(object, partition);
                }
            }
            Retained::Event(_)
            | Retained::Kernel(_)
            | Retained::HostFunction(_)
            | Retained::Nothing => {}
        }
    }
}

/// Returns the description of a green context for messages.
#[inline]
fn describe(partition: &dyn Partition) -> String {
    format!("a green context of {} SMs on {}", partition.sm_count(), partition.context())
}
