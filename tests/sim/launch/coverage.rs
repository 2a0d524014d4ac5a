//! The lines that kernels have executed.

use crate::prelude::*;
use cuda_sim::coverage::Coverage;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::path::PathBuf;

/// A kernel that branches on its thread, a kernel that no test launches, and a function that nothing calls.
const TEXT: &str = ".version 8.0
.target sm_80
.address_size 64
.file 1 \"/src/branch.cu\"
.file 2 \"/src/inlined.h\"
.func nobody()
{
    .loc 1 3 1
    ret;
}
.visible .entry branch()
{
    .reg .pred %p;
    .reg .b32 %r<3>;
    .loc 1 10 5
    mov.u32 %r0, %tid.x;
    setp.lt.u32 %p, %r0, 8;
    @%p bra FEW;
    .loc 2 7 9
    add.u32 %r1, %r0, 1;
    .loc 1 11 5
    ret;
FEW:
    .loc 1 12 5
    add.u32 %r1, %r0, 2; @!%p add.u32 %r2, %r0, 3;
    ret;
}
.visible .entry other()
{
    .loc 1 20 5
    ret;
}
";

/// The tracefile after a launch with six threads, without the name of the file of the PTX.
const TRACE: &str = "TN:
SF:/src/branch.cu
FN:10,branch
FN:3,nobody
FN:20,other
FNDA:6,branch
FNDA:0,nobody
FNDA:0,other
FNF:3
FNH:1
DA:3,0
DA:10,6
DA:11,0
DA:12,6
DA:20,0
LF:5
LH:2
end_of_record
TN:
SF:/src/inlined.h
FN:7,branch
FNDA:0,branch
FNF:1
FNH:0
DA:7,0
LF:1
LH:0
end_of_record
TN:
SF:PTX
FN:11,branch
FN:6,nobody
FN:28,other
FNDA:6,branch
FNDA:0,nobody
FNDA:0,other
FNF:3
FNH:1
DA:9,0
DA:16,6
DA:17,6
DA:18,6
DA:20,0
DA:22,0
DA:25,6
DA:26,6
DA:31,0
LF:9
LH:5
end_of_record
";

/// The name of [`TEXT`], which is made of its contents.
const NAME: &str = "1fe8cb8268a95b4d.ptx";

/// Starts the driver, and returns a stream.
fn started(profile: Profile) -> (Context, Stream) {
    start(profile);
    let context = context();
    let stream = context.stream().expect("a stream");
    (context, stream)
}

/// Launches the first kernel of a module.
fn launch(module: &Module, stream: &Stream, threads: u32) {
    let kernel = module.kernel("branch").expect("found").typed::<()>().expect("no parameters");
    // SAFETY: the kernel accesses no memory.
    unsafe { kernel.launch(stream, LaunchConfig::linear(1, threads), ()) }.expect("a launch");
    stream.synchronize().expect("the kernel ends");
}

/// Returns the executions of the lines of a file.
fn lines(coverage: &Coverage, file: &str) -> Vec<(u32, u64)> {
    let file = coverage.files.get(file).unwrap_or_else(|| panic!("{file}: {coverage}"));
    file.lines.iter().map(|(line, count)| (*line, *count)).collect()
}

#[test]
fn a_tracefile_has_the_lines_of_the_source_and_the_ptx_also_those_that_were_not_executed() {
    let (context, stream) = &in_child!(started(Profile::h200().with_coverage()));
    assert_eq!(cuda_sim::coverage().to_string(), "");
    let module = Module::from_ptx(context, TEXT).expect("PTX");
    launch(&module, stream, 6);
    let sources = ["/src/branch.cu", "/src/inlined.h"];
    let names: Vec<_> = cuda_sim::coverage().files.into_keys().collect();
    assert_eq!(
        names.iter().filter(|name| !sources.contains(&&***name)).collect::<Vec<_>>(),
        [NAME]
    );
    // The names are in the order of their letters.
    let of_source = TRACE.find("TN:\nSF:PTX").expect("the record of the PTX");
    let (source, ptx) = TRACE.split_at(of_source);
    let expected = format!("{source}{}", ptx.replace("PTX", NAME));
    assert_eq!(cuda_sim::coverage().to_string(), expected);
}

#[test]
fn launches_of_equal_modules_are_added_and_work_that_has_not_run_is_not_counted() {
    let (context, stream) = &in_child!(started(Profile::h200().with_coverage()));
    let first = Module::from_ptx(context, TEXT).expect("PTX");
    launch(&first, stream, 6);
    drop(first);
    let second = Module::from_ptx(context, TEXT).expect("PTX");
    launch(&second, stream, 100);
    let executed = [(3, 0), (10, 106), (11, 92), (12, 14), (20, 0)];
    assert_eq!(lines(&cuda_sim::coverage(), "/src/branch.cu"), executed);
    let inlined = &cuda_sim::coverage().files["/src/inlined.h"];
    assert_eq!(inlined.functions["branch"], (7, 92));
    let kernel = second.kernel("branch").expect("found").typed::<()>().expect("no parameters");
    // SAFETY: the kernel accesses no memory.
    unsafe { kernel.launch(stream, LaunchConfig::linear(1, 1), ()) }.expect("a launch");
    assert_eq!(lines(&cuda_sim::coverage(), "/src/branch.cu"), executed);
    stream.synchronize().expect("the kernel ends");
    assert_eq!(lines(&cuda_sim::coverage(), "/src/branch.cu")[1], (10, 107));
}

