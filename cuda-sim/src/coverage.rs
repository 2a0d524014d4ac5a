#![doc = include_str!("coverage.md")]

use cuda_ptx::{Instruction, Program};
use std::collections::BTreeMap;
use std::ffi::{OsString, c_int};
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The lines and functions that the kernels of a process have executed, by file. Returned by [`coverage`](coverage()).
///
/// The display form is a tracefile of lcov.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Coverage {
    /// The files, by the names that a tracefile has for them: the files of the source, as the PTX names them (`.file`),
    /// and those of the PTX. PTX that a program loaded from memory has a name that is made of its contents, such as
    /// `89c2a1f04be7d356.ptx`.
    pub files: BTreeMap<String, CoveredFile>,
}

/// The lines and functions of a file that the kernels of a process have executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CoveredFile {
    /// The executions of each line that has an instruction.
    pub lines: BTreeMap<u32, u64>,
    /// The line of each function, and the executions of its first instruction.
    pub functions: BTreeMap<String, (u32, u64)>,
    /// The contents, if the file is PTX that the program loaded from memory.
    pub text: Option<Arc<str>>,
}

/// PTX that was loaded, and the executions of its instructions.
pub(crate) struct Counted {
    program: Arc<Program>,
    texts: Vec<Arc<str>>,
    kernels: Vec<Vec<AtomicU64>>,
}

impl Counted {
    /// Returns the counters of a kernel.
    pub(crate) fn kernel(&self, kernel: usize) -> Option<&[AtomicU64]> {
        self.kernels.get(kernel).map(Vec::as_slice)
    }
}

#[derive(Default)]
struct Loaded {
    programs: Vec<Arc<Counted>>,
    /// The files with PTX that were loaded, with their contents.
    files: Vec<(PathBuf, Vec<u8>)>,
}

static LOADED: Mutex<Loaded> = Mutex::new(Loaded { programs: Vec::new(), files: Vec::new() });

fn loaded() -> MutexGuard<'static, Loaded> {
    LOADED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts the executions of a program from now on, and returns the program that runs in its place. That is the first
/// program of the same texts, so that a module which is loaded many times takes memory once.
pub(crate) fn load(program: Arc<Program>, texts: &[Arc<str>]) -> Arc<Program> {
    let mut loaded = loaded();
    if let Some(first) = loaded.programs.iter().find(|its| its.texts == texts) {
        return first.program.clone();
    }
    let kernels = 0..program.kernels().len();
    let counters = |kernel| program.instructions(kernel).map(|_| AtomicU64::new(0)).collect();
    let kernels = kernels.map(counters).collect();
    let texts = texts.to_vec();
    loaded.programs.push(Arc::new(Counted { program: program.clone(), texts, kernels }));
    program
}

/// Notes the file of PTX that is loaded.
pub(crate) fn load_file(path: &str, contents: &[u8]) {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
    let mut loaded = loaded();
    loaded.files.retain(|(its, _)| *its != path);
    loaded.files.push((path, contents.to_vec()));
}

/// Returns the counters of a program, if its executions are counted.
pub(crate) fn counters(program: &Arc<Program>) -> Option<Arc<Counted>> {
    loaded().programs.iter().find(|its| Arc::ptr_eq(&its.program, program)).cloned()
}

/// Returns what the kernels of this process have executed, if [`Profile::with_coverage`] is on. The lines of all loaded
/// PTX are included, also those that were never executed. Work that has not run is not included.
///
/// [`Profile::with_coverage`]: crate::Profile::with_coverage
pub fn coverage() -> Coverage {
    let Loaded { programs, files } = &*loaded();
    let mut all = Coverage::default();
    for its in programs {
        let names: Vec<String> = its.texts.iter().map(|text| all.add_text(text, files)).collect();
        for (kernel, counters) in its.kernels.iter().enumerate() {
            let counts = counters.iter().map(|count| count.load(Ordering::Relaxed));
            all.add(&names, its.program.instructions(kernel).zip(counts));
        }
        all.add(&names, its.program.uncalled().map(|its| (its, 0)));
    }
    all
}

impl Coverage {
    /// Adds the file of a text, and returns its name.
    fn add_text(&mut self, text: &Arc<str>, files: &[(PathBuf, Vec<u8>)]) -> String {
        let file = files.iter().find(|(_, contents)| contents == text.as_bytes());
        if let Some((path, _)) = file {
            return path.to_string_lossy().into_owned();
        }
        // FNV-1a.
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let name = format!("{hash:016x}.ptx");
        self.files.entry(name.clone()).or_default().text = Some(text.clone());
        name
    }

