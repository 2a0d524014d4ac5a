//! The memory that graphs allocate.

use super::graphs::Drawn;
use super::{Done, Held, LEN, Operations, Skip, Step};
use cuda_safe::graph::{AllocOptions, InstantiateOptions};
use cuda_safe::{Graph, Stream};

pub(super) const MEMORY: Operations = &[
    ("new executable graph with an allocation", |s| {
        let mut drawn = Drawn::of(Graph::new(s.context())?);
        allocate(s, &mut drawn)?;
        drawn.instantiate(&InstantiateOptions::default())?;
        Ok(s.put(drawn))
    }),
    ("new graph with an allocation", |s| {
        let mut drawn = Drawn::of(Graph::new(s.context())?);
        allocate(s, &mut drawn)?;
        Ok(s.put(drawn))
    }),
    ("allocation node", |s| s.with(allocate)),
    ("fill an allocation", |s| {
        s.with(|s, drawn: &mut Drawn| {
            let value = drawn.may_be(s.fresh());
            let mut allocation = drawn.allocations.pop().ok_or(Skip)?;
            let added =
                drawn.add(s, |_, graph, after| graph.add_fill(after, &mut allocation, value));
            drawn.allocations.push(allocation);
            added.map(drop)
        })
    }),
    ("free node", |s| s.with(free)),
    ("instantiate with free on launch", |s| {
        s.with(|_, drawn: &mut Drawn| {
            drawn.instantiate(&InstantiateOptions {
                auto_free_on_launch: true,
                ..Default::default()
            })
        })
    }),
    ("instantiate without free on launch", |s| {
        s.with(|_, drawn: &mut Drawn| drawn.instantiate(&InstantiateOptions::default()))
    }),
    ("launch an allocation", |s| {
        s.with(|s, drawn: &mut Drawn| {
            let stream = s.get::<Stream>()?;
            drawn.executables.last().ok_or(Skip)?.launch(&stream)
        })
    }),
    ("take an allocation", take),
    ("take an allocation again", take),
    ("drop the executable graph of an allocation", |s| {
        s.with(|_, drawn: &mut Drawn| Ok(drop(drawn.executables.pop())))
    }),
    ("read an allocation", |s| s.with(|_, held: &mut Held| Ok(held.check()))),
    ("drop an allocation", |s| Ok(drop(s.take::<Held>()?))),
    ("move a graph with an allocation", |s| {
        s.with(|s, drawn: &mut Drawn| {
            let mut child = s.take::<Drawn>()?;
            let inner = child.graph.take().ok_or(Skip)?;
            let node = drawn.add(s, |_, graph, after| graph.add_child_moved(after, inner))?;
            drawn.take_from(&mut child, node.id());
            Ok(s.put(child))
        })
    }),
    ("free an allocation in a parent", |s| {
        let mut child = s.take::<Drawn>()?;
        let mut parent = Drawn::of(Graph::new(s.context())?);
        let inner = child.graph.take().ok_or(Skip)?;
        let node = parent.add(s, |_, graph, after| graph.add_child_moved(after, inner))?;
        parent.take_from(&mut child, node.id());
        s.put(child);
        let freed = free(s, &mut parent);
        s.put(parent);
        freed
    }),
    ("trim the memory of graphs", |s| Ok(s.context().device().trim_graph_memory()?)),
];

/// Adds an allocation that the graph fills.
fn allocate(s: &mut Step<'_>, drawn: &mut Drawn) -> Done {
    let mut allocated = None;
    drawn.add(s, |_, graph, after| {
        let (node, allocation) = graph.add_alloc::<u32>(after, LEN, &AllocOptions::default())?;
        allocated = Some(allocation);
        Ok(node)
    })?;
    let (mut allocation, value) = (allocated.ok_or(Skip)?, drawn.may_be(s.fresh()));
    drawn.add(s, |_, graph, after| graph.add_fill(after, &mut allocation, value))?;
    Ok(drawn.allocations.push(allocation))
}

/// Adds a node that frees the last allocation.
fn free(s: &mut Step<'_>, drawn: &mut Drawn) -> Done {
    let mut allocation = drawn.allocations.pop().ok_or(Skip)?;
    let added = drawn.add(s, |_, graph, after| graph.add_free(after, &mut allocation));
    drawn.allocations.push(allocation);
    added.map(drop)
}

fn take(s: &mut Step<'_>) -> Done {
    let mut taken = None;
    s.with(|s, drawn: &mut Drawn| {
        let stream = s.get::<Stream>()?;
        let index = s.below(drawn.allocations.len());
        let allocation = drawn.allocations.get(index).ok_or(Skip)?;
        let executable = drawn.executables.last_mut().ok_or(Skip)?;
        let buffer = executable.executable.take_allocation(allocation, &stream)?;
        let values = drawn.values.clone();
        Ok(taken = Some(Held { buffer, values }))
    })?;
    Ok(s.put(taken.ok_or(Skip)?))
}
