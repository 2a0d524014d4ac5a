//! Measures NVRTC through pointers to its C functions and through `cuda-nvrtc`, the cache of compiled programs,
//! and compilations on several threads. It needs NVRTC, but no GPU.

use crate::Fallible;
use crate::time::Spread;
use cuda_nvrtc::sys::{NVRTC, nvrtcProgram, nvrtcResult, nvrtcVersion};
use cuda_nvrtc::{Cache, CacheOptions, CompileOptions, Program, Target, supported_architectures};
use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt::Write;
use std::hint::black_box;
use std::ptr::null_mut;
use std::time::Instant;

const SMALL: &CStr =
    c"extern \"C\" __global__ void saxpy(float a, const float *x, float *y, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] += a * x[i];
}";

pub(crate) fn run(rounds: usize, threads: usize) -> Fallible<()> {
    NVRTC.load()?;
    let newest = supported_architectures()?.pop().ok_or("no architecture")?;
    println!("NVRTC {} for sm_{newest}\n", cuda_nvrtc::version()?);
    let options =
        CompileOptions { target: Some(Target::Cubin(newest)), ..CompileOptions::default() };
    calls(rounds, &options)?;
    cached(rounds, &options)?;
    concurrent(threads, &options)
}

/// Compares calls with those through pointers.
fn calls(rounds: usize, options: &CompileOptions) -> Fallible<()> {
    const VERSIONS: u32 = 1000;
    let c = Functions::load()?;
    let option = format!("--gpu-architecture={}", options.target.ok_or("a target")?);
    let option = CString::new(option)?;
    let program = Program::new(SMALL.to_str()?);
    let (mut major, mut minor) = (0, 0);
    let mut of_c = || {
        for _ in 0..VERSIONS {
            // SAFETY: both pointers are valid for writes.
            let _ = black_box(unsafe { (c.version)(&raw mut major, &raw mut minor) });
        }
    };
    let (mut major, mut minor) = (0, 0);
    let mut of_raw = || {
        for _ in 0..VERSIONS {
            // SAFETY: as above.
            let _ = black_box(unsafe { nvrtcVersion(&raw mut major, &raw mut minor) });
        }
    };
    println!("| | C, µs | C again | `cuda-nvrtc` |\n|---|--:|--:|--:|");
    row("1000 calls of nvrtcVersion", rounds, [&mut of_c, &mut of_raw]);
    let mut of_c = || c.compile(&option);
    let mut of_safe = || {
        black_box(program.compile(options)).expect("a correct program");
    };
    row("compile a small kernel", rounds.min(31), [&mut of_c, &mut of_safe]);
    println!();
    Ok(())
}

/// Prints the median time of C, and the times that C takes again and that the crate takes, relative to C in the
/// same round. `prepare` runs before each time.
pub(crate) fn row_after(
    name: &str,
    rounds: usize,
    prepare: &dyn Fn(),
    [c, other]: [&mut dyn FnMut(); 2],
) {
    let mut ratios = [Vec::new(), Vec::new()];
    let mut base = Vec::new();
    for round in 0..=rounds {
        let mut times = [0.0; 3];
        for turn in 0..3 {
            let place = (round + turn) % 3;
            prepare();
            times[place] = time(if place == 2 { &mut *other } else { &mut *c });
        }
        // The first round is a warm-up.
        if round > 0 {
            base.push(times[0]);
            ratios[0].push(times[1] / times[0]);
            ratios[1].push(times[2] / times[0]);
        }
    }
    print!("| {name} | {:.1} |", Spread::of(base).median);
    for ratios in ratios {
        let Spread { low, median, high } = Spread::of(ratios);
        print!(" {median:.2} ({low:.2} .. {high:.2}) |");
    }
    println!();
}

/// The same without preparation.
fn row(name: &str, rounds: usize, functions: [&mut dyn FnMut(); 2]) {
    row_after(name, rounds, &|| (), functions);
}

