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
    /// The stream on which the memory, or the memory that a graph uses, is used. `None` for a graph
    /// without memory, and for memory whose stream was destroyed until the next `check`.
    home: Option<String>,
    /// Whether a graph uses this memory, which is then never freed.
    is_in_graph: bool,
    /// The image of a module, the module and name of a function, the graph and kind of a node, the graph
    /// of an executable graph.
    of: String,
    is_capturing: bool,
}

impl Object {
    fn name(&self) -> String {
        format!("{}{}", self.class, self.number)
    }
}

/// The names of the kernels in each image.
const IMAGES: &[(&str, &[&str])] =
    &[("vector", &["scale", "nothing"]), ("pattern", &["write_pattern"]), ("globals", &["bump"])];

/// Returns the kind of the nodes that a function is for, or an empty text.
fn node_kind(symbol: &str) -> &'static str {
    let kinds = ["EventRecord", "EventWait", "ChildGraph", "Memset", "Kernel"];
    let is_named = |kind: &&str| symbol.contains(&format!("{kind}Node"));
    kinds.into_iter().find(is_named).unwrap_or_default()
}

/// The legacy default stream.
const LEGACY: &str = "0";

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
            self.call_named(name);
        }
        for (topic, names) in PROLOGUES {
            if topics.contains(topic) {
                names.iter().for_each(|name| self.call_named(name));
            }
        }
        let length = 30 + self.random.below(40);
        while self.lines.len() < length {
            if self.random.below(14) == 0 {
                self.check();
                continue;
            }
            let topic = topics[self.random.below(topics.len())];
            let rows: Vec<usize> =
                (0..self.rows.len()).filter(|row| self.rows[*row].topic == topic).collect();
            let row = rows[self.random.below(rows.len())];
            self.call(row, true);
        }
        self.check();
    }

    fn call_named(&mut self, name: &str) {
        let row = self.rows.iter().position(|row| row.function.symbol() == name);
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
            home,
            is_in_graph: false,
            of,
            is_capturing: false,
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
        if self.random.below(5) == 0 {
            self.thread = self.random.below(self.threads);
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
    }

    /// Notes what a successful call changes.
    fn note(&mut self, call: &Call, streams: bool) {
        let symbol = call.symbol;
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
            if class == "graph" || class == "module" || class == "library" {
                let parts = self.objects.iter_mut().filter(|its| its.of.starts_with(&name));
                parts.for_each(|its| its.is_alive = false);
            }
        }
        let graph = call.graph.map(|graph| self.objects[graph].name());
        let graph_home = call.graph.and_then(|graph| self.objects[graph].home.clone());
        for (class, number) in &call.created {
            let home = match *class {
                class if MEMORY.contains(&class) && streams => call.home.clone(),
                class if MEMORY.contains(&class) && class != "range" => {
                    let stream = self.choose("stream", |its| its.is_alive);
                    let stream = stream.map(|stream| self.objects[stream].name());
                    match self.random.below(2) {
                        0 => stream.or(Some(LEGACY.to_owned())),
                        _ => Some(LEGACY.to_owned()),
                    }
                }
                "range" => Some(LEGACY.to_owned()),
                "graph" if symbol == "cuStreamEndCapture" => call.home.clone(),
                "graph" | "exec" => graph_home.clone(),
                _ => None,
            };
            let of = match *class {
                "module" | "library" => call.image.clone(),
                "function" | "kernel" => {
                    let owner = call.used.first().map(|owner| self.objects[*owner].name());
                    format!("{} {}", owner.unwrap_or_default(), call.image)
                }
                "node" => format!("{} {}", graph.clone().unwrap_or_default(), node_kind(symbol)),
                "exec" => graph.clone().unwrap_or_default(),
                _ => String::new(),
            };
            self.add((class, *number), call.size, home, of);
            let is_fillable = matches!(*class, "device" | "managed");
            if is_fillable && call.size > 0 {
                let object = self.objects.last().expect("an object was added");
                let (name, home) = (object.name(), object.home.clone().unwrap_or_default());
                let value = 1 + self.random.below(200);
                self.line(&format!("fill {name} {value} {home}"));
            }
        }
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
            Kind::Object("stream") => match is_wrong {
                true => self.wrong_object(call, "stream"),
                false => call.home.clone()?,
            },
            Kind::Object(class) | Kind::Destroyed(class) | Kind::Structure(class) => {
                if is_wrong {
                    return Some(Some(self.wrong_object(call, class)));
                }
                let is_destroyed = matches!(kind, Kind::Destroyed(_));
                let (home, with_home) = (call.home.clone(), call.graph);
                let bound = with_home.and_then(|graph| self.objects[graph].home.clone());
                // The nodes of a graph, or of that of an executable graph.
                let graph = with_home.map(|graph| match &self.objects[graph] {
                    exec if exec.class == "exec" => exec.of.clone(),
                    graph => graph.name(),
                });
                let wanted = node_kind(call.symbol);
                let chosen = self.choose(class, |its| {
                    its.is_alive
                        && !(is_destroyed
                            && (its.is_in_graph || its.number == 0 && its.class == "context"))
                        && !(is_destroyed && its.class == "pool" && its.number == 0)
                        && match its.class {
                            // The memory of an executable graph is that of one stream.
                            "exec" => its.home.is_none() || its.home == home || is_destroyed,
                            // A graph that is its own child crashes the driver.
                            "graph" => {
                                graph.as_ref() != Some(&its.name())
                                    && (with_home.is_none()
                                        || its.home.is_none()
                                        || its.home == bound)
                            }
                            "device" | "pinned" | "managed" => its.home.is_some(),
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
                    "graph" | "exec" if call.graph.is_none() => call.graph = Some(chosen),
                    "node" if call.graph.is_none() => {
                        let of = self.objects[chosen].of.clone();
                        let graph = of.split(' ').next().unwrap_or_default();
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
            Some(graph) => self.objects[graph].home.clone(),
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
            let home = self.objects[chosen].home.clone();
            self.objects[graph].home = home;
            self.objects[chosen].is_in_graph = true;
        }
        // A capture records the memory.
        if call.home.as_deref() != Some(LEGACY) {
            self.objects[chosen].is_in_graph |= self.random.below(4) > 0;
        }
        let size = self.objects[chosen].size;
        let offset = self.one_of(&[0, 0, 0, 16, 64, size / 2]).min(size);
        call.space = Some(call.space.map_or(size - offset, |space| space.min(size - offset)));
        let name = self.objects[chosen].name();
        // The end of pageable memory is not known to the driver.
        if is_wrong && self.objects[chosen].class != "pageable" {
            call.is_wrong = true;
            return Some(match self.random.below(4) {
                0 => "0".to_owned(),
                1 => format!("{name}+{size}"),
                2 => format!("{name}+{}", offset + 1),
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
        match is_wrong && !call.memory.iter().any(|name| name.starts_with("pageable")) {
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
                let of = |its: &Object| its.of.split(' ').next().map(str::to_owned);
                let is_node = |its: &Object| its.is_alive && of(its) == graph;
                match self.choose("node", is_node) {
                    Some(node) => self.objects[node].name(),
                    None => String::new(),
                }
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
            _ => String::new(),
        })
    }
}

/// The calls with which programs of a topic begin.
const PROLOGUES: &[(&str, &[&str])] = &[
    ("event", &["cuEventCreate", "cuEventCreate"]),
    ("module", &["cuModuleLoadData", "cuModuleGetFunction"]),
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
        ],
    ),
    (
        "capture",
        &["cuEventCreate", "cuModuleLoadData", "cuModuleGetFunction", "cuStreamBeginCapture_v2"],
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