    /// Adds the executions of the instructions of a kernel. `names` has the files of its texts.
    ///
    /// A line has the executions of the instruction that was executed most often. The executions of a line by several
    /// kernels are added.
    fn add<'a>(
        &mut self,
        names: &'a [String],
        instructions: impl Iterator<Item = (Instruction<'a>, u64)>,
    ) {
        let mut one: BTreeMap<&str, CoveredFile> = BTreeMap::new();
        for (its, count) in instructions.filter(|(its, _)| its.line != 0) {
            // The engine has functions of its own.
            let Some(text) = names.get(its.module) else { continue };
            let of_text = (text.as_str(), its.line, its.function_line);
            let of_source = its.source.map(|(file, line)| (file, line, line));
            for (file, line, function_line) in [Some(of_text), of_source].into_iter().flatten() {
                let file = one.entry(file).or_default();
                let most = file.lines.entry(line).or_default();
                *most = count.max(*most);
                // A function is in the file of its first instruction.
                if !file.functions.contains_key(its.function) {
                    file.functions.insert(its.function.to_owned(), (function_line, count));
                }
            }
        }
        for (name, CoveredFile { lines, functions, .. }) in one {
            let file = self.files.entry(name.to_owned()).or_default();
            for (line, count) in lines {
                *file.lines.entry(line).or_default() += count;
            }
            for (function, (line, count)) in functions {
                file.functions.entry(function).or_insert((line, 0)).1 += count;
            }
        }
    }

    /// Appends a tracefile to a file. A reader of tracefiles adds the executions of all of its parts.
    ///
    /// PTX that the program loaded from memory is written to a folder whose name is that of the file with `.ptx`, so
    /// that a report can show its lines.
    ///
    /// # Errors
    /// The file or the folder cannot be written.
    pub fn append_to(&self, file: impl AsRef<Path>) -> io::Result<()> {
        let file = std::path::absolute(file)?;
        let mut folder = OsString::from(&file);
        folder.push(".ptx");
        let folder = PathBuf::from(folder);
        let mut trace = String::new();
        for (name, its) in &self.files {
            let Some(text) = &its.text else {
                trace.push_str(&Record { name, file: its }.to_string());
                continue;
            };
            fs::create_dir_all(&folder)?;
            let path = folder.join(name);
            fs::write(&path, text.as_bytes())?;
            let name = &path.to_string_lossy();
            trace.push_str(&Record { name, file: its }.to_string());
        }
        // One write, so that parts of several processes do not mix.
        OpenOptions::new().append(true).create(true).open(file)?.write_all(trace.as_bytes())
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.files.iter().try_for_each(|(name, file)| Record { name, file }.fmt(f))
    }
}

/// The record of a file in a tracefile.
struct Record<'a> {
    name: &'a str,
    file: &'a CoveredFile,
}

impl fmt::Display for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CoveredFile { lines, functions, .. } = self.file;
        writeln!(f, "TN:\nSF:{}", self.name)?;
        for (name, (line, _)) in functions {
            writeln!(f, "FN:{line},{name}")?;
        }
        for (name, (_, count)) in functions {
            writeln!(f, "FNDA:{count},{name}")?;
        }
        let hit = functions.values().filter(|(_, count)| *count != 0).count();
        writeln!(f, "FNF:{}\nFNH:{hit}", functions.len())?;
        for (line, count) in lines {
            writeln!(f, "DA:{line},{count}")?;
        }
        let hit = lines.values().filter(|count| **count != 0).count();
        writeln!(f, "LF:{}\nLH:{hit}\nend_of_record", lines.len())
    }
}

/// The file to which this process appends its coverage when it exits, and the number of the process. A fork of the
/// process has executed nothing.
static AT_EXIT: OnceLock<(u32, PathBuf)> = OnceLock::new();

/// Appends the coverage to a file when this process exits.
pub(crate) fn append_at_exit(file: &Path) {
    unsafe extern "C" {
        /// Of the C library.
        fn atexit(function: extern "C" fn()) -> c_int;
    }
    let mut is_first = false;
    AT_EXIT.get_or_init(|| {
        is_first = true;
        (std::process::id(), file.to_owned())
    });
    if is_first {
        // SAFETY: the function may be called at any time, on any thread, and does not unwind. Its code stays loaded, or
        // the C library calls it before it is unloaded.
        unsafe { atexit(at_exit) };
    }
}

extern "C" fn at_exit() {
    let Some((process, file)) = AT_EXIT.get() else { return };
    if *process != std::process::id() {
        return;
    }
    if let Err(why) = coverage().append_to(file) {
        // Does not panic if stderr is closed.
        let file = file.display();
        let _ = writeln!(io::stderr(), "cuda-sim: writing the coverage to {file}: {why}");
    }
}
