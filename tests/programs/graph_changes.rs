//! Queries and changes of nodes, in graphs and executable graphs.

use super::captures::mode;
use super::graphs::{Drawn, function};
use super::memory_kinds::{COLUMN, TENSOR, TENSOR_LEN, TILE, WIDE};
use super::{Held, LEN, Operations, Skip, Step, check};
use cuda_safe::capture::Capture;
use cuda_safe::graph::{DeviceGraph, EdgeKind, InstantiateOptions, Node, kind, node_attribute};
use cuda_safe::memory::{Extent, Region};
use cuda_safe::stream::MemoryOperation;
use cuda_safe::sys::CUgraphDebugDot_flags;
use cuda_safe::tensor_map::{GraphTensorMap, TensorMapOptions};
use cuda_safe::{DeviceBuffer, Event, Graph, LaunchConfig, PinnedBuffer, Stream};
use std::path::Path;

const TALL: Extent = Extent::new_2d(2, 2);

fn rows() -> Region {
    Region::new(Extent::new_2d(LEN / 2, 2))
}

/// Returns a node of a kind.
fn node_of<K: kind::Kind>(s: &mut Step<'_>, drawn: &Drawn) -> Result<Node<K>, Skip> {
    let graph = drawn.graph.as_ref().ok_or(Skip)?;
    let count = drawn.nodes.len();
    let start = s.below(count);
    let nodes = (0..count).map(|place| drawn.nodes[(start + place) % count]);
    nodes.filter_map(|node| graph.typed(node).ok()).next().ok_or(Skip)
}

