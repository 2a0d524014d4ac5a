//! Operations of a communicator as work on a stream.

use super::board::{Board, Post};
use super::{Life, arithmetic};
use crate::account::misuse;
use crate::exec::Joint;
use crate::memory::Memory;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// The operations of one call, or of one group, of one communicator.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) rank: u32,
    pub(crate) board: Arc<Board>,
    pub(crate) life: Arc<Life>,
    pub(crate) parts: Vec<Part>,
    /// The topics of each arrival whose stream has not left. A launch of a graph arrives again.
    pub(crate) arrivals: Mutex<VecDeque<Vec<String>>>,
}

/// One operation.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) kind: Kind,
    /// Elements that each rank sends or receives.
    pub(crate) count: usize,
    pub(crate) data_type: u32,
    pub(crate) send: u64,
    pub(crate) receive: u64,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    AllReduce(Op),
    Reduce(Op, u32),
    ReduceScatter(Op),
    Broadcast(u32),
    AllGather,
    AllToAll,
    Gather(u32),
    Scatter(u32),
    Send(u32),
    Receive(u32),
}

/// The operation of a reduction.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Plain(u32),
    /// A sum of the products with a factor.
    Scaled(Factor),
}

#[derive(Clone, Debug)]
pub(crate) enum Factor {
    Value(Vec<u8>),
    /// In device memory.
    At(u64),
}

impl Kind {
    /// Returns whether elements are multiplied with a factor. For floating point numbers, an average is such a product.
    pub(crate) fn has_factor(&self) -> bool {
        let (Self::AllReduce(op) | Self::Reduce(op, _) | Self::ReduceScatter(op)) = self else {
            return false;
        };
        matches!(op, Op::Scaled(_) | Op::Plain(arithmetic::AVERAGE))
    }
}

impl Op {
    fn number(&self) -> u32 {
        match self {
            Self::Plain(op) => *op,
            Self::Scaled(_) => arithmetic::SUM,
        }
    }
}

impl Part {
    fn size(&self) -> usize {
        self.count * arithmetic::size(self.data_type).unwrap_or(0)
    }

    /// Describes the operation. The descriptions of all ranks must be equal.
    fn described(&self) -> String {
        let op = |op: &Op| match op {
            Op::Plain(op) => format!("operation {op}"),
            Op::Scaled(_) => "a scaled sum".to_owned(),
        };
        let what = match &self.kind {
            Kind::AllReduce(its) => format!("ncclAllReduce with {}", op(its)),
            Kind::Reduce(its, root) => format!("ncclReduce with {} to rank {root}", op(its)),
            Kind::ReduceScatter(its) => format!("ncclReduceScatter with {}", op(its)),
            Kind::Broadcast(root) => format!("ncclBroadcast from rank {root}"),
            Kind::AllGather => "ncclAllGather".to_owned(),
            Kind::AllToAll => "ncclAlltoAll".to_owned(),
            Kind::Gather(root) => format!("ncclGather to rank {root}"),
            Kind::Scatter(root) => format!("ncclScatter from rank {root}"),
            Kind::Send(_) | Kind::Receive(_) => "a message".to_owned(),
        };
        format!("{what} of {} elements of type {}", self.count, self.data_type)
    }

    /// Returns the place of this rank among the participants, and their number.
    fn place(&self, rank: u32, ranks: u32) -> (u32, u32) {
        match self.kind {
            Kind::Send(_) => (0, 2),
            Kind::Receive(_) => (1, 2),
            _ => (rank, ranks),
        }
    }

    /// Returns the topic of the next operation of this kind.
    fn topic(&self, rank: u32, board: &Board) -> String {
        match self.kind {
            Kind::Send(to) => {
                let pair = format!("pair-{rank}-{to}");
                format!("{pair}-{}", board.next(rank, &format!("send {pair}")))
            }
            Kind::Receive(from) => {
                let pair = format!("pair-{from}-{rank}");
                format!("{pair}-{}", board.next(rank, &format!("receive {pair}")))
            }
            _ => format!("all-{}", board.next(rank, "all")),
        }
    }

