//! Formats the results as text and as JSON.

use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Write;

#[derive(Serialize)]
pub(crate) struct Group {
    pub(crate) asked: u32,
    pub(crate) given: u32,
    /// The ids of the SMs on which the group's work ran.
    pub(crate) sm_ids: BTreeSet<u32>,
    /// A description of the additional SMs, if the work ran on more SMs than the driver reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) added: Option<String>,
    /// The number of additional SMs that the hardware is known to add.
    #[serde(skip)]
    pub(crate) explained: u32,
    /// The maximum cluster size in blocks, if it was requested and the device supports clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_cluster: Option<u32>,
}

pub(crate) struct Report {
    pub(crate) driver: String,
    pub(crate) device: String,
    pub(crate) sms: u32,
    pub(crate) groups: Vec<Group>,
    pub(crate) remaining: u32,
}

/// The fields of [`Report`] and the derived field `disjoint`, in the order of the output.
#[derive(Serialize)]
struct Json<'a> {
    driver: &'a str,
    device: &'a str,
    sms: u32,
    groups: &'a [Group],
    remaining: u32,
    disjoint: bool,
}

#[derive(Serialize)]
struct JsonError<'a> {
    error: &'a str,
}

pub(crate) fn json_error(error: &str) -> String {
    serde_json::to_string(&JsonError { error }).unwrap_or_default()
}

/// The characters that mark the partitions in the map.
const MARKS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const MAP_WIDTH: u32 = 16;

impl Report {
    /// Returns true if each SM ran the work of at most one partition.
    pub(crate) fn disjoint(&self) -> bool {
        let mut seen = BTreeSet::new();
        self.groups.iter().flat_map(|group| &group.sm_ids).all(|id| seen.insert(*id))
    }

    /// Returns true if no two partitions share more SMs than the hardware is known to add to them.
    pub(crate) fn is_by_hardware(&self) -> bool {
        self.groups.iter().enumerate().all(|(index, one)| {
            self.groups[index + 1..].iter().all(|other| {
                let is_shared = |id: &&u32| other.sm_ids.contains(id);
                let shared = one.sm_ids.iter().filter(is_shared).count();
                shared <= (one.explained + other.explained) as usize
            })
        })
    }

    pub(crate) fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(&Json {
            driver: &self.driver,
            device: &self.device,
            sms: self.sms,
            groups: &self.groups,
            remaining: self.remaining,
            disjoint: self.disjoint(),
        })
    }

    pub(crate) fn text(&self, asked: &str) -> String {
        let mut text = String::new();
        let _ =
            writeln!(text, "{}, {} SMs, driver for CUDA {}", self.device, self.sms, self.driver);
        let _ = writeln!(text, "requested: {asked}; {} SMs remain\n", self.remaining);
        let clusters = self.groups.iter().any(|group| group.max_cluster.is_some());
        let head = if clusters { "  cluster" } else { "" };
        let _ = writeln!(text, "      asked  given{head}  ran on");
        for (index, group) in self.groups.iter().enumerate() {
            let (mark, ids) = (mark(index), ranges(&group.sm_ids));
            let _ = write!(text, "  {mark}  {:6} {:6}", group.asked, group.given);
            if let Some(blocks) = group.max_cluster {
                let _ = write!(text, " {blocks:8}");
            }
            let _ = writeln!(text, " {:7}  {ids}", group.sm_ids.len());
        }
        let _ = write!(text, "\n{}\n{}", self.map(), self.verdict());
        text
    }

    /// Draws the SMs in rows, each with the mark of its partition.
    fn map(&self) -> String {
        let mut map = String::new();
        for id in 0..self.id_end() {
            if id % MAP_WIDTH == 0 {
                let _ = write!(map, "{}  {id:4} ", if id == 0 { "" } else { "\n" });
            }
            map.push(' ');
            map.push(self.owner(id).map_or('.', mark));
        }
        map.push('\n');
        map
    }

    /// Returns the number of SM ids to draw: the highest id plus one, but at least the number of SMs.
    /// An id can be larger than the number of SMs.
    pub(crate) fn id_end(&self) -> u32 {
        let highest = self.groups.iter().filter_map(|group| group.sm_ids.last());
        highest.max().map_or(0, |id| id + 1).max(self.sms)
    }

    /// Returns the index of the first partition whose work ran on an SM.
    pub(crate) fn owner(&self, id: u32) -> Option<usize> {
        self.groups.iter().position(|group| group.sm_ids.contains(&id))
    }

    fn verdict(&self) -> String {
        let mut text = String::new();
        if self.disjoint() {
            text.push_str("disjoint: no SM ran work of two partitions\n");
        } else if self.is_by_hardware() {
            text.push_str("disjoint as reported by the driver; the hardware added SMs that several partitions share\n");
        } else {
            text.push_str("NOT disjoint: an SM ran work of two partitions\n");
        }
        for (index, group) in self.groups.iter().enumerate() {
            if let Some(added) = &group.added {
                let _ = writeln!(text, "{} ran on {added}", mark(index));
            }
        }
        text
    }
}

/// Returns the mark of a partition. Marks repeat if there are more partitions than marks.
fn mark(index: usize) -> char {
    char::from(MARKS[index % MARKS.len()])
}

/// Formats ids as `0-3 8 10-11`.
fn ranges(ids: &BTreeSet<u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for id in ids {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *id => *last = *id,
            _ => ranges.push((*id, *id)),
        }
    }
    let texts: Vec<String> = ranges
        .into_iter()
        .map(
            |(first, last)| {
                if first == last { first.to_string() } else { format!("{first}-{last}") }
            },
        )
        .collect();
    texts.join(" ")
}
