//! The arguments of driver calls: every option, flag, limit, attribute and enum value of
//! `cuda-safe` is set once, and the call log must contain the call with that value in that
//! argument.
//!
//! COVERAGE.md lists the C values, fields and parameters, each with its item of `cuda-safe`, and
//! the wrapped functions. Each of them needs a row here.

mod arrays;
mod capture;
mod context;
mod device;
mod event;
mod exports;
#[cfg(target_os = "linux")]
mod external;
mod function;
mod graph;
mod graph_nodes;
mod green;
mod launch;
mod managers;
mod memory;
mod memory_op;
mod module;
mod multicast;
mod process;
mod stream;
mod tensor_maps;
mod virtual_memory;

use crate::prelude::*;
use cuda_safe::Kernel;
use std::collections::BTreeSet;
use std::rc::Rc;

const COVERAGE: &str = include_str!("../../COVERAGE.md");

/// Wrapped functions that no row expects, and why.
const NOT_EXPECTED: [(&str, &str); 12] = [
    ("cuEGLStreamConsumerConnect", "the function with flags is called instead"),
    ("cuEGLStreamProducerDisconnect", "the software driver has no producers of EGL"),
    ("cuEGLStreamProducerPresentFrame", "the software driver has no producers of EGL"),
    ("cuEGLStreamProducerReturnFrame", "the software driver has no producers of EGL"),
    ("cuLogicalEndpointExport", "the software driver has no handles for other processes"),
    ("cuLogicalEndpointImport", "the software driver has no handles for other processes"),
    ("cuMemcpyHtoD", "an asynchronous copy and a wait are called instead"),
    ("cuModuleLoadData", "the function with options is called instead"),
    ("cuOccupancyMaxActiveBlocksPerMultiprocessor", "the function with flags is called instead"),
    ("cuOccupancyMaxPotentialBlockSize", "the function with flags is called instead"),
    ("cuStreamCreate", "the function with a priority is called instead"),
    ("cuStreamEndCaptureToCig", "the software driver refuses to begin such a capture"),
];

/// One option: the action that uses it, and the call that has to follow.
struct Row {
    /// The name in COVERAGE.md: `CUlimit::CU_LIMIT_STACK_SIZE`, `cuLaunchKernel.gridDimX`, or the
    /// function if only the call matters.
    name: String,
    on: On,
    act: Act,
    is_refused: bool,
    is_at_start: bool,
    function: &'static str,
    /// Checks whether a call of the function has the value. The error is the value that it has.
    check: Check,
}

/// The action of a row.
type Act<T = ()> = Box<dyn Fn(&Stage) -> Result<T>>;

/// The check of a row for one call.
type Check = Box<dyn Fn(&Call) -> Result<(), String>>;

/// The kind of process that a row runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    /// Two devices with the newest driver.
    Newest,
    /// The oldest driver.
    Oldest,
    /// Like `Newest`, on a system where the host must not access managed memory while kernels run.
    WithoutConcurrentAccess,
    /// Like `Newest`, with a memory manager.
    Manager,
}

impl On {
    fn profile(self) -> Profile {
        let profile = match self {
            Self::Oldest => "h200*2@11.8",
            _ => "h200*2@13.5",
        };
        let profile: Profile = profile.parse().expect("a known profile");
        match self {
            Self::WithoutConcurrentAccess => profile.without_concurrent_managed_access(),
            _ => profile,
        }
    }
}

/// The objects that rows use.
struct Stage {
    device: Device,
    peer: Device,
    context: Context,
    stream: Stream,
    /// A kernel without parameters.
    kernel: Kernel,
    /// The calls that created all of these.
    start: Vec<Call>,
}

impl Stage {
    fn new() -> Self {
        cuda_safe::version().expect("a driver");
        let device = Device::get(0).expect("a device");
        let context = Context::primary(&device).expect("a primary context");
        let module = Module::from_ptx(&context, VECTOR).expect("the test kernels");
        Self {
            device,
            peer: Device::get(1).expect("a second device"),
            stream: context.stream().expect("a stream"),
            kernel: module.kernel("nothing").expect("found"),
            context,
            start: cuda_sim::calls(),
        }
    }
}

/// The action of a row, and the function that it has to call.
struct Action<T> {
    name: String,
    act: Act<T>,
    function: &'static str,
}