    /// Reads what the rank contributes.
    fn input(&self, rank: u32, ranks: u32, memory: &mut Memory) -> Result<Vec<u8>, String> {
        let own = self.size();
        let len = match &self.kind {
            Kind::Receive(_) => 0,
            Kind::Broadcast(root) if *root != rank => 0,
            Kind::Scatter(root) if *root != rank => 0,
            Kind::Scatter(_) | Kind::AllToAll | Kind::ReduceScatter(_) => own * ranks as usize,
            _ => own,
        };
        let mut bytes = match len {
            0 => Vec::new(),
            len => memory.bytes(self.send, len)?.to_vec(),
        };
        if let Kind::AllReduce(op) | Kind::Reduce(op, _) | Kind::ReduceScatter(op) = &self.kind {
            let factor = match op {
                Op::Plain(_) => return Ok(bytes),
                Op::Scaled(Factor::Value(factor)) => factor.clone(),
                Op::Scaled(Factor::At(address)) => {
                    let width = arithmetic::size(self.data_type).unwrap_or(0);
                    memory.bytes(*address, width)?.to_vec()
                }
            };
            arithmetic::scale(self.data_type, &mut bytes, &factor);
        }
        Ok(bytes)
    }

    /// Returns what the rank receives from the contributions of all participants.
    fn output(&self, rank: u32, posts: &[Post]) -> Option<Vec<u8>> {
        let inputs: Vec<&[u8]> = posts.iter().map(|post| &*post.bytes).collect();
        let own = self.size();
        let part = |bytes: &[u8]| {
            let start = rank as usize * own;
            bytes.get(start..start + own).unwrap_or_default().to_vec()
        };
        let root = |root: &u32| inputs.get(*root as usize).copied().unwrap_or_default();
        Some(match &self.kind {
            Kind::AllReduce(op) => arithmetic::reduce(self.data_type, op.number(), &inputs),
            Kind::Reduce(op, root) if *root == rank => {
                arithmetic::reduce(self.data_type, op.number(), &inputs)
            }
            Kind::ReduceScatter(op) => {
                part(&arithmetic::reduce(self.data_type, op.number(), &inputs))
            }
            Kind::Broadcast(from) => root(from).to_vec(),
            Kind::AllGather => inputs.concat(),
            Kind::Gather(root) if *root == rank => inputs.concat(),
            Kind::AllToAll => inputs.iter().flat_map(|input| part(input)).collect(),
            Kind::Scatter(from) => part(root(from)),
            Kind::Receive(_) => inputs.concat(),
            Kind::Reduce(..) | Kind::Gather(_) | Kind::Send(_) => return None,
        })
    }
}

impl Joint for Batch {
    fn arrive(&self, memory: &mut Memory) -> Result<(), String> {
        if self.life.is_destroyed.load(Ordering::Acquire) {
            // All other operations were complete before.
            return Err(
                "a graph launches an operation of a communicator that was destroyed".to_owned()
            );
        }
        let mut topics = Vec::new();
        for part in &self.parts {
            // The order of the calls decides which operations of the ranks belong together.
            let topic = part.topic(self.rank, &self.board);
            if !self.life.is_aborted() {
                let input = part.input(self.rank, self.board.ranks, memory)?;
                let (place, _) = part.place(self.rank, self.board.ranks);
                let post = Post { what: part.described(), bytes: input.into() };
                self.board.post(&topic, place, post);
            }
            topics.push(topic);
        }
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).push_back(topics);
        Ok(())
    }

    fn is_complete(&self) -> bool {
        if self.life.is_aborted() {
            return true;
        }
        let arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(topics) = arrivals.front() else {
            return true;
        };
        topics.iter().zip(&self.parts).all(|(topic, part)| {
            let (_, count) = part.place(self.rank, self.board.ranks);
            self.board.posts(topic, count).is_some()
        })
    }

    fn leave(&self, memory: &mut Memory) -> Result<(), String> {
        let topics = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        for (topic, part) in topics.unwrap_or_default().iter().zip(&self.parts) {
            let (_, count) = part.place(self.rank, self.board.ranks);
            let posts = self.board.posts(topic, count);
            self.board.finish(topic, count);
            // An aborted operation writes nothing.
            let Some(posts) = posts.filter(|_| !self.life.is_aborted()) else {
                continue;
            };
            let own = part.described();
            if let Some(other) = posts.iter().position(|post| post.what != own) {
                misuse(format!(
                    "the ranks of a communicator call different operations: rank {} {own}, participant {other} {}; \
                     a real NCCL hangs or writes wrong results",
                    self.rank, posts[other].what
                ));
                continue;
            }
            let Some(output) = part.output(self.rank, &posts).filter(|its| !its.is_empty()) else {
                continue;
            };
            memory.target(part.receive, output.len())?.copy_from_slice(&output);
        }
        Ok(())
    }
}
