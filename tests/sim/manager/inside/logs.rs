//! Logs of managers, whose writers are user code.

use super::with;
use crate::prelude::*;
use std::io::{self, Write};

/// A writer that allocates with the manager whose log it writes, optionally panics, and records its
/// lines.
struct Entangled {
    lines: Arc<Mutex<Vec<String>>>,
    panics: bool,
}

static CONTEXT: Mutex<Option<Context>> = Mutex::new(None);

impl Write for Entangled {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let mut lines = self.lines.lock().expect("no panic while it was locked");
        let is_first = lines.is_empty();
        lines.push(text);
        drop(lines);
        if is_first {
            let context = CONTEXT.lock().expect("no panic while it was locked").clone();
            if let Some(context) = context {
                drop(MemoryPointer::allocate(&context, 77).map_err(io::Error::other)?);
            }
            if self.panics {
                panic!("on purpose");
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn log_entangled(panics: bool, look: impl FnOnce(io::Result<()>, String)) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let its = Arc::clone(&lines);
    let make = move |context: &Context| {
        let lines = Arc::clone(&its);
        Ok(LoggingManager::new(DriverManager::new(context)?, Entangled { lines, panics }))
    };
    let (_end, context) = in_child!(with(make));
    *CONTEXT.lock().expect("no panic") = Some(context.clone());
    drop(MemoryPointer::allocate(&context, 33).expect("memory"));
    drop(MemoryPointer::allocate(&context, 44).expect("memory"));
    *CONTEXT.lock().expect("no panic") = None;
    let manager = context.memory_manager_as::<LoggingManager<DriverManager>>();
    let flushed = manager.expect("made").expect("the chosen manager").flush();
    look(flushed, lines.lock().expect("no panic").concat());
}

#[test]
fn a_log_writer_may_allocate() {
    log_entangled(false, |flushed, text| {
        flushed.expect("written");
        let trace: cuda_memory::trace::Trace = text.parse().expect("a trace");
        assert_eq!((trace.events().len(), trace.high()), (6, 110), "{text}");
    });
}

type Logged = LoggingManager<LeakManager<CachingManager>>;

/// A writer that counts the lines it gets per call. It does not write the first lines until many
/// more events have happened, or until that cannot happen.
struct Late {
    counts: Arc<Mutex<Vec<usize>>>,
    happened: Arc<AtomicUsize>,
}

impl Write for Late {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        let mut counts = self.counts.lock().expect("no panic while it was locked");
        counts.push(lines);
        let is_first = counts.len() == 1;
        drop(counts);
        for _ in 0..1000 {
            if !is_first || self.happened.load(Ordering::Relaxed) > 2 * Logged::MAX_WAITING_LINES {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn the_buffer_for_a_slow_log_writer_is_limited() {
    const THREADS: usize = 4;
    let (counts, happened) = (Arc::default(), Arc::default());
    let (its, counter) = (Arc::clone(&counts), Arc::clone(&happened));
    let make = move |context: &Context| {
        let inner = LeakManager::new(CachingManager::new(context)?);
        let writer = Late { counts: Arc::clone(&its), happened: Arc::clone(&counter) };
        Ok(LoggingManager::new(inner, writer))
    };
    let (_end, context) = in_child!(with(make));
    let manager = context.memory_manager_as::<Logged>().expect("made");
    let manager = manager.expect("the chosen manager");
    let times = Logged::MAX_WAITING_LINES / 2;
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..times {
                    let block = manager.allocate(100, Order::NONE).expect("memory");
                    // SAFETY: this thread owns the memory, and no work uses it.
                    unsafe { manager.free(block, Order::NONE) };
                    happened.fetch_add(2, Ordering::Relaxed);
                }
            });
        }
    });
    manager.flush().expect("written");
    let counts = counts.lock().expect("no panic");
    assert_eq!(counts.iter().sum::<usize>(), THREADS * times * 2);
    let most = counts.iter().max().expect("some");
    assert!(*most < Logged::MAX_WAITING_LINES * 3 / 2, "{most} lines per call");
}

#[test]
fn a_panic_of_the_log_writer_is_an_error_of_the_log() {
    log_entangled(true, |flushed, _| {
        let error = flushed.expect_err("a panic").to_string();
        assert!(error.contains("on purpose"), "{error}");
    });
}
