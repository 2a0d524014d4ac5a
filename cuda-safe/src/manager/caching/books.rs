//! The progress of streams.
//!
//! A block that was freed in the order of a stream has a mark: the stream's book, and a number that grows
//! with each mark. An event that was recorded after the call that made a number proves, when it is reached,
//! that all work up to the number is done; and a stream that waits for the event comes after that work.
//!
//! The books are behind the lock of the pool, so no function here calls the driver. What has to be recorded
//! is handed out as a [`Record`], and its outcome is [entered](Books::enter) afterwards. Events that are to be
//! destroyed are put aside until the lock is released.

use crate::context::Context;
use crate::event::Event;
use crate::stream::WeakStream;
use cuda_sys::CUstream;
use std::collections::VecDeque;
use std::sync::Arc;

/// A place in the order of a stream: its book, up to the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) book: u32,
    pub(super) number: u64,
}

/// Places in the orders of streams, at most one in each.
pub(super) type Marks = Vec<Mark>;

/// Adds the marks of `other` to `marks`.
pub(super) fn unite(marks: &mut Marks, other: &[Mark]) {
    for mark in other {
        match marks.iter_mut().find(|its| its.book == mark.book) {
            Some(its) => its.number = its.number.max(mark.number),
            None => marks.push(*mark),
        }
    }
}

/// The book of memory that no stream orders: it is done when all work of the context is.
pub(super) const NOBODYS: u32 = 0;

/// How an event can be recorded in the stream of a book.
#[derive(Clone)]
pub(super) enum Reach {
    /// At any time: the legacy default stream lives as long as its context.
    Always,
    /// While a handle is held: the stream is one of this crate.
    Held(WeakStream),
    /// In a call that names the stream, as other code keeps it alive only then.
    Named,
}

struct Book {
    /// The handle; none: no stream orders it, or the stream has ended.
    stream: Option<(usize, Reach)>,
    /// The last number that was given.
    last: u64,
    /// All work up to this number is done.
    done: u64,
    /// Recorded events, and the numbers that they cover, in the order of numbers.
    events: VecDeque<(u64, Arc<Event>)>,
    /// Whether a thread is recording an event.
    is_recording: bool,
    /// Whether another stream would use memory of this one, and there is no event for that.
    is_wanted: bool,
}

impl Book {
    /// The number up to which there are events.
    fn covered(&self) -> u64 {
        self.events.back().map_or(self.done, |(number, _)| *number)
    }
}

/// An event that a thread records for a book, without the lock.
pub(super) struct Record {
    pub(super) book: u32,
    pub(super) number: u64,
    pub(super) reach: Reach,
    /// One to use again; or the one that was made.
    pub(super) event: Option<Arc<Event>>,
}

/// The events of one book, with the numbers that they cover.
pub(super) struct Queries {
    pub(super) book: u32,
    pub(super) events: Vec<(u64, Arc<Event>)>,
}

/// The books of a context's streams.
pub(super) struct Books {
    books: Vec<Book>,
    /// Events that no thread uses.
    spare: Vec<Arc<Event>>,
    /// Events to be destroyed without the lock.
    pub(super) discarded: Vec<Arc<Event>>,
    context: Context,
}

/// The most events of one book that are not reached: more would prove little more.
const MANY: usize = 16;
/// The most events that are kept for their next use.
const SPARE: usize = 64;

impl Books {
    pub(super) fn new(context: &Context) -> Self {
        let mut books = Self {
            books: Vec::new(),
            spare: Vec::new(),
            discarded: Vec::new(),
            context: context.clone(),
        };
        books.open(None);
        books
    }

    fn open(&mut self, stream: Option<(usize, Reach)>) -> u32 {
        // A book whose marks are all done can be used again: its numbers go on.
        let is_over = |book: &Book| book.stream.is_none() && book.done == book.last;
        let free = (1..self.books.len()).find(|index| is_over(&self.books[*index]));
        if let Some(index) = free {
            self.books[index].stream = stream;
            return index as u32;
        }
        self.books.push(Book {
            stream,
            last: 0,
            done: 0,
            events: VecDeque::new(),
            is_recording: false,
            is_wanted: false,
        });
        (self.books.len() - 1) as u32
    }

    /// Returns the book of a stream, which stays until the stream [ends](Self::detach).
    pub(super) fn of(&mut self, stream: CUstream, reach: &Reach) -> u32 {
        let Some(book) = self.find(stream) else {
            return self.open(Some((stream.addr(), reach.clone())));
        };
        if let (Some((_, its)), Reach::Held(_)) = (&mut self.books[book as usize].stream, reach) {
            if matches!(its, Reach::Named) {
                *its = reach.clone();
            }
        }
        book
    }

    /// Returns the book of a stream, if it has one.
    pub(super) fn find(&self, stream: CUstream) -> Option<u32> {
        self.find_handle(stream.addr())
    }

    pub(super) fn find_handle(&self, stream: usize) -> Option<u32> {
        let is_its = |book: &Book| {
            let handle = book.stream.as_ref().map(|(handle, _)| *handle);
            handle == Some(stream)
        };
        self.books.iter().position(is_its).map(|index| index as u32)
    }

    /// Returns a mark after all that a book's stream was given up to now.
    pub(super) fn mark(&mut self, book: u32) -> Mark {
        let its = &mut self.books[book as usize];
        its.last += 1;
        Mark {
            book,
            number: its.last,
        }
    }

    /// Returns a mark that is done when the event is reached; without an event, when all work of the context is.
    pub(super) fn mark_passing(&mut self, event: Option<Arc<Event>>) -> Mark {
        let book = self.open(None);
        let mark = self.mark(book);
        let event = event.map(|event| (mark.number, event));
        self.books[book as usize].events.extend(event);
        mark
    }

