//! The cache of compiled programs.

use crate::common::{child::in_child, scratch};
use crate::{libraries, or_skip};
use cuda_nvrtc::{
    Cache, CacheOptions, CompileOptions, Error, Program, Standard, Target, supported_architectures,
};
use std::fs;
use std::path::{Path, PathBuf};

const SAXPY: &str = include_str!("saxpy.cu");

/// Returns the path of a folder that does not exist.
fn folder(name: &str) -> PathBuf {
    let folder = scratch().join(format!("nvrtc-cache-{name}"));
    let _ = fs::remove_dir_all(&folder);
    let _ = fs::remove_file(&folder);
    folder
}

fn options(folder: &Path) -> CacheOptions {
    CacheOptions { folder: Some(folder.to_owned()), ..Default::default() }
}

fn cache(folder: &Path) -> Cache {
    Cache::with(options(folder)).expect("a usable folder")
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).expect("the folder");
    files.map(|file| file.expect("a file").path()).collect()
}

#[test]
fn a_cache_in_memory_writes_no_file() {
    let folder = folder("in-memory");
    let environment = folder.display().to_string();
    in_child(&[("CUDA_NVRTC_CACHE_DIR", &environment)], || {
        or_skip!(libraries::nvrtc());
        let cache = Cache::in_memory();
        assert_eq!(cache.folder(), None);
        for _ in 0..2 {
            cache
                .compile(&Program::new(SAXPY), &CompileOptions::default())
                .expect("a correct program");
        }
        let stats = cache.stats();
        assert_eq!((stats.misses, stats.memory_hits), (1, 1));
        cache.clear().expect("no folder");
        let folder = Cache::default_folder().expect("the variable names it");
        assert!(!folder.exists(), "{}", folder.display());
    });
}

#[test]
fn a_program_is_found_in_memory_and_then_on_disk() {
    or_skip!(libraries::nvrtc());
    let folder = folder("found");
    let program =
        Program::new("template <int N> __global__ void f(int *x) { int unused; *x = N; }")
            .with_name_expression("f<3>");
    let compile = CompileOptions::default();
    let fresh = program.compile(&compile).expect("a correct program");

    let first = cache(&folder);
    for _ in 0..3 {
        let compiled = first.compile(&program, &compile).expect("a correct program");
        assert_eq!(*compiled, fresh);
    }
    let stats = first.stats();
    assert_eq!((stats.misses, stats.memory_hits, stats.disk_hits), (1, 2, 0));

    // As another process would.
    let second = cache(&folder);
    for _ in 0..3 {
        let compiled = second.compile(&program, &compile).expect("a correct program");
        assert_eq!(*compiled, fresh);
        assert!(compiled.lowered_name("f<3>").is_ok());
        assert!(compiled.log().contains("unused"), "{}", compiled.log());
    }
    let stats = second.stats();
    assert_eq!((stats.misses, stats.memory_hits, stats.disk_hits), (0, 2, 1));
    assert_eq!(entries(&folder).len(), 1);

    second.clear().expect("the entry is removed");
    assert_eq!(entries(&folder), Vec::<PathBuf>::new());
    second.compile(&program, &compile).expect("a correct program");
    assert_eq!(second.stats().misses, 1);
}

#[test]
fn everything_that_affects_the_result_is_a_part_of_the_key() {
    or_skip!(libraries::nvrtc());
    let cache = cache(&folder("key"));
    let newest = *supported_architectures().expect("NVRTC").last().expect("one");
    let base = Program::new("#include \"a.h\"\n__global__ void f() {}").with_header("a.h", "");
    let plain = CompileOptions::default;
    let requests = [
        (base.clone(), plain()),
        (base.clone().with_name("other.cu"), plain()),
        (base.clone().with_header("b.h", ""), plain()),
        (base.clone().with_name_expression("f"), plain()),
        (Program::new("__global__ void f() {}"), plain()),
        (Program::new("__global__ void g() {}"), plain()),
        (base.clone(), CompileOptions { line_info: true, ..plain() }),
        (base.clone(), CompileOptions { standard: Some(Standard::Cpp14), ..plain() }),
        (base.clone(), CompileOptions { target: Some(Target::Cubin(newest)), ..plain() }),
        (base.clone(), CompileOptions { target: Some(Target::Ptx(newest)), ..plain() }),
        (base.clone(), CompileOptions { defines: vec![("A".into(), None)], ..plain() }),
        (base.clone(), CompileOptions { extra: vec!["-default-device".into()], ..plain() }),
    ];
    for (number, (program, options)) in (1..).zip(&requests) {
        cache.compile(program, options).expect("a correct program");
        assert_eq!(cache.stats().misses, number, "{program:?} {options:?}");
    }
    let before = cache.stats();
    for (program, options) in &requests {
        cache.compile(program, options).expect("a correct program");
    }
    assert_eq!(cache.stats().misses, before.misses);
}

