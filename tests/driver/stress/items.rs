//! Actions on any item.

use super::worker::{Item, Worker};
use cuda_safe::Result;

pub(super) fn leave(worker: &mut Worker<'_>) -> Result<()> {
    let Some(item) = worker.take(Ok) else {
        return Ok(());
    };
    let mut mailbox = worker.arena.mailbox.lock().expect("no thread panicked");
    mailbox.push(item);
    Ok(())
}

pub(super) fn pick_up(worker: &mut Worker<'_>) -> Result<()> {
    let mut mailbox = worker.arena.mailbox.lock().expect("no thread panicked");
    let item = mailbox.pop();
    drop(mailbox);
    if let Some(item) = item {
        worker.keep(item);
    }
    Ok(())
}

pub(super) fn end(worker: &mut Worker<'_>) -> Result<()> {
    let Some(item) = worker.take(Ok) else {
        return Ok(());
    };
    match item {
        Item::Buffer(known) => known.check(),
        Item::Reader(reader, elements) => {
            assert_eq!(reader.as_slice().to_vec()?, elements);
            Ok(())
        }
        Item::Pending(pending, elements) => {
            assert_eq!(*pending.synchronize()?, elements);
            Ok(())
        }
        Item::Mapped(mut buffer, elements) => {
            assert_eq!(buffer.host()?, elements);
            Ok(())
        }
        Item::Managed(mut buffer, elements) => {
            assert_eq!(buffer.host()?, elements);
            Ok(())
        }
        Item::Graph(recorded) => recorded.check(),
        Item::Shared(..) | Item::Event(_) => Ok(()),
    }
}