impl<T: 'static> Action<T> {
    fn calls(self, function: &'static str) -> Self {
        Self { function, ..self }
    }

    /// Completes a row: the call has the value where `find` looks for it.
    fn with<V: PartialEq + Debug + 'static>(
        self,
        find: impl Fn(&Call) -> Option<V> + 'static,
        value: V,
    ) -> Row {
        let Self { name, act, function } = self;
        Row {
            name,
            on: On::Newest,
            act: Box::new(move |stage| act(stage).map(drop)),
            is_refused: false,
            is_at_start: false,
            function,
            check: Box::new(move |call| compare(find(call), Some(&value))),
        }
    }

    /// Completes a row: the call has the value that the action returns, a handle or an address.
    fn with_told(self, find: impl Fn(&Call) -> Option<T> + 'static) -> Row
    where
        T: PartialEq + Debug,
    {
        let told = Rc::new(RefCell::new(None));
        let value = Rc::clone(&told);
        let Self { name, act, function } = self;
        let act = move |stage: &Stage| {
            *told.borrow_mut() = Some(act(stage)?);
            Ok(())
        };
        let check = move |call: &Call| compare(find(call), value.borrow().as_ref());
        Row { check: Box::new(check), ..Row::call(function, act).named(&name) }
    }
}

impl Row {
    /// Starts a row for a name with its action.
    fn of<T>(name: &str, act: impl Fn(&Stage) -> Result<T> + 'static) -> Action<T> {
        Action { name: name.to_owned(), act: Box::new(act), function: "" }
    }

    /// Creates a row whose `act` calls `function`, with the value where `find` looks for it.
    fn new<T: PartialEq + Debug + 'static>(
        name: &str,
        act: impl Fn(&Stage) -> Result<()> + 'static,
        function: &'static str,
        find: impl Fn(&Call) -> Option<T> + 'static,
        value: T,
    ) -> Self {
        Self::of(name, act).calls(function).with(find, value)
    }

    /// Creates a row whose `act` calls `function`.
    fn call<T: 'static>(
        function: &'static str,
        act: impl Fn(&Stage) -> Result<T> + 'static,
    ) -> Self {
        Self::of(function, act).calls(function).with(|_| Some(()), ())
    }

    /// Marks that the call is made once per process, before the first context exists.
    fn at_start<T: PartialEq + Debug + 'static>(
        function: &'static str,
        find: impl Fn(&Call) -> Option<T> + 'static,
        value: T,
    ) -> Self {
        let row = Self::new(function, |_| Ok(()), function, find, value);
        Self { is_at_start: true, ..row }
    }

    fn named(self, name: &str) -> Self {
        let name = name.to_owned();
        Self { name, ..self }
    }

    /// Marks that the driver must refuse the call.
    fn refused(self) -> Self {
        Self { is_refused: true, ..self }
    }

    fn on(self, on: On) -> Self {
        Self { on, ..self }
    }

    fn run(&self, stage: &Stage) -> Result<(), String> {
        cuda_sim::clear_calls();
        let done = (self.act)(stage);
        // Runs frees and other pending work.
        cuda_sim::alive();
        let calls = match self.is_at_start {
            true => stage.start.clone(),
            false => cuda_sim::calls(),
        };
        if done.is_err() != self.is_refused {
            return Err(format!("{}: {done:?}", self.name));
        }
        let mut found = Vec::new();
        for call in calls.iter().filter(|call| call.function == self.function) {
            match (self.check)(call) {
                Ok(()) => return Ok(()),
                Err(what) => found.push(what),
            }
        }
        let called: Vec<&str> = calls.iter().map(|call| call.function).collect();
        Err(format!("{}: {} of {called:?} has {found:?}", self.name, self.function))
    }
}

fn compare<T: PartialEq + Debug>(found: Option<T>, expected: Option<&T>) -> Result<(), String> {
    if found.is_some() && found.as_ref() == expected {
        return Ok(());
    }
    Err(format!("{found:?} instead of {expected:?}"))
}

/// Finds an argument that is passed by value.
fn value<T: Copy + 'static>(argument: &'static str) -> impl Fn(&Call) -> Option<T> {
    move |call| match call.values(argument)? {
        [value] => Some(*value),
        _ => None,
    }
}

/// Finds a value in the structure that an argument points to.
fn field<S: 'static, T>(
    argument: &'static str,
    find: impl Fn(&S) -> T,
) -> impl Fn(&Call) -> Option<T> {
    move |call| match call.values(argument)? {
        [structure] => Some(find(structure)),
        _ => None,
    }
}

