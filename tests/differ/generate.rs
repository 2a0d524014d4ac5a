//! Random programs of raw calls.

use super::table::{Kind, MEMORY, Row};
use crate::common::random::Random;
use std::collections::HashMap;

/// What the generator knows of an object.
#[derive(Clone, Debug)]
struct Object {
    class: &'static str,
    number: usize,
    is_alive: bool,
    /// The bytes of memory.
    size: u64,
    /// The bytes of a row, the rows and the layers of an array.
    shape: [u64; 3],
    /// The stream on which the memory, or the memory that a graph uses, is used. `None` for a graph
    /// without memory, and for memory whose stream was destroyed until the next `check`.
    home: Option<String>,
    /// Whether a graph uses this memory, which is then never freed.
    is_in_graph: bool,
    /// The image of a module, the module and name of a function, the graph and kind of a node, the graph
    /// of an executable graph, of a body or of a condition, the green context of a stream, the type of a
    /// conditional node that a condition is for. `ordered` for stream-ordered memory.
    of: String,
    is_capturing: bool,
    /// Whether the graph has nodes that the program does not name.
    has_others: bool,
    /// Whether nodes that use the same memory may run in any order, so that the graph is never launched.
    is_unordered: bool,
}

impl Object {
    fn name(&self) -> String {
        format!("{}{}", self.class, self.number)
    }

    /// The name of the object that this one is a part of.
    fn owner(&self) -> &str {
        self.of.split(' ').next().unwrap_or_default()
    }
}

/// The names of the kernels in each image.
const IMAGES: &[(&str, &[&str])] = &[
    ("vector", &["scale", "nothing"]),
    ("pattern", &["write_pattern"]),
    ("globals", &["bump"]),
    CONDITIONAL,
];

/// The image whose kernel sets a condition of a graph.
const CONDITIONAL: (&str, &[&str]) = ("conditional", &["choose"]);

/// The kinds of nodes that use memory. Those of a graph run one after the other.
const LINKS: &[&str] = &["ChildGraph", "Memset", "Memcpy", "Kernel", "Host", "Conditional"];

/// Returns the kind of the nodes that a function is for, or an empty text.
fn node_kind(symbol: &str) -> &'static str {
    if symbol == "cuGraphAddNode_v2" {
        return "Conditional";
    }
    let kinds = LINKS.iter().chain(&["EventRecord", "EventWait"]);
    let is_named = |kind: &&&str| symbol.contains(&format!("{kind}Node"));
    kinds.into_iter().find(is_named).unwrap_or(&"")
}

/// The legacy default stream.
const LEGACY: &str = "0";

/// The default stream of the thread.
const PER_THREAD: &str = "2";

pub(crate) struct Generator<'a> {
    rows: &'a [Row],
    random: Random,
    objects: Vec<Object>,
    numbers: HashMap<&'static str, usize>,
    lines: Vec<String>,
    threads: usize,
    thread: usize,
}

/// What one call uses, while its arguments are chosen.
#[derive(Default)]
struct Call {
    symbol: &'static str,
    tokens: Vec<String>,
    /// The bytes from the addresses to the end of their memory.
    space: Option<u64>,
    home: Option<String>,
    /// The object that a graph call changes, whose memory must have one stream.
    graph: Option<usize>,
    function: Option<usize>,
    created: Vec<(&'static str, usize)>,
    destroyed: Vec<usize>,
    used: Vec<usize>,
    /// The names of the memory at the addresses.
    memory: Vec<String>,
    size: u64,
    shape: [u64; 3],
    image: String,
    is_wrong: bool,
}

/// Returns the lines of the program of a seed.
pub(crate) fn program(rows: &[Row], seed: u64) -> Vec<String> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let threads = [1, 1, 1, 2, 3][random.below(5)];
    let mut its = Generator {
        rows,
        random,
        objects: Vec::new(),
        numbers: HashMap::new(),
        lines: Vec::new(),
        threads,
        thread: 0,
    };
    its.run();
    its.lines
}