#[test]
fn a_header_on_disk_is_never_out_of_date() {
    or_skip!(libraries::nvrtc());
    let headers = folder("headers");
    fs::create_dir_all(&headers).expect("creating a folder");
    let cache = cache(&folder("disk-headers"));
    let program = Program::new("#include <value.h>\nextern \"C\" __device__ int value = VALUE;");
    let options = CompileOptions { include_paths: vec![headers.clone()], ..Default::default() };
    for value in ["1234", "5678"] {
        fs::write(headers.join("value.h"), format!("#define VALUE {value}")).expect("a header");
        let compiled = cache.compile(&program, &options).expect("a correct program");
        assert!(compiled.ptx().expect("PTX").contains(value));
    }
    assert_eq!(cache.stats().not_cacheable, 2);

    // A header in memory comes first.
    let program = program.with_header("value.h", "#define VALUE 9999");
    let compiled = cache.compile(&program, &options).expect("a correct program");
    assert!(compiled.ptx().expect("PTX").contains("9999"));
    assert_eq!((cache.stats().misses, cache.stats().not_cacheable), (1, 2));
}

#[test]
fn errors_are_not_cached() {
    or_skip!(libraries::nvrtc());
    let folder = folder("errors");
    let cache = cache(&folder);
    for _ in 0..2 {
        let error = cache.compile(&Program::new("wrong"), &CompileOptions::default());
        assert!(matches!(error, Err(Error::Compile(_))), "{error:?}");
    }
    assert_eq!(cache.stats().misses, 2);
    assert_eq!(entries(&folder), Vec::<PathBuf>::new());
}

#[test]
fn a_damaged_entry_is_compiled_again_and_replaced() {
    or_skip!(libraries::nvrtc());
    let folder = folder("damaged");
    let (program, compile) = (Program::new(SAXPY), CompileOptions::default());
    let fresh = cache(&folder).compile(&program, &compile).expect("a correct program");
    let entry = entries(&folder).pop().expect("an entry");
    let good = fs::read(&entry).expect("the entry");
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 4;
    for damaged in [&b""[..], b"x", &good[..good.len() / 2], &flipped, &[7; 5000]] {
        fs::write(&entry, damaged).expect("damaging the entry");
        let cache = cache(&folder);
        assert_eq!(cache.compile(&program, &compile).expect("a correct program"), fresh);
        let stats = cache.stats();
        assert_eq!((stats.damaged, stats.misses, stats.disk_hits), (1, 1, 0));
        assert_eq!(fs::read(&entry).expect("the entry"), good);
    }

    // An entry under the name of another one.
    let other = Program::new("__global__ void other() {}");
    let cache = cache(&folder);
    let expected = cache.compile(&other, &compile).expect("a correct program");
    for path in entries(&folder) {
        fs::write(path, &good).expect("copying the entry");
    }
    let again = self::cache(&folder);
    assert_eq!(again.compile(&other, &compile).expect("a correct program"), expected);
    assert_eq!(again.stats().damaged, 1);
}

#[test]
fn a_result_that_cannot_be_written_is_returned() {
    or_skip!(libraries::nvrtc());
    let folder = folder("removed");
    let cache = cache(&folder);
    fs::remove_dir_all(&folder).expect("removing the folder");
    let (program, compile) = (Program::new(SAXPY), CompileOptions::default());
    cache.compile(&program, &compile).expect("a correct program");
    assert_eq!(cache.stats().failed_writes, 1);
    cache.compile(&program, &compile).expect("in memory");
    assert_eq!(cache.stats().memory_hits, 1);
}

