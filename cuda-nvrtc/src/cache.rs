//! A cache of compiled programs, in memory and on disk.

mod disk;
mod entry;
mod key;
mod memory;
mod self_contained;

use crate::compiled::Compiled;
use crate::error::{Error, Result};
use crate::options::CompileOptions;
use crate::program::{Program, resolve};
use disk::{Disk, Found};
use key::Key;
use memory::Memory;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The environment variable that names the folder of the cache.
const VARIABLE: &str = "CUDA_NVRTC_CACHE_DIR";

/// A cache of compiled programs, in memory and on disk.
///
/// An entry is found only if the source, the headers, the name expressions, all options, the architecture, the
/// library and its version are the same. Several threads and processes can use one folder at the same time.
/// Errors of the compiler are not cached.
///
/// ```no_run
/// use cuda_nvrtc::{Cache, CompileOptions, Program};
///
/// let cache = Cache::new()?;
/// let program = Program::new("extern \"C\" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }");
/// let compiled = cache.compile(&program, &CompileOptions::default())?;
/// # Ok::<_, cuda_nvrtc::Error>(())
/// ```
///
/// # Headers on disk
/// A program that reads files is compiled each time, because the cache does not know their contents: pass its
/// headers with [`Program::with_header`]. To be cached, every `#include` must name such a header in quotes or
/// angle brackets, without a macro. A program that uses `__has_include`, `__DATE__`, `__TIME__`,
/// precompiled headers or options for files is not cached either. [`CacheStats::not_cacheable`] counts these
/// compilations.
///
/// # Cost
/// For a cubin of 120 KiB, a hit took 4 µs in memory and 0.1 ms on disk, and the compilation 0.4 s (NVRTC 13.5, two
/// cores; `cargo run --release -p cuda-bench -- --compile`).
///
/// # The folder
/// By default it is `cuda-nvrtc` in the cache folder of the user (`$XDG_CACHE_HOME` or `~/.cache`, on Windows
/// `%LOCALAPPDATA%`). The environment variable `CUDA_NVRTC_CACHE_DIR` names another folder.
///
/// Each entry is a file with a checksum, which appears at once when it is complete. An entry that is damaged is
/// compiled again, and replaced. When the folder is larger than its limit, the entries that were not used for
/// the longest time are removed.
///
/// The code in the folder runs on the GPU with the rights of this process. On Unix the cache therefore refuses a
/// folder that belongs to another user, or that others may write to. A checksum does not protect against a
/// program of the same user.
#[derive(Debug)]
pub struct Cache {
    memory: Mutex<Memory>,
    disk: Option<Disk>,
    counters: Counters,
}

/// Options of a [`Cache`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// The folder. `None` is the default folder; see [`Cache`].
    pub folder: Option<PathBuf>,
    /// The maximum size of all files in the folder, in bytes. With 0 there is no folder, as with
    /// [`Cache::in_memory`].
    pub disk_bytes: u64,
    /// The maximum size of the code in memory, in bytes. With 0 none is kept.
    pub memory_bytes: usize,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// 1 GiB on disk and 64 MiB in memory, in the default folder.
impl Default for CacheOptions {
    #[inline]
    fn default() -> Self {
        Self { folder: None, disk_bytes: 1 << 30, memory_bytes: 64 << 20, _non_exhaustive: () }
    }
}

/// What a [`Cache`] has done since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Programs that were found in memory.
    pub memory_hits: u64,
    /// Programs that were found on disk.
    pub disk_hits: u64,
    /// Programs that were compiled, because they were not found.
    pub misses: u64,
    /// Programs that were compiled, because they cannot be cached.
    pub not_cacheable: u64,
    /// Entries on disk that were damaged.
    pub damaged: u64,
    /// Entries that could not be written.
    pub failed_writes: u64,
}

#[derive(Debug, Default)]
struct Counters {
    memory_hits: AtomicU64,
    disk_hits: AtomicU64,
    misses: AtomicU64,
    not_cacheable: AtomicU64,
    damaged: AtomicU64,
    failed_writes: AtomicU64,
}

