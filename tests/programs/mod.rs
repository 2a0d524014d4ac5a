//! Random programs over the safe interface, shared by `tests/explore` and `tests/sim/races/safe.rs`.
//!
//! An operation is a row of a table: a name, and a function that takes objects of any types from the
//! [`World`], calls the safe interface, and puts objects back. A program is a list of operations with the
//! numbers that they draw from. Its operations are a random part of the tables, because sequences of many
//! steps on one subject are rare among all operations.
//!
//! Errors of the interface are allowed, except those that say that safe code has used a dead object or
//! corrupted memory. Wrong contents and misuses of the driver are violations.

#![allow(dead_code, reason = "each test binary uses only a part of it")]
#![allow(
    clippy::unit_arg,
    dropping_copy_types,
    clippy::drop_non_drop,
    reason = "an operation is one expression where possible"
)]

mod arrays;
mod basic;
mod captures;
mod copies;
mod descriptions;
#[cfg(target_os = "linux")]
mod external;
mod graph_changes;
mod graph_memory;
mod graphs;
mod imports;
mod memory_kinds;
mod miscellany;
mod partitions;
mod queries;
mod recordings;
mod settings;
mod sharing;
mod virtual_memory;

use crate::common::random::Random;
use cuda_memory::{
    CachingManager, CachingOptions, Fallback, FallbackManager, LeakManager, LimitManager,
    LoggingManager, OrderedManager, StatisticsManager,
};
use cuda_safe::error::Rejected;
use cuda_safe::green::{GreenPool, GreenPoolOptions, SmProbe};
use cuda_safe::manager::{DriverManager, clear_memory_manager, set_memory_manager};
use cuda_safe::{
    CUresult, Context, Device, DeviceBuffer, DeviceSlice, Error, Module, Result, Stream,
    TypedKernel,
};
use std::any::{Any, TypeId};
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) const THREADS: usize = 3;

/// The largest number of steps of one program, over all threads.
const STEPS: usize = 40;

/// The number of objects of one type that the threads share. A further object replaces one of them.
const OBJECTS: usize = 4;

/// The number of elements of every buffer.
pub(crate) const LEN: usize = 8;

const VECTOR: &str = include_str!("../kernels/vector.ptx");

/// The result of an operation. An operation without its objects does nothing.
type Done = std::result::Result<(), Skip>;

/// The operations on a subject. A program runs the first one before its steps.
type Operations = &'static [Operation];
type Operation = (&'static str, fn(&mut Step<'_>) -> Done);

const SUBJECTS: &[Operations] = &[
    basic::STREAMS,
    basic::BUFFERS,
    captures::CAPTURES,
    copies::COPIES,
    // Twice, because graphs have the most state.
    graphs::GRAPHS,
    graphs::GRAPHS,
    graph_memory::MEMORY,
    graph_memory::MEMORY,
    arrays::ARRAYS,
    virtual_memory::VIRTUAL_MEMORY,
    virtual_memory::ENDPOINTS,
    #[cfg(target_os = "linux")]
    external::EXTERNAL,
    partitions::PARTITIONS,
    sharing::SHARING,
    queries::QUERIES,
    descriptions::DESCRIPTIONS,
    imports::IMPORTS,
    memory_kinds::PARTS,
    memory_kinds::HOST_MEMORY,
    graph_changes::CHANGES,
    graph_changes::CONDITIONALS,
    recordings::RECORDINGS,
    settings::SETTINGS,
    settings::MANAGERS,
    miscellany::MISCELLANY,
];

/// Why an operation has done nothing, or only a part.
struct Skip;

impl From<Error> for Skip {
    fn from(error: Error) -> Self {
        let is_fatal = matches!(
            error.code(),
            Some(
                CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
                    | CUresult::CUDA_ERROR_LAUNCH_FAILED
                    | CUresult::CUDA_ERROR_INVALID_HANDLE
                    | CUresult::CUDA_ERROR_INVALID_CONTEXT
                    | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
            )
        );
        if is_fatal {
            wrong(format!("safe code used a dead object: {error}"));
        }
        Self
    }
}

impl<T> From<Rejected<T>> for Skip {
    fn from(rejected: Rejected<T>) -> Self {
        rejected.error.into()
    }
}

