//! What streams have been given, and how far they are known to be.
//!
//! A block that was freed in the order of a stream has a mark: the stream's book, and a number that grows
//! with each. An event that is recorded behind everything of the book up to a number proves, when it is
//! done, that so is all work up to it; and whoever waits for it comes behind that work.

use crate::call::call;
use crate::capture::Operation;
use crate::context::Context;
use crate::error::Result;
use crate::event::Event;
use crate::manager::Order;
use crate::stream::refuse_inside;
use cuda_sys::CUstream;
use std::collections::VecDeque;

/// A place in a stream's order: that of the book, up to the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) book: u32,
    pub(super) number: u64,
}

/// Places in the orders of streams, one of each at most.
pub(super) type Marks = Vec<Mark>;

/// Puts the marks of `other` to those of `marks`.
pub(super) fn unite(marks: &mut Marks, other: &[Mark]) {
    for mark in other {
        match marks.iter_mut().find(|its| its.book == mark.book) {
            Some(its) => its.number = its.number.max(mark.number),
            None => marks.push(*mark),
        }
    }
}

/// The book of what is of no stream's order: it is done when all work of the context is.
pub(super) const NOBODYS: u32 = 0;

struct Book {
    /// By its handle; none: it is nobody's order, or the stream has ended.
    stream: Option<usize>,
    /// The last number that was given.
    last: u64,
    /// Up to here all is done.
    done: u64,
    /// Events that were recorded, and up to which number.
    events: VecDeque<(u64, Event)>,
    /// Whether something was freed in the order of the stream that has no event, and will have none.
    has_lost: bool,
}

/// A stream's handle by its number. Of no provenance: the driver knows its handles by that.
pub(super) fn handle(stream: usize) -> CUstream {
    std::ptr::without_provenance_mut(stream)
}

/// The books of a context's streams.
pub(super) struct Books {
    books: Vec<Book>,
    /// Events that nobody waits for any more.
    spare: Vec<Event>,
    context: Context,
}

/// Events of one book that may be under way: more would prove little more.
const MANY: usize = 16;
/// Events that are kept.
const SPARE: usize = 64;

impl Books {
    pub(super) fn new(context: &Context) -> Self {
        let mut books = Self {
            books: Vec::new(),
            spare: Vec::new(),
            context: context.clone(),
        };
        books.open(None);
        books
    }

