//! Measurements of operations while few or many objects are alive.

use std::cell::Cell;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// The numbers of live objects. A kind of object whose number is limited is measured up to its limit.
const COUNTS: [usize; 4] = [10, 1_000, 100_000, 1_000_000];
/// The numbers of live objects while callgrind counts instructions.
const COUNTS_FOR_CALLGRIND: [usize; 2] = [100, 10_000];
/// The repetitions of an operation while callgrind counts instructions.
const REPETITIONS: usize = 64;

/// How the program measures.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// In nanoseconds.
    Time,
    /// callgrind counts the instructions inside [`cuda_sim_counted`].
    Count,
}

/// An operation: it gets the live objects and the number of the repetition.
pub(crate) type Operation<'a, T> = (&'a str, &'a mut dyn FnMut(&[T], usize));

/// Returns an element of a list, a different one for each repetition.
pub(crate) fn pick<T: Copy>(all: &[T], repetition: usize) -> T {
    all[repetition.wrapping_mul(7919) % all.len()]
}

/// Measures the kinds of objects whose names contain a word.
pub(crate) struct Measure {
    mode: Mode,
    filter: Option<String>,
}

/// This name is passed to callgrind, which writes its counters each time the function returns.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn cuda_sim_counted(operation: &mut &mut dyn FnMut(usize), first: usize, count: usize) {
    for repetition in first..first + black_box(count) {
        operation(repetition);
    }
}

impl Measure {
    pub(crate) fn new(mode: Mode, filter: Option<String>) -> Self {
        Self { mode, filter }
    }

    /// Returns the greatest number of mappings. valgrind has fewer addresses than the system.
    pub(crate) fn most_mappings(&self) -> usize {
        match self.mode {
            Mode::Time => 50_000,
            Mode::Count => 2_500,
        }
    }

