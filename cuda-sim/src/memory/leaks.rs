//! The places of the program that have allocated the memory which is alive.

use super::{Allocation, Host, HostKind, Kind, Memory};
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

/// Returns the first function of a backtrace that is not one of the driver or of the crates on it, with its file and
/// line.
pub(super) fn caller(trace: &str) -> Option<String> {
    // A line with a function may be followed by one with its place, which begins with `at`.
    let mut lines = trace.lines().map(str::trim).peekable();
    while let Some(line) = lines.next() {
        let place = lines.next_if(|next| next.starts_with("at ")).map(|place| &place[3..]);
        let name = match line.split_once(": ") {
            Some((number, name)) if number.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => line,
        };
        if name == "<unknown>" || is_of_driver(name) || place.is_some_and(is_source_of_driver) {
            continue;
        }
        return Some(match place {
            Some(place) => format!("{name} at {place}"),
            None => name.to_owned(),
        });
    }
    None
}

/// Returns whether a function is one of the driver's, of the crates on it, or of Rust's libraries.
fn is_of_driver(name: &str) -> bool {
    const PREFIXES: [&str; 9] = [
        "cuda_sim::",
        "cuda_sys::",
        "cuda_safe::",
        "cuda_memory::",
        "cuda::",
        "std::",
        "core::",
        "alloc::",
        "__rust",
    ];
    // `<cuda_safe::Buffer as Drop>::drop`, `<&mut F as core::ops::FnOnce>::call_once`
    let path = name.trim_start_matches(['<', '&', '*', '[', '(']);
    let path = path.strip_prefix("mut ").unwrap_or(path);
    let of_c = name.strip_prefix("cu").is_some_and(|rest| rest.starts_with(char::is_uppercase));
    of_c || name.contains(" as core::") || PREFIXES.iter().any(|prefix| path.starts_with(prefix))
}

/// Returns whether a file is a source of the driver, of the crates on it, or of Rust's libraries. Debug information
/// names a function without its path if another one was inlined into it.
fn is_source_of_driver(file: &str) -> bool {
    const CRATES: [&str; 4] = ["cuda-sim", "cuda-sys", "cuda-safe", "cuda-memory"];
    const LIBRARIES: [&str; 3] = ["std", "core", "alloc"];
    // `cuda-safe` in this repository, `cuda-safe-0.1.0` of a registry
    let is_crate = |folder: &str, name: &str| {
        let rest = folder.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let folders: Vec<&str> = file.split(['/', '\\']).collect();
    folders.windows(3).any(|its| match its {
        ["library", name, "src"] => LIBRARIES.contains(name),
        [folder, "src", _] | [folder, "cdylib", _] => {
            CRATES.iter().any(|name| is_crate(folder, name))
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::caller;

    #[test]
    fn the_first_function_outside_of_the_driver_is_the_caller() {
        let trace = "   0: cuda_sim::memory::leaks::<impl cuda_sim::memory::Memory>::note_site_of\n\
            \x20            at ./cuda-sim/src/memory/leaks.rs:81:40\n\
            \x20  1: core::ops::function::FnOnce::call_once\n\
            \x20  2: <alloc::boxed::Box<F,A> as core::ops::function::Fn<Args>>::call\n\
            \x20  3: cuMemAlloc_v2\n\
            \x20  4: <cuda_safe::memory::DeviceBuffer<T>>::zeroed\n\
            \x20  5: <unknown>\n\
            \x20  6: zeroed\n\
            \x20            at /registry/cuda-safe-0.1.0/src/memory/buffer.rs:40:5\n\
            \x20     call_once\n\
            \x20            at /rustc/0123/library/core/src/ops/function.rs:250:5\n\
            \x20     model::Layer::new\n\
            \x20            at ./src/model.rs:21:9\n\
            \x20  7: main\n\
            \x20            at ./src/model.rs:30:5\n";
        assert_eq!(caller(trace).as_deref(), Some("model::Layer::new at ./src/model.rs:21:9"));
        assert_eq!(
            caller("   0: cuMemAlloc_v2\n   1: upload\n   2: main\n").as_deref(),
            Some("upload")
        );
        assert_eq!(caller("   0: cutlass_alloc\n").as_deref(), Some("cutlass_alloc"));
        let own = "   0: pool\n             at ./my-cuda-safe/src/pool.rs:3:1\n";
        assert_eq!(caller(own).as_deref(), Some("pool at ./my-cuda-safe/src/pool.rs:3:1"));
        assert_eq!(caller("   0: <unknown>\n   1: cuMemAlloc_v2\n"), None);
    }
}
