//! The command line.

use cuda_sim::checks::Check;
use cuda_sim::environment::Variable;
use cuda_sys::CudaVersion;
use lexopt::prelude::{Long, Short, Value, ValueExt};
use std::ffi::OsString;
use std::path::PathBuf;

pub(crate) enum Command {
    Run(Run),
    /// The folder, or `None` for the one in the user's cache.
    Library(Option<PathBuf>),
    Header,
    Profiles,
    Functions {
        driver: CudaVersion,
        not_simulated: bool,
    },
    Help,
    Version,
}

/// The options of `cuda-sim run`.
pub(crate) struct Run {
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    /// Variables of the program.
    pub(crate) variables: Vec<(Variable, OsString)>,
    pub(crate) account: Account,
    pub(crate) strict: Strict,
    /// The absolute path of the file with the coverage.
    pub(crate) coverage: Option<PathBuf>,
}

/// What gives the command an exit status of its own, if the program succeeds.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Strict {
    #[default]
    Nothing,
    /// Misuses, races, faults that made no call fail, and processes without an account.
    Misuses,
    /// These, and objects that are alive at exit or ended with their context.
    Leaks,
}

/// Where the account is written.
pub(crate) enum Account {
    Stderr,
    File(PathBuf),
    Nowhere,
}

pub(crate) fn parse(mut parser: lexopt::Parser) -> Result<Command, String> {
    parse_command(&mut parser).map_err(|why| format!("{why}; see cuda-sim --help"))
}

fn parse_command(parser: &mut lexopt::Parser) -> Result<Command, lexopt::Error> {
    let command = match parser.next()? {
        Some(Value(command)) => command,
        Some(Short('h') | Long("help")) | None => return Ok(Command::Help),
        Some(Short('V') | Long("version")) => return Ok(Command::Version),
        Some(other) => return Err(other.unexpected()),
    };
    let command = match command.to_str() {
        Some("run") => return parse_run(parser),
        Some("library") => match parser.next()? {
            None => return Ok(Command::Library(None)),
            Some(Value(folder)) => Command::Library(Some(folder.into())),
            Some(Short('h') | Long("help")) => return Ok(Command::Help),
            Some(other) => return Err(other.unexpected()),
        },
        Some("header") => Command::Header,
        Some("profiles") => Command::Profiles,
        Some("functions") => return parse_functions(parser),
        Some("help") => Command::Help,
        _ => return Err(format!("no command {}", command.to_string_lossy()).into()),
    };
    match parser.next()? {
        None => Ok(command),
        Some(Short('h') | Long("help")) => Ok(Command::Help),
        Some(other) => Err(other.unexpected()),
    }
}

fn parse_functions(parser: &mut lexopt::Parser) -> Result<Command, lexopt::Error> {
    let mut driver = CudaVersion::BINDINGS;
    let mut not_simulated = false;
    while let Some(option) = parser.next()? {
        match option {
            Long("driver") => driver = parser.value()?.parse()?,
            Long("not-simulated") => not_simulated = true,
            Short('h') | Long("help") => return Ok(Command::Help),
            other => return Err(other.unexpected()),
        }
    }
    Ok(Command::Functions { driver, not_simulated })
}

fn parse_run(parser: &mut lexopt::Parser) -> Result<Command, lexopt::Error> {
    let mut profile: Option<String> = None;
    let (mut driver, mut devices, mut seed) = (None, None, None);
    let mut variables: Vec<(Variable, OsString)> = Vec::new();
    let mut account = Account::Stderr;
    let mut strict = Strict::default();
    let mut coverage = None;
    let program = loop {
        match parser.next()? {
            Some(Long("profile")) => profile = Some(parser.value()?.string()?),
            Some(Long("driver")) => driver = Some(parser.value()?.string()?),
            Some(Long("devices")) => devices = Some(parser.value()?.string()?),
            Some(Long("seed")) => seed = Some(parser.value()?.string()?),
            Some(Long("races")) => variables.push((Variable::Races, "1".into())),
            Some(Long("check")) => {
                let checks = parser.value()?;
                Variable::Checks.check(&checks).map_err(|why| why.reason)?;
                let names = checks.to_string_lossy().into_owned();
                if names.split(',').any(|name| name.trim() == Check::Memcheck.name()) {
                    variables.push((Variable::Leaks, "1".into()));
                }
                variables.push((Variable::Checks, checks));
            }
            Some(Long("lenient")) => variables.push((Variable::Lenient, "1".into())),
            Some(Long("faults")) => {
                let faults = parser.value()?;
                Variable::Faults.check(&faults).map_err(|why| why.reason)?;
                variables.push((Variable::Faults, faults));
            }
            Some(Long("coverage")) => {
                let file = PathBuf::from(parser.value()?);
                // The program may change its folder.
                let absolute = std::path::absolute(&file);
                coverage = Some(absolute.map_err(|why| format!("{}: {why}", file.display()))?);
            }
            Some(Long("ignore-kernels")) => variables.push((Variable::Kernels, "ignore".into())),
            Some(Long("account")) => account = Account::File(parser.value()?.into()),
            Some(Long("no-account")) => account = Account::Nowhere,
            Some(Long("strict")) => strict = strict.max(Strict::Misuses),
            Some(Long("leaks")) => {
                strict = Strict::Leaks;
                variables.push((Variable::Leaks, "1".into()));
            }
            Some(Short('h') | Long("help")) => return Ok(Command::Help),
            Some(Value(program)) => break program,
            Some(other) => return Err(other.unexpected()),
            None => return Err("run needs a program".into()),
        }
    };
    let arguments = parser.raw_args()?.collect();
    if profile.is_some() || driver.is_some() || devices.is_some() || seed.is_some() {
        let inherited = || Some(Variable::Profile.value()?.to_string_lossy().into_owned());
        let profile = profile.or_else(inherited).unwrap_or_else(|| "h200".to_owned());
        let text = with_suffixes(&profile, [('*', devices), ('@', driver), ('#', seed)]);
        Variable::Profile.check(&text).map_err(|why| why.reason)?;
        variables.push((Variable::Profile, text.into()));
    }
    Ok(Command::Run(Run { program, arguments, variables, account, strict, coverage }))
}

/// Returns the name of a profile with new suffixes in place of those that it has. `suffixes` are in the order in
/// which a name has them.
fn with_suffixes(profile: &str, suffixes: [(char, Option<String>); 3]) -> String {
    let marks = suffixes.each_ref().map(|(mark, _)| *mark);
    let parts: Vec<&str> = profile.split_inclusive(marks).collect();
    let text = |part: &str| part.trim_end_matches(marks).to_owned();
    let mut name = parts.first().map(|part| text(part)).unwrap_or_default();
    for (mark, new) in suffixes {
        // A part ends with the mark of the next one.
        let mut pairs = parts.windows(2).filter(|pair| pair[0].ends_with(mark));
        let old = pairs.next().map(|pair| text(pair[1]));
        if let Some(suffix) = new.or(old) {
            name.push(mark);
            name.push_str(&suffix);
        }
    }
    name
}