    /// Measures a kind of object. `make` creates an object from its number, `operations` are measured while the
    /// objects are alive, and `end` destroys all objects. At most `most` objects are created.
    pub(crate) fn kind<T>(
        &self,
        name: &str,
        most: usize,
        mut make: impl FnMut(usize) -> T,
        operations: &mut [Operation<'_, T>],
        mut end: impl FnMut(Vec<T>),
    ) {
        let is_wanted = self.filter.as_ref().is_none_or(|word| name.contains(word));
        if !is_wanted {
            return;
        }
        match self.mode {
            Mode::Time => time(name, most, &mut make, operations, &mut end),
            Mode::Count => count(name, most, &mut make, operations, &mut end),
        }
    }
}

impl Measure {
    /// Measures a call whose time is that of all parts of an object, and divides by the number of parts.
    /// `prepare` makes an object with that number of parts, and `end` destroys it.
    pub(crate) fn whole(
        &self,
        name: &str,
        most: usize,
        mut prepare: impl FnMut(usize),
        mut operation: impl FnMut(),
        mut end: impl FnMut(),
    ) {
        let is_wanted = self.filter.as_ref().is_none_or(|word| name.contains(word));
        if !is_wanted {
            return;
        }
        match self.mode {
            Mode::Time => {
                let mut counts: Vec<usize> =
                    COUNTS.iter().map(|count| (*count).min(most)).collect();
                counts.dedup();
                let mut times = Vec::new();
                for count in &counts {
                    prepare(*count);
                    times.push(of_one(|_| operation()) / *count as f64);
                    end();
                }
                print_head(name, &counts);
                print_line("call", &times);
            }
            Mode::Count => {
                for parts in COUNTS_FOR_CALLGRIND.map(|count| count.min(most)) {
                    prepare(parts);
                    operation();
                    let mut run = |_| operation();
                    let mut run: &mut dyn FnMut(usize) = &mut run;
                    for repetitions in [0, 1] {
                        cuda_sim::clear_calls();
                        cuda_sim_counted(&mut run, 0, repetitions);
                        // Divided by the number of parts.
                        println!("{name}\t{parts}\t{}", repetitions * parts);
                    }
                    end();
                }
            }
        }
    }
}

/// Prints the instructions of an operation in the order in which callgrind writes them: first without
/// repetitions.
fn count<T>(
    name: &str,
    most: usize,
    make: &mut impl FnMut(usize) -> T,
    operations: &mut [Operation<'_, T>],
    end: &mut impl FnMut(Vec<T>),
) {
    for alive in COUNTS_FOR_CALLGRIND.map(|count| count.min(most)) {
        let objects: Vec<T> = (0..alive).map(&mut *make).collect();
        let given = Cell::new(0);
        for (operation, run) in &mut *operations {
            let mut run = |repetition: usize| run(&objects, repetition);
            let mut run: &mut dyn FnMut(usize) = &mut run;
            // The first calls allocate what later calls use again.
            cuda_sim_warmed(&mut run, &given);
            for repetitions in [0, REPETITIONS] {
                cuda_sim::clear_calls();
                cuda_sim_counted(&mut run, given.get(), repetitions);
                println!("{name}: {operation}\t{alive}\t{repetitions}");
            }
            given.set(given.get() + REPETITIONS);
        }
        end(objects);
    }
}

/// Runs an operation a few times without counting.
fn cuda_sim_warmed(operation: &mut &mut dyn FnMut(usize), given: &Cell<usize>) {
    for repetition in given.get()..given.get() + REPETITIONS {
        operation(repetition);
    }
    given.set(given.get() + REPETITIONS);
}

/// Prints a table of nanoseconds: a line for each operation, and a column for each number of live objects.
fn time<T>(
    name: &str,
    most: usize,
    make: &mut impl FnMut(usize) -> T,
    operations: &mut [Operation<'_, T>],
    end: &mut impl FnMut(Vec<T>),
) {
    let mut counts: Vec<usize> = COUNTS.iter().map(|count| (*count).min(most)).collect();
    counts.dedup();
    let mut lines: Vec<(String, Vec<f64>)> = vec![("create".to_owned(), Vec::new())];
    lines.extend(operations.iter().map(|(name, _)| ((*name).to_owned(), Vec::new())));
    lines.push(("destroy".to_owned(), Vec::new()));
    for count in &counts {
        cuda_sim::clear_calls();
        let each = |start: Instant| start.elapsed().as_secs_f64() * 1e9 / *count as f64;
        let start = Instant::now();
        let objects: Vec<T> = (0..*count).map(&mut *make).collect();
        lines[0].1.push(each(start));
        for ((_, run), (_, times)) in operations.iter_mut().zip(&mut lines[1..]) {
            times.push(of_one(|repetition| run(&objects, repetition)));
        }
        cuda_sim::clear_calls();
        let start = Instant::now();
        end(objects);
        lines[operations.len() + 1].1.push(each(start));
    }
    print_head(name, &counts);
    for (operation, times) in &lines {
        print_line(operation, times);
    }
}

fn print_head(name: &str, counts: &[usize]) {
    print!("{name:52}");
    for count in counts {
        print!("{count:>12}");
    }
    println!("{:>9}", "growth");
}

fn print_line(operation: &str, times: &[f64]) {
    print!("  {operation:50}");
    for time in times {
        print!("{time:12.0}");
    }
    println!("{:8.1}x", times[times.len() - 1] / times[0]);
}

/// Returns the time of one repetition in nanoseconds: the least of several batches, because other load on the
/// machine only adds to a time.
fn of_one(mut operation: impl FnMut(usize)) -> f64 {
    const BATCHES: usize = 5;
    const BATCH: Duration = Duration::from_millis(20);
    const MOST: usize = 10_000;
    let (mut least, mut repetition) = (f64::INFINITY, 0);
    for _ in 0..BATCHES {
        cuda_sim::clear_calls();
        let first = repetition;
        let start = Instant::now();
        while repetition == first || (start.elapsed() < BATCH && repetition - first < MOST) {
            operation(repetition);
            repetition += 1;
        }
        let time = start.elapsed().as_secs_f64() * 1e9 / (repetition - first) as f64;
        least = least.min(time);
    }
    least
}
