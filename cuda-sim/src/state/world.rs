//! The state of the process's driver, under one lock.

use super::array::Arrays;
use super::blocking::Stoppers;
use super::capture::Captures;
use super::external::Externals;
use super::graph::Graph;
use super::graph::conditional::ConditionalHandle;
use super::graph::executable::Executable;
use super::graph::node::Node;
use super::graph::user_object::UserObject;
use super::green::Descriptor;
use super::handles::{Handles, State};
use super::members::Belongings;
use super::nccl::Nccl;
use super::objects::{Context, ContextKind, Event, Function, Green, Linker, Module, Stream};
use super::pool::{LocationPools, Pool};
use super::run::Kept;
use super::shared::{SharedMemory, SharedPools};
use crate::account::{self, Alive, misuse};
use crate::code::Code;
use crate::exec::{Callback, Executor, Runnable, Work, kernel};
use crate::memory::{Interleavings, Memory};
use crate::profile::{Kernels, Profile};
use crate::races::{AccessLog, Order};
use crate::state::process::coredump::Coredumps;
use crate::state::process::error_log::ErrorLog;
use crate::state::process::processes::Processes;
use crate::thread;
use cuda_sys::CUresult;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::ThreadId;

/// The result of a driver function: success or an error code.
pub(crate) type Answer<T = ()> = Result<T, CUresult>;

/// The error of most wrong arguments.
pub(crate) const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// Fails with the code if the condition holds.
pub(crate) fn fail_if(condition: bool, code: CUresult) -> Answer {
    if condition { Err(code) } else { Ok(()) }
}

/// The state of the driver.
pub(crate) struct World {
    pub(crate) settings: WorldSettings,
    pub(crate) objects: Objects,
    pub(crate) runs: Runs,
}

/// What the driver plays, and what the process has set.
pub(crate) struct WorldSettings {
    pub(crate) profile: Profile,
    /// The SMs of each device.
    pub(crate) all_sms: Arc<[u32]>,
    pub(crate) initialised: bool,
    /// The flags that each primary context has when it is active.
    pub(crate) primary_flags: Vec<u32>,
    pub(crate) error_log: ErrorLog,
    pub(crate) coredumps: Coredumps,
    pub(crate) processes: Processes,
}

/// The objects that the process has created.
pub(crate) struct Objects {
    /// The next unique id of a context, a stream or a green context.
    pub(crate) next_id: u64,
    /// For each device: the permanent handle of its primary context, and the number of retains.
    pub(crate) primaries: Vec<(usize, usize)>,
    /// The per-thread default streams, by thread and context.
    pub(crate) per_thread: HashMap<(ThreadId, usize), usize>,
    pub(crate) contexts: Handles<Context>,
    pub(crate) greens: Handles<Green>,
    /// Green contexts by their ids.
    pub(crate) green_ids: HashMap<u64, usize>,
    /// For each thread, the view of a green context that is current on it.
    pub(crate) current_views: HashMap<ThreadId, usize>,
    /// For each view, the number of threads on which it is current.
    pub(crate) view_threads: HashMap<usize, usize>,
    pub(crate) streams: Handles<Stream>,
    pub(crate) members: Belongings,
    /// The objects that were alive when their context ended.
    pub(crate) ended_with_contexts: Alive,
    /// Number of contexts that are neither primary nor views.
    pub(crate) created_contexts: usize,
    pub(crate) events: Handles<Event>,
    pub(crate) modules: Handles<Module>,
    pub(crate) libraries: Handles<Module>,
    pub(crate) functions: Handles<Function>,
    pub(crate) linkers: Handles<Linker>,
    /// Number of images that were linked.
    pub(crate) linked: u32,
    pub(crate) descriptors: Handles<Descriptor>,
    /// Graphs, those of captures and nodes included.
    pub(crate) graphs: Handles<Graph>,
    /// Number of graphs that the program must destroy.
    pub(crate) program_graphs: usize,
    /// Number of ids given to graphs and executable graphs.
    pub(crate) graph_ids: u32,
    pub(crate) nodes: Handles<Node>,
    pub(crate) executables: Handles<Executable>,
    pub(crate) conditional_handles: BTreeMap<u64, ConditionalHandle>,
    /// Number of conditional handles created so far.
    pub(crate) last_conditional: u64,
    pub(crate) user_objects: Handles<UserObject>,
    pub(crate) captures: Captures,
    pub(crate) splits: u32,
    pub(crate) pools: Handles<Pool>,
    /// The memory pools of each device.
    pub(crate) device_pools: Vec<LocationPools>,
    /// The memory pools of other locations and of managed memory, by kind and location.
    pub(crate) other_pools: BTreeMap<(u32, (u32, i32)), LocationPools>,
    pub(crate) memory: Memory,
    pub(crate) arrays: Arrays,
    pub(crate) externals: Externals,
    pub(crate) nccl: Nccl,
    /// Memory shared between processes.
    pub(crate) shared: SharedMemory,
    pub(crate) pool_shared: SharedPools,
}