/// Finds all values of an array.
fn array<T: Clone + 'static>(argument: &'static str) -> impl Fn(&Call) -> Option<Vec<T>> {
    move |call| call.values(argument).map(<[T]>::to_vec)
}

fn rows() -> Vec<Row> {
    [
        arrays::rows(),
        capture::rows(),
        memory::batches::rows(),
        context::rows(),
        memory::copies::rows(),
        memory::decompression::rows(),
        device::rows(),
        event::rows(),
        exports::rows(),
        #[cfg(target_os = "linux")]
        external::rows(),
        function::rows(),
        graph::rows(),
        graph_nodes::rows(),
        green::rows(),
        launch::rows(),
        memory::managed::rows(),
        managers::rows(),
        memory::rows(),
        memory_op::rows(),
        module::rows(),
        multicast::rows(),
        memory::pool::rows(),
        process::rows(),
        stream::rows(),
        virtual_memory::rows(),
        tensor_maps::rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Runs the rows of one kind of process.
#[track_caller]
fn run(on: On) {
    in_child!();
    cuda_safe::event::set_reuse(false);
    crate::start(on.profile());
    if on == On::Manager {
        let make = DriverManager::new;
        cuda_safe::manager::set_memory_manager(make).expect("a matching version");
    }
    {
        cuda_sim::record_arguments(true);
        let stage = Stage::new();
        let failed: Vec<String> = rows()
            .iter()
            .filter(|row| row.on == on)
            .filter_map(|row| row.run(&stage).err())
            .collect();
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    }
    crate::check();
}

#[test]
fn every_option_appears_in_the_arguments_of_a_call() {
    run(On::Newest);
}

#[test]
fn options_appear_in_the_arguments_of_older_functions() {
    run(On::Oldest);
}

#[test]
fn managed_memory_is_attached_without_concurrent_access() {
    run(On::WithoutConcurrentAccess);
}

#[test]
fn options_appear_in_the_arguments_of_a_managers_calls() {
    run(On::Manager);
}

/// Returns the names in COVERAGE.md: fields, values and parameters that are passed to the driver,
/// and the names of wrapped functions.
fn listed() -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut options, mut functions) = (BTreeSet::new(), BTreeSet::new());
    for line in COVERAGE.lines() {
        let cells = line.trim_start_matches("| ").trim_end_matches(" |");
        let cells: Vec<&str> = cells.split(" | ").collect();
        let bare = |cell: &str| cell.trim_matches('`').to_owned();
        let is_item = |cell: &str| cell.starts_with('`') && cell.ends_with('`');
        match cells[..] {
            [owner, part, item] if is_item(owner) && is_item(item) => {
                let (owner, part) = (bare(owner), bare(part));
                let between = if owner.starts_with("cu") { "." } else { "::" };
                options.insert(format!("{owner}{between}{part}"));
            }
            [function, symbol, _, items] if is_item(symbol) && is_item(items) => {
                functions.insert(function.to_owned());
            }
            _ => {}
        }
    }
    (options, functions)
}

/// Returns the name of a function in NVIDIA's documentation.
fn base(symbol: &str) -> &'static str {
    let function = cuda_safe::sys::Function::find(symbol).expect("a function of the driver");
    function.base()
}

#[test]
fn every_option_and_every_function_has_a_row() {
    let (options, functions) = listed();
    assert!(options.len() > 400 && functions.len() > 150, "reading COVERAGE.md");
    let rows = rows();
    let named: BTreeSet<String> = rows.iter().map(|row| row.name.clone()).collect();
    let expected: BTreeSet<&str> = rows.iter().map(|row| base(row.function)).collect();

    let missing: Vec<_> = options.iter().filter(|its| !named.contains(*its)).collect();
    assert!(missing.is_empty(), "no row has {missing:#?}");
    let is_known = |name: &str| {
        let function = cuda_safe::sys::Function::find(name);
        options.contains(name) || function.is_some_and(|its| functions.contains(its.base()))
    };
    let unknown: Vec<_> = named.iter().filter(|name| !is_known(name)).collect();
    assert!(unknown.is_empty(), "COVERAGE.md does not list {unknown:#?}");

    let excused = NOT_EXPECTED.map(|(function, _)| function);
    let is_missing =
        |its: &&String| !expected.contains(its.as_str()) && !excused.contains(&its.as_str());
    let missing: Vec<_> = functions.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "no row expects a call of {missing:#?}");
    let idle: Vec<_> = excused.iter().filter(|its| expected.contains(*its)).collect();
    assert!(idle.is_empty(), "rows expect calls of {idle:?}");
}
