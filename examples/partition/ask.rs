//! Parses the command line.

use crate::Error;
use cuda_safe::green::SplitFlags;
use lexopt::{Arg, Parser, ValueExt};
use std::fmt;
use std::path::PathBuf;

pub(crate) const USAGE: &str = "\
Partitions a GPU's multiprocessors with green contexts and shows where the work ran.

usage: partition [options]

  --device N            the device (default 0)
  --sim PROFILE         use the software driver instead of a GPU: h200, h200@12.4, a100, ...
  --by-count MIN        the maximum number of groups of at least MIN SMs
  --max-groups N        ... but at most N groups
  --ignore-coscheduling ... with a finer granularity, without large clusters
  --max-cluster         ... for the largest clusters; also print the cluster sizes
  --groups A,B,...      groups of at least A, B, ... SMs
  --plan                create nothing; print the partitions and a table of all equal splits
  --json                print one JSON object
  --svg FILE            draw the partitions into FILE

Without --by-count and --groups: two halves, as even as the granularity allows.
";

pub(crate) enum Command {
    Help,
    Partition(Options),
}

pub(crate) struct Options {
    pub(crate) device: u32,
    pub(crate) ask: Ask,
    pub(crate) plan: bool,
    pub(crate) json: bool,
    pub(crate) svg: Option<PathBuf>,
    pub(crate) sim: Option<String>,
}

/// The partitions that the user requests.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Halves,
    ByCount { min: u32, max_groups: Option<u32>, flags: SplitFlags },
    Groups(Vec<u32>),
}

impl Ask {
    /// Returns whether the user requests partitions for the largest clusters.
    pub(crate) fn is_for_clusters(&self) -> bool {
        match self {
            Self::ByCount { flags, .. } => flags.contains(SplitFlags::MAX_POTENTIAL_CLUSTER_SIZE),
            Self::Halves | Self::Groups(_) => false,
        }
    }

    /// Returns the flags of a split by count, and no flags for other requests.
    pub(crate) fn flags(&self) -> SplitFlags {
        match self {
            Self::ByCount { flags, .. } => *flags,
            Self::Halves | Self::Groups(_) => SplitFlags::empty(),
        }
    }
}

pub(crate) fn parse() -> Result<Command, Error> {
    let mut parser = Parser::from_env();
    let (mut device, mut plan, mut json, mut svg, mut sim) = (0, false, false, None, None);
    let (mut min, mut max_groups, mut groups) = (None, None, None);
    let mut flags = SplitFlags::empty();
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("device") => device = parser.value()?.parse()?,
            Arg::Long("by-count") => min = Some(parser.value()?.parse()?),
            Arg::Long("max-groups") => max_groups = Some(parser.value()?.parse()?),
            Arg::Long("ignore-coscheduling") => flags |= SplitFlags::IGNORE_SM_COSCHEDULING,
            Arg::Long("max-cluster") => flags |= SplitFlags::MAX_POTENTIAL_CLUSTER_SIZE,
            Arg::Long("groups") => groups = Some(sizes(&parser.value()?.string()?)?),
            Arg::Long("sim") => sim = Some(parser.value()?.string()?),
            Arg::Long("plan") => plan = true,
            Arg::Long("json") => json = true,
            Arg::Long("svg") => svg = Some(parser.value()?.into()),
            Arg::Long("help") | Arg::Short('h') => return Ok(Command::Help),
            other => return Err(other.unexpected().into()),
        }
    }
    if flags.is_all() {
        return Err("--ignore-coscheduling and --max-cluster cannot be combined".into());
    }
    if plan && svg.is_some() {
        return Err("--svg cannot be combined with --plan, which runs nothing".into());
    }
    let ask = match (min, groups) {
        (Some(_), Some(_)) => return Err("--by-count and --groups cannot be combined".into()),
        (Some(min), None) => Ask::ByCount { min, max_groups, flags },
        (None, _) if max_groups.is_some() || !flags.is_empty() => {
            return Err(
                "--max-groups, --ignore-coscheduling and --max-cluster require --by-count".into()
            );
        }
        (None, Some(groups)) => Ask::Groups(groups),
        (None, None) => Ask::Halves,
    };
    Ok(Command::Partition(Options { device, ask, plan, json, svg, sim }))
}

fn sizes(list: &str) -> Result<Vec<u32>, Error> {
    let sizes: Result<Vec<u32>, _> = list.split(',').map(|size| size.trim().parse()).collect();
    match sizes {
        Ok(sizes) if !sizes.contains(&0) => Ok(sizes),
        _ => Err(format!("--groups needs positive numbers such as 64,32,16, not {list:?}").into()),
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Halves => f.write_str("two halves"),
            Self::ByCount { min, max_groups, flags } => {
                match max_groups {
                    Some(max) => write!(f, "up to {max} groups")?,
                    None => f.write_str("groups")?,
                }
                write!(f, " of at least {min} SMs")?;
                if flags.contains(SplitFlags::IGNORE_SM_COSCHEDULING) {
                    f.write_str(", ignoring co-scheduling")?;
                }
                if flags.contains(SplitFlags::MAX_POTENTIAL_CLUSTER_SIZE) {
                    f.write_str(", for the largest clusters")?;
                }
                Ok(())
            }
            Self::Groups(sizes) => {
                let sizes: Vec<_> = sizes.iter().map(u32::to_string).collect();
                write!(f, "groups of at least {} SMs", sizes.join(", "))
            }
        }
    }
}