#[test]
fn kernels_of_several_modules_are_added_in_a_file_of_their_source() {
    let (context, stream) = &in_child!(started(Profile::h200().with_coverage()));
    let one = Module::from_ptx(context, TEXT).expect("PTX");
    let another = TEXT.replace("%r0, 3", "%r0, 4");
    let another = Module::from_ptx(context, &another).expect("PTX");
    launch(&one, stream, 6);
    launch(&another, stream, 3);
    let coverage = cuda_sim::coverage();
    assert_eq!(coverage.files.len(), 4, "{coverage}");
    assert_eq!(lines(&coverage, "/src/branch.cu")[1], (10, 9));
    assert_eq!(coverage.files["/src/branch.cu"].functions["branch"], (10, 9));
    assert_eq!(coverage.files[NAME].functions["branch"], (11, 6));
}

#[test]
fn nothing_is_counted_without_the_mode() {
    let (context, stream) = &in_child!(started(Profile::h200()));
    let module = Module::from_ptx(context, TEXT).expect("PTX");
    launch(&module, stream, 6);
    assert_eq!(cuda_sim::coverage(), Coverage::default());
}

/// Returns the path of a file that this test uses alone.
fn place(name: &str) -> PathBuf {
    let folder = common::scratch().join("coverage").join(format!("{name}.{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder of this test");
    folder
}

/// Reads the executions of the lines of each file. Executions of repeated lines are added.
fn read_trace(trace: &str) -> BTreeMap<String, BTreeMap<u32, u64>> {
    let mut files: BTreeMap<String, BTreeMap<u32, u64>> = BTreeMap::new();
    let mut file = String::new();
    for line in trace.lines() {
        if let Some(name) = line.strip_prefix("SF:") {
            file = name.to_owned();
        } else if let Some(data) = line.strip_prefix("DA:") {
            let (line, count) = data.split_once(',').expect("a line and its count");
            let [line, count] =
                [line, count].map(|number| number.parse::<u64>().expect("a number"));
            let line = u32::try_from(line).expect("a line");
            *files.entry(file.clone()).or_default().entry(line).or_default() += count;
        }
    }
    files
}

#[test]
fn ptx_of_a_file_has_its_path_and_other_ptx_is_written_beside_the_tracefile() {
    let (context, stream) = &in_child!(started(Profile::h200().with_coverage()));
    let place = place("paths");
    let file = place.join("kernels.ptx");
    fs::write(&file, TEXT).expect("a file of this test");
    let path = CString::new(file.to_str().expect("a path in UTF-8")).expect("no NUL");
    succeeds!(cuCtxSetCurrent(context.as_raw()));
    let loaded: CUmodule = out!(cuModuleLoad(path.as_ptr()));
    // SAFETY: the module was just loaded, and nothing else unloads it.
    let module = unsafe { Module::from_raw(loaded, context) }.expect("a module");
    launch(&module, stream, 6);
    let second = TEXT.replace("%r0, 3", "%r0, 4");
    let memory = Module::from_ptx(context, &second).expect("PTX");
    launch(&memory, stream, 2);
    let trace = place.join("kernels.info");
    for times in 1..=2 {
        cuda_sim::coverage().append_to(&trace).expect("a tracefile");
        let files = read_trace(&fs::read_to_string(&trace).expect("the tracefile"));
        let copies = fs::read_dir(place.join("kernels.info.ptx")).expect("the folder of the PTX");
        let copies: Vec<PathBuf> = copies.map(|its| its.expect("a file").path()).collect();
        let [copy] = &copies[..] else { panic!("{copies:?}") };
        assert_eq!(fs::read_to_string(copy).expect("the copy"), second);
        let name = |path: &PathBuf| path.to_str().expect("a path in UTF-8").to_owned();
        assert_eq!(files.keys().filter(|name| name.ends_with(".ptx")).count(), 2, "{files:?}");
        assert_eq!(files[&name(&file)][&16], 6 * times);
        assert_eq!(files[&name(copy)][&16], 2 * times);
        assert_eq!(files["/src/branch.cu"][&10], 8 * times);
    }
    fs::remove_dir_all(place).expect("a folder of this test");
}

#[test]
fn the_processes_of_the_variable_append_their_coverage_when_they_exit() {
    const FILE: &str = "CUDA_SIM_COVERAGE";
    let place = place("processes");
    let trace = place.join("kernels.info");
    let name = trace.to_str().expect("a path in UTF-8");
    for _ in 0..2 {
        if common::child::entered(&[(FILE, name)]) {
            let (context, stream) = started(Profile::h200());
            let module = Module::from_ptx(&context, TEXT).expect("PTX");
            launch(&module, &stream, 6);
            return;
        }
        if cfg!(miri) {
            return;
        }
    }
    let trace = fs::read_to_string(&trace).expect("the tracefile");
    assert_eq!(
        read_trace(&trace)["/src/branch.cu"],
        BTreeMap::from([(3, 0), (10, 12), (11, 0), (12, 12), (20, 0)])
    );
    fs::remove_dir_all(place).expect("a folder of this test");
}
