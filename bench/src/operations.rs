//! The list of operations.

use crate::driver::Driver;
use crate::work::{Layer, Operation, Works};
use crate::{Fallible, graphs, plain, raw, safe, theirs, transfers};

/// Kernels that do nothing.
pub(crate) const PTX: &str = include_str!("kernels.ptx");

/// Maximum number of copies that are pending. Each has separate pinned memory.
pub(crate) const HOSTS: usize = 64;

const USUAL: Row =
    Row { name: "", calls: "", batch: 256, rounds: usize::MAX, bare: false, nodes: 0 };

struct Row {
    name: &'static str,
    calls: &'static str,
    batch: usize,
    rounds: usize,
    bare: bool,
    /// The number of graph nodes that an operation concerns, if its cost depends on them.
    nodes: usize,
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row { name: "make current, current already", calls: "look", batch: 2048, ..USUAL },
    Row { name: "bind to the thread, bound already", calls: "look", batch: 2048, ..USUAL },
    Row { name: "make current and back", calls: "look, push, look, pop", batch: 1024, bare: true, ..USUAL },
    Row { name: "event record", calls: "record", ..USUAL },
    Row { name: "stream waits for an event", calls: "wait", ..USUAL },
    Row { name: "event query", calls: "query", batch: 1024, ..USUAL },
    Row { name: "event create, destroy", calls: "create, destroy", ..USUAL },
    Row { name: "the same, where no context is current", calls: "look, push, create, look, pop, destroy", bare: true, ..USUAL },
    Row { name: "stream create, destroy", calls: "create, destroy", batch: 32, ..USUAL },
    Row { name: "launch, no argument", calls: "launch", ..USUAL },
    Row { name: "launch, 3 arguments", calls: "launch", ..USUAL },
    Row { name: "launch, 16 arguments", calls: "launch", ..USUAL },
    Row { name: "launch, 3 arguments of run-time types", calls: "launch", ..USUAL },
    Row { name: "launch, 2 attributes", calls: "launch", ..USUAL },
    Row { name: "allocate, free 1 MiB in stream order", calls: "allocate, free", ..USUAL },
    Row { name: "the same, after the handle of another stream was taken", calls: "allocate, free", ..USUAL },
    Row { name: "the same, where others capture", calls: "allocate, mode, free, mode", ..USUAL },
    Row { name: "the same, by a caching pool", calls: "allocate, free", ..USUAL },
    Row { name: "copy 4 KiB to the device", calls: "copy", batch: HOSTS, ..USUAL },
    Row { name: "copy 4 KiB from the device", calls: "copy", batch: HOSTS, ..USUAL },
    Row { name: "copy to the device, 4 streams", calls: "copy", batch: HOSTS, ..USUAL },
    Row { name: "copy from the device, 4 streams", calls: "copy", batch: HOSTS, ..USUAL },
    Row { name: "copy 4 KiB on the device", calls: "copy", ..USUAL },
    Row { name: "memset 4 KiB", calls: "memset", ..USUAL },
    Row { name: "batch: 16 copies of 256 B on the device", calls: "batch", batch: 64, ..USUAL },
    Row { name: "batch: 16 slices of 256 B to the device", calls: "batch", batch: 64, ..USUAL },
    Row { name: "tensor map: encode 2 dimensions", calls: "encode", batch: 1024, ..USUAL },
    Row { name: "tensor map: replace the memory", calls: "replace", batch: 1024, ..USUAL },
    Row { name: "grow by 2 MiB, shrink", calls: "create, map, set access, query, unmap, release", batch: 32, ..USUAL },
    Row { name: "graph: add a kernel node", calls: "add", nodes: 1, ..USUAL },
    Row { name: "graph: instantiate 1 node", calls: "instantiate", batch: 32, nodes: 1, ..USUAL },
    Row { name: "graph: instantiate 10 nodes", calls: "instantiate", batch: 16, nodes: 10, ..USUAL },
    Row { name: "graph: instantiate 100 nodes", calls: "instantiate", batch: 8, nodes: 100, ..USUAL },
    Row { name: "graph: instantiate 1,000 nodes", calls: "instantiate", batch: 2, nodes: 1000, ..USUAL },
    // A driver holds about a thousand launches. The batch waits for all of them, so it is short.
    Row { name: "graph: launch 1 node", calls: "launch", ..USUAL },
    Row { name: "graph: launch 10 nodes", calls: "launch", ..USUAL },
    Row { name: "graph: launch 100 nodes", calls: "launch", batch: 64, ..USUAL },
    Row { name: "graph: launch 1,000 nodes", calls: "launch", batch: 16, ..USUAL },
    Row { name: "graph: change a kernel node", calls: "set", nodes: 1, ..USUAL },
    Row { name: "graph: update 100 nodes", calls: "update", batch: 64, nodes: 100, ..USUAL },
    Row { name: "graph: destroy an executable graph of 100 nodes", calls: "destroy", batch: 8, nodes: 100, ..USUAL },
    Row { name: "graph: destroy a graph of 100 nodes", calls: "destroy", batch: 8, nodes: 100, ..USUAL },
    Row { name: "green: split", calls: "get, split", batch: 32, ..USUAL },
    // The driver never releases all memory of a green context, so there are only a few of them.
    Row { name: "green: create, destroy", calls: "describe, create, destroy", batch: 2, rounds: 9, ..USUAL },
    Row { name: "green: split to stream, and back", calls: "get, split, describe, create, create, destroy, destroy", batch: 2, rounds: 9, ..USUAL },
    Row { name: "green: stream create, destroy", calls: "create, destroy", batch: 32, ..USUAL },
];

/// Returns the operations, with all layers set up for them.
pub(crate) fn all(driver: &Driver) -> Fallible<Vec<Operation>> {
    let (mut plain, mut again) = plain::works(driver);
    let (mut safe, objects) = safe::works()?;
    let mut raw = raw::works(objects);
    let (default_stream, mut streams) = theirs::works()?;
    if transfers::plain::setup() {
        safe.extend(transfers::safe::works()?);
        plain.extend(transfers::plain::works());
        again.extend(transfers::plain::works());
        raw.extend(transfers::raw::works(objects));
    }
    if graphs::plain::setup() {
        safe.extend(graphs::safe::works()?);
        plain.extend(graphs::plain::works());
        again.extend(graphs::plain::works());
        raw.extend(graphs::raw::works(objects));
        streams.extend(graphs::theirs::works()?);
    }
    let mut layers: Vec<(Layer, Works)> = vec![
        (Layer::C, plain),
        (Layer::CAgain, again),
        (Layer::Sys, raw),
        (Layer::Safe, safe),
        (Layer::Cudarc, default_stream),
        (Layer::CudarcStreams, streams),
    ];
    let mut operations = Vec::new();
    for row in ROWS {
        let mut works = Vec::new();
        for (layer, has) in &mut layers {
            if let Some(place) = has.iter().position(|(name, _)| *name == row.name) {
                works.push((*layer, has.swap_remove(place).1));
            }
        }
        let &Row { name, calls, batch, rounds, bare, nodes } = row;
        if works.first().is_some_and(|(layer, _)| *layer == Layer::C) {
            operations.push(Operation { name, calls, batch, rounds, bare, nodes, works });
        }
    }
    for (layer, rest) in layers {
        if let Some((name, _)) = rest.first() {
            return Err(format!("{}: there is no operation {name}", layer.name()).into());
        }
    }
    Ok(operations)
}