/// Measures hits of the cache, with a program whose cubin has about 100 KiB.
fn cached(rounds: usize, options: &CompileOptions) -> Fallible<()> {
    let mut source = String::new();
    for kernel in 0..3 {
        write!(
            source,
            "extern \"C\" __global__ void f{kernel}(double *x) {{ double y = x[threadIdx.x];
             #pragma unroll\nfor (int i = 0; i < 12; ++i) y = sin(y) + exp(y) / (y + {kernel});
             x[threadIdx.x] = y; }}"
        )?;
    }
    let program = Program::new(source);
    let folder = std::env::temp_dir().join(format!("cuda-bench-{}", std::process::id()));
    let with = |memory_bytes| {
        Cache::with(CacheOptions {
            folder: Some(folder.clone()),
            memory_bytes,
            ..CacheOptions::default()
        })
    };
    let start = Instant::now();
    let compiled = with(0)?.compile(&program, options)?;
    let cold = start.elapsed().as_secs_f64() * 1e3;
    let bytes = compiled.cubin().map_or(0, <[u8]>::len) >> 10;
    let total = bytes + (compiled.ptx().map_or(0, str::len) >> 10);
    println!("| a program with a cubin of {bytes} KiB ({total} KiB with its PTX) | |\n|---|--:|");
    println!("| compiled | {cold:.0} ms |");
    for (name, memory_bytes) in [("from disk", 0), ("from memory", 64 << 20)] {
        let cache = with(memory_bytes)?;
        let hit = || cache.compile(&program, options).expect("a hit");
        assert_eq!(hit(), compiled);
        let times = (0..rounds).map(|_| time(|| drop(black_box(hit())))).collect();
        let Spread { low, median, high } = Spread::of(times);
        println!("| {name} | {median:.0} µs ({low:.0} .. {high:.0}) |");
        assert_eq!(cache.stats().misses, 0);
    }
    println!();
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Measures compilations of different programs on one thread and on several.
fn concurrent(threads: usize, options: &CompileOptions) -> Fallible<()> {
    const EACH: usize = 10;
    println!("| threads | compilations | ms each, by the wall |\n|--:|--:|--:|");
    let small = SMALL.to_str()?;
    for threads in [1, threads] {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                scope.spawn(move || {
                    for step in 0..EACH {
                        let program = Program::new(format!("{small}\n// {thread} {step}"));
                        let compiled = program.compile(options).expect("a correct program");
                        assert!(compiled.cubin().is_some());
                    }
                });
            }
        });
        let count = threads * EACH;
        let each = start.elapsed().as_secs_f64() * 1e3 / count as f64;
        println!("| {threads} | {count} | {each:.1} |");
    }
    Ok(())
}

/// Returns the time of a call in microseconds.
fn time(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e6
}

/// The functions of C that compile a program, as a C program would call them.
struct Functions {
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> nvrtcResult,
    create: unsafe extern "C" fn(
        *mut nvrtcProgram,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> nvrtcResult,
    compile: unsafe extern "C" fn(nvrtcProgram, c_int, *const *const c_char) -> nvrtcResult,
    sizes: [unsafe extern "C" fn(nvrtcProgram, *mut usize) -> nvrtcResult; 3],
    texts: [unsafe extern "C" fn(nvrtcProgram, *mut c_char) -> nvrtcResult; 3],
    destroy: unsafe extern "C" fn(*mut nvrtcProgram) -> nvrtcResult,
}

impl Functions {
    fn load() -> Fallible<Self> {
        /// # Safety
        /// `T` must be the type of a pointer to the function.
        unsafe fn function<T>(name: &CStr) -> Fallible<T> {
            let symbol = NVRTC.symbol(name)?;
            assert_eq!(size_of::<T>(), size_of_val(&symbol));
            // SAFETY: the caller guarantees that this is the function of this type.
            Ok(unsafe { std::mem::transmute_copy(&symbol) })
        }
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the field has the type of this function in nvrtc.h.
                unsafe { function($name) }?
            };
        }
        Ok(Self {
            version: function!(c"nvrtcVersion"),
            create: function!(c"nvrtcCreateProgram"),
            compile: function!(c"nvrtcCompileProgram"),
            sizes: [
                function!(c"nvrtcGetProgramLogSize"),
                function!(c"nvrtcGetPTXSize"),
                function!(c"nvrtcGetCUBINSize"),
            ],
            texts: [
                function!(c"nvrtcGetProgramLog"),
                function!(c"nvrtcGetPTX"),
                function!(c"nvrtcGetCUBIN"),
            ],
            destroy: function!(c"nvrtcDestroyProgram"),
        })
    }

    /// Compiles the small kernel, and copies the log, the PTX and the cubin.
    fn compile(&self, option: &CStr) {
        let check = |code| assert_eq!(code, nvrtcResult::NVRTC_SUCCESS);
        let (mut program, none) = (null_mut(), std::ptr::null());
        let name = c"program.cu".as_ptr();
        // SAFETY: the texts end with a NUL, and there are no headers.
        check(unsafe { (self.create)(&raw mut program, SMALL.as_ptr(), name, 0, none, none) });
        // SAFETY: the program is valid, and the option ends with a NUL.
        check(unsafe { (self.compile)(program, 1, &option.as_ptr()) });
        for (size, text) in self.sizes.iter().zip(self.texts) {
            let mut bytes = 0;
            // SAFETY: the program is valid, and the pointer is valid for a write.
            check(unsafe { size(program, &raw mut bytes) });
            let mut buffer = vec![0_u8; bytes];
            // SAFETY: the buffer has the size that the library returned.
            check(unsafe { text(program, buffer.as_mut_ptr().cast()) });
            black_box(buffer);
        }
        // SAFETY: the program is valid, and is not used after this.
        check(unsafe { (self.destroy)(&raw mut program) });
    }
}