pub(super) const CHANGES: Operations = &[
    ("new graph of all kinds", |s| {
        let mut drawn = Drawn::of(Graph::new(s.context())?);
        for _ in 0..2 {
            let held = Held::new(&s.get()?, s.fresh())?;
            drawn.values.extend(&held.values);
            let buffer = drawn.graph()?.own(held.buffer)?;
            drawn.memory.push(buffer);
        }
        let mut host = PinnedBuffer::zeroed(s.context(), LEN)?;
        host.fill(drawn.may_be(s.fresh()));
        let pinned = drawn.graph()?.own_pinned(host);
        drawn.pinned.push(pinned);
        let value = drawn.may_be(s.fresh());
        let (event, kernel) = (s.get::<Event>()?, s.world.kernel.clone());
        let (context, config) = (s.context().clone(), LaunchConfig::linear(1, 32));
        let nodes = {
            let [first, second] = &mut drawn.memory[..] else {
                return Err(Skip);
            };
            let graph = drawn.graph.as_mut().ok_or(Skip)?;
            let fill = graph.add_fill(&[], &mut *first, value)?.id();
            let copy = graph.add_copy(&[fill], &mut *second, &*first)?.id();
            let arguments = (&mut *first, 1, 0, LEN as u32);
            // SAFETY: the kernel reads and writes as many elements as the last argument says.
            let added = unsafe { graph.add_kernel(&[copy], &context, &kernel, config, arguments) };
            let kernel = added?.id();
            let record = graph.add_event_record(&[kernel], &event)?.id();
            let wait = graph.add_event_wait(&[record], &event)?.id();
            let empty = graph.add_empty(&[wait])?.id();
            [fill, copy, kernel, record, wait, empty]
        };
        drawn.nodes.extend(nodes);
        let (runs, function) = function();
        let node = drawn.add(s, |_, graph, after| graph.add_host_function(after, function))?;
        drawn.add_function(node, runs);
        drawn.instantiate(&InstantiateOptions::default())?;
        Ok(s.put(drawn))
    }),
    ("launch a graph of all kinds", launch),
    ("launch a graph of all kinds again", launch),
    ("instantiate a graph of all kinds", |s| {
        s.with(|_, drawn: &mut Drawn| drawn.instantiate(&InstantiateOptions::default()))
    }),
    ("query nodes", |s| {
        s.with(|s, drawn: &mut Drawn| {
            let (fill, copy) = (node_of::<kind::Fill>(s, drawn), node_of::<kind::Copy>(s, drawn));
            let (kernel, any) = (node_of::<kind::Kernel>(s, drawn), drawn.nodes.last().copied());
            let graph = drawn.graph()?;
            if let (Ok(fill), Ok(copy), Ok(kernel)) = (fill, copy, kernel) {
                let _ = (graph.fill_parameters(fill)?, graph.copy_parameters(copy)?);
                graph.kernel_config(kernel)?;
                let _ = graph.kernel_attribute(kernel, node_attribute::PRIORITY).is_ok();
            }
            let any = any.ok_or(Skip)?;
            let _ = (graph.node_local_id(any).is_ok(), graph.node_tools_id(any).is_ok());
            let _ = graph.raw_node_event(any).is_ok();
            let flags = CUgraphDebugDot_flags::CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE;
            graph.write_dot(Path::new("/dev/null"), flags)?;
            let _ = (node_attribute::PRIORITY.name(), node_attribute::PRIORITY.as_raw());
            let _ = node_attribute::PRIORITY.since();
            Ok(())
        })
    }),
    ("fill a part in a node", |s| {
        s.with(|s, drawn: &mut Drawn| {
            let value = drawn.may_be(s.fresh());
            let mut buffer = drawn.memory.pop().ok_or(Skip)?;
            let _ = (buffer.len(), buffer.is_empty(), buffer.as_raw(), buffer.number());
            let _ = buffer.as_slice().slice(..2)?.len();
            let added = drawn.add(s, |_, graph, after| {
                let (low, high) = buffer.as_mut_slice().split_at(LEN / 2)?;
                let _ = (low.len(), low.is_empty(), high.slice(1..)?.len());
                graph.add_fill_2d(after, TALL, &mut buffer, rows(), value)
            });
            drawn.memory.insert(0, buffer);
            added.map(drop)
        })
    }),
    ("copy a part in a node", |s| {
        s.with(|s, drawn: &mut Drawn| {
            let added = drawn.add(s, |drawn, graph, after| match &mut drawn.memory[..] {
                [first, second, ..] => {
                    let _ = (first.slice(1..)?.is_empty(), first.slice_mut(1..)?.len());
                    graph.add_copy_3d(after, TALL, first, rows(), &*second, rows())
                }
                _ => Err(cuda_safe::Invalid::NoGroups.into()),
            });
            added.map(drop)
        })
    }),
    ("copy pinned memory in a node", |s| {
        s.with(|s, drawn: &mut Drawn| {
            let reads = s.one_in(2);
            let mut pinned = drawn.pinned.pop().ok_or(Skip)?;
            let _ = (pinned.len(), pinned.is_empty(), pinned.number());
            let added = drawn.add(s, |drawn, graph, after| match drawn.memory.first_mut() {
                Some(first) if reads => graph.add_copy(after, &mut pinned, &*first),
                Some(first) => graph.add_copy(after, first, &pinned),
                None => Err(cuda_safe::Invalid::NoGroups.into()),
            });
            drawn.pinned.push(pinned);
            added.map(drop)
        })
    }),
    ("own pinned memory", |s| {
        s.with(|s, drawn: &mut Drawn| {
            let mut host = PinnedBuffer::zeroed(s.context(), LEN)?;
            host.fill(drawn.may_be(s.fresh()));
            let pinned = drawn.graph()?.own_pinned(host);
            Ok(drawn.pinned.push(pinned))
        })
    }),
    ("use pinned memory of a graph", |s| {
        s.with(|s, drawn: &mut Drawn| {
            let value = drawn.may_be(s.fresh());
            let values = drawn.values.clone();
            let running = drawn.executables.last_mut().ok_or(Skip)?;
            let pinned = drawn.pinned.last_mut().ok_or(Skip)?;
            let host = running.executable.host(pinned)?;
            check(host, &values);
            Ok(host.fill(value))
        })
    }),
    ("take pinned memory back", |s| {
        s.with(|s, drawn: &mut Drawn| {
            match drawn.pinned.pop().ok_or(Skip)?.into_pinned() {
                Ok(mut host) => {
                    host.fill(s.fresh());
                    s.put(host);
                }
                Err(pinned) => drawn.pinned.push(pinned),
            }
            Ok(())
        })
    }),
    ("change a fill", |s| {
        s.with(|s, drawn: &mut Drawn| {
            let value = drawn.may_be(s.fresh());
            let (node, is_flat) = (node_of::<kind::Fill>(s, drawn)?, s.one_in(2));
            let buffer = drawn.memory.first_mut().ok_or(Skip)?;
            let graph = drawn.graph.as_mut().ok_or(Skip)?;
            match is_flat {
                true => graph.set_fill(node, buffer, value)?,
                false => graph.set_fill_2d(node, TALL, buffer, rows(), value)?,
            }
            Ok(())
        })
    }),
    ("change a fill of an executable graph", |s| {
        s.with(|s, drawn: &mut Drawn| {
            let value = drawn.may_be(s.fresh());
            let (node, is_flat) = (node_of::<kind::Fill>(s, drawn)?, s.one_in(2));
            let buffer = drawn.memory.first_mut().ok_or(Skip)?;
            let graph = drawn.graph.as_ref().ok_or(Skip)?;
            let running = drawn.executables.last_mut().ok_or(Skip)?;
            let mut nodes = running.executable.nodes(graph)?;
            match is_flat {
                true => nodes.set_fill(node, buffer, value)?,
                false => nodes.set_fill_2d(node, TALL, buffer, rows(), value)?,
            }
            Ok(())
        })
    }),
    ("change a copy", |s| {
        s.with(|s, drawn: &mut Drawn| {
            let (node, is_flat) = (node_of::<kind::Copy>(s, drawn)?, s.one_in(2));
            let graph = drawn.graph.as_mut().ok_or(Skip)?;
            match (&mut drawn.memory[..], is_flat) {
                ([first, second, ..], true) => graph.set_copy(node, first, &*second)?,
                ([first, second, ..], false) => {
                    graph.set_copy_3d(node, TALL, first, rows(), &*second, rows())?;
                }
                _ => {}
            }
            Ok(())
        })
    }),
    ("change a copy of an executable graph", |s| {
        s.with(|s, drawn: &mut Drawn| {
            let (node, is_flat) = (node_of::<kind::Copy>(s, drawn)?, s.one_in(2));
            let graph = drawn.graph.as_ref().ok_or(Skip)?;
            let running = drawn.executables.last_mut().ok_or(Skip)?;
            let mut nodes = running.executable.nodes(graph)?;
            match (&mut drawn.memory[..], is_flat) {
                ([first, second, ..], true) => nodes.set_copy(node, first, &*second)?,
                ([first, second, ..], false) => {
                    nodes.set_copy_3d(node, TALL, first, rows(), &*second, rows())?;
                }
                _ => {}
            }
            Ok(())
        })
    }),
    ("change an event", |s| {
        s.with(|s, drawn: &mut Drawn| {
            let event = s.get::<Event>()?;
            let record = node_of::<kind::EventRecord>(s, drawn)?;
            let wait = node_of::<kind::EventWait>(s, drawn)?;
            match s.one_in(2) {
                true => drawn.graph()?.set_event_record(record, &event)?,
                false => drawn.graph()?.set_event_wait(wait, &event)?,
            }
            Ok(())
        })
    }),
    ("change an event of an executable graph", |s| {
        s.with(|s, drawn: &mut Drawn| {
            let (event, is_record) = (s.get::<Event>()?, s.one_in(2));
            let record = node_of::<kind::EventRecord>(s, drawn)?;
            let wait = node_of::<kind::EventWait>(s, drawn)?;
            let graph = drawn.graph.as_ref().ok_or(Skip)?;
            let running = drawn.executables.last_mut().ok_or(Skip)?;
            let mut nodes = running.executable.nodes(graph)?;
            match is_record {
                true => nodes.set_event_record(record, &event)?,
                false => nodes.set_event_wait(wait, &event)?,
            }
            Ok(())
        })
    }),
    ("disable a node", |s| {
        s.with(|s, drawn: &mut Drawn| {
            let node = node_of::<kind::Fill>(s, drawn)?;
            let graph = drawn.graph.as_ref().ok_or(Skip)?;
            let running = drawn.executables.last_mut().ok_or(Skip)?;
            let mut nodes = running.executable.nodes(graph)?;
            // Launches of other threads need the node for the contents that they expect.
            for on in [false, true] {
                nodes.set_enabled(node, on)?;
                assert_eq!(nodes.is_enabled(node)?, on);
            }
            Ok(())
        })
    }),
    ("exchange a host function of an executable graph", |s| {
        s.with(|s, drawn: &mut Drawn| {
            let index = s.below(drawn.functions.len());
            let old = drawn.functions.get(index).ok_or(Skip)?;
            let graph = drawn.graph.as_ref().ok_or(Skip)?;
            let running = drawn.executables.last_mut().ok_or(Skip)?;
            let is_old = |its: &_| std::sync::Arc::ptr_eq(its, &old.runs);
            let place = running.functions.iter().position(is_old).ok_or(Skip)?;
            let (runs, function) = function();
            running.executable.nodes(graph)?.set_host_function(old.node, function)?;
            running.functions[place] = runs;
            Ok(())
        })
    }),
    ("update an executable graph", |s| {
        s.with(|_, drawn: &mut Drawn| {
            let graph = drawn.graph.as_ref().ok_or(Skip)?;
            let running = drawn.executables.last_mut().ok_or(Skip)?;
            let _ = (running.executable.tools_id().is_ok(), running.executable.context());
            let _ = running.executable.as_raw();
            running.executable.update(graph)?;
            let functions = drawn.functions.iter().map(|its| its.runs.clone());
            Ok(running.functions = functions.collect())
        })
    }),
    ("a child that is replaced", |s| {
        let (mut graph, mut child) = (Graph::new(s.context())?, Graph::new(s.context())?);
        let inner = child.add_empty(&[])?;
        let node = graph.add_child(&[], &mut child)?;
        let mut view = graph.child(node)?;
        let (nodes, roots) = (view.nodes()?, view.roots()?);
        let first = *nodes.first().ok_or(Skip)?;
        let _ = (roots, view.edges()?, view.dependencies(first)?, view.dependents(first)?);
        view.typed::<kind::Empty>(first)?;
        view.node_type(first)?;
        let mut executable = graph.instantiate()?;
        let stream = s.get::<Stream>()?;
        executable.launch(&stream)?;
        let mut other = Graph::new(s.context())?;
        other.add_empty(&[])?;
        executable.nodes(&graph)?.set_child(node, &other)?;
        executable.launch(&stream)?;
        let mut copy = child.try_clone()?;
        let inner = copy.node_in_clone(inner)?;
        Ok(copy.remove(inner)?)
    }),
    ("query a child", |s| {
        s.with(|s, drawn: &mut Drawn| {
            let mut graph = Graph::new(s.context())?;
            let inner = drawn.graph.take().ok_or(Skip)?;
            let node = graph.add_child_moved(&[], inner)?;
            let mut view = graph.child(node)?;
            for node in view.nodes()? {
                if let Ok(fill) = view.typed(node) {
                    view.fill_parameters(fill)?;
                }
                if let Ok(copy) = view.typed(node) {
                    view.copy_parameters(copy)?;
                }
                if let Ok(kernel) = view.typed(node) {
                    view.kernel_config(kernel)?;
                }
            }
            Ok(())
        })
    }),
    ("a child of a child", |s| {
        let mut inner = Graph::new(s.context())?;
        inner.add_empty(&[])?;
        let (mut middle, mut graph) = (Graph::new(s.context())?, Graph::new(s.context())?);
        let node = match middle.try_add_child_moved(&[], inner) {
            Ok(node) => node,
            Err(_) => return Err(Skip),
        };
        let _ = node.id();
        let outer = graph.add_child(&[], &mut middle)?;
        let mut view = graph.child(outer)?;
        let first = *view.nodes()?.first().ok_or(Skip)?;
        let node = view.typed::<kind::Child>(first)?;
        view.child(node)?.nodes()?;
        Ok(graph.instantiate()?.launch(&s.get()?)?)
    }),
    ("an edge of a kind", |s| {
        s.with(|s, drawn: &mut Drawn| {
            let (from, to) = (node_of::<kind::Empty>(s, drawn)?, node_of::<kind::Fill>(s, drawn)?);
            Ok(drawn.graph()?.add_dependency_with(from, to, EdgeKind::Full)?)
        })
    }),
    ("memory operations", |s| {
        s.with(|s, drawn: &mut Drawn| {
            let buffer = drawn.memory.first().ok_or(Skip)?;
            let operation =
                MemoryOperation::Write32 { address: buffer.as_raw(), value: drawn.values[0] };
            let mut graph = Graph::new(s.context())?;
            // SAFETY: the graph is never launched.
            let node = unsafe { graph.add_memory_operations(&[], &[operation]) }?;
            Ok(drop(graph.memory_operations(node)?))
        })
    }),
    ("query an allocation", |s| {
        let mut graph = Graph::new(s.context())?;
        let (node, mut allocation) = graph.add_alloc::<u32>(&[], LEN, &Default::default())?;
        let _ = (allocation.len(), allocation.is_empty(), allocation.as_raw());
        let _ = (allocation.number(), allocation.as_slice().is_empty());
        let _ = (allocation.slice(1..)?.len(), allocation.slice_mut(1..)?.len());
        let _ = allocation.as_mut_slice().len();
        let free = graph.add_free(&[node.id()], &mut allocation)?;
        let _ = (graph.alloc_parameters(node)?, graph.free_parameters(free)?);
        graph.instantiate()?.launch(&s.get()?)?;
        Ok(s.context().device().reset_graph_memory_high()?)
    }),
    ("tensor maps of graphs", |s| {
        let mut graph = Graph::new(s.context())?;
        let buffer = DeviceBuffer::<f32>::zeroed(&s.get()?, TENSOR_LEN)?;
        let mut buffer = graph.own(buffer)?;
        let options = TensorMapOptions::default();
        GraphTensorMap::new(buffer.as_slice(), TENSOR, TILE, options)?;
        GraphTensorMap::new_mut(buffer.as_mut_slice(), TENSOR, TILE, options)?;
        GraphTensorMap::new(buffer.as_slice(), TENSOR, COLUMN, options)?;
        GraphTensorMap::new_mut(buffer.as_mut_slice(), TENSOR, COLUMN, options)?;
        GraphTensorMap::new(buffer.as_slice(), TENSOR, WIDE, options)?;
        GraphTensorMap::new_mut(buffer.as_mut_slice(), TENSOR, WIDE, options)?;
        Ok(())
    }),
    ("new device graph", |s| {
        let mut graph = Graph::new(s.context())?;
        let held = Held::new(&s.get()?, s.fresh())?;
        let mut buffer = graph.own(held.buffer)?;
        let (kernel, config) = (s.world.kernel.clone(), LaunchConfig::linear(1, 32));
        let arguments = (&mut buffer, 1, 0, LEN as u32);
        // SAFETY: the kernel reads and writes as many elements as the last argument says.
        unsafe { graph.add_kernel(&[], s.context(), &kernel, config, arguments) }?;
        let executable = graph
            .instantiate_with(&InstantiateOptions { device_launch: true, ..Default::default() })?;
        let made = match s.one_in(2) {
            true => DeviceGraph::new(executable, &s.get()?)?,
            false => DeviceGraph::try_new(executable, &s.get()?).map_err(|_| Skip)?,
        };
        let _ = (made.context(), made.as_raw());
        Ok(s.put((made, buffer)))
    }),
    ("end a device graph", |s| {
        let (device, buffer) = s.take::<(DeviceGraph, cuda_safe::graph::GraphBuffer<u32>)>()?;
        match device.into_executable() {
            Ok(executable) => executable.launch(&s.get()?)?,
            Err(device) => s.put((device, buffer)),
        }
        Ok(())
    }),
];

