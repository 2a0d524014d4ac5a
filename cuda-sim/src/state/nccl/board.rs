//! What the ranks of a communicator tell each other: each rank posts bytes under a name, and reads those of the others
//! when all have posted. The board is in memory, or in a folder that several processes share.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The board of one communicator.
#[derive(Debug)]
pub(crate) struct Board {
    pub(crate) ranks: u32,
    folder: Option<PathBuf>,
    state: Mutex<State>,
    /// Whether a rank has died.
    has_lost: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    topics: HashMap<String, Topic>,
    /// The number of the next topic of each rank, by the kind of topic.
    next: BTreeMap<(u32, String), u64>,
    /// The boards of communicators that were created from this one, by the name of their creation.
    children: BTreeMap<String, Arc<Board>>,
}

/// The posts under one name.
#[derive(Debug, Default)]
struct Topic {
    posts: BTreeMap<u32, Post>,
    /// Number of ranks that have read the posts.
    readers: u32,
}

/// What a rank posts: a description that must be equal on all ranks, and data.
#[derive(Clone, Debug)]
pub(crate) struct Post {
    pub(crate) what: String,
    pub(crate) bytes: Arc<[u8]>,
}

impl Post {
    /// Returns a post without data.
    pub(crate) fn of(what: String) -> Self {
        Self { what, bytes: Arc::from([]) }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = (self.what.len() as u64).to_le_bytes().to_vec();
        bytes.extend(self.what.as_bytes());
        bytes.extend(&*self.bytes);
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (len, rest) = bytes.split_at_checked(8)?;
        let len = usize::try_from(u64::from_le_bytes(len.try_into().ok()?)).ok()?;
        let (what, bytes) = rest.split_at_checked(len)?;
        Some(Self { what: String::from_utf8_lossy(what).into_owned(), bytes: bytes.into() })
    }
}

impl Board {
    pub(crate) fn new(ranks: u32, folder: Option<PathBuf>) -> Self {
        Self { ranks, folder, state: Mutex::default(), has_lost: AtomicBool::new(false) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of the next topic of a kind for a rank, from 0 on.
    pub(crate) fn next(&self, rank: u32, kind: &str) -> u64 {
        let mut state = self.state();
        let next = state.next.entry((rank, kind.to_owned())).or_default();
        *next += 1;
        *next - 1
    }

    /// Posts under a name. Returns false if the rank has already posted there.
    pub(crate) fn post(&self, topic: &str, rank: u32, post: Post) -> bool {
        if let Some(folder) = &self.folder {
            return put(folder, &format!("{topic}.{rank}"), &post).unwrap_or(false);
        }
        let mut state = self.state();
        let posts = &mut state.topics.entry(topic.to_owned()).or_default().posts;
        let is_new = !posts.contains_key(&rank);
        posts.entry(rank).or_insert(post);
        is_new
    }

    /// Returns the posts of all ranks, when all have posted.
    pub(crate) fn all(&self, topic: &str) -> Option<Vec<Post>> {
        self.posts(topic, self.ranks)
    }

    /// Returns the posts of the first `count` participants, when all have posted.
    pub(crate) fn posts(&self, topic: &str, count: u32) -> Option<Vec<Post>> {
        if let Some(folder) = &self.folder {
            let read =
                |rank| Post::from_bytes(&fs::read(folder.join(format!("{topic}.{rank}"))).ok()?);
            return (0..count).map(read).collect();
        }
        let state = self.state();
        let posts = &state.topics.get(topic)?.posts;
        (0..count).map(|rank| posts.get(&rank).cloned()).collect()
    }

    /// Notes that a participant has read the posts. They are removed after the last one.
    pub(crate) fn finish(&self, topic: &str, count: u32) {
        if self.folder.is_some() {
            // Files stay until the end of the communicator, since this process does not know what others have read.
            return;
        }
        let mut state = self.state();
        let Some(its) = state.topics.get_mut(topic) else {
            return;
        };
        its.readers += 1;
        if its.readers == count {
            state.topics.remove(topic);
        }
    }

    /// Returns the board of a communicator that is created from this one.
    pub(crate) fn child(&self, name: &str, ranks: u32) -> Arc<Self> {
        let mut state = self.state();
        // Beside the folder of this board, because the new communicator may outlive this one.
        let folder = self.folder.as_ref().map(|folder| {
            let mut folder = folder.clone().into_os_string();
            folder.push(format!(".{name}"));
            PathBuf::from(folder)
        });
        let child = state.children.entry(name.to_owned());
        Arc::clone(child.or_insert_with(|| Arc::new(Self::new(ranks, folder))))
    }

    /// Notes that a rank does not use the board any more. The last one removes the folder.
    pub(crate) fn end(&self, rank: u32) {
        let Some(folder) = &self.folder else { return };
        // An error leaves the folder.
        let _ = put(folder, &format!("end.{rank}"), &Post::of(String::new()));
        if self.all("end").is_some() {
            let _ = fs::remove_dir_all(folder);
        }
    }

    /// Notes that a rank has died.
    pub(crate) fn lose(&self) {
        self.has_lost.store(true, Ordering::Release);
    }

    pub(crate) fn has_lost(&self) -> bool {
        self.has_lost.load(Ordering::Acquire)
    }
}

/// Creates a file, which appears at once with its contents. Returns false if it exists.
fn put(folder: &Path, name: &str, post: &Post) -> std::io::Result<bool> {
    fs::create_dir_all(folder)?;
    let path = folder.join(name);
    let partial = folder.join(format!("{name}.{}.partial", std::process::id()));
    fs::write(&partial, post.to_bytes())?;
    // A link, unlike a renamed file, replaces no other one.
    let linked = fs::hard_link(&partial, path);
    fs::remove_file(&partial)?;
    match linked {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}