/// The work that runs, and the call that waits for it.
pub(crate) struct Runs {
    /// Destructors of user objects that the current call must run before it returns.
    pub(crate) destructors: Vec<Callback>,
    pub(crate) executor: Executor,
    /// The thread of the driver, if it runs work of this driver.
    pub(crate) driver_thread: Option<ThreadId>,
    /// Host functions that the driver's thread must run. Their operations count as running.
    pub(crate) handed: VecDeque<Callback>,
    /// The operation that the current call waits for. It is kept while callbacks run, because the body
    /// of the call then runs again. `None` until the body has determined the operation.
    pub(crate) kept: Option<Kept>,
    /// Threads inside a call that blocks calls of other threads.
    pub(crate) stoppers: Stoppers,
    /// The fatal error after which the process cannot use the GPU.
    pub(crate) fatal: Option<CUresult>,
}

static WORLD: Mutex<Option<World>> = Mutex::new(None);

/// Starts the driver if `install` succeeds. The lock is held, so a thread that finds the driver
/// installed waits until it has started.
pub(crate) fn start<E>(profile: Profile, install: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
    let mut started = lock();
    install()?;
    *started = Some(World::new(profile));
    Ok(())
}

/// Replaces the driver by a new one with the same profile and another seed, and marks it as initialized
/// by `cuInit`. The driver's thread runs no work of the new one. Kernels run under the interleavings.
///
/// # Panics
/// The software driver is not installed.
pub(crate) fn renew(seed: u64, interleavings: Interleavings) {
    let mut world = lock();
    let before = world.as_ref().expect("the software driver is installed");
    let profile = before.settings.profile.clone().with_seed(seed);
    let renewed = world.insert(World::new(profile));
    renewed.settings.initialised = true;
    renewed.objects.memory.interleavings = Some(interleavings);
}

/// Begins the sequence of choices again that follows from the seed, so that equal calls have equal answers.
/// Without effect on work that is not complete, and if the software driver is not installed.
pub fn restart_seed() {
    with(|world| world.runs.executor.restart(world.settings.profile.seed));
}