impl Generator<'_> {
    fn run(&mut self) {
        for (class, size) in [("context", 0), ("pool", 0), ("pageable", 4096), ("pageable", 65536)]
        {
            let number = self.number(class);
            self.add((class, number), size, Some(LEGACY.to_owned()), String::new());
        }
        let topics: Vec<&str> = {
            let mut all: Vec<&str> = self.rows.iter().map(|row| row.topic).collect();
            all.dedup();
            all.retain(|topic| *topic != "creation");
            all.extend(["graph", "graph", "graph", "capture", "capture", "green"]);
            let mut chosen = vec!["memory", "stream"];
            for _ in 0..1 + self.random.below(2) {
                let topic = all[self.random.below(all.len())];
                chosen.extend([topic; 2]);
            }
            if self.random.below(40) == 0 {
                chosen.push("creation");
            }
            chosen
        };
        for name in ["cuStreamCreate", "cuMemAlloc_v2", "cuMemAlloc_v2", "cuMemAllocHost_v2"] {
            self.call_named("", name);
        }
        for (topic, names) in PROLOGUES {
            if topics.contains(topic) {
                names.iter().for_each(|name| self.call_named(topic, name));
            }
        }
        let length = 30 + self.random.below(40);
        while self.lines.len() < length {
            // A wait makes a capture invalid.
            let is_capturing = self.objects.iter().any(|its| its.is_alive && its.is_capturing);
            if self.random.below(if is_capturing { 200 } else { 14 }) == 0 {
                self.check();
                continue;
            }
            let topic = topics[self.random.below(topics.len())];
            let is_launch =
                self.random.below(3) == 0 && self.choose("exec", |its| its.is_alive).is_some();
            let of_exec = |row: &Row| row.kinds.contains(&Kind::Object("exec"));
            let is_wanted = |row: &Row| row.topic == topic && (!is_launch || of_exec(row));
            let rows: Vec<usize> =
                (0..self.rows.len()).filter(|row| is_wanted(&self.rows[*row])).collect();
            if rows.is_empty() {
                continue;
            }
            let row = rows[self.random.below(rows.len())];
            self.call(row, true);
        }
        self.check();
    }

    /// Calls a function, preferably as a row of the topic has it.
    fn call_named(&mut self, topic: &str, name: &str) {
        let with_name = |row: &&Row| row.function.symbol() == name;
        let rows = self.rows.iter().filter(with_name);
        let row = rows.max_by_key(|row| usize::from(row.topic == topic)).expect("a row");
        let row = self.rows.iter().position(|other| std::ptr::eq(row, other));
        self.call(row.expect("a row of the table"), false);
    }

    fn add(
        &mut self,
        (class, number): (&'static str, usize),
        size: u64,
        home: Option<String>,
        of: String,
    ) {
        self.objects.push(Object {
            class,
            number,
            is_alive: true,
            size,
            shape: [0; 3],
            home,
            is_in_graph: false,
            of,
            is_capturing: false,
            has_others: false,
            is_unordered: false,
        });
    }

    fn number(&mut self, class: &'static str) -> usize {
        let next = self.numbers.entry(class).or_insert(0);
        *next += 1;
        *next - 1
    }

    fn line(&mut self, text: &str) {
        self.lines.push(format!("t{} {text}", self.thread));
    }

    /// Waits for all work, and compares the memory.
    fn check(&mut self) {
        self.line("check");
        for object in &mut self.objects {
            if MEMORY.contains(&object.class) && object.home.is_none() {
                object.home = Some(LEGACY.to_owned());
            }
        }
    }

    /// Returns an object of a class that `fits`.
    fn choose(&mut self, class: &str, fits: impl Fn(&Object) -> bool) -> Option<usize> {
        let is_class = |its: &str| match class {
            "any" => MEMORY.contains(&its) && its != "range",
            class => its == class,
        };
        let fitting: Vec<usize> = (0..self.objects.len())
            .filter(|index| is_class(self.objects[*index].class) && fits(&self.objects[*index]))
            .collect();
        // New objects are used more often.
        let last = fitting.len().checked_sub(1)?;
        match self.random.below(2) {
            0 => Some(fitting[last - self.random.below(fitting.len().min(3))]),
            _ => Some(fitting[self.random.below(fitting.len())]),
        }
    }

    fn one_of<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.random.below(list.len())].clone()
    }

    /// Writes a call, unless objects that it needs do not exist.
    fn call(&mut self, row: usize, may_be_wrong: bool) {
        let rows = self.rows;
        let row = &rows[row];
        if self.random.below(5) == 0 && self.threads > 1 {
            self.thread = self.random.below(self.threads);
            self.separate_contexts();
        }
        let wrong = match may_be_wrong && self.random.below(10) == 0 {
            true => Some(self.random.below(row.kinds.len().max(1))),
            false => None,
        };
        let mut call = Call { symbol: row.function.symbol(), ..Call::default() };
        let streams = row.kinds.contains(&Kind::Object("stream"));
        let numbers = self.numbers.clone();
        call.home = Some(LEGACY.to_owned());
        if streams {
            let is_capture = row.topic == "capture";
            let stream = self.choose("stream", |its| its.is_alive && its.is_capturing);
            let stream = stream.filter(|_| is_capture && self.random.below(8) > 0);
            let stream = stream.or_else(|| self.choose("stream", |its| its.is_alive));
            call.home = match (self.random.below(if is_capture { 16 } else { 4 }), stream) {
                (0, _) if self.threads == 1 && !is_capture && self.random.below(3) == 0 => {
                    Some(PER_THREAD.to_owned())
                }
                (0, _) | (_, None) => call.home,
                (_, Some(stream)) => Some(self.objects[stream].name()),
            };
        }
        for (index, kind) in row.kinds.iter().enumerate() {
            let is_wrong = wrong == Some(index);
            let Some(token) = self.token(&mut call, kind, is_wrong) else {
                self.numbers = numbers;
                return;
            };
            if let Some(token) = token {
                call.tokens.push(token);
            }
        }
        let line = format!("{} {}", row.function.symbol(), call.tokens.join(" "));
        self.line(line.trim_end());
        if call.is_wrong {
            return;
        }
        self.note(&call, streams);
        if call.symbol.starts_with("cuCtx") {
            self.separate_contexts();
        }
    }

    /// Notes what a successful call changes.
    fn note(&mut self, call: &Call, streams: bool) {
        let symbol = call.symbol;
        let breaks = ["cuGraphRemoveDependencies_v2", "cuGraphDestroyNode"];
        if let Some(graph) = call.graph {
            let starts =
                self.objects[graph].has_others && call.tokens.iter().any(|its| its == "[]");
            let is_link = symbol.starts_with("cuGraphAdd") && LINKS.contains(&node_kind(symbol));
            if breaks.contains(&symbol) || is_link && starts {
                let root = self.root(graph);
                self.objects[root].is_unordered = true;
            }
        }
        let begins = symbol.starts_with("cuStreamBeginCapture");
        if begins || symbol == "cuStreamEndCapture" {
            let stream = self.objects.iter_mut().find(|its| Some(its.name()) == call.home);
            if let Some(stream) = stream {
                stream.is_capturing = begins;
            }
        }
        for index in &call.destroyed {
            self.objects[*index].is_alive = false;
            let (class, name) = (self.objects[*index].class, self.objects[*index].name());
            if class == "stream" {
                let homeless =
                    self.objects.iter_mut().filter(|its| its.home.as_ref() == Some(&name));
                homeless.for_each(|its| its.home = None);
            }
            if matches!(class, "graph" | "module" | "library" | "mipmapped" | "node" | "green") {
                self.end_parts(&name);
            }
        }
        // A copy to the device may read pinned memory before earlier work has written it.
        if symbol.ends_with("Async") || symbol.ends_with("Async_v2") {
            let is_pinned =
                |its: &&mut Object| its.class == "pinned" && call.memory.contains(&its.name());
            self.objects.iter_mut().filter(is_pinned).for_each(|its| its.home = None);
        }
        let graph = call.graph.map(|graph| self.objects[graph].name());
        let graph_home = call.graph.and_then(|graph| self.home(graph));
        for (class, number) in &call.created {
            let home = match *class {
                class if MEMORY.contains(&class) && streams => call.home.clone(),
                class if MEMORY.contains(&class) && class != "range" => {
                    let stream = self.choose("stream", |its| its.is_alive && !its.is_capturing);
                    let stream = stream.map(|stream| self.objects[stream].name());
                    match self.random.below(2) {
                        0 => stream.or(Some(LEGACY.to_owned())),
                        _ => Some(LEGACY.to_owned()),
                    }
                }
                "range" | "array" => Some(LEGACY.to_owned()),
                "graph" if symbol == "cuStreamEndCapture" => call.home.clone(),
                "graph" | "exec" => graph_home.clone(),
                _ => None,
            };
            let of = match *class {
                "module" | "library" => call.image.clone(),
                "function" | "kernel" => {
                    let owner = &self.objects[*call.used.first().expect("an owner")];
                    let name = match owner.class {
                        "kernel" => owner.of.split(' ').next_back().unwrap_or_default(),
                        _ => &call.image,
                    };
                    format!("{} {name}", owner.name())
                }
                "node" => format!("{} {}", graph.clone().unwrap_or_default(), node_kind(symbol)),
                "exec" => graph.clone().unwrap_or_default(),
                "graph" if symbol == "cuGraphAddNode_v2" => {
                    format!("{} node{}", graph.clone().unwrap_or_default(), call.created[0].1)
                }
                "condition" => {
                    format!("{} {}", graph.clone().unwrap_or_default(), call.tokens[3])
                }
                "context" | "stream" | "array" => match call.used.first() {
                    Some(owner) => self.objects[*owner].name(),
                    None => String::new(),
                },
                "device" if streams => "ordered".to_owned(),
                _ => String::new(),
            };
            self.add((class, *number), call.size, home, of);
            let added = self.objects.last_mut().expect("an object was added");
            added.shape = call.shape;
            added.has_others = matches!(symbol, "cuStreamEndCapture" | "cuGraphClone");
            let is_fillable = matches!(*class, "device" | "managed" | "array");
            if is_fillable && call.size > 0 {
                let object = self.objects.last().expect("an object was added");
                let (name, home) = (object.name(), object.home.clone().unwrap_or_default());
                let value = 1 + self.random.below(200);
                self.line(&format!("fill {name} {value} {home}"));
            }
        }
    }

    /// Waits for all work, if the default stream may be that of another context from now on.
    fn separate_contexts(&mut self) {
        let contexts = self.objects.iter().filter(|its| its.class == "context");
        if contexts.count() > 1 {
            self.check();
        }
    }

    /// Notes that the parts of an object end with it.
    fn end_parts(&mut self, name: &str) {
        let mut ended = vec![name.to_owned()];
        while let Some(name) = ended.pop() {
            let is_part = |its: &&mut Object| {
                let is_node = its.class == "graph" && its.of.ends_with(&format!(" {name}"));
                its.is_alive && (is_node || its.owner() == name)
            };
            // An executable graph outlives its graph, a stream its green context.
            let is_part =
                |its: &&mut Object| is_part(its) && !matches!(its.class, "exec" | "stream");
            for part in self.objects.iter_mut().filter(is_part) {
                part.is_alive = false;
                ended.push(part.name());
            }
        }
    }

    /// Returns the graph that a body of a conditional node is in, or the graph itself. For an executable
    /// graph, returns the executable graph.
    fn root(&self, mut graph: usize) -> usize {
        while self.objects[graph].class == "graph" {
            let of = self.objects[graph].owner();
            match self.objects.iter().position(|its| its.name() == of) {
                Some(parent) => graph = parent,
                None => break,
            }
        }
        graph
    }

    /// Returns the stream of the memory that a graph uses.
    fn home(&self, graph: usize) -> Option<String> {
        self.objects[self.root(graph)].home.clone()
    }

    /// Returns the token of an argument: `None` if there is no object for it, `Some(None)` if the
    /// argument has no token.
    #[allow(clippy::option_option, reason = "the two are different")]
    fn token(&mut self, call: &mut Call, kind: &Kind, is_wrong: bool) -> Option<Option<String>> {
        let token = match kind {
            Kind::New(class) => {
                let number = self.number(class);
                call.created.push((class, number));
                format!("{class}{number}")
            }
            Kind::Found(_) | Kind::Result(_) | Kind::Unknown | Kind::Host => return Some(None),
            Kind::Object("stream") => match is_wrong && self.random.below(12) == 0 {
                // Null is the default stream, on which the work would be a data race.
                true => {
                    call.is_wrong = true;
                    let dead = self.choose("stream", |its| !its.is_alive)?;
                    self.objects[dead].name()
                }
                false => match call.home.clone()? {
                    home if home == LEGACY => self.one_of(&["0", "0", "0", "1"]).to_owned(),
                    home => home,
                },
            },
            Kind::Object(class) | Kind::Destroyed(class) | Kind::Structure(class) => {
                if is_wrong {
                    return Some(Some(self.wrong_object(call, class)));
                }
                let is_destroyed = matches!(kind, Kind::Destroyed(_));
                let (home, with_home) = (call.home.clone(), call.graph);
                let bound = with_home.and_then(|graph| self.home(graph));
                // The nodes of a graph, or of that of an executable graph.
                let graph = with_home.map(|graph| match &self.objects[graph] {
                    exec if exec.class == "exec" => exec.of.clone(),
                    graph => graph.name(),
                });
                let wanted = node_kind(call.symbol);
                let symbol = call.symbol;
                let needs_order = ["Instantiate", "Update", "AddChild", "Clone"]
                    .iter()
                    .any(|part| symbol.contains(part));
                let is_mixed = self.random.below(30) == 0;
                let with_streams: Vec<String> = {
                    let alive = self.objects.iter().filter(|its| its.is_alive);
                    alive.filter(|its| its.class == "stream").map(|its| its.of.clone()).collect()
                };
                let chosen = self.choose(class, |its| {
                    its.is_alive
                        && !(is_destroyed
                            && (its.is_in_graph || its.number == 0 && its.class == "context"))
                        && !(is_destroyed && its.class == "pool" && its.number == 0)
                        && !(is_destroyed && with_streams.contains(&its.name()))
                        && match its.class {
                            // The memory of an executable graph is that of one stream.
                            "exec" => its.home.is_none() || its.home == home || is_destroyed,
                            // A graph that is its own child crashes the driver.
                            "graph" => {
                                graph.as_ref() != Some(&its.name())
                                    && (!its.is_unordered || !needs_order)
                                    // A body belongs to its node.
                                    && (its.of.is_empty()
                                        || with_home.is_none()
                                            && ["cuGraphAdd", "cuGraphGet"]
                                                .iter()
                                                .any(|start| symbol.starts_with(start)))
                                    && (with_home.is_none()
                                        || its.home.is_none()
                                        || its.home == bound)
                            }
                            "device" if is_destroyed => {
                                let is_ordered = its.of == "ordered";
                                let wants_ordered = symbol.ends_with("Async");
                                its.home.is_some()
                                    && (!wants_ordered || its.home == home)
                                    && (is_ordered == wants_ordered || is_mixed)
                            }
                            "device" | "pinned" | "managed" => its.home.is_some(),
                            "array" => !is_destroyed || its.of.is_empty(),
                            "node" => {
                                let (of, kind) = its.of.split_once(' ').unwrap_or((&its.of, ""));
                                graph.as_ref().is_none_or(|graph| graph == of)
                                    && (wanted.is_empty() || wanted == kind)
                            }
                            _ => true,
                        }
                })?;
                match *class {
                    "function" => call.function = Some(chosen),
                    "array" => {
                        let row = self.objects[chosen].shape[0];
                        call.space = Some(call.space.map_or(row, |space| space.min(row)));
                    }
                    "graph" | "exec" if call.graph.is_none() => call.graph = Some(chosen),
                    "node" if call.graph.is_none() => {
                        let graph = self.objects[chosen].owner();
                        call.graph = self.objects.iter().position(|its| its.name() == graph);
                    }
                    _ => {}
                }
                if is_destroyed {
                    call.destroyed.push(chosen);
                }
                call.used.push(chosen);
                self.objects[chosen].name()
            }
            Kind::Address(class) => self.address(call, class, is_wrong)?,
            Kind::Links => match call.tokens.iter().any(|chain| chain == "[]") != is_wrong {
                true => "0".to_owned(),
                false => "1".to_owned(),
            },
            Kind::Size => {
                call.size = self.one_of(&[4, 64, 256, 4096, 4096, 65536, 1 << 20]);
                if is_wrong {
                    call.is_wrong = true;
                    call.size = self.one_of(&[0, 1 << 50]);
                }
                call.size.to_string()
            }
            Kind::Length(element) => self.length(call, *element, is_wrong),
            Kind::Number { right, wrong } => match is_wrong && !wrong.is_empty() {
                true => {
                    call.is_wrong = true;
                    self.one_of(wrong).to_string()
                }
                false => self.one_of(right).to_string(),
            },
            Kind::Written(what) => format!("[{}]", self.written(call, what, is_wrong)?),
        };
        Some(Some(token))
    }

    fn wrong_object(&mut self, call: &mut Call, class: &str) -> String {
        call.is_wrong = true;
        let dead = self.choose(class, |its| !its.is_alive);
        match (self.random.below(12), dead) {
            (0, Some(dead)) => self.objects[dead].name(),
            _ => "0".to_owned(),
        }
    }

    fn address(&mut self, call: &mut Call, class: &str, is_wrong: bool) -> Option<String> {
        let home = match call.graph {
            Some(graph) => self.home(graph),
            None => call.home.clone(),
        };
        // Copies within the same memory may overlap, with undefined results.
        let others = call.memory.clone();
        let chosen = self.choose(class, |its| {
            its.is_alive
                && its.home.is_some()
                && (home.is_none() || its.home == home)
                && !others.contains(&its.name())
        })?;
        call.memory.push(self.objects[chosen].name());
        if let Some(graph) = call.graph {
            let root = self.root(graph);
            self.objects[root].home = self.objects[chosen].home.clone();
            self.objects[chosen].is_in_graph = true;
        }
        // A capture records the memory.
        let mut streams = self.objects.iter().filter(|its| its.is_capturing);
        self.objects[chosen].is_in_graph |= streams.any(|its| Some(its.name()) == call.home);
        let size = self.objects[chosen].size;
        let offset = self.one_of(&[0, 0, 0, 16, 64, size / 2]).min(size);
        call.space = Some(call.space.map_or(size - offset, |space| space.min(size - offset)));
        let name = self.objects[chosen].name();
        // The end of host memory is not known to the driver.
        if is_wrong && self.objects[chosen].class != "pageable" {
            call.is_wrong = true;
            let ways = if self.objects[chosen].class == "device" { 3 } else { 1 };
            return Some(match self.random.below(ways) {
                0 => "0".to_owned(),
                1 => format!("{name}+{}", offset + 1),
                _ => format!("{name}+{}", size.saturating_sub(1)),
            });
        }
        Some(format!("{name}+{offset}"))
    }

    fn length(&mut self, call: &mut Call, element: u64, is_wrong: bool) -> String {
        let most = call.space.unwrap_or(0) / element;
        let few = self.one_of(&[0, 1, 4, 16, 100]);
        let length = match self.random.below(2) {
            0 => most,
            _ => most.min(few),
        };
        match is_wrong && call.memory.iter().all(|name| name.starts_with("device")) {
            true => {
                call.is_wrong = true;
                (most + self.one_of(&[1, 64, 1 << 40])).to_string()
            }
            false => length.to_string(),
        }
    }

    /// Returns the fields of a structure.
    fn written(&mut self, call: &mut Call, what: &str, is_wrong: bool) -> Option<String> {
        let mut pick = |right: &[u64], wrong: &[u64]| match is_wrong {
            true => {
                call.is_wrong = true;
                wrong[self.random.below(wrong.len())]
            }
            false => right[self.random.below(right.len())],
        };
        Some(match what {
            "mode" => pick(&[0, 1, 2], &[3]).to_string(),
            "flag" => pick(&[0, 1], &[u64::MAX]).to_string(),
            "count" => pick(&[1], &[0]).to_string(),
            "update" | "hostnode" => String::new(),
            "pool" => {
                format!("{} 0 {} {}", pick(&[1], &[0, 9]), pick(&[1], &[0, 7]), pick(&[0], &[1]))
            }
            "physical" => {
                format!("{} {} 1 {}", pick(&[1], &[0, 9]), pick(&[0, 1], &[99]), pick(&[0], &[1]))
            }
            "access" => format!("{} 0 {}", pick(&[1], &[0, 7]), pick(&[3, 3, 3, 1], &[2, 9])),
            "location" | "place" => format!("{} {}", pick(&[1, 1, 2], &[0, 9]), pick(&[0], &[5])),
            "image" => {
                let image = match is_wrong {
                    true => "garbage",
                    false if self.choose("condition", |its| its.is_alive).is_some() => {
                        self.one_of(&[CONDITIONAL.0, "vector"])
                    }
                    false => IMAGES[self.random.below(IMAGES.len())].0,
                };
                call.is_wrong |= is_wrong;
                call.image = image.to_owned();
                image.to_owned()
            }
            "name" => {
                let owner = call.used.last().map(|owner| self.objects[*owner].of.clone());
                let names = IMAGES.iter().find(|(image, _)| owner.as_deref() == Some(*image));
                let name = match (is_wrong, names) {
                    (false, Some((_, names))) => self.one_of(names),
                    _ => "absent",
                };
                call.is_wrong |= name == "absent";
                call.image = name.to_owned();
                name.to_owned()
            }
            "global" => {
                let owner = call.used.last().map(|owner| self.objects[*owner].of.clone());
                call.is_wrong |= owner.as_deref() != Some("globals");
                "counter".to_owned()
            }
            "nodes" => {
                let graph = call.graph.map(|graph| self.objects[graph].name());
                let is_node = |its: &Object| its.is_alive && Some(its.owner()) == graph.as_deref();
                match self.choose("node", is_node) {
                    Some(node) => self.objects[node].name(),
                    None => String::new(),
                }
            }
            "chain" => {
                let graph = call.graph.map(|graph| self.objects[graph].name());
                let is_link = |its: &&Object| {
                    its.of.split_once(' ').is_some_and(|(of, kind)| {
                        its.class == "node" && LINKS.contains(&kind) && Some(of) == graph.as_deref()
                    })
                };
                let last = self.objects.iter().rfind(|its| its.is_alive && is_link(its));
                last.map(Object::name).unwrap_or_default()
            }
            "arguments" => {
                let function = call.function?;
                self.arguments(call, function)?
            }
            "kernelnode" => {
                let function = self.choose("function", |its| its.is_alive)?;
                let name = self.objects[function].name();
                format!("{name} 2 32 0 {}", self.arguments(call, function)?).trim_end().to_owned()
            }
            "memset" => {
                let at = self.address(call, "device", is_wrong)?;
                let size = self.one_of(&[1u64, 2, 4]);
                let width = call.space.unwrap_or(0).min(64) / size;
                format!("{at} 0 {} {size} {width} 1", self.random.below(250))
            }
            "allocnode" => format!("{}", pick(&[64, 4096], &[0])),
            "conditional" => {
                let graph = call.graph.map(|graph| self.objects[self.root(graph)].name())?;
                let condition = self.choose("condition", |its| {
                    its.is_alive && its.owner() == graph && (!its.is_in_graph || is_wrong)
                })?;
                self.objects[condition].is_in_graph = true;
                // A loop ends only if its condition is zero.
                let is_zero = self.objects[condition].of.ends_with(" 0");
                let (kind, size) = match self.random.below(4) {
                    0 if is_zero => (1, 1),
                    1 => (2, 1 + self.random.below(3)),
                    2 => (0, 2),
                    _ => (0, 1),
                };
                let (kind, size) = match (is_wrong, self.random.below(3)) {
                    (false, _) => (kind, size),
                    (true, 0) => (7, size),
                    (true, 1) => (0, 0),
                    (true, _) => (0, 3),
                };
                call.is_wrong |= is_wrong;
                let body = self.number("graph");
                call.created.push(("graph", body));
                let condition = self.objects[condition].name();
                format!("{condition} {kind} {size} context0 graph{body}")
            }
            "memops" => {
                let at = self.address(call, "device", is_wrong)?;
                let bits = self.one_of(&[32u64, 64]);
                if call.space.unwrap_or(0) < bits / 8 {
                    return None;
                }
                format!("{bits} {at} {}", self.random.below(100_000))
            }
            "array" | "array3d" => {
                let width = self.one_of(&[4u64, 16, 16, 64]);
                let (height, depth) = self.one_of(&[(0u64, 0u64), (4, 0), (16, 0), (4, 3)]);
                let depth = if what == "array" { 0 } else { depth };
                let (format, bytes) = self.one_of(&[(1u64, 1), (16, 2), (32, 4), (3, 4)]);
                let channels = self.one_of(&[1u64, 2, 4]);
                let flags = self.one_of(&[0, 0, 0, 1, 2, 3]);
                call.shape = [width * channels * bytes, height.max(1), depth.max(1)];
                call.size = call.shape.iter().product();
                let mut fields = match what {
                    "array" => vec![width, height, format, channels],
                    _ => vec![width, height, depth, format, channels, flags],
                };
                if is_wrong {
                    call.is_wrong = true;
                    let at = self.random.below(fields.len());
                    fields[at] = self.one_of(&[0, 3, 5, 99, 1 << 20]);
                }
                fields.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
            }
            "view" => {
                let kind = self.random.below(5);
                call.is_wrong |= is_wrong;
                match kind {
                    0 | 1 => {
                        let array = self.choose("array", |its| its.is_alive)?;
                        let name = self.objects[array].name();
                        format!("{} {name} 0 0 0 0 0", if is_wrong { 1 } else { 0 })
                    }
                    2 => {
                        let mipmapped = self.choose("mipmapped", |its| its.is_alive)?;
                        let name = self.objects[mipmapped].name();
                        format!("{} {name} 0 0 0 0 0", if is_wrong { 9 } else { 1 })
                    }
                    3 => {
                        let at = self.address(call, "device", is_wrong)?;
                        let bytes = self.one_of(&[4, 64, 4096]);
                        format!("2 {at} 32 {} {bytes} 0 0", self.one_of(&[1, 2, 4]))
                    }
                    _ => {
                        let at = self.address(call, "device", is_wrong)?;
                        let pitch = if is_wrong { 33 } else { 64 };
                        format!("3 {at} 32 {} 4 {} {pitch}", self.one_of(&[1, 4]), 2)
                    }
                }
            }
            "sampling" => {
                format!("{} {} {}", pick(&[0, 1, 2, 3], &[9]), self.one_of(&[0, 0, 1]), {
                    self.one_of(&[0, 1, 2, 3])
                })
            }
            "arrays2d" | "arrays3d" => {
                // The extents of a level of a mipmapped array are not known.
                let array = self.choose("array", |its| its.is_alive && its.size > 0)?;
                let (name, [row, height, depth]) =
                    (self.objects[array].name(), self.objects[array].shape);
                let others = (name.clone(), row);
                let is_array = |its: &Object| {
                    its.is_alive && its.size > 0 && (its.name(), its.shape[0]) != others
                };
                let other = self.choose("array", is_array).filter(|_| self.random.below(4) == 0);
                let (there, space) = match other {
                    Some(other) => {
                        let its = &self.objects[other];
                        (format!("{} 0 0 0", its.name()), its.shape[0].min(row))
                    }
                    None => {
                        let at = self.address(call, "any", is_wrong)?;
                        (format!("{at} {row} 0 0"), row)
                    }
                };
                let rows = match other {
                    Some(other) => self.objects[other].shape[1].min(height),
                    None => (call.space.unwrap_or(0) / row).min(height),
                };
                let few = self.random.below(2) == 0;
                let (width, rows) = if few { (space.min(16), rows.min(2)) } else { (space, rows) };
                let layers = match other {
                    Some(_) => 1,
                    None => depth.min(call.space.unwrap_or(0) / row / rows.max(1)),
                };
                let here = format!("{name} 0 0 0");
                let (from, to) = match self.random.below(2) {
                    0 => (here, there),
                    _ => (there, here),
                };
                match what {
                    "arrays2d" => format!("{from} {to} {width} {rows}"),
                    _ => format!("{from} {to} {width} {rows} {rows} {rows} {layers}"),
                }
            }
            "copy2d" | "copy3d" => {
                let from = self.address(call, "any", is_wrong)?;
                let to = self.address(call, "any", false)?;
                let space = call.space.unwrap_or(0);
                let (pitch, height) = (self.one_of(&[64, 128]), self.one_of(&[0, 1, 2, 3]));
                let (x, width) = (self.one_of(&[0, 0, 8]), self.one_of(&[0, 8, 32, 56]));
                call.is_wrong |= height * pitch > space;
                let height = height.min(space / pitch);
                match what {
                    "copy2d" => format!("{from} {pitch} {x} 0 {to} {pitch} {x} 0 {width} {height}"),
                    _ => {
                        let depth = self.one_of(&[1, 1, 1, 0, 2]);
                        let depth = match height * 2 * pitch <= space {
                            true => depth,
                            false => depth.min(1),
                        };
                        format!(
                            "{from} {pitch} {x} 0 {to} {pitch} {x} 0 {width} {height} {height} {height} {depth}"
                        )
                    }
                }
            }
            other => unreachable!("{other}"),
        })
    }

    /// Returns the arguments of a kernel.
    fn arguments(&mut self, call: &mut Call, function: usize) -> Option<String> {
        let of = self.objects[function].of.clone();
        Some(match of.split_whitespace().last().unwrap_or_default() {
            "scale" => {
                let x = self.address(call, "device", false)?;
                let n = (call.space.unwrap_or(0) / 4).min(1);
                format!("{x} {} {} {n}", self.random.below(100), self.random.below(100))
            }
            "write_pattern" => {
                let x = self.address(call, "device", false)?;
                let n = (call.space.unwrap_or(0) / 4).min(500);
                format!("{x} {n} {} 1000", self.random.below(1000))
            }
            "bump" => "3".to_owned(),
            // Only a node of the condition's graph may set it.
            "choose" => {
                let graph = call.graph?;
                let graph = match &self.objects[graph] {
                    exec if exec.class == "exec" => exec.of.clone(),
                    _ => self.objects[self.root(graph)].name(),
                };
                let is_its = |its: &Object| its.is_alive && its.is_in_graph && its.owner() == graph;
                let condition = self.choose("condition", is_its)?;
                // A loop must end.
                let value = self.one_of(&[0, 0, 1, 2]);
                let value = if self.objects[condition].of.ends_with(" 0") { 0 } else { value };
                format!("{} {value}", self.objects[condition].name())
            }
            _ => String::new(),
        })
    }
}