#[inline]
fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Cache {
    /// Returns a cache with the default folder and limits. Creates the folder, which is in the user's home:
    /// [`in_memory`](Self::in_memory) writes nothing.
    ///
    /// # Errors
    /// [`Error::Cache`] if the folder cannot be created or written to, or if it is not private to this user.
    #[inline]
    pub fn new() -> Result<Self> {
        Self::with(CacheOptions::default())
    }

    /// Returns a cache in memory only, with the default limit. It uses no folder, so every process compiles
    /// the program again.
    #[inline]
    pub fn in_memory() -> Self {
        Self::without_folder(CacheOptions::default().memory_bytes)
    }

    /// Returns a cache with options. Creates the folder.
    ///
    /// # Errors
    /// See [`new`](Self::new).
    #[inline]
    pub fn with(options: CacheOptions) -> Result<Self> {
        let CacheOptions { folder, disk_bytes, memory_bytes, _non_exhaustive: () } = options;
        let in_memory = Self::without_folder(memory_bytes);
        if disk_bytes == 0 {
            return Ok(in_memory);
        }
        let folder = folder.or_else(Self::default_folder);
        let folder = folder.ok_or_else(|| Error::Cache {
            folder: PathBuf::new(),
            reason: format!("the user has no home folder; set {VARIABLE}"),
        })?;
        Ok(Self { disk: Some(Disk::open(&folder, disk_bytes)?), ..in_memory })
    }

    #[inline]
    fn without_folder(memory_bytes: usize) -> Self {
        Self {
            memory: Mutex::new(Memory::new(memory_bytes)),
            disk: None,
            counters: Counters::default(),
        }
    }

    /// Returns the folder that a cache uses by default, or `None` if the user has no home folder. It may not
    /// exist yet.
    #[inline]
    pub fn default_folder() -> Option<PathBuf> {
        use etcetera::BaseStrategy;
        if let Some(folder) = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()) {
            return Some(folder.into());
        }
        let folders = etcetera::choose_base_strategy().ok()?;
        Some(folders.cache_dir().join("cuda-nvrtc"))
    }

    /// Returns the folder of this cache, without links.
    #[inline]
    pub fn folder(&self) -> Option<&Path> {
        self.disk.as_ref().map(Disk::folder)
    }

    /// Returns the compiled program from memory or from disk, or [compiles](Program::compile) it and stores it.
    ///
    /// Two threads that need the same program at the same time may both compile it. The first use of a process
    /// loads NVRTC, whose version is a part of the key, also if the program is found.
    ///
    /// # Errors
    /// See [`Program::compile`]. An entry that cannot be read or written is not an error.
    #[inline]
    pub fn compile(&self, program: &Program, options: &CompileOptions) -> Result<Arc<Compiled>> {
        let target = resolve(options.target)?;
        let resolved = CompileOptions { target: Some(target), ..options.clone() };
        let arguments = resolved.arguments()?;
        if !self_contained::check(program, options) {
            count(&self.counters.not_cacheable);
            return program.compile_with(target, &arguments).map(Arc::new);
        }
        let key = Key::new(program, &resolved, &arguments)?;
        let known = self.lock_memory().get(&key);
        if let Some(compiled) = known {
            count(&self.counters.memory_hits);
            return Ok(compiled);
        }
        match self.disk.as_ref().map(|disk| disk.read(&key, target)) {
            Some(Found::Entry(compiled)) => {
                count(&self.counters.disk_hits);
                let compiled = Arc::new(*compiled);
                self.lock_memory().insert(key, &compiled);
                return Ok(compiled);
            }
            Some(Found::Damaged) => count(&self.counters.damaged),
            Some(Found::Nothing) | None => {}
        }
        count(&self.counters.misses);
        let compiled = Arc::new(program.compile_with(target, &arguments)?);
        if self.disk.as_ref().is_some_and(|disk| disk.write(&key, &compiled).is_err()) {
            count(&self.counters.failed_writes);
        }
        self.lock_memory().insert(key, &compiled);
        Ok(compiled)
    }

    /// Removes all entries, in memory and on disk. Other files in the folder remain.
    ///
    /// # Errors
    /// [`Error::Cache`] if an entry cannot be removed.
    #[inline]
    pub fn clear(&self) -> Result<()> {
        self.lock_memory().clear();
        self.disk.as_ref().map_or(Ok(()), Disk::clear)
    }

    /// Returns what the cache has done since it was created.
    #[inline]
    pub fn stats(&self) -> CacheStats {
        let Counters { memory_hits, disk_hits, misses, not_cacheable, damaged, failed_writes } =
            &self.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CacheStats {
            memory_hits: get(memory_hits),
            disk_hits: get(disk_hits),
            misses: get(misses),
            not_cacheable: get(not_cacheable),
            damaged: get(damaged),
            failed_writes: get(failed_writes),
        }
    }

    /// The lock is held only for look-ups, never while something is compiled, read or written.
    #[inline]
    fn lock_memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
