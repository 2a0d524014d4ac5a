//! Random programs of safe code, which have no races.

use crate::common;
use crate::common::random::Random;
use crate::{check, context, start};
use cuda_safe::{Context, DeviceBuffer, PinnedBuffer, Stream};
use cuda_sim::Profile;

/// Runs a random program: buffers move between streams, are shared, copied, filled and dropped.
fn run(context: &Context, random: &mut Random) {
    let streams: Vec<Stream> = (0..3)
        .map(|_| context.stream().expect("a stream"))
        .collect();
    let mut buffers: Vec<DeviceBuffer<u32>> = Vec::new();
    for _ in 0..40 {
        let stream = &streams[random.below(streams.len())];
        if buffers.len() < 2 {
            buffers.push(DeviceBuffer::from_slice(stream, &[7; 32]).expect("memory"));
            continue;
        }
        let at = random.below(buffers.len());
        match random.below(8) {
            0 => drop(buffers.swap_remove(at)),
            1 => buffers[at].fill(random.next() as u32).expect("a fill"),
            2 => buffers[at].rebind(stream).expect("an event"),
            3 => {
                let shared = buffers.swap_remove(at).share().expect("an event");
                for stream in &streams {
                    let reader = shared.on(stream).expect("a reader");
                    let mut copy = DeviceBuffer::<u32>::uninit(stream, 32).expect("memory");
                    copy.copy_from(&reader).expect("a copy");
                    buffers.push(copy);
                }
                buffers.truncate(6);
            }
            4 => {
                let mut other = buffers.swap_remove(at);
                let last = buffers.len() - 1;
                let target = buffers[last].stream().clone();
                other.rebind(&target).expect("an event");
                buffers[last].copy_from(&other).expect("a copy");
                buffers.push(other);
            }
            5 => {
                let host = PinnedBuffer::zeroed(context, 32).expect("memory");
                drop(buffers[at].copy_to_pinned(host).expect("a copy"));
            }
            6 => assert_eq!(buffers[at].to_vec().expect("a copy").len(), 32),
            _ => buffers.push(DeviceBuffer::zeroed(stream, 32).expect("memory")),
        }
    }
}

#[test]
fn random_programs_of_safe_code_have_no_races() {
    common::child::in_child(&[], || {
        start(Profile::h200().with_race_detection());
        {
            let context = context();
            for seed in 0..60 {
                run(&context, &mut Random(seed));
            }
        }
        assert_eq!(cuda_sim::races(), []);
        check();
    });
}
