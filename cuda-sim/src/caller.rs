//! The function of the program that calls the driver.

/// Returns the first function of a backtrace that is not one of the driver or of the crates on it, with its file and
/// line.
pub(crate) fn caller(trace: &str) -> Option<String> {
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