#[test]
fn the_folder_does_not_grow_beyond_its_limit() {
    or_skip!(libraries::nvrtc());
    let folder = folder("limit");
    let limited = CacheOptions { disk_bytes: 8000, memory_bytes: 0, ..options(&folder) };
    let cache = Cache::with(limited).expect("a usable folder");
    fs::write(folder.join("of_another_program"), [0; 9000]).expect("writing a file");
    let compile = CompileOptions::default();
    let program = |number| Program::new(format!("{SAXPY}\n// {number}"));
    for number in 0..20 {
        cache.compile(&program(number), &compile).expect("a correct program");
    }
    let bytes = |path: &PathBuf| fs::metadata(path).expect("a file").len();
    let files = entries(&folder);
    let is_foreign = |path: &PathBuf| path.ends_with("of_another_program");
    assert!(files.iter().any(is_foreign), "{files:?}");
    assert!(files.iter().map(bytes).sum::<u64>() <= 8000 + 9000, "{files:?}");
    assert!(files.len() > 3, "{files:?}");
    cache.compile(&program(19), &compile).expect("a correct program");
    assert_eq!(cache.stats().disk_hits, 1, "the newest entry remains");
}

#[test]
fn threads_with_several_caches_share_a_folder() {
    or_skip!(libraries::nvrtc());
    let folder = &folder("shared");
    let program = |number| Program::new(format!("{SAXPY}\n// {number}"));
    let expected = program(0).compile(&CompileOptions::default()).expect("a correct program");
    let expected = &expected;
    std::thread::scope(|scope| {
        for thread in 0..6 {
            scope.spawn(move || {
                let limited = CacheOptions {
                    // Also while entries are removed.
                    disk_bytes: 6000,
                    memory_bytes: 0,
                    ..options(folder)
                };
                let cache = Cache::with(limited).expect("a usable folder");
                for step in 0..12 {
                    let program = program((thread + step) % 8);
                    let compiled = cache.compile(&program, &CompileOptions::default());
                    assert_eq!(*compiled.expect("a correct program"), *expected);
                }
                assert_eq!((cache.stats().damaged, cache.stats().failed_writes), (0, 0));
            });
        }
    });
    let temporary = |path: &PathBuf| path.to_string_lossy().contains(".writing-");
    assert!(!entries(folder).iter().any(temporary));
}

#[test]
fn the_environment_variable_names_the_folder() {
    let folder = folder("variable");
    let variables = [("CUDA_NVRTC_CACHE_DIR", folder.to_str().expect("UTF-8"))];
    in_child(&variables, || {
        assert_eq!(Cache::default_folder().as_deref(), Some(folder.as_path()));
        let cache = Cache::new().expect("a usable folder");
        assert_eq!(cache.folder(), folder.canonicalize().ok().as_deref());
    });
}

#[test]
#[cfg(target_os = "linux")]
fn without_the_variable_the_folder_is_in_the_cache_of_the_user() {
    let home = scratch();
    let variables =
        [("CUDA_NVRTC_CACHE_DIR", ""), ("XDG_CACHE_HOME", home.to_str().expect("UTF-8"))];
    in_child(&variables, || {
        assert_eq!(Cache::default_folder(), Some(home.join("cuda-nvrtc")));
    });
}

#[cfg(unix)]
mod hostile {
    use super::{
        Cache, CompileOptions, Error, Program, SAXPY, cache, entries, folder, fs, libraries,
        options,
    };
    use crate::or_skip;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
    use std::path::Path;
    use std::process::Command;

    #[track_caller]
    fn refusal(folder: &Path) -> String {
        match Cache::with(options(folder)) {
            Err(error @ Error::Cache { .. }) => error.to_string(),
            other => panic!("expected a refused folder, got {other:?}"),
        }
    }