/// What a program did that safe code cannot do. Host functions and destructors report here, because
/// their panics do not reach the program.
static WRONG: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn wrong(text: String) {
    // Printed at once, because the process may crash.
    println!("report {text}");
    lock(&WRONG).push(text);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The memory manager in the contexts of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Manager {
    None,
    Driver,
    Ordered,
    Caching,
    Expandable,
    Layered,
}

/// A memory manager of several layers.
type Layered =
    LimitManager<StatisticsManager<LeakManager<LoggingManager<FallbackManager<CachingManager>>>>>;

fn layered(context: &Context) -> Result<Layered> {
    let upstream = OrderedManager::new(context)?;
    let caching = CachingManager::with_upstream(context, upstream, small_slabs())?;
    let fallback = FallbackManager::new(caching, Fallback::Managed);
    let logging = LoggingManager::new(fallback, std::io::sink());
    let statistics = StatisticsManager::new(LeakManager::new(logging));
    Ok(LimitManager::new(statistics, 1 << 20))
}

/// An operation of a program, with the numbers that it draws from.
#[derive(Clone, Copy)]
pub(crate) struct Choice {
    name: &'static str,
    operation: fn(&mut Step<'_>) -> Done,
    numbers: [u8; 6],
}

impl fmt::Debug for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.name, self.numbers)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Program {
    manager: Manager,
    /// The steps, each with the number of its thread.
    pub(crate) steps: Vec<(usize, Choice)>,
    /// The steps before the threads begin.
    prepared: Vec<Choice>,
}

fn choose(random: &mut Random, (name, operation): &'static Operation) -> Choice {
    Choice { name, operation: *operation, numbers: std::array::from_fn(|_| random.next() as u8) }
}

/// Chooses eight operations on a subject.
fn few(random: &mut Random, subject: Operations) -> [&'static Operation; 8] {
    std::array::from_fn(|_| &subject[random.below(subject.len())])
}

impl Program {
    /// Returns the program of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let mut random = Random(seed);
        let manager = [
            Manager::None,
            Manager::Driver,
            Manager::Ordered,
            Manager::Caching,
            Manager::Expandable,
            Manager::Layered,
        ];
        let manager = manager[random.below(manager.len())];
        // All operations of one subject, or a few of one to three subjects. Half of the programs have a few
        // operations on buffers too, whose work the other objects use.
        let (mut prepared, mut chosen) = (Vec::new(), Vec::new());
        let subjects = [1, 1, 2, 3][random.below(4)];
        for _ in 0..subjects {
            let subject = SUBJECTS[random.below(SUBJECTS.len())];
            prepared.push(choose(&mut random, &subject[0]));
            match subjects == 1 && random.below(2) == 0 {
                true => chosen.extend(subject),
                false => chosen.extend(few(&mut random, subject)),
            }
        }
        if random.below(2) == 0 {
            chosen.extend(few(&mut random, basic::BUFFERS));
        }
        let count = 10 + random.below(STEPS - 9);
        let steps = (0..count).map(|_| {
            let operation = chosen[random.below(chosen.len())];
            let choice = choose(&mut random, operation);
            (random.below(THREADS), choice)
        });
        Self { manager, steps: steps.collect(), prepared }
    }

    /// Returns the program with only some of its steps.
    pub(crate) fn keeping(mut self, kept: &[usize]) -> Self {
        let steps = self.steps.into_iter().enumerate();
        let steps = steps.filter(|(place, _)| kept.contains(place));
        self.steps = steps.map(|(_, step)| step).collect();
        self
    }

    /// Describes the program, thread by thread.
    pub(crate) fn describe(&self) -> String {
        let mut text =
            format!("    memory manager: {:?}\n    before: {:?}\n", self.manager, self.prepared);
        for thread in 0..THREADS {
            let its = self.steps.iter().filter(|(its, _)| *its == thread);
            let its: Vec<String> = its.map(|(_, step)| format!("{step:?}")).collect();
            text += &format!("    thread {thread}: {}\n", its.join(", "));
        }
        text
    }

    /// Begins the program: returns its world, and the steps of each thread.
    pub(crate) fn begin(&self, spawn: Spawn) -> (Arc<World>, [Vec<Choice>; THREADS]) {
        let set = match self.manager {
            Manager::None => {
                clear_memory_manager();
                Ok(())
            }
            Manager::Driver => set_memory_manager(DriverManager::new),
            Manager::Ordered => set_memory_manager(OrderedManager::new),
            Manager::Caching => {
                set_memory_manager(|context: &Context| CachingManager::with(context, small_slabs()))
            }
            Manager::Expandable => set_memory_manager(|context: &Context| {
                CachingManager::expandable(context, small_slabs())
            }),
            Manager::Layered => set_memory_manager(layered),
        };
        set.expect("a matching version");
        lock(&WRONG).clear();
        let world = Arc::new(World::new(spawn).expect("the first objects"));
        run_thread(&world, self.prepared.clone());
        let steps = std::array::from_fn(|thread| {
            let its = self.steps.iter().filter(|(its, _)| *its == thread);
            its.map(|(_, step)| *step).collect()
        });
        (world, steps)
    }

    /// Runs the steps one after another, with the objects of each thread.
    pub(crate) fn run_in_order(&self) {
        let (world, _) = self.begin(|body| {
            std::thread::spawn(body).join().expect("no panic");
        });
        let mut threads: [Vec<Box<dyn Any>>; THREADS] = Default::default();
        for (thread, choice) in &self.steps {
            choice.run(&world, &mut threads[*thread]);
        }
        threads.into_iter().for_each(drop_all);
        world.end();
    }
}

