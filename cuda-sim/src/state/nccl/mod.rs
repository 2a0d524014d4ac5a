//! The objects of the software NCCL.

pub(crate) mod arithmetic;
pub(crate) mod board;
pub(crate) mod operation;

use super::handles::Handles;
use board::Board;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The length of an id.
pub(crate) const ID_BYTES: usize = 128;

/// The communicators of the process.
#[derive(Debug)]
pub(crate) struct Nccl {
    pub(crate) communicators: Handles<Communicator>,
    /// The boards of ids whose ranks have not all joined, or whose communicators are alive.
    boards: HashMap<[u8; ID_BYTES], Arc<Board>>,
    /// The folder through which ranks of several processes find each other.
    folder: Option<PathBuf>,
    /// Number of registrations so far.
    pub(crate) registered: usize,
    /// The memory of `ncclMemAlloc`.
    pub(crate) memory: BTreeMap<u64, usize>,
}

/// A communicator: one rank.
#[derive(Debug)]
pub(crate) struct Communicator {
    pub(crate) board: Arc<Board>,
    pub(crate) rank: u32,
    pub(crate) device: usize,
    pub(crate) is_blocking: bool,
    pub(crate) is_finalized: bool,
    pub(crate) life: Arc<Life>,
    /// The last operation on each stream.
    pub(crate) last: BTreeMap<usize, u64>,
    /// The factors of the operations that the program has created, by number.
    pub(crate) factors: BTreeMap<u32, operation::Factor>,
    pub(crate) next_factor: u32,
    /// Number of times that it was split or shrunk so far.
    pub(crate) derived: u32,
    /// Number of times that it has grown so far.
    pub(crate) growths: u32,
    /// A split that has not ended, if the communicator does not block.
    pub(crate) split: Option<Split>,
    /// What is registered, by handle: the address, the size, and whether it is a window.
    pub(crate) registered: BTreeMap<usize, (u64, usize, bool)>,
}

/// A split that waits for the other ranks.
#[derive(Clone, Debug)]
pub(crate) struct Split {
    pub(crate) topic: String,
    pub(crate) color: i32,
    pub(crate) is_blocking: bool,
    /// The address of the place for the new handle.
    pub(crate) place: usize,
}

/// What the enqueued operations of a communicator look at.
#[derive(Debug, Default)]
pub(crate) struct Life {
    pub(crate) is_aborted: AtomicBool,
    /// Whether the communicator was destroyed in order.
    pub(crate) is_destroyed: AtomicBool,
    /// The error that a test has set, or 0.
    pub(crate) error: AtomicU32,
}

impl Nccl {
    pub(crate) fn new(folder: Option<PathBuf>) -> Self {
        Self {
            communicators: Handles::new(19),
            boards: HashMap::new(),
            folder,
            registered: 0,
            memory: BTreeMap::new(),
        }
    }

    /// Returns whether ranks may be in other processes.
    pub(crate) fn is_shared(&self) -> bool {
        self.folder.is_some()
    }

    /// Returns the board of an id.
    pub(crate) fn board(&mut self, id: &[u8; ID_BYTES], ranks: u32) -> Arc<Board> {
        self.boards.retain(|_, board| Arc::strong_count(board) > 1);
        let folder = self.folder.as_ref().map(|folder| {
            let name: String = id[..16].iter().map(|byte| format!("{byte:02x}")).collect();
            folder.join(name)
        });
        let board = self.boards.entry(*id);
        Arc::clone(board.or_insert_with(|| Arc::new(Board::new(ranks, folder))))
    }
}

impl Communicator {
    pub(crate) fn new(board: Arc<Board>, rank: u32, device: usize, is_blocking: bool) -> Self {
        Self {
            board,
            rank,
            device,
            is_blocking,
            is_finalized: false,
            life: Arc::default(),
            last: BTreeMap::new(),
            factors: BTreeMap::new(),
            next_factor: 0,
            derived: 0,
            growths: 0,
            split: None,
            registered: BTreeMap::new(),
        }
    }

    /// Returns whether all ranks have joined.
    pub(crate) fn is_complete(&self) -> bool {
        self.board.all("join").is_some()
    }
}

impl Life {
    pub(crate) fn is_aborted(&self) -> bool {
        self.is_aborted.load(Ordering::Acquire)
    }
}