pub(super) const CONDITIONALS: Operations = &[
    ("new conditional graph", |s| {
        let mut drawn = Drawn::of(Graph::new(s.context())?);
        let held = Held::new(&s.get()?, s.fresh())?;
        drawn.values.extend(&held.values);
        let buffer = drawn.graph()?.own(held.buffer)?;
        drawn.memory.push(buffer);
        branch(s, &mut drawn)?;
        drawn.instantiate(&InstantiateOptions::default())?;
        Ok(s.put(drawn))
    }),
    ("conditional node", |s| s.with(branch)),
    ("conditional node again", |s| s.with(branch)),
    ("instantiate a conditional graph", |s| {
        s.with(|_, drawn: &mut Drawn| drawn.instantiate(&InstantiateOptions::default()))
    }),
    ("launch a conditional graph", launch),
    ("launch a conditional graph again", launch),
    ("edit a body", |s| {
        s.with(|s, drawn: &mut Drawn| {
            let node = node_of::<kind::Conditional>(s, drawn)?;
            let value = drawn.may_be(s.fresh());
            let buffer = drawn.memory.first_mut().ok_or(Skip)?;
            let graph = drawn.graph.as_mut().ok_or(Skip)?;
            Ok(graph.edit_body(node, 0, |body| {
                let before = body.nodes()?;
                body.add_fill(&before[before.len().saturating_sub(1)..], buffer, value).map(drop)
            })?)
        })
    }),
    ("capture into a body", |s| {
        let mode = mode(s);
        s.with(|s, drawn: &mut Drawn| {
            s.with(|s, held: &mut Held| {
                let node = node_of::<kind::Conditional>(s, drawn)?;
                let (graph, value) = (drawn.graph.take().ok_or(Skip)?, held.may_be(s.fresh()));
                let stream = held.buffer.stream().clone();
                let fill = |_: &Stream| held.buffer.fill(value);
                let (graph, _) = stream.capture_into_body(graph, node, 0, &[], mode, fill)?;
                Ok(drawn.graph = Some(graph))
            })
        })
    }),
    ("begin a capture into a body", |s| {
        let (stream, mode) = (s.get::<Stream>()?, mode(s));
        s.with(|s, drawn: &mut Drawn| {
            let node = node_of::<kind::Conditional>(s, drawn)?;
            let graph = drawn.graph.take().ok_or(Skip)?;
            if s.one_in(2) {
                let capture = stream.begin_capture_into_body(graph, node, 0, &[], mode)?;
                return Ok(s.put_own(capture));
            }
            match stream.try_begin_capture_into_body(graph, node, 0, &[], mode) {
                Ok(capture) => s.put_own(capture),
                Err(rejected) => drawn.graph = rejected.value,
            }
            Ok(())
        })
    }),
    ("end a capture into a body", |s| {
        let (graph, _) = s.take_own::<Capture>()?.end_with_nodes()?;
        Ok(s.put(Drawn::of(graph)))
    }),
    ("access the memory of a conditional graph", |s| {
        s.with(|s, drawn: &mut Drawn| {
            let (stream, value) = (s.get::<Stream>()?, drawn.may_be(s.fresh()));
            let values = drawn.values.clone();
            let running = drawn.executables.last_mut().ok_or(Skip)?;
            let buffer = drawn.memory.first_mut().ok_or(Skip)?;
            let mut access = running.executable.access(buffer, &stream)?;
            let _ = access.stream();
            super::check_slice(access.as_slice(), &values);
            Ok(access.as_mut_slice().fill(value)?)
        })
    }),
    ("drop a conditional graph", |s| {
        s.with(|s, drawn: &mut Drawn| match s.one_in(2) {
            true => Ok(drop(drawn.executables.pop())),
            false => Ok(drop(drawn.graph.take())),
        })
    }),
    ("a handle without a node", |s| {
        s.with(|s, drawn: &mut Drawn| {
            let handle = drawn.graph()?.conditional_handle(s.context(), None)?;
            Ok(drop(handle.as_raw()))
        })
    }),
];