fn small_slabs() -> CachingOptions {
    CachingOptions { slab_bytes: 4096, ..Default::default() }
}

/// Runs a function on another thread.
pub(crate) type Spawn = fn(Box<dyn FnOnce() + Send>);

/// Runs the steps of one thread.
pub(crate) fn run_thread(world: &World, steps: Vec<Choice>) {
    let mut own = Vec::new();
    for choice in steps {
        choice.run(world, &mut own);
    }
    drop_all(own);
}

/// Drops objects in the reverse order.
fn drop_all(mut objects: Vec<Box<dyn Any>>) {
    while let Some(last) = objects.pop() {
        drop(last);
    }
}

impl Choice {
    fn run(&self, world: &World, own: &mut Vec<Box<dyn Any>>) {
        let mut step = Step { world, own, numbers: self.numbers, drawn: 0 };
        // Errors are allowed.
        let _ = (self.operation)(&mut step);
    }
}

/// The shared objects of one type.
type Objects = Vec<Box<dyn Any + Send>>;

/// The objects of a program. Threads share them: an operation takes an object, which other threads cannot
/// use meanwhile, or a clone.
pub(crate) struct World {
    first: Context,
    second: Context,
    kernel: TypedKernel<(&'static mut [u32], i32, i32, u32)>,
    probe: SmProbe,
    partitions: GreenPool,
    spawn: Spawn,
    /// The shared objects of each type. No driver call is made while the lock is held.
    objects: Mutex<Vec<(TypeId, Objects)>>,
    /// The last value that an operation has written.
    value: AtomicU32,
    /// What destroys the handles that the program has given away.
    given_away: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl World {
    fn new(spawn: Spawn) -> Result<Self> {
        let first = Context::primary(&Device::get(0)?)?;
        let module = Module::from_ptx(&first, VECTOR)?;
        let world = Self {
            second: Context::primary(&Device::get(1)?)?,
            kernel: module.kernel("scale")?.typed()?,
            probe: SmProbe::new(&first)?,
            partitions: GreenPool::new(&first.device(), GreenPoolOptions::default())?,
            spawn,
            objects: Mutex::default(),
            value: AtomicU32::new(0x100),
            given_away: Mutex::default(),
            first,
        };
        for place in 0..2 {
            let stream = world.first.stream()?;
            let held = Held::new(&stream, world.fresh())?;
            world.put(place, stream);
            world.put(place, held);
            world.put(place, world.first.event()?);
        }
        Ok(world)
    }

    /// Returns a value that no operation has written yet.
    fn fresh(&self) -> u32 {
        self.value.fetch_add(1, Ordering::Relaxed)
    }

    fn with_objects<T: 'static, R>(&self, f: impl FnOnce(&mut Vec<Box<dyn Any + Send>>) -> R) -> R {
        let mut all = lock(&self.objects);
        let id = TypeId::of::<T>();
        let index = all.iter().position(|(its, _)| *its == id);
        let index = index.unwrap_or_else(|| {
            all.push((id, Vec::new()));
            all.len() - 1
        });
        f(&mut all[index].1)
    }

    fn take<T: 'static>(&self, place: usize) -> std::result::Result<T, Skip> {
        let taken = self.with_objects::<T, _>(|all| match all.len() {
            0 => None,
            count => Some(all.swap_remove(place % count)),
        });
        let taken = taken.ok_or(Skip)?.downcast();
        taken.map(|its: Box<T>| *its).map_err(|_| Skip)
    }

