//! Programs in processes of their own: a crash or a hang ends one process, and is a transcript too.

use super::execute::{World, empty_stack, enter};
use super::table;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// A program, or the transcript of its run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Program {
    pub(crate) seed: u64,
    pub(crate) lines: Vec<String>,
}

/// Reads programs or transcripts.
pub(crate) fn parse(text: &str) -> Vec<Program> {
    let mut programs = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix("program ") {
            Some(seed) => {
                let seed = seed.parse().expect("a seed");
                programs.push(Program { seed, lines: Vec::new() });
            }
            None => {
                let program: &mut Program = programs.last_mut().expect("a line of a program");
                program.lines.push(line.to_owned());
            }
        }
    }
    programs
}

pub(crate) fn write(programs: &[Program]) -> String {
    let mut text = String::new();
    for program in programs {
        text.push_str(&format!("program {}\n{}\n", program.seed, program.lines.join("\n")));
    }
    text
}

/// The exit code of a process that cannot run another program.
const REPLACE: i32 = 3;

/// Runs programs of standard input, and prints their transcripts.
pub(crate) fn work() -> i32 {
    let rows = table::rows();
    let is_software = std::env::var_os("CUDA_SIM").is_some();
    if is_software {
        // A GPU does not notice each illegal access: memory is mapped in large pages.
        let profile = cuda_sim::Profile::h200().with_lenient_misuse();
        cuda_sim::install(profile).expect("no driver was used before");
    }
    // A panic of one thread must not make the others wait.
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        std::process::abort();
    }));
    let input = std::io::read_to_string(std::io::stdin()).expect("programs");
    enter();
    let mut misuses = 0;
    for program in parse(&input) {
        say("begin");
        let threads = program.lines.iter().filter_map(|line| line[1..2].parse().ok()).max();
        let world = Mutex::new(World::new(&rows));
        std::thread::scope(|scope| {
            let (done, results) = mpsc::channel();
            let senders: Vec<mpsc::Sender<&str>> = (0..=threads.unwrap_or(0usize))
                .map(|_| {
                    let (sender, lines) = mpsc::channel();
                    let (done, world) = (done.clone(), &world);
                    scope.spawn(move || {
                        enter();
                        for line in lines {
                            let result = world.lock().expect("no panic").execute(line);
                            done.send(result).expect("a receiver");
                        }
                        empty_stack();
                    });
                    sender
                })
                .collect();
            for line in &program.lines {
                say(&format!("try {line}"));
                let (thread, call) = line.split_once(' ').expect("a thread and a call");
                let thread: usize = thread[1..].parse().expect("a thread");
                senders[thread].send(call).expect("the thread waits");
                let result = results.recv().expect("the thread answers");
                say(&format!("{line} -> {result}"));
                if is_software {
                    if world.lock().expect("no panic").take_reused() {
                        say("misuse of the value of a destroyed object");
                    }
                    let all = cuda_sim::misuses();
                    all.iter().skip(misuses).for_each(|misuse| say(&format!("misuse {misuse}")));
                    misuses = all.len();
                }
            }
        });
        let is_clean = world.into_inner().expect("no panic").end();
        enter();
        say("end");
        let is_same =
            !is_software || cuda_sim::alive().objects() == 1 && cuda_sim::misuses().is_empty();
        if !is_clean || !is_same {
            return REPLACE;
        }
    }
    0
}

fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").expect("a reader");
    output.flush().expect("a reader");
}

/// The time without a line after which a program hangs.
const PATIENCE: Duration = Duration::from_secs(10);

/// The number of processes that were started.
pub(crate) static PROCESSES: AtomicUsize = AtomicUsize::new(0);

/// How a process ended.
enum End {
    Well,
    Failed(String),
}

/// Runs programs in one process. Returns the transcripts of those that ended, the part of the one
/// that did not, and how the process ended.
fn process(programs: &[Program], variables: Variables<'_>) -> (Vec<Vec<String>>, Vec<String>, End) {
    PROCESSES.fetch_add(1, Ordering::Relaxed);
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .arg("worker")
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a process");
    let mut input = child.stdin.take().expect("standard input");
    let text = write(programs);
    // The process reads all of it before it starts. If it ends before that, its status tells.
    let _ = input.write_all(text.as_bytes());
    drop(input);
    let output = child.stdout.take().expect("standard output");
    let (sender, lines) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let (mut ended, mut part, mut hangs) = (Vec::new(), Vec::new(), false);
    let mut tried = None;
    loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) if line == "begin" => part.clear(),
            Ok(line) if line == "end" => ended.push(std::mem::take(&mut part)),
            Ok(line) => match line.strip_prefix("try ") {
                Some(call) => tried = Some(call.to_owned()),
                None => {
                    tried = tried.filter(|_| line.starts_with("misuse "));
                    part.push(line);
                }
            },
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                hangs = true;
                let _ = child.kill();
                break;
            }
        }
    }
    let status = child.wait().expect("a status");
    drop(lines);
    let _ = reader.join();
    let end = match status.code() {
        _ if hangs => End::Failed("hang".to_owned()),
        Some(0 | REPLACE) => End::Well,
        _ => End::Failed(format!("crash, {status}")),
    };
    if let End::Failed(how) = &end {
        part.push(format!("{} -> {how}", tried.as_deref().unwrap_or("end")));
    }
    (ended, part, end)
}

/// Calls `run_portion` with the number and the programs of each portion, for `jobs` portions at a time,
/// until `seconds` have passed.
pub(crate) fn run(
    programs: &[Program],
    jobs: usize,
    seconds: u64,
    run_portion: impl Fn(usize, &[Program]) + Sync,
) {
    let end = Instant::now() + Duration::from_secs(seconds);
    let portions: Vec<&[Program]> = programs.chunks(PORTION).collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while Instant::now() < end {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(portion) = portions.get(index) else {
                        return;
                    };
                    run_portion(index, portion);
                }
            });
        }
    });
}

/// The programs that one process is given.
const PORTION: usize = 25;

/// Environment variables of the processes.
type Variables<'a> = &'a [(&'a str, &'a str)];

/// Returns the transcripts of programs.
pub(crate) fn transcripts(programs: &[Program], variables: Variables<'_>) -> Vec<Program> {
    let lines = portion(programs, variables).into_iter();
    let programs = programs.iter().zip(lines);
    programs.map(|(program, lines)| Program { seed: program.seed, lines }).collect()
}

fn portion(programs: &[Program], variables: Variables<'_>) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    while all.len() < programs.len() {
        let (ended, part, end) = process(&programs[all.len()..], variables);
        let is_first = ended.is_empty();
        all.extend(ended);
        let Some(program) = programs.get(all.len()) else {
            break;
        };
        match end {
            // The process asked to be replaced.
            End::Well if !is_first => {}
            End::Well => all.push(vec!["end -> no transcript".to_owned()]),
            End::Failed(_) if is_first => all.push(part),
            // Programs before this one may have been the cause.
            End::Failed(_) => {
                let (mut alone, part, _) = process(std::slice::from_ref(program), variables);
                all.push(alone.pop().unwrap_or(part));
            }
        }
    }
    all
}