    #[test]
    fn the_new_folder_is_private() {
        let folder = folder("private");
        cache(&folder.join("a/b"));
        for folder in [folder.join("a"), folder.join("a/b")] {
            let mode = fs::metadata(folder).expect("the folder").permissions().mode();
            assert_eq!(mode & 0o777, 0o700);
        }
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused() {
        let folder = folder("writable");
        fs::create_dir_all(&folder).expect("creating a folder");
        for mode in [0o777, 0o770, 0o1777] {
            let permissions = fs::Permissions::from_mode(mode);
            fs::set_permissions(&folder, permissions).expect("permissions");
            let text = refusal(&folder);
            assert!(text.contains("chmod go-w") && text.contains("writable"), "{text}");
            // A link to such a folder is no way around it.
            let link = super::folder("link");
            symlink(&folder, &link).expect("creating a link");
            assert!(refusal(&link).contains("chmod go-w"));
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("permissions");
        cache(&folder);
    }

    #[test]
    fn a_folder_of_another_user_is_refused() {
        let folder = folder("foreign");
        fs::create_dir_all(&folder).expect("creating a folder");
        if chown(&folder, Some(12345), None).is_err() {
            return libraries::skip("only root can create a folder of another user");
        }
        let text = refusal(&folder);
        assert!(text.contains("belongs to the user 12345"), "{text}");
    }

    #[test]
    fn an_entry_that_is_no_file_is_replaced() {
        or_skip!(libraries::nvrtc());
        let folder = folder("entries");
        let (program, compile) = (Program::new(SAXPY), CompileOptions::default());
        let fresh = cache(&folder).compile(&program, &compile);
        let fresh = fresh.expect("a correct program");
        let entry = entries(&folder).pop().expect("an entry");
        let elsewhere = super::folder("elsewhere");
        fs::rename(&entry, &elsewhere).expect("moving the entry");

        type Place = fn(&Path, &Path);
        let places: [(&str, Place); 5] = [
            ("a link to a good entry", |entry, elsewhere| {
                symlink(elsewhere, entry).expect("creating a link");
            }),
            ("a link to an endless file", |entry, _| {
                symlink("/dev/zero", entry).expect("creating a link");
            }),
            ("a link to itself", |entry, _| {
                symlink(entry, entry).expect("creating a link");
            }),
            ("a pipe that nothing writes to", |entry, _| {
                let made = Command::new("mkfifo").arg(entry).status();
                assert!(made.is_ok_and(|status| status.success()), "mkfifo");
            }),
            ("a file that is larger than the limit", |entry, _| {
                let file = fs::File::create(entry).expect("creating a file");
                file.set_len(1 << 40).expect("a file with holes");
            }),
        ];
        for (what, place) in places {
            place(&entry, &elsewhere);
            let cache = cache(&folder);
            let compiled = cache.compile(&program, &compile);
            assert_eq!(compiled.expect("a correct program"), fresh, "{what}");
            let stats = cache.stats();
            assert_eq!((stats.damaged, stats.failed_writes), (1, 0), "{what}");
            let replaced = entry.symlink_metadata().expect("an entry");
            assert!(replaced.is_file(), "{what}");
            fs::remove_file(&entry).expect("removing the entry");
        }
        assert!(elsewhere.is_file(), "nothing is written through a link");

        fs::create_dir(&entry).expect("creating a folder");
        let cache = cache(&folder);
        let compiled = cache.compile(&program, &compile);
        assert_eq!(compiled.expect("a correct program"), fresh);
        assert_eq!(cache.stats().failed_writes, 1);
    }

    #[test]
    fn an_entry_of_another_user_is_replaced() {
        or_skip!(libraries::nvrtc());
        let folder = folder("foreign-entry");
        let (program, compile) = (Program::new(SAXPY), CompileOptions::default());
        let fresh = cache(&folder).compile(&program, &compile);
        let entry = entries(&folder).pop().expect("an entry");
        if chown(&entry, Some(12345), None).is_err() {
            return libraries::skip("only root can create a file of another user");
        }
        let cache = cache(&folder);
        let compiled = cache.compile(&program, &compile);
        assert_eq!(compiled.expect("a correct program"), fresh.expect("a correct program"));
        assert_eq!((cache.stats().damaged, cache.stats().disk_hits), (1, 0));
        let replaced = fs::metadata(&entry).expect("an entry");
        assert_ne!(replaced.uid(), 12345);
    }

    #[test]
    fn a_folder_that_cannot_be_written_to_is_refused() {
        let folder = folder("read-only");
        fs::create_dir_all(&folder).expect("creating a folder");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o500)).expect("permissions");
        // Permissions do not restrict root, but this file system is read-only.
        if cfg!(target_os = "linux") {
            refusal(Path::new("/proc/cuda-nvrtc"));
            refusal(Path::new("/proc/self"));
        }
        if fs::write(folder.join("probe"), "").is_err() {
            refusal(&folder);
        }
    }