/// The calls with which programs of a topic begin.
const PROLOGUES: &[(&str, &[&str])] = &[
    ("event", &["cuEventCreate", "cuEventCreate"]),
    (
        "module",
        &["cuModuleLoadData", "cuModuleGetFunction", "cuLibraryLoadData", "cuLibraryGetKernel"],
    ),
    (
        "graph",
        &[
            "cuGraphCreate",
            "cuEventCreate",
            "cuModuleLoadData",
            "cuModuleGetFunction",
            "cuGraphAddKernelNode_v2",
            "cuGraphAddMemsetNode",
            "cuGraphAddEventRecordNode",
            "cuGraphInstantiateWithFlags",
        ],
    ),
    (
        "capture",
        &["cuEventCreate", "cuModuleLoadData", "cuModuleGetFunction", "cuStreamBeginCapture_v2"],
    ),
    (
        "conditional",
        &[
            "cuGraphCreate",
            "cuGraphConditionalHandleCreate",
            "cuGraphConditionalHandleCreate",
            "cuModuleLoadData",
            "cuModuleGetFunction",
            "cuGraphAddNode_v2",
            "cuGraphAddKernelNode_v2",
            "cuGraphAddMemsetNode",
            "cuGraphInstantiateWithFlags",
        ],
    ),
    (
        "array",
        &[
            "cuArrayCreate_v2",
            "cuArrayCreate_v2",
            "cuMemcpy3D_v2",
            "cuArray3DCreate_v2",
            "cuMemcpy2D_v2",
            "cuTexObjectCreate",
        ],
    ),
    ("virtual", &["cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"]),
    ("pool", &["cuMemPoolCreate", "cuMemAllocAsync"]),
    ("pointer", &["cuMemAllocManaged", "cuMemAllocHost_v2"]),
    (
        "green",
        &[
            "cuDeviceGetDevResource",
            "cuDevSmResourceSplitByCount",
            "cuDevResourceGenerateDesc",
            "cuGreenCtxCreate",
            "cuGreenCtxStreamCreate",
            "cuEventCreate",
        ],
    ),
];
