//! The command line.

use crate::Error;
use lexopt::{Arg, Parser, ValueExt};
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const USAGE: &str = "\
Measures the effect of a neighbor on the latency of a short kernel, with and without green contexts.

usage: isolation [options]

  --device N      the device (default 0)
  --sim PROFILE   use the software driver instead of a GPU: h200, ... (latencies are meaningless there)
  --rounds N      number of rounds, in each of which every series is measured once (default 5; --sim: 2)
  --launches N    number of launches of a series in a round (default 1000; --sim: 20)
  --limit SECONDS ... but a series ends after this time in a round (default 10)
  --sms N         minimum number of SMs of the short kernel's partition (default 16)
  --json          print one JSON object
  --svg FILE      draw the distributions into FILE
";

pub(crate) enum Command {
    Help,
    Measure(Options),
}

pub(crate) struct Options {
    pub(crate) device: u32,
    pub(crate) sim: Option<String>,
    pub(crate) rounds: Option<u32>,
    pub(crate) launches: Option<u32>,
    pub(crate) limit: Duration,
    pub(crate) sms: u32,
    pub(crate) json: bool,
    pub(crate) svg: Option<PathBuf>,
}

pub(crate) fn parse() -> Result<Command, Error> {
    let mut parser = Parser::from_env();
    let mut options = Options {
        device: 0,
        sim: None,
        rounds: None,
        launches: None,
        limit: Duration::from_secs(10),
        sms: 16,
        json: false,
        svg: None,
    };
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("device") => options.device = parser.value()?.parse()?,
            Arg::Long("sim") => options.sim = Some(parser.value()?.string()?),
            Arg::Long("rounds") => options.rounds = Some(parser.value()?.parse()?),
            Arg::Long("launches") => options.launches = Some(parser.value()?.parse()?),
            Arg::Long("limit") => options.limit = Duration::from_secs(parser.value()?.parse()?),
            Arg::Long("sms") => options.sms = parser.value()?.parse()?,
            Arg::Long("json") => options.json = true,
            Arg::Long("svg") => options.svg = Some(parser.value()?.into()),
            Arg::Long("help") | Arg::Short('h') => return Ok(Command::Help),
            other => return Err(other.unexpected().into()),
        }
    }
    if options.rounds == Some(0) || options.launches == Some(0) {
        return Err("--rounds and --launches must be at least 1".into());
    }
    Ok(Command::Measure(options))
}