    /// The stream of a book ends. Returns the event to record, if something needs one.
    pub(super) fn detach(&mut self, book: u32) -> Option<Record> {
        let (_, reach) = self.books[book as usize].stream.take()?;
        let its = &self.books[book as usize];
        (its.covered() < its.last).then(|| Record {
            book,
            number: its.last,
            reach,
            event: self.spare.pop(),
        })
    }

    pub(super) fn is_done(&self, mark: &Mark) -> bool {
        self.books[mark.book as usize].done >= mark.number
    }

    /// Whether all of the marks are done, not counting those of one book.
    pub(super) fn are_done_but_for(&self, marks: &[Mark], book: Option<u32>) -> bool {
        marks
            .iter()
            .all(|mark| Some(mark.book) == book || self.is_done(mark))
    }

    /// Returns what to record and what to query, to learn how far the streams are. `named` is the stream that
    /// the call names.
    pub(super) fn due(&mut self, named: Option<CUstream>) -> (Vec<Record>, Vec<Queries>) {
        let (mut records, mut queries) = (Vec::new(), Vec::new());
        for book in 1..self.books.len() as u32 {
            let its = &self.books[book as usize];
            if its.done == its.last {
                continue;
            }
            let events = its.events.iter().cloned().collect();
            if its.events.len() < MANY && !its.is_recording {
                records.extend(self.record(book, named));
            }
            queries.push(Queries { book, events });
        }
        (records, queries)
    }

    /// Returns the event that a call which names the stream of a book should record, as no other call can.
    pub(super) fn wanted(&mut self, book: u32, named: CUstream) -> Option<Record> {
        let its = &mut self.books[book as usize];
        if !its.is_wanted || its.is_recording {
            return None;
        }
        its.is_wanted = false;
        self.record(book, Some(named))
    }

    /// Returns the event to record after all that a book's stream was given, if there is none, and one can be
    /// recorded.
    fn record(&mut self, book: u32, named: Option<CUstream>) -> Option<Record> {
        let its = &mut self.books[book as usize];
        let (handle, reach) = its.stream.clone()?;
        if its.covered() == its.last {
            return None;
        }
        if matches!(reach, Reach::Named) && named.map(CUstream::addr) != Some(handle) {
            its.is_wanted = true;
            return None;
        }
        its.is_recording = true;
        Some(Record {
            book,
            number: its.last,
            reach,
            event: self.spare.pop(),
        })
    }

    /// Enters the outcome of a record.
    pub(super) fn enter(&mut self, record: Record, was_made: bool) {
        let its = &mut self.books[record.book as usize];
        its.is_recording = false;
        let Some(event) = record.event else {
            return;
        };
        // The book may have been used again meanwhile, as all of that work was done.
        if !was_made || record.number <= its.done {
            return self.keep(event);
        }
        let place = its.events.partition_point(|(its, _)| *its < record.number);
        its.events.insert(place, (record.number, event));
    }

    /// All work of a book up to the number is done.
    pub(super) fn reached(&mut self, book: u32, number: u64) {
        let its = &mut self.books[book as usize];
        its.done = its.done.max(number);
        while let Some((covered, _)) = self.books[book as usize].events.front() {
            if *covered > number {
                break;
            }
            if let Some((_, event)) = self.books[book as usize].events.pop_front() {
                self.keep(event);
            }
        }
    }

    /// Returns events that cover the marks that are not done, and what to record to cover the others; none if
    /// one of them cannot be covered.
    pub(super) fn cover(
        &mut self,
        marks: &[Mark],
        but_for: Option<u32>,
        named: Option<CUstream>,
    ) -> Option<(Vec<Arc<Event>>, Vec<Record>)> {
        let (mut events, mut records) = (Vec::new(), Vec::new());
        for mark in marks {
            if self.is_done(mark) || Some(mark.book) == but_for {
                continue;
            }
            let its = &self.books[mark.book as usize];
            let covers = its.events.iter().find(|(number, _)| *number >= mark.number);
            if let Some((_, event)) = covers {
                events.push(Arc::clone(event));
                continue;
            }
            match self.record(mark.book, named) {
                Some(record) => records.push(record),
                None => {
                    records.into_iter().for_each(|its| self.enter(its, false));
                    self.discarded.extend(events);
                    return None;
                }
            }
        }
        Some((events, records))
    }

    /// Returns how far each book is, for [`settled`](Self::settled).
    pub(super) fn numbers(&self) -> Vec<u64> {
        self.books.iter().map(|book| book.last).collect()
    }

    /// All work of the context was done at some time after these numbers.
    pub(super) fn settled(&mut self, numbers: &[u64]) {
        for (book, number) in numbers.iter().enumerate() {
            self.reached(book as u32, *number);
        }
    }

    /// Returns how many blocks that no stream orders are not known to be done.
    pub(super) fn nobodys_pending(&self) -> u64 {
        let its = &self.books[NOBODYS as usize];
        its.last - its.done
    }

    /// Takes an event that no thread uses, if there is one.
    pub(super) fn spare(&mut self) -> Option<Arc<Event>> {
        self.spare.pop()
    }

    /// Keeps an event for its next use, unless a thread still queries it or waits for it.
    pub(super) fn keep(&mut self, event: Arc<Event>) {
        // Clones are made under the lock only: so this thread has the last one.
        let is_free = Arc::strong_count(&event) == 1;
        if is_free && self.spare.len() < SPARE && *event.context() == self.context {
            self.spare.push(event);
        } else {
            self.discarded.push(event);
        }
    }
}