/// Adds a conditional node whose bodies fill the memory.
fn branch(s: &mut Step<'_>, drawn: &mut Drawn) -> super::Done {
    let value = drawn.may_be(s.fresh());
    let (kind, is_run) = (s.below(4), s.below(2) as u32);
    let context = s.context().clone();
    let buffer = drawn.memory.pop().ok_or(Skip)?;
    let buffer = std::cell::RefCell::new(buffer);
    let fill = |body: &mut Graph| {
        let mut buffer = buffer.borrow_mut();
        body.add_fill(&[], &mut *buffer, value).map(drop)
    };
    let added = drawn.add(s, |_, graph, after| {
        // A loop would not end, because no kernel changes its condition.
        let first = if kind == 2 { 0 } else { is_run };
        let handle = graph.conditional_handle(&context, Some(first))?;
        match kind {
            0 => graph.add_if(after, handle, fill),
            1 => graph.add_if_else(after, handle, fill, fill),
            2 => graph.add_while(after, handle, fill),
            _ => graph.add_switch(after, handle, 2, |_, body| fill(body)),
        }
    });
    drawn.memory.insert(0, buffer.into_inner());
    added.map(drop)
}

fn launch(s: &mut Step<'_>) -> super::Done {
    s.with(|s, drawn: &mut Drawn| {
        let stream = s.get::<Stream>()?;
        drawn.executables.last().ok_or(Skip)?.launch(&stream)
    })
}