pub(crate) fn lock() -> MutexGuard<'static, Option<World>> {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the state, or `None` if another thread uses it.
pub(crate) fn try_lock() -> Option<MutexGuard<'static, Option<World>>> {
    match WORLD.try_lock() {
        Ok(locked) => Some(locked),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

pub(crate) fn with<T>(f: impl FnOnce(&mut World) -> T) -> Option<T> {
    lock().as_mut().map(f)
}

impl World {
    pub(super) fn new(profile: Profile) -> Self {
        let runs = Runs {
            destructors: Vec::new(),
            executor: Executor::new(account::note_seed(profile.seed)),
            driver_thread: None,
            handed: VecDeque::new(),
            kept: None,
            stoppers: Stoppers::default(),
            fatal: None,
        };
        let objects = Objects {
            next_id: 1,
            primaries: Vec::new(),
            per_thread: HashMap::new(),
            contexts: Handles::new(1),
            greens: Handles::new(2),
            green_ids: HashMap::new(),
            current_views: HashMap::new(),
            view_threads: HashMap::new(),
            streams: Handles::new(3),
            members: Belongings::default(),
            ended_with_contexts: Alive::default(),
            created_contexts: 0,
            events: Handles::new(4),
            modules: Handles::new(5),
            libraries: Handles::new(6),
            functions: Handles::new(7),
            linkers: Handles::new(30),
            linked: 0,
            descriptors: Handles::new(8),
            graphs: Handles::new(9),
            program_graphs: 0,
            graph_ids: 0,
            nodes: Handles::new(11),
            executables: Handles::new(12),
            conditional_handles: BTreeMap::new(),
            last_conditional: 0,
            user_objects: Handles::new(13),
            captures: Captures::default(),
            splits: 0,
            pools: Handles::new(10),
            device_pools: Vec::new(),
            other_pools: BTreeMap::new(),
            memory: Memory::default(),
            arrays: Arrays::new(),
            externals: Externals::new(),
            nccl: Nccl::new(profile.nccl_folder.clone()),
            shared: SharedMemory::default(),
            pool_shared: SharedPools::default(),
        };
        let settings = WorldSettings {
            initialised: false,
            primary_flags: vec![0; profile.devices as usize],
            error_log: ErrorLog::new(),
            coredumps: Coredumps::new(),
            processes: Processes::default(),
            all_sms: (0..profile.gpu.sms).collect(),
            profile,
        };
        let mut world = Self { settings, objects, runs };
        world.objects.memory.disjoint = world.settings.profile.disjoint_host_addresses;
        world.objects.memory.lenient = world.settings.profile.lenient_misuse;
        world.objects.memory.seed = world.settings.profile.seed;
        world.objects.memory.sites = world.settings.profile.leak_sites.then(Box::default);
        world.objects.memory.checks = world.settings.profile.kernel_checks;
        if world.settings.profile.detects_races() {
            world.runs.executor.order = Some(Box::<Order>::default());
            world.objects.memory.accesses = Some(Box::<AccessLog>::default());
        }
        for device in 0..world.settings.profile.devices {
            let handle = world.objects.contexts.reserve();
            world.objects.primaries.push((handle, 0));
            let pool = world.objects.pools.insert(Pool::of_device(device as usize));
            world.objects.device_pools.push(LocationPools::new(pool));
        }
        world
    }

    /// Not a driver code: the caller must run a callback and then the body again.
    pub(crate) const CALLBACK: CUresult = CUresult(u32::MAX);
    /// Not a driver code: a callback or a waiting call of another thread must end before the body runs
    /// again.
    pub(crate) const WAIT: CUresult = CUresult(u32::MAX - 1);

    pub(crate) fn new_id(&mut self) -> u64 {
        let id = self.objects.next_id;
        self.objects.next_id += 1;
        id
    }

    /// Returns the context that is current on this thread, if it is alive.
    pub(crate) fn current(&self) -> Answer<usize> {
        let handle = thread::current().ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        self.context(handle).map(|_| handle)
    }

    /// Fails if a context is current that was destroyed. Some functions need no current context (measured).
    pub(crate) fn none_or_alive(&self) -> Answer {
        let destroyed = CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED;
        fail_if(self.current() == Err(destroyed), destroyed)
    }

    pub(crate) fn context(&self, handle: usize) -> Answer<&Context> {
        match self.objects.contexts.get(handle) {
            Some(context) => Ok(context),
            None if self.objects.contexts.state(handle) == State::Dead => {
                Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED)
            }
            None => Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
        }
    }

    /// Returns the context with a handle, of which null stands for the current context in some calls (measured).
    pub(crate) fn context_or_current(&self, handle: usize) -> Answer<usize> {
        match handle {
            0 => self.current(),
            handle => self.context(handle).map(|_| handle),
        }
    }

    /// Returns the context that owns memory and modules created in `context`. For the view of a green
    /// context this is the primary context.
    pub(crate) fn owner_of(&self, context: usize) -> Answer<usize> {
        let its = self.context(context)?;
        Ok(match its.kind {
            ContextKind::View(_) => self.objects.primaries[its.device].0,
            ContextKind::Primary | ContextKind::Created => context,
        })
    }

    pub(crate) fn device(&self, number: i32) -> Answer<usize> {
        usize::try_from(number)
            .ok()
            .filter(|number| *number < self.objects.primaries.len())
            .ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)
    }

    /// Returns a stream by its handle. The default streams are those of the current context.
    pub(crate) fn stream(&mut self, handle: usize) -> Answer<usize> {
        let stream = self.known_stream(handle)?;
        self.stopped(self.runs.executor.calling, Some(stream))?;
        Ok(stream)
    }

    fn known_stream(&mut self, handle: usize) -> Answer<usize> {
        if handle <= cuda_sys::CU_STREAM_PER_THREAD.addr() {
            let current = self.current()?;
            let is_default = handle == 0 && thread::has_per_thread_default();
            if is_default || handle == cuda_sys::CU_STREAM_PER_THREAD.addr() {
                return self.per_thread_stream(current);
            }
            // The stream would have to wait for work that is only captured.
            self.forbidden_on_legacy(self.owner_of(current)?)?;
            return Ok(self.context(current)?.legacy);
        }
        match self.objects.streams.state(handle) {
            State::Alive if self.objects.streams.get(handle).is_some_and(|its| its.is_detached) => {
                misuse("a stream is used after its green context was destroyed");
                Err(CUresult::CUDA_ERROR_STREAM_DETACHED)
            }
            State::Alive => Ok(handle),
            State::Dead => {
                misuse("a stream is used after it was destroyed");
                Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED)
            }
            State::Unknown => {
                misuse("a handle that is not a stream is used as a stream");
                Err(CUresult::CUDA_ERROR_INVALID_HANDLE)
            }
        }
    }

    /// Returns the stream of synchronous copies: the default stream of the current context.
    pub(crate) fn stream_of_copies(&mut self) -> Answer<usize> {
        self.stream(0)
    }

    /// Returns this thread's default stream of a context, and creates it at its first use. Measured: a green context has
    /// none.
    pub(super) fn per_thread_stream(&mut self, context: usize) -> Answer<usize> {
        let is_view = matches!(self.context(context)?.kind, ContextKind::View(_));
        fail_if(is_view, CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        let key = (thread::id(), context);
        let known = self.objects.per_thread.get(&key).copied();
        if let Some(known) = known.filter(|known| self.objects.streams.get(*known).is_some()) {
            return Ok(known);
        }
        let id = self.new_id();
        let made = self.add_stream(Stream { is_default: true, ..Stream::new(context, None, id) });
        self.objects.per_thread.insert(key, made);
        Ok(made)
    }

    pub(crate) fn event(&self, handle: usize) -> Answer<&Event> {
        match self.objects.events.get(handle) {
            Some(event) => Ok(event),
            None => {
                if self.objects.events.state(handle) == State::Dead {
                    misuse("an event is used after it was destroyed");
                }
                Err(CUresult::CUDA_ERROR_INVALID_HANDLE)
            }
        }
    }

    /// Enqueues work on a stream, after `after` and after the work that the stream's type implies.
    pub(crate) fn give(&mut self, stream: usize, work: Work, mut after: Vec<u64>) -> u64 {
        let (context, blocking, is_default) = match self.objects.streams.get(stream) {
            Some(its) => (its.context, its.blocking, its.is_legacy),
            None => return 0,
        };
        after.extend(self.before_all(stream));
        let legacy = self.objects.contexts.get(context).map_or(0, |its| its.legacy);
        let is_legacy = stream == legacy;
        if blocking && !is_legacy {
            // A blocking stream waits for the legacy default stream of its context ...
            after.extend(self.objects.streams.get(legacy).and_then(|its| its.last));
        }
        // Without an allocation for other work. Also the default stream of a green context's view copies.
        let both = if is_default { self.contexts_of_both(&work) } else { Vec::new() };
        let own = (is_legacy && !both.contains(&context)).then_some(context);
        for its in both.iter().copied().chain(own) {
            let Some(its) = self.objects.contexts.get_mut(its) else { continue };
            // ... which waits for all blocking streams, and for copies in the default streams of other contexts.
            after.extend(std::mem::take(&mut its.given).into_values());
            if its.legacy != stream {
                after.extend(self.objects.streams.get(its.legacy).and_then(|its| its.last));
            }
        }
        self.remove_unused_clocks();
        let id = self.runs.executor.give(stream, work, after);
        for its in both.iter().copied().chain(own) {
            let Some(its) = self.objects.contexts.get_mut(its) else { continue };
            if let Some(order) = &mut self.runs.executor.order {
                order.order_after_retired(id, its.legacy);
            }
            if its.legacy != stream {
                its.given.insert(stream, id);
                if let Some(legacy) = self.objects.streams.get_mut(its.legacy) {
                    legacy.last = Some(id);
                }
            }
        }
        if blocking && !is_legacy {
            if let Some(its) = self.objects.contexts.get_mut(context) {
                its.given.insert(stream, id);
            }
        }
        if let Some(its) = self.objects.streams.get_mut(stream) {
            its.last = Some(id);
        }
        id
    }

    /// Returns the operations that come before all further work of a stream's context, and of its green context.
    fn before_all(&self, stream: usize) -> impl Iterator<Item = u64> {
        let stream = self.objects.streams.get(stream);
        let green = stream.and_then(|its| self.objects.greens.get(its.green?));
        let contexts = [stream.map(|its| its.context), green.map(|its| its.view)];
        contexts.into_iter().flatten().filter_map(|its| self.objects.contexts.get(its)?.after)
    }

    /// Returns the contexts of the devices between which the work copies. In a legacy default stream, such a copy is
    /// ordered as work of the legacy default stream of each of them: with the work of blocking streams, and of no other
    /// (driver 580 with two H200, in primary contexts).
    fn contexts_of_both(&self, work: &Work) -> Vec<usize> {
        if self.objects.primaries.len() == 1 {
            return Vec::new();
        }
        let device = |address| Some(self.objects.memory.containing(address)?.1.device);
        let mut devices = BTreeSet::new();
        for (from, to) in work.copies_on_device() {
            match (device(from), device(to)) {
                (Some(from), Some(to)) if from != to => devices.extend([from, to]),
                _ => {}
            }
        }
        let contexts = self.objects.contexts.iter();
        contexts.filter(|(_, its)| devices.contains(&its.device)).map(|(its, _)| its).collect()
    }

    /// Returns the operations that the next work on a stream comes after, of which some may be complete.
    pub(super) fn last_before(&self, stream: usize) -> Vec<u64> {
        let mut before: Vec<u64> = self.runs.executor.last(stream).into_iter().collect();
        let Some(its) = self.objects.streams.get(stream) else { return before };
        let Some(context) = self.objects.contexts.get(its.context) else { return before };
        before.extend(self.before_all(stream));
        if stream == context.legacy {
            before.extend(context.given.values());
        } else if its.blocking {
            before.extend(self.objects.streams.get(context.legacy).and_then(|its| its.last));
        }
        before
    }

    /// Enqueues work on a stream without the implicit order of blocking streams.
    pub(crate) fn give_beside(&mut self, stream: usize, work: Work, after: Vec<u64>) -> u64 {
        self.runs.executor.give(stream, work, after)
    }

    pub(crate) fn function(&self, handle: usize) -> Answer<&Function> {
        self.objects.functions.get(handle).ok_or_else(|| {
            if self.objects.functions.state(handle) == State::Dead {
                misuse("a kernel is used after its module was unloaded");
            }
            CUresult::CUDA_ERROR_INVALID_HANDLE
        })
    }

    /// Returns a kernel by its function handle, to run in `context`, with the host function that is now
    /// registered for it.
    pub(crate) fn runnable(
        &self,
        function: usize,
        context: usize,
    ) -> Answer<(Runnable, Option<usize>)> {
        let handle = function;
        let function = self.function(function)?;
        let module = self
            .objects
            .modules
            .get(function.module)
            .or_else(|| self.objects.libraries.get(function.module));
        let Some(module) = module else {
            misuse("a kernel is launched after its module was unloaded");
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        };
        let info = module.kernels[function.kernel].clone();
        let kernels = self.settings.profile.kernels;
        let ignored = || (kernels == Kernels::Ignore).then(kernel::that_does_nothing);
        let body = kernel::find(&info.name).or_else(ignored);
        let runnable = Runnable {
            info,
            function: handle,
            module: function.module,
            body,
            code: match (kernels, &module.program) {
                (Kernels::Interpret, Some(program)) => Code::Ptx(program.clone()),
                (Kernels::Interpret, None) => Code::Machine,
                _ => Code::None,
            },
            settings: function.settings,
            variables: module.placed.get(&context).cloned(),
        };
        Ok((runnable, function.context))
    }

    pub(crate) fn alive(&self) -> Alive {
        let [pinned, registered, _] = self.objects.memory.host_counts();
        let [arrays, mipmapped_arrays] = self.objects.arrays.counts();
        let [textures, surfaces] = self.objects.memory.objects.counts();
        let [reservations, mappings] = self.objects.memory.virtual_memory.counts();
        Alive {
            retains: self.objects.primaries.iter().map(|(_, retains)| retains).sum(),
            contexts: self.objects.created_contexts,
            green_contexts: self.objects.greens.len(),
            streams: self.objects.members.named_streams,
            events: self.objects.events.len(),
            modules: self.objects.modules.len(),
            libraries: self.objects.libraries.len(),
            linkers: self.objects.linkers.len(),
            graphs: self.objects.program_graphs,
            executable_graphs: self.objects.executables.len(),
            user_objects: self.objects.user_objects.len(),
            device_allocations: self.objects.memory.device_count(),
            device_bytes: self.objects.memory.device_bytes(),
            pinned_allocations: pinned,
            registered,
            managed_allocations: self.objects.memory.managed_count(),
            pools: self.objects.pools.len()
                - self.objects.device_pools.len()
                - self.objects.other_pools.len(),
            physical_allocations: self.objects.memory.virtual_memory.physical.len(),
            reservations,
            mappings,
            arrays,
            // Those of mappings belong to the registered resources.
            mipmapped_arrays: mipmapped_arrays - self.objects.externals.graphics.mapped_images(),
            textures,
            surfaces,
            external_memories: self.objects.externals.memories.len(),
            external_semaphores: self.objects.externals.semaphores.len(),
            graphics_resources: self.objects.externals.graphics.registered.len(),
            communicators: self.objects.nccl.communicators.len(),
        }
    }
}