    #[test]
    fn a_path_that_is_no_folder_is_refused() {
        let file = folder("file");
        fs::write(&file, "").expect("writing a file");
        refusal(&file);
        refusal(&file.join("below"));
        let link = folder("dangling");
        symlink("/nowhere/at/all", &link).expect("creating a link");
        refusal(&link);
    }
}

/// In a process that [`compile_in_child`] has started, compiles a program, checks whether it was found on disk, and
/// returns true.
#[cfg(target_os = "linux")]
fn is_compiling_child() -> bool {
    let Ok(hits) = std::env::var("EXPECTED_HITS") else {
        return false;
    };
    let hits: u64 = hits.parse().expect("a number");
    std::env::set_current_dir(std::env::var_os("CURRENT").expect("set")).expect("the folder");
    let compile = CompileOptions {
        line_info: std::env::var("LINES").as_deref() == Ok("true"),
        ..Default::default()
    };
    let cache = Cache::new().expect("a usable folder");
    cache.compile(&Program::new(SAXPY), &compile).expect("a correct program");
    let stats = cache.stats();
    assert_eq!((stats.disk_hits, stats.misses), (hits, 1 - hits));
    true
}

/// Compiles a program in a process that finds NVRTC in the folder `library`.
#[cfg(target_os = "linux")]
fn compile_in_child(cache: &Path, library: &Path, current: &Path, lines: bool, hits: u64) {
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let variables = [
        ("CUDA_NVRTC_LIBRARY", String::new()),
        ("CUDA_NVRTC_CACHE_DIR", text(cache)),
        ("LD_LIBRARY_PATH", text(library)),
        ("CURRENT", text(current)),
        ("LINES", lines.to_string()),
        ("EXPECTED_HITS", hits.to_string()),
    ];
    let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
    in_child(&variables, || unreachable!("`is_compiling_child` ends it"));
}

#[test]
#[cfg(target_os = "linux")]
fn libraries_that_the_dynamic_linker_finds_in_two_folders_do_not_share_entries() {
    if is_compiling_child() {
        return;
    }
    let Some(library) = libraries::pinned("libnvrtc.so.13") else {
        return;
    };
    let files = fs::read_dir(library.parent().expect("a folder")).expect("the folder");
    let files: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
    let entries = folder("linker");
    let places = ["first", "second"].map(|place| folder(&format!("linker-{place}")));
    for place in &places {
        fs::create_dir_all(place).expect("creating a folder");
        for file in &files {
            let link = place.join(file.file_name().expect("a name"));
            std::os::unix::fs::symlink(file, link).expect("a link");
        }
    }
    let [first, second] = &places;
    for (place, hits) in [(first, 0), (second, 0), (first, 1)] {
        compile_in_child(&entries, place, Path::new("/"), false, hits);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn debug_information_has_the_current_folder_of_the_process() {
    if is_compiling_child() {
        return;
    }
    let Some(library) = libraries::pinned("libnvrtc.so.13") else {
        return;
    };
    let place = library.parent().expect("a folder");
    let (entries, other) = (folder("current"), scratch());
    let root = Path::new("/");
    for (current, lines, hits) in
        [(root, true, 0), (&other, true, 0), (root, true, 1), (root, false, 0), (&other, false, 1)]
    {
        compile_in_child(&entries, place, current, lines, hits);
    }
}
