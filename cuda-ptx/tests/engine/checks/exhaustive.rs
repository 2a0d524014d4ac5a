//! racecheck and a detector that compares all pairs of accesses find the same races in random kernels.
//!
//! Six threads in two blocks execute random accesses and fences in rounds, with barriers between some rounds. Writes have
//! values of their own, and strong reads store what they read, so that the detector knows which write a read has seen.

use crate::device::{Memory, kernel, launch_with};
use crate::random::Random;
use cuda_ptx::check::{Check, Checks, Finding};
use std::fmt::Write;

const PROGRAMS: u64 = 1500;
/// The block and the index in it of each thread that does not exit at once.
const THREADS: [(u32, u32); 6] = [(0, 0), (0, 1), (0, 32), (1, 0), (1, 1), (1, 32)];
const ROUNDS: usize = 4;
/// The words in shared memory of each block, which come before those in global memory.
const SHARED: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Load,
    Store,
    Exchange,
    Fence,
    /// Barriers, which several threads share.
    Meeting,
}

/// The order of an access that is not weak, or of a fence. The scope is 0 for a block, and 1 for the device.
#[derive(Clone, Copy, Debug)]
struct Order {
    scope: u32,
    acquires: bool,
    releases: bool,
    is_sc: bool,
}

#[derive(Clone, Copy, Debug)]
struct Event {
    kind: Kind,
    thread: usize,
    word: u32,
    order: Option<Order>,
    /// The line of the PTX.
    line: u32,
}

impl Event {
    fn writes(&self) -> bool {
        matches!(self.kind, Kind::Store | Kind::Exchange)
    }

    fn reads(&self) -> bool {
        matches!(self.kind, Kind::Load | Kind::Exchange)
    }

    fn block(&self) -> u32 {
        THREADS[self.thread].0
    }

    /// Returns whether both are strong, and their scopes contain both threads.
    fn are_strong(&self, other: &Self) -> bool {
        match (self.order, other.order) {
            (Some(a), Some(b)) => a.scope.min(b.scope) == 1 || self.block() == other.block(),
            _ => false,
        }
    }

    fn conflicts(&self, other: &Self) -> bool {
        let is_access = |its: &Self| its.reads() || its.writes();
        is_access(self)
            && is_access(other)
            && self.thread != other.thread
            && self.word == other.word
            && (self.word >= SHARED || self.block() == other.block())
            && (self.writes() || other.writes())
            && !self.are_strong(other)
    }
}

/// A relation between events.
#[derive(Clone)]
struct Relation(Vec<Vec<bool>>);

impl Relation {
    fn close(&mut self) {
        let count = self.0.len();
        for via in 0..count {
            let next = self.0[via].clone();
            for row in self.0.iter_mut().filter(|row| row[via]) {
                row.iter_mut().zip(&next).for_each(|(to, next)| *to |= next);
            }
        }
    }
}

struct Program {
    text: String,
    events: Vec<Event>,
    /// Program order and barriers.
    order: Vec<(usize, usize)>,
}

/// Returns an order and its modifiers, of those that a kind of access can have.
fn order(random: &mut Random, kind: Kind) -> (Option<Order>, String) {
    let scope = random.below(2) as u32;
    let name = ["cta", "gpu"][scope as usize];
    let strong = |acquires, releases| Some(Order { scope, acquires, releases, is_sc: false });
    let words: &[&str] = match kind {
        Kind::Load => &["weak", "weak", "relaxed", "acquire"],
        Kind::Store => &["weak", "weak", "relaxed", "release"],
        Kind::Exchange => &["relaxed", "acquire", "release", "acq_rel"],
        Kind::Fence => &["acquire", "release", "acq_rel", "sc"],
        Kind::Meeting => &["acq_rel", "sc"],
    };
    let word = random.one_of(words);
    let order = match word {
        "weak" => return (None, String::new()),
        "relaxed" => strong(false, false),
        "acquire" => strong(true, false),
        "release" => strong(false, true),
        _ => strong(true, true),
    };
    let order = order.map(|order| Order { is_sc: word == "sc", ..order });
    (order, format!(".{word}.{name}"))
}