    fn get<T: Clone + 'static>(&self, place: usize) -> std::result::Result<T, Skip> {
        self.with_objects::<T, _>(|all| {
            let count = all.len().max(1);
            let object = all.get(place % count)?;
            object.downcast_ref::<T>().cloned()
        })
        .ok_or(Skip)
    }

    fn put<T: Send + 'static>(&self, place: usize, object: T) {
        let replaced = self.with_objects::<T, _>(|all| {
            let replaced = (all.len() >= OBJECTS).then(|| all.swap_remove(place % OBJECTS));
            all.push(Box::new(object));
            replaced
        });
        // Dropped without the lock.
        drop(replaced);
    }

    /// Ends a program: waits for its work, and checks and drops its objects.
    pub(crate) fn end(self: Arc<Self>) {
        for context in [&self.first, &self.second] {
            context.synchronize().expect("the work of safe code succeeds");
        }
        while let Ok(held) = self.take::<Held>(0) {
            held.check();
        }
        while let Ok(graph) = self.take::<graphs::Drawn>(0) {
            graph.check(&self.first);
        }
        loop {
            let last = lock(&self.objects).pop();
            let Some((_, objects)) = last else { break };
            drop(objects);
        }
        for context in [&self.first, &self.second] {
            context.synchronize().expect("the work of safe code succeeds");
        }
        let given_away = std::mem::take(&mut *lock(&self.given_away));
        // An object may belong to one that was given away before it.
        given_away.into_iter().rev().for_each(|destroy| destroy());
        drop(self);
        let wrong = std::mem::take(&mut *lock(&WRONG));
        assert!(wrong.is_empty(), "{}", wrong.join("; "));
    }
}

/// One step of a thread.
pub(crate) struct Step<'a> {
    world: &'a World,
    /// The objects of the thread.
    own: &'a mut Vec<Box<dyn Any>>,
    numbers: [u8; 6],
    drawn: usize,
}

impl<'a> Step<'a> {
    /// Draws a number.
    fn number(&mut self) -> usize {
        self.drawn += 1;
        self.numbers[(self.drawn - 1) % self.numbers.len()].into()
    }

    fn below(&mut self, count: usize) -> usize {
        self.number() % count.max(1)
    }

    /// Draws a condition that holds for one number in `count`.
    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn choose<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Takes a shared object, if there is one of this type.
    fn take<T: 'static>(&mut self) -> std::result::Result<T, Skip> {
        let place = self.number();
        self.world.take(place)
    }

    /// Returns a clone of a shared object, if there is one of this type.
    fn get<T: Clone + 'static>(&mut self) -> std::result::Result<T, Skip> {
        let place = self.number();
        self.world.get(place)
    }

    /// Shares an object.
    fn put<T: Send + 'static>(&mut self, object: T) {
        let place = self.number();
        self.world.put(place, object);
    }

    /// Takes a shared object for the time of a call.
    fn with<T: Send + 'static>(&mut self, f: impl FnOnce(&mut Self, &mut T) -> Done) -> Done {
        let mut object = self.take::<T>()?;
        let done = f(self, &mut object);
        self.put(object);
        done
    }

    /// Stores an object of this thread.
    fn put_own<T: 'static>(&mut self, object: T) {
        self.own.push(Box::new(object));
    }

    /// Takes the last object of this type that the thread has stored.
    fn take_own<T: 'static>(&mut self) -> std::result::Result<T, Skip> {
        let last = self.own.iter().rposition(|its| its.is::<T>()).ok_or(Skip)?;
        let taken = self.own.remove(last).downcast();
        taken.map(|its: Box<T>| *its).map_err(|_| Skip)
    }

    fn context(&self) -> &'a Context {
        &self.world.first
    }

    fn fresh(&self) -> u32 {
        self.world.fresh()
    }

    /// Destroys a handle at the end of the program, after all objects.
    fn at_the_end(&self, destroy: impl FnOnce() + Send + 'static) {
        lock(&self.world.given_away).push(Box::new(destroy));
    }
}

/// Memory and the values that its elements may have. A fill that was captured into a graph has not
/// run, so there may be several.
struct Held {
    buffer: DeviceBuffer<u32>,
    values: Vec<u32>,
}

impl Held {
    fn new(stream: &Stream, value: u32) -> Result<Self> {
        Ok(Self { buffer: DeviceBuffer::from_slice(stream, &[value; LEN])?, values: vec![value] })
    }

    fn may_be(&mut self, value: u32) -> u32 {
        if !self.values.contains(&value) {
            self.values.push(value);
        }
        value
    }

    fn may_be_as(&mut self, values: &[u32]) {
        for value in values {
            self.may_be(*value);
        }
    }

    #[track_caller]
    fn check(&self) {
        check_slice(self.buffer.as_slice(), &self.values);
    }
}

/// Checks the elements, if they can be read now.
#[track_caller]
fn check_slice(slice: DeviceSlice<'_, u32>, values: &[u32]) {
    match slice.to_vec() {
        Ok(read) => check(&read, values),
        Err(error) => drop(Skip::from(error)),
    }
}

#[track_caller]
fn check(read: &[u32], values: &[u32]) {
    assert!(
        read.iter().all(|element| values.contains(element)),
        "wrong contents: {read:x?}, not of {values:x?}"
    );
}
