//! Graphs and executable graphs.

use super::{Done, Held, LEN, Operations, Skip, Step, check_slice, wrong};

use cuda_safe::graph::{GraphAllocation, GraphBuffer, GraphPinned};
use cuda_safe::graph::{InstantiateOptions, Node, NodeId, RetainedObjects, kind};
use cuda_safe::sys::{cuGraphDestroy, cuGraphExecDestroy};
use cuda_safe::{Context, Event, ExecutableGraph, Graph, LaunchConfig, Stream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A graph, its executable graphs, and the memory that it owns.
pub(super) struct Drawn {
    pub(super) graph: Option<Graph>,
    pub(super) executables: Vec<Running>,
    pub(super) nodes: Vec<NodeId>,
    pub(super) memory: Vec<GraphBuffer<u32>>,
    pub(super) pinned: Vec<GraphPinned<u32>>,
    pub(super) allocations: Vec<GraphAllocation<u32>>,
    /// The values that all of this memory may have.
    pub(super) values: Vec<u32>,
    pub(super) functions: Vec<HostFunction>,
}

/// A host function of a graph.
#[derive(Clone)]
pub(super) struct HostFunction {
    pub(super) node: Node<kind::HostFunction>,
    /// The node of this graph that runs it: the same node, or that of a child graph.
    within: NodeId,
    pub(super) runs: Arc<Runs>,
}

/// An executable graph, with its host functions.
pub(super) struct Running {
    pub(super) executable: ExecutableGraph,
    pub(super) functions: Vec<Arc<Runs>>,
    /// Whether a launch may keep memory.
    allocates: bool,
}

/// The launches and the runs of a host function.
#[derive(Default)]
pub(super) struct Runs {
    launches: AtomicU32,
    runs: AtomicU32,
}

/// What a host function owns: it must not be dropped before all launches have run it.
struct Function(Arc<Runs>);

impl Drop for Function {
    fn drop(&mut self) {
        let (launches, runs) = (&self.0.launches, &self.0.runs);
        let (launches, runs) = (launches.load(Ordering::Relaxed), runs.load(Ordering::Relaxed));
        if launches != runs {
            wrong(format!("a host function is dropped after {runs} of {launches} runs"));
        }
    }
}

impl Running {
    pub(super) fn launch(&self, stream: &Stream) -> Done {
        for its in &self.functions {
            its.launches.fetch_add(1, Ordering::Relaxed);
        }
        let launched = self.executable.launch(stream);
        if launched.is_err() {
            for its in &self.functions {
                its.launches.fetch_sub(1, Ordering::Relaxed);
            }
        }
        Ok(launched?)
    }
}

impl Drawn {
    pub(super) fn of(graph: Graph) -> Self {
        Self {
            graph: Some(graph),
            executables: Vec::new(),
            nodes: Vec::new(),
            memory: Vec::new(),
            pinned: Vec::new(),
            allocations: Vec::new(),
            values: Vec::new(),
            functions: Vec::new(),
        }
    }

    pub(super) fn graph(&mut self) -> Result<&mut Graph, Skip> {
        self.graph.as_mut().ok_or(Skip)
    }

    /// Returns the last node, or none.
    pub(super) fn last(&self) -> &[NodeId] {
        &self.nodes[self.nodes.len().saturating_sub(1)..]
    }

    /// Adds a node after the last one, or after another one.
    pub(super) fn add<K>(
        &mut self,
        s: &mut Step<'_>,
        add: impl FnOnce(&mut Self, &mut Graph, &[NodeId]) -> cuda_safe::Result<Node<K>>,
    ) -> Result<Node<K>, Skip> {
        let mut after = self.last().to_vec();
        if s.one_in(8) {
            after = vec![*self.nodes.get(s.number() % self.nodes.len().max(1)).ok_or(Skip)?];
        }
        let mut graph = self.graph.take().ok_or(Skip)?;
        let added = add(self, &mut graph, &after);
        self.graph = Some(graph);
        let node = added?;
        self.nodes.push(node.id());
        Ok(node)
    }

    /// Notes a value that the memory may have from now on.
    pub(super) fn may_be(&mut self, value: u32) -> u32 {
        self.values.push(value);
        value
    }

    /// Returns an executable graph and a buffer.
    fn both(&mut self, s: &mut Step<'_>) -> Result<(&mut Running, &mut GraphBuffer<u32>), Skip> {
        let count = (self.executables.len().max(1), self.memory.len().max(1));
        let executable = self.executables.get_mut(s.number() % count.0).ok_or(Skip)?;
        let buffer = self.memory.get_mut(s.number() % count.1).ok_or(Skip)?;
        Ok((executable, buffer))
    }

    pub(super) fn instantiate(&mut self, options: &InstantiateOptions<'_>) -> Done {
        let executable = self.graph()?.instantiate_with(options)?;
        let functions = self.functions.iter().map(|its| Arc::clone(&its.runs));
        let (functions, allocates) = (functions.collect(), !self.allocations.is_empty());
        self.executables.push(Running { executable, functions, allocates });
        Ok(())
    }

    pub(super) fn add_function(&mut self, node: Node<kind::HostFunction>, runs: Arc<Runs>) {
        self.functions.push(HostFunction { node, within: node.id(), runs });
    }

    /// Adds the host functions of a child graph, which a node of this graph runs.
    pub(super) fn add_functions_of(&mut self, child: &Self, within: NodeId) {
        let functions = child.functions.iter().cloned();
        self.functions.extend(functions.map(|its| HostFunction { within, ..its }));
    }

    /// Takes the memory of a graph that became a node of this one.
    pub(super) fn take_from(&mut self, child: &mut Self, node: NodeId) {
        self.add_functions_of(child, node);
        child.functions.clear();
        self.memory.append(&mut child.memory);
        self.pinned.append(&mut child.pinned);
        self.allocations.append(&mut child.allocations);
        // Earlier executable graphs of the child have the same values.
        self.values.extend(&child.values);
    }

    /// Checks the memory.
    pub(super) fn check(mut self, context: &Context) {
        let Ok(stream) = context.stream() else { return };
        for running in &mut self.executables {
            for buffer in &mut self.memory {
                if let Ok(access) = running.executable.access(buffer, &stream) {
                    check_slice(access.as_slice(), &self.values);
                }
            }
        }
    }
}

fn of_program<R>(
    s: &mut Step<'_>,
    f: impl FnOnce(&mut Step<'_>, &mut Drawn) -> Result<R, Skip>,
) -> Done {
    s.with(|s, drawn: &mut Drawn| f(s, drawn).map(drop))
}

pub(super) const GRAPHS: Operations = &[
    ("new executable graph", |s| {
        let mut drawn = Drawn::of(Graph::new(s.context())?);
        let (held, value) = (Held::new(&s.get()?, s.fresh())?, drawn.may_be(s.fresh()));
        drawn.values.extend(&held.values);
        let mut buffer = drawn.graph()?.own(held.buffer)?;
        drawn.add(s, |_, graph, after| graph.add_fill(after, &mut buffer, value))?;
        drawn.memory.push(buffer);
        let (runs, function) = function();
        let node = drawn.add(s, |_, graph, after| graph.add_host_function(after, function))?;
        drawn.add_function(node, runs);
        drawn.instantiate(&InstantiateOptions::default())?;
        Ok(s.put(drawn))
    }),
    ("new graph", |s| Ok(s.put(Drawn::of(Graph::new(s.context())?)))),
    ("drop a graph", |s| of_program(s, |_, drawn| Ok(drop(drawn.graph.take())))),
    ("drop a graph and its memory", |s| Ok(drop(s.take::<Drawn>()?))),
    ("own a buffer", own),
    ("own a buffer later", own),
    ("fill node", |s| {
        of_program(s, |s, drawn| {
            let value = drawn.may_be(s.fresh());
            let mut buffer = drawn.memory.pop().ok_or(Skip)?;
            let added = drawn.add(s, |_, graph, after| graph.add_fill(after, &mut buffer, value));
            drawn.memory.insert(0, buffer);
            added
        })
    }),
    ("copy node", |s| {
        of_program(s, |s, drawn| {
            drawn.add(s, |drawn, graph, after| match &mut drawn.memory[..] {
                [first, second, ..] => graph.add_copy(after, first, &*second),
                _ => Err(cuda_safe::Invalid::NoGroups.into()),
            })
        })
    }),
    ("kernel node", |s| {
        of_program(s, |s, drawn| {
            let kernel = s.world.kernel.clone();
            let context = s.context().clone();
            let mut buffer = drawn.memory.pop().ok_or(Skip)?;
            let config = LaunchConfig::linear(1, 32);
            let arguments = (&mut buffer, 1, 0, LEN as u32);
            // SAFETY: the kernel reads and writes as many elements as the last argument says.
            let added = drawn.add(s, |_, graph, after| unsafe {
                graph.add_kernel(after, &context, &kernel, config, arguments)
            });
            drawn.memory.insert(0, buffer);
            added
        })
    }),
    ("host function node", |s| {
        of_program(s, |s, drawn| {
            let (runs, function) = function();
            let node = drawn.add(s, |_, graph, after| graph.add_host_function(after, function))?;
            Ok(drawn.add_function(node, runs))
        })
    }),
    ("event nodes", |s| {
        of_program(s, |s, drawn| {
            let event = s.get::<Event>()?;
            if s.one_in(2) {
                drawn.add(s, |_, graph, after| graph.add_event_wait(after, &event))?;
            } else {
                drawn.add(s, |_, graph, after| graph.add_event_record(after, &event))?;
            }
            Ok(())
        })
    }),
    ("child node", |s| {
        of_program(s, |s, drawn| {
            s.with(|s, child: &mut Drawn| {
                let inner = child.graph()?;
                let node = drawn.add(s, |_, graph, after| graph.add_child(after, inner))?;
                Ok(drawn.add_functions_of(child, node.id()))
            })
        })
    }),
    ("moved child node", |s| {
        of_program(s, |s, drawn| {
            let mut child = s.take::<Drawn>()?;
            let inner = child.graph.take().ok_or(Skip)?;
            let node = drawn.add(s, |_, graph, after| graph.add_child_moved(after, inner))?;
            drawn.take_from(&mut child, node.id());
            Ok(s.put(child))
        })
    }),
    ("clone a graph", |s| {
        let mut clone = None;
        of_program(s, |_, drawn| {
            let mut its = Drawn::of(drawn.graph()?.try_clone()?);
            its.functions.extend(drawn.functions.iter().cloned());
            clone = Some(its);
            Ok(())
        })?;
        Ok(s.put(clone.ok_or(Skip)?))
    }),
    ("remove a node", |s| {
        of_program(s, |_, drawn| {
            let node = drawn.nodes.pop().ok_or(Skip)?;
            drawn.graph()?.remove(node)?;
            drawn.functions.retain(|its| its.within != node);
            Ok(())
        })
    }),
    ("instantiate", instantiate),
    ("instantiate again", instantiate),
    ("drop an executable graph", |s| of_program(s, |_, drawn| Ok(drop(drawn.executables.pop())))),
    ("launch a graph", launch),
    ("launch a graph again", launch),
    ("access", |s| {
        of_program(s, |s, drawn| {
            let (stream, value) = (s.get::<Stream>()?, drawn.may_be(s.fresh()));
            let values = drawn.values.clone();
            let writes = s.one_in(2);
            let (running, buffer) = drawn.both(s)?;
            let mut access = running.executable.access(buffer, &stream)?;
            match writes {
                true => access.as_mut_slice().fill(value)?,
                false => check_slice(access.as_slice(), &values),
            }
            Ok(())
        })
    }),
    ("read access", |s| {
        of_program(s, |s, drawn| {
            let stream = s.get::<Stream>()?;
            let values = drawn.values.clone();
            let (running, buffer) = drawn.both(s)?;
            let access = running.executable.read_access(buffer, &stream)?;
            Ok(check_slice(access.as_slice(), &values))
        })
    }),
    ("take a buffer back", |s| {
        let mut back = None;
        of_program(s, |_, drawn| {
            match drawn.memory.pop().ok_or(Skip)?.into_buffer() {
                Ok(buffer) => {
                    let values = drawn.values.clone();
                    back = Some(Held { buffer, values });
                }
                Err(buffer) => drawn.memory.push(buffer),
            }
            Ok(())
        })?;
        Ok(s.put(back.ok_or(Skip)?))
    }),
    ("update", |s| {
        of_program(s, |_, drawn| {
            let mut running = drawn.executables.pop().ok_or(Skip)?;
            let updated = running.executable.try_update(drawn.graph()?);
            if updated.is_ok() {
                let functions = drawn.functions.iter().map(|its| Arc::clone(&its.runs));
                running.functions = functions.collect();
            }
            Ok(drawn.executables.push(running))
        })
    }),
    ("exchange a host function", |s| {
        of_program(s, |s, drawn| {
            let count = drawn.functions.len().max(1);
            let index = s.below(count);
            let node = drawn.functions.get(index).ok_or(Skip)?.node;
            let (runs, function) = function();
            drawn.graph()?.set_host_function(node, function)?;
            drawn.functions[index].runs = runs;
            Ok(())
        })
    }),
    ("give an executable graph away", |s| {
        let mut drawn = s.take::<Drawn>()?;
        let running = drawn.executables.pop();
        // Memory of a launch would be leaked, also after the allocation has moved to a parent graph.
        let given = running.filter(|running| !running.allocates);
        match s.one_in(2) {
            true => drop(drawn),
            false => s.put(drawn),
        }
        let (raw, objects) = given.ok_or(Skip)?.executable.into_raw();
        let raw = raw as usize;
        // SAFETY: no code uses the executable graph, and its launches are complete.
        s.at_the_end(move || assert!(unsafe { cuGraphExecDestroy(raw as _) }.is_success()));
        match s.one_in(2) {
            true => drop(objects),
            false => s.put(objects),
        }
        Ok(())
    }),
    ("give a graph away", |s| {
        let mut given = None;
        of_program(s, |_, drawn| Ok(given = drawn.graph.take()))?;
        let (raw, objects) = given.ok_or(Skip)?.into_raw();
        let raw = raw as usize;
        // SAFETY: no code uses the graph.
        s.at_the_end(move || assert!(unsafe { cuGraphDestroy(raw as _) }.is_success()));
        Ok(s.put(objects))
    }),
    ("drop retained objects", |s| Ok(drop(s.take::<RetainedObjects>()?))),
];

fn own(s: &mut Step<'_>) -> Done {
    s.with(|s, drawn: &mut Drawn| {
        let held = s.take::<Held>()?;
        drawn.values.extend(&held.values);
        match drawn.graph()?.try_own(held.buffer) {
            Ok(buffer) => drawn.memory.push(buffer),
            Err(rejected) => s.put(Held { buffer: rejected.value, values: held.values }),
        }
        Ok(())
    })
}

fn instantiate(s: &mut Step<'_>) -> Done {
    s.with(|s, drawn: &mut Drawn| {
        let options = InstantiateOptions { auto_free_on_launch: s.one_in(2), ..Default::default() };
        drawn.instantiate(&options)
    })
}

fn launch(s: &mut Step<'_>) -> Done {
    s.with(|s, drawn: &mut Drawn| {
        let stream = s.get::<Stream>()?;
        drawn.executables.last().ok_or(Skip)?.launch(&stream)
    })
}

/// Returns a host function, and its launches and runs.
pub(super) fn function() -> (Arc<Runs>, impl Fn() + Send + Sync + 'static) {
    let runs = Arc::new(Runs::default());
    let function = Function(Arc::clone(&runs));
    let its = move || {
        function.0.runs.fetch_add(1, Ordering::Relaxed);
    };
    (runs, its)
}