fn program(seed: u64) -> Program {
    let mut random = Random(seed);
    // Some programs have few accesses to many words, and others many to few.
    let (most, words) = (2 + random.below(3), 3 + random.below(6) as u32);
    let mut its = Program { text: String::new(), events: Vec::new(), order: Vec::new() };
    let mut body = ".shared .align 4 .b8 s[8]; ld.param.u64 %d0, [p0]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x;
        and.b32 %r2, %r0, 30; setp.ne.u32 %p0, %r2, 0; @%p0 exit;
        shr.u32 %r2, %r0, 4; add.u32 %r0, %r0, %r2; and.b32 %r0, %r0, 3; mad.lo.u32 %r0, %r1, 3, %r0;\n"
        .to_owned();
    let mut last = [None; THREADS.len()];
    let mut follow = |its: &mut Program, thread: usize, event: usize| {
        its.order.extend(last[thread].replace(event).map(|last| (last, event)));
    };
    // The lines before the body.
    let head = kernel(1, "").lines().count() as u32 - 3;
    for round in 0..ROUNDS {
        for thread in 0..THREADS.len() {
            writeln!(body, "setp.ne.u32 %p1, %r0, {thread}; @%p1 bra E{round}_{thread};").unwrap();
            for _ in 0..random.below(most) {
                let kinds = [
                    Kind::Load,
                    Kind::Load,
                    Kind::Store,
                    Kind::Exchange,
                    Kind::Exchange,
                    Kind::Fence,
                ];
                let kind = random.one_of(&kinds);
                let word = random.below(words.into()) as u32;
                let (order, modifiers) = order(&mut random, kind);
                let event = its.events.len();
                let value = event + 1;
                let (space, at) = match word {
                    0..SHARED => ("shared", format!("[s+{}]", 4 * word)),
                    _ => ("global", format!("[%d0+{}]", 4 * word)),
                };
                let code = match kind {
                    Kind::Load => format!("ld{modifiers}.{space}.u32 %r9, {at};"),
                    Kind::Store => format!("st{modifiers}.{space}.u32 {at}, {value};"),
                    Kind::Exchange => {
                        format!("atom{modifiers}.{space}.exch.b32 %r9, {at}, {value};")
                    }
                    _ => format!("fence{modifiers};"),
                };
                let line = head + body.lines().count() as u32 + 1;
                let new = Event { kind, thread, word, order, line };
                writeln!(body, "{code}").unwrap();
                if new.reads() {
                    writeln!(body, "st.global.u32 [%d0+{}], %r9;", 64 + 4 * event).unwrap();
                }
                its.events.push(new);
                follow(&mut its, thread, event);
            }
            writeln!(body, "E{round}_{thread}:").unwrap();
        }
        let (code, groups): (_, &[&[usize]]) = match random.below(3) {
            0 => ("", &[]),
            1 => ("bar.sync 0;", &[&[0, 1, 2], &[3, 4, 5]]),
            _ => ("bar.warp.sync -1;", &[&[0, 1], &[2], &[3, 4], &[5]]),
        };
        writeln!(body, "{code}").unwrap();
        for group in groups {
            let event = its.events.len();
            let thread = group[0];
            its.events.push(Event { kind: Kind::Meeting, thread, word: 0, order: None, line: 0 });
            group.iter().for_each(|thread| follow(&mut its, *thread, event));
        }
    }
    its.text = kernel(1, &body);
    its
}

/// Returns the strong writes whose release a strong read acquires: that whose value it read, and those before it that
/// only atomic operations followed. `seen` has the value that each event read.
fn seen_writes(events: &[Event], seen: &[u32], read: usize) -> Vec<usize> {
    let mut writes = Vec::new();
    let mut at = read;
    while let Some(write) = (seen[at] as usize).checked_sub(1) {
        if events[write].order.is_none() {
            break;
        }
        writes.push(write);
        if events[write].kind != Kind::Exchange {
            break;
        }
        at = write;
    }
    writes
}

