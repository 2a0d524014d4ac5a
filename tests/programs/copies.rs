//! Copies from and to host memory.

use super::captures::mode;
use super::{Held, LEN, Operations, check};
use cuda_safe::capture::Capture;
use cuda_safe::memory::{
    CopyBatch, Extent, ManagedBuffer, MappedBuffer, Pending, PinnedRange, PitchedBuffer, Region,
};
use cuda_safe::{Event, PinnedBuffer, Stream};

type Host = PinnedBuffer<u32>;

pub(super) const COPIES: Operations = &[
    ("new pinned memory", |s| Ok(s.put(Host::zeroed(s.context(), LEN)?))),
    ("drop pinned memory", |s| Ok(drop(s.take::<Host>()?))),
    ("copy from pinned memory", |s| {
        let mut host = s.take::<Host>()?;
        s.with(|s, held: &mut Held| {
            host.fill(held.may_be(s.fresh()));
            Ok(s.put(held.buffer.copy_from_pinned(host)?))
        })
    }),
    ("copy to pinned memory", |s| {
        let host = s.take::<Host>()?;
        s.with(|s, held: &mut Held| Ok(s.put(held.buffer.copy_to_pinned(host)?)))
    }),
    ("synchronize a copy", |s| {
        let mut host = s.take::<Pending<u32, Host>>()?.synchronize()?;
        // The device must not read or write it any more.
        host.fill(s.fresh());
        Ok(s.put(host))
    }),
    ("drop a pending copy", |s| Ok(drop(s.take::<Pending<u32, Host>>()?))),
    ("copy a range of pinned memory", |s| {
        let mut range = s.take::<Host>()?.into_range();
        s.with(|s, held: &mut Held| {
            let half = range.split_off(LEN / 2)?;
            let mut slice = held.buffer.slice_mut(..LEN / 2)?;
            let value = s.fresh();
            range.fill(value);
            let pending = slice.copy_from_pinned(range)?;
            held.may_be(value);
            let back = held.buffer.slice(LEN / 2..)?.copy_to_pinned(half)?;
            s.put((pending, back));
            Ok(())
        })
    }),
    ("synchronize copies of ranges", |s| {
        type Ranges = Pending<u32, PinnedRange<u32>>;
        let (first, second) = s.take::<(Ranges, Ranges)>()?;
        let (first, second) = (first.synchronize()?, second.synchronize()?);
        let mut host = PinnedRange::join([first, second])?;
        host.fill(s.fresh());
        Ok(s.put(host))
    }),
    // A capture may begin in the scope: by the thread itself, or by a wait for an event of a capture.
    ("copies in a scope", |s| {
        let (mut host, mode) = (s.take::<Host>()?, mode(s));
        s.with(|s, held: &mut Held| {
            let stream = held.buffer.stream().clone();
            let value = held.may_be(s.fresh());
            host.fill(value);
            let (before, kind) = (s.below(6), s.below(3));
            let event = s.get::<Event>().ok();
            let mut capture: Option<Capture> = None;
            let copied = stream.copy_scope(|scope| {
                let mut batch = CopyBatch::new(&stream);
                let all = (Extent::new_2d(LEN, 1), Region::new(Extent::new_2d(LEN, 1)));
                match kind {
                    0 => batch.push_from_slice(&mut held.buffer, &host)?,
                    1 => batch.push_3d_from_slice(all.0, &mut held.buffer, all.1, &host, all.1)?,
                    _ => scope.copy_from_pinned(&mut held.buffer, &mut host)?,
                }
                scope.enqueue(batch)?;
                match before {
                    0 => capture = Some(stream.begin_capture(mode)?),
                    1 => event.map_or(Ok(()), |event| stream.wait_event(&event))?,
                    _ => {}
                }
                Ok::<_, cuda_safe::Error>(())
            });
            // The borrow has ended.
            host.fill(s.fresh());
            if let Some(capture) = capture {
                s.put_own(capture);
            }
            s.put(host);
            Ok(copied?)
        })
    }),
    ("copy to pinned memory in a scope", |s| {
        s.with(|s, host: &mut Host| {
            s.with(|_, held: &mut Held| {
                let stream = held.buffer.stream().clone();
                stream.copy_scope(|scope| scope.copy_to_pinned(&held.buffer, host))?;
                Ok(check(host, &held.values))
            })
        })
    }),
    ("copies in a batch", |s| {
        s.with(|s, held: &mut Held| {
            s.with(|s, host: &mut Host| {
                let value = held.may_be(s.fresh());
                host.fill(value);
                let stream = held.buffer.stream().clone();
                let (mut low, mut high) = held.buffer.split_at_mut(LEN / 2)?;
                let mut batch = CopyBatch::new(&stream);
                // Memory that was leaked during a copy is empty.
                let (first, last) = host.split_at(host.len() / 2);
                batch.push_from_slice(low.reborrow(), first)?;
                batch.push_from_slice(high.reborrow(), last)?;
                let enqueued = batch.enqueue();
                host.fill(s.fresh());
                Ok(enqueued?)
            })
        })
    }),
    ("copy to a slice", |s| {
        s.with(|_, held: &mut Held| {
            let mut read = [0; LEN];
            held.buffer.copy_to_slice(&mut read)?;
            Ok(check(&read, &held.values))
        })
    }),
    ("copy and fill regions", |s| {
        s.with(|s, held: &mut Held| {
            let (extent, value) = (Extent::new_2d(2, 2), held.may_be(s.fresh()));
            let region = Region::new(Extent::new_2d(4, 2));
            let mut slice = held.buffer.as_mut_slice();
            slice.fill_3d(extent, region, value)?;
            slice.copy_3d_from_slice(extent, region, &[value; 4], Region::new(extent))?;
            let mut read = [0; 4];
            let tight = Region::new(extent);
            slice.as_slice().copy_3d_to_slice(extent, region, &mut read, tight)?;
            Ok(check(&read, &held.values))
        })
    }),
    ("new managed memory", |s| {
        let (stream, value) = (s.get::<Stream>()?, s.fresh());
        Ok(s.put((ManagedBuffer::from_slice(&stream, &[value; LEN])?, vec![value])))
    }),
    ("use managed memory", |s| {
        s.with(|s, (managed, values): &mut (ManagedBuffer<u32>, Vec<u32>)| {
            values.push(s.fresh());
            managed.device_mut()?.fill(values[values.len() - 1])?;
            if s.one_in(2) {
                check(managed.host()?, values);
                values.push(s.fresh());
                managed.host()?.fill(values[values.len() - 1]);
            }
            Ok(())
        })
    }),
    ("new mapped memory", |s| {
        let (host, stream) = (s.take::<Host>()?, s.get::<Stream>()?);
        let values = host.to_vec();
        Ok(s.put((MappedBuffer::new(host, &stream)?, values)))
    }),
    ("use mapped memory", |s| {
        s.with(|s, (mapped, values): &mut (MappedBuffer<u32>, Vec<u32>)| {
            values.push(s.fresh());
            mapped.as_mut_slice().fill(values[values.len() - 1])?;
            if s.one_in(2) {
                check(mapped.host()?, values);
                values.push(s.fresh());
                mapped.host()?.fill(values[values.len() - 1]);
            }
            Ok(())
        })
    }),
    ("unmap mapped memory", |s| {
        let (mapped, values) = s.take::<(MappedBuffer<u32>, Vec<u32>)>()?;
        let host = mapped.into_pinned()?;
        check(&host, &values);
        Ok(s.put(host))
    }),
    ("pitched memory", |s| {
        let mut pitched = PitchedBuffer::<u32>::zeroed(&s.get()?, 4, 2)?;
        let value = s.fresh();
        pitched.fill(value)?;
        // A capture that another thread began may have recorded the fill.
        check(&pitched.to_vec()?, &[0, value]);
        Ok(())
    }),
];
