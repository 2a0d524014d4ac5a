//! The places of the program that have allocated the memory which is alive.

use super::{Allocation, Host, HostKind, Kind, Memory};
use crate::caller::caller;
use std::backtrace::Backtrace;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// The most allocations whose places are looked up, which takes about a millisecond each.
const RESOLVED: usize = 1000;

/// Memory that one place of the program has allocated and not freed. [`leaks`](crate::leaks) returns them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leak {
    /// The function that called the driver, or a library on it, with the file and the line if the program has debug
    /// information. `None` if it has no symbol.
    pub site: Option<String>,
    /// The type of the memory, for example `device memory`.
    pub kind: &'static str,
    /// The number of allocations.
    pub count: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Whether the driver freed the memory, because its context ended.
    pub ended_with_context: bool,
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { site, kind, count, bytes, ended_with_context } = self;
        let plural = if *count == 1 { "" } else { "s" };
        let site = site.as_deref().unwrap_or("a place without a symbol");
        write!(f, "{count} allocation{plural} of {kind}, {bytes} bytes, by {site}")?;
        match ended_with_context {
            true => f.write_str(", until the context ended"),
            false => Ok(()),
        }
    }
}

/// Memory that is noted with its type and size.
#[derive(Debug)]
struct Noted {
    kind: &'static str,
    bytes: u64,
    site: Backtrace,
}

/// Where memory was allocated, by the ids of allocations.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    alive: HashMap<u64, Backtrace>,
    /// Memory that has a handle instead of an address.
    handles: BTreeMap<usize, Noted>,
    /// Memory whose context ended.
    ended: Vec<Noted>,
}

/// Returns the type of an allocation.
pub(super) fn kind_of(its: &Allocation) -> &'static str {
    match its.kind {
        Kind::Plain if its.external.is_some() => "mapped external memory",
        Kind::Plain => "device memory",
        Kind::Ordered { .. } if its.is_of_graph => "memory of a graph",
        Kind::Ordered { .. } if its.managed.is_some() => "stream-ordered managed memory",
        Kind::Ordered { .. } => "stream-ordered memory",
    }
}

/// Returns the type of host memory.
pub(super) fn kind_of_host(its: &Host) -> &'static str {
    match its.kind {
        HostKind::Pinned(_) => "pinned memory",
        HostKind::Registered => "registered memory",
        HostKind::Managed(..) => "managed memory",
    }
}

impl Memory {
    /// Notes where the current call comes from, which makes the allocation with an id.
    pub(super) fn note_site_of(&mut self, id: u64) {
        if let Some(sites) = &mut self.sites {
            sites.alive.insert(id, Backtrace::force_capture());
        }
    }

    /// Forgets where memory was allocated, because the program frees it.
    pub(super) fn forget_site_of(&mut self, id: u64) {
        if let Some(sites) = &mut self.sites {
            sites.alive.remove(&id);
        }
    }

    /// Keeps where memory was allocated that the driver frees because its context is destroyed.
    pub(super) fn end_site_of(&mut self, id: u64, kind: &'static str, bytes: u64) {
        if let Some(sites) = &mut self.sites {
            let site = sites.alive.remove(&id);
            sites.ended.extend(site.map(|site| Noted { kind, bytes, site }));
        }
    }

    /// Notes where the current call comes from, which makes memory with a handle.
    pub(crate) fn note_site_of_handle(&mut self, handle: usize, kind: &'static str, bytes: u64) {
        if let Some(sites) = &mut self.sites {
            let site = Backtrace::force_capture();
            sites.handles.insert(handle, Noted { kind, bytes, site });
        }
    }

    /// Forgets where memory with a handle was allocated, because nothing keeps it.
    pub(crate) fn forget_site_of_handle(&mut self, handle: usize) {
        if let Some(sites) = &mut self.sites {
            sites.handles.remove(&handle);
        }
    }

    /// Keeps where memory with a handle was allocated that the driver frees because its context is destroyed.
    pub(crate) fn end_site_of_handle(&mut self, handle: usize) {
        if let Some(sites) = &mut self.sites {
            sites.ended.extend(sites.handles.remove(&handle));
        }
    }

    /// Returns the memory that is alive, or was when its context ended, by the places that have allocated it. Most bytes
    /// come first.
    pub(crate) fn leaks(&self) -> Vec<Leak> {
        let Some(sites) = &self.sites else { return Vec::new() };
        let is_freed = |its: &Allocation| matches!(its.kind, Kind::Ordered { freed: true, .. });
        let device =
            self.device.iter().filter(|(at, its)| !self.is_variable(**at) && !is_freed(its));
        let device = device.map(|(_, its)| (its.id, kind_of(its), its.bytes.len() as u64));
        let host = self.host.values().map(|its| (its.id, kind_of_host(its), its.len as u64));
        let alive = device.chain(host).filter_map(|(id, kind, bytes)| {
            sites.alive.get(&id).map(|site| (site, kind, bytes, false))
        });
        let handles = sites.handles.values().map(|its| (&its.site, its.kind, its.bytes, false));
        let alive = alive.chain(handles);
        let ended = sites.ended.iter().map(|its| (&its.site, its.kind, its.bytes, true));
        let mut groups: BTreeMap<_, (usize, u64)> = BTreeMap::new();
        for (number, (site, kind, bytes, ended)) in alive.chain(ended).enumerate() {
            let site = match number < RESOLVED {
                true => caller(&site.to_string()),
                false => Some(format!("places that are not looked up, after {RESOLVED} others")),
            };
            let (count, total) = groups.entry((site, kind, ended)).or_default();
            *count += 1;
            *total += bytes;
        }
        let leak = |((site, kind, ended_with_context), (count, bytes))| Leak {
            site,
            kind,
            count,
            bytes,
            ended_with_context,
        };
        let mut leaks: Vec<Leak> = groups.into_iter().map(leak).collect();
        leaks.sort_by_key(|its| std::cmp::Reverse(its.bytes));
        leaks
    }
}