/// Returns the pairs of accesses that nothing orders.
fn races(program: &Program, seen: &[u32]) -> Vec<(usize, usize)> {
    let events = &program.events;
    let count = events.len();
    let mut plain = Relation(vec![vec![false; count]; count]);
    program.order.iter().for_each(|(a, b)| plain.0[*a][*b] = true);
    plain.close();
    let of_thread = |thread: usize| (0..count).filter(move |at| events[*at].thread == thread);
    let (mut before, mut sc) = (plain.clone(), plain.clone());
    for read in 0..count {
        let its = &events[read];
        let Some(order) = its.order.filter(|_| its.reads()) else { continue };
        for write in seen_writes(events, seen, read) {
            if !its.are_strong(&events[write]) {
                continue;
            }
            sc.0[write][read] = true;
            let released = events[write].order.unwrap();
            let is_near = events[write].block() == its.block();
            let scope = released.scope.min(order.scope);
            // The write itself, and fences before it.
            let fences = of_thread(events[write].thread).filter(|at| {
                let reaches = |its: Order| its.releases && (its.scope.min(scope) == 1 || is_near);
                events[*at].kind == Kind::Fence
                    && plain.0[*at][write]
                    && events[*at].order.is_some_and(reaches)
            });
            let own = released.releases.then_some(write);
            let heads: Vec<usize> = fences.chain(own).collect();
            // The read itself, and fences after it.
            let fences = of_thread(its.thread).filter(|at| {
                let reaches = |its: Order| its.acquires && (its.scope == 1 || is_near);
                events[*at].kind == Kind::Fence
                    && plain.0[read][*at]
                    && events[*at].order.is_some_and(reaches)
            });
            let own = order.acquires.then_some(read);
            for tail in fences.chain(own) {
                heads.iter().for_each(|head| before.0[*head][tail] = true);
            }
        }
    }
    sc.close();
    let is_sc = |at: usize| {
        events[at].kind == Kind::Fence
            && events[at].order.is_some_and(|order| order.is_sc && order.scope == 1)
    };
    for (a, row) in sc.0.iter().enumerate() {
        for (b, is_before) in row.iter().enumerate() {
            before.0[a][b] |= *is_before && is_sc(a) && is_sc(b);
        }
    }
    before.close();
    let pairs = (0..count).flat_map(|a| (0..a).map(move |b| (a, b)));
    let is_race = |(a, b): &(usize, usize)| {
        events[*a].conflicts(&events[*b]) && !before.0[*a][*b] && !before.0[*b][*a]
    };
    pairs.filter(is_race).collect()
}

/// Runs a program, and returns the values that its events read, and the findings.
fn run(program: &Program, seed: u64) -> (Vec<u32>, Vec<Finding>) {
    let mut memory = Memory::default();
    let base = memory.words(&[0; 1024]);
    let done = launch_with(&program.text, &memory, (2, 33), &[base], |launch| {
        launch.seed = seed;
        launch.checks = Checks::MEMCHECK.with(Check::Racecheck);
    });
    done.unwrap_or_else(|fault| panic!("{fault}\n{}", program.text));
    let seen = memory.read(base)[16..].to_vec();
    (seen, memory.findings.into_inner().unwrap())
}

#[test]
fn racecheck_finds_what_a_comparison_of_all_accesses_finds() {
    let (mut racy, mut correct, mut pairs) = (0, 0, 0);
    for number in 0..PROGRAMS {
        let program = program(number);
        for seed in 0..3 {
            let (seen, findings) = run(&program, seed);
            let expected = races(&program, &seen);
            let at_line = |line: u32| program.events.iter().position(|its| its.line == line);
            let mut words: Vec<(u32, u32)> = Vec::new();
            for finding in &findings {
                let lines = [finding.site.line, finding.other.as_ref().unwrap().line];
                let [a, b] = lines.map(|line| at_line(line).expect("a line of an access"));
                let is_expected = expected.contains(&(a.max(b), a.min(b)));
                assert!(is_expected, "program {number}, seed {seed}: {finding}\n{}", program.text);
                let its = &program.events[a];
                words.push((if its.word < SHARED { its.block() } else { 0 }, its.word));
            }
            for (a, b) in &expected {
                let its = &program.events[*a];
                let word = (if its.word < SHARED { its.block() } else { 0 }, its.word);
                let what = format!("lines {} and {}", its.line, program.events[*b].line);
                assert!(
                    words.contains(&word),
                    "program {number}, seed {seed}: {what}\n{}",
                    program.text
                );
            }
            pairs += expected.len();
            *(if expected.is_empty() { &mut correct } else { &mut racy }) += 1;
        }
    }
    println!("{racy} runs with {pairs} races, {correct} without");
    assert!(racy > 100 && correct > 100, "{racy} runs with races, {correct} without");
}