    fn open(&mut self, stream: Option<usize>) -> u32 {
        // One whose marks are all done can be another's: its numbers go on.
        let is_over =
            |book: &Book| book.stream.is_none() && !book.has_lost && book.done == book.last;
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
            has_lost: false,
        });
        (self.books.len() - 1) as u32
    }

    /// The book of a stream that stays until it is [closed](Self::close).
    pub(super) fn of(&mut self, stream: CUstream) -> u32 {
        match self.find(stream) {
            Some(book) => book,
            None => self.open(Some(stream.addr())),
        }
    }

    /// The same with an event for its end, which may come where none can be made.
    pub(super) fn begin(&mut self, stream: CUstream) -> Result<u32> {
        if let Some(book) = self.find(stream) {
            return Ok(book);
        }
        let event = self.context.event_now()?;
        self.keep(event);
        Ok(self.open(Some(stream.addr())))
    }

    /// The book of a stream, if it has one.
    pub(super) fn find(&self, stream: CUstream) -> Option<u32> {
        let is_its = |book: &Book| book.stream == Some(stream.addr());
        self.books.iter().position(is_its).map(|index| index as u32)
    }

    /// A mark behind all that a book's stream was given up to now.
    pub(super) fn mark(&mut self, book: u32) -> Mark {
        let its = &mut self.books[book as usize];
        its.last += 1;
        Mark {
            book,
            number: its.last,
        }
    }

    /// A mark behind all that a stream was given, which may be gone afterwards.
    pub(super) fn mark_passing(&mut self, order: Order<'_>) -> Mark {
        let book = self.open(order.raw().map(CUstream::addr));
        let mark = self.mark(book);
        let event = refuse_inside().and_then(|()| self.spare());
        let event = event.and_then(|event| record(&event, order, &self.context).map(|()| event));
        let its = &mut self.books[book as usize];
        its.stream = None;
        match event {
            Ok(event) => its.events.push_back((mark.number, event)),
            Err(_) => its.has_lost = true,
        }
        mark
    }

    /// The stream ends: what it was given gets an event, or is lost.
    pub(super) fn close(&mut self, stream: CUstream) {
        let Some(book) = self.find(stream) else {
            return;
        };
        self.record(book);
        let its = &mut self.books[book as usize];
        its.stream = None;
        let covered = its.events.back().map_or(its.done, |(number, _)| *number);
        its.has_lost = covered < its.last;
    }

    pub(super) fn is_done(&self, mark: &Mark) -> bool {
        self.books[mark.book as usize].done >= mark.number
    }

    /// Whether all of the marks are done, but for those of one book.
    pub(super) fn are_done_but_for(&self, marks: &[Mark], book: Option<u32>) -> bool {
        marks
            .iter()
            .all(|mark| Some(mark.book) == book || self.is_done(mark))
    }

    /// Looks which events are reached.
    pub(super) fn poll(&mut self) {
        for index in 1..self.books.len() {
            if self.books[index].done == self.books[index].last {
                continue;
            }
            // What has no event yet gets one, for the next time.
            if self.books[index].events.len() < MANY {
                self.record(index as u32);
            }
            let mut reached = Vec::new();
            let its = &mut self.books[index];
            while let Some((number, event)) = its.events.front() {
                if !event.is_done().is_ok_and(|done| done) {
                    break;
                }
                its.done = its.done.max(*number);
                reached.extend(its.events.pop_front().map(|(_, event)| event));
            }
            reached.into_iter().for_each(|event| self.keep(event));
        }
    }

    /// Puts an event behind what a book's stream was given, if there is none, and can be one now.
    fn record(&mut self, book: u32) {
        let its = &self.books[book as usize];
        let covered = its.events.back().map_or(its.done, |(number, _)| *number);
        let Some(stream) = its.stream.filter(|_| covered < its.last) else {
            return;
        };
        let number = its.last;
        let Ok(event) = self.spare() else {
            return;
        };
        // SAFETY: the stream stays until its book is closed, which is under the same lock.
        let order = unsafe { Order::known(handle(stream)) };
        match record(&event, order, &self.context) {
            Ok(()) => self.books[book as usize].events.push_back((number, event)),
            Err(_) => self.keep(event),
        }
    }

    /// The events that cover marks, those that are not done; none if one has none.
    pub(super) fn events_of(&mut self, marks: &[Mark], but_for: Option<u32>) -> Option<Vec<Event>> {
        let mut events = Vec::new();
        for mark in marks {
            if self.is_done(mark) || Some(mark.book) == but_for {
                continue;
            }
            self.record(mark.book);
            let its = &self.books[mark.book as usize];
            let covers = its.events.iter().find(|(number, _)| *number >= mark.number);
            events.push(covers?.1.clone());
        }
        Some(events)
    }

    /// How far each book is, for [`settled`](Self::settled).
    pub(super) fn numbers(&self) -> Vec<u64> {
        self.books.iter().map(|book| book.last).collect()
    }

    /// All work of the context was done at some time after these numbers.
    pub(super) fn settled(&mut self, numbers: &[u64]) {
        let mut reached = Vec::new();
        for (book, number) in self.books.iter_mut().zip(numbers) {
            book.done = book.done.max(*number);
            if book.done == book.last {
                book.has_lost = false;
            }
            while book.events.front().is_some_and(|(its, _)| its <= number) {
                reached.extend(book.events.pop_front().map(|(_, event)| event));
            }
        }
        reached.into_iter().for_each(|event| self.keep(event));
    }

    /// What of nobody's order is not known to be done.
    pub(super) fn nobodys_pending(&self) -> u64 {
        let its = &self.books[NOBODYS as usize];
        its.last - its.done
    }

    fn spare(&mut self) -> Result<Event> {
        match self.spare.pop() {
            Some(event) => Ok(event),
            None => self.context.event_now(),
        }
    }

    fn keep(&mut self, event: Event) {
        if self.spare.len() < SPARE {
            self.spare.push(event);
        }
    }
}

/// Records an event in the stream of an order, which is not captured, and does not become so meanwhile.
fn record(event: &Event, order: Order<'_>, context: &Context) -> Result<()> {
    // Nothing is called there.
    refuse_inside()?;
    let _call = order.uncaptured(Operation::Record, context)?;
    order.call(context, |raw| {
        // SAFETY: the event is alive, and the stream during the call.
        unsafe { call!(cuEventRecord(event.raw(), raw)) }
    })
}
