use crate::common;
use crate::kernels::{Scale, pinned};
use crate::need;
use cuda_safe::{DeviceBuffer, Error, Invalid, PinnedBuffer};
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
fn borrowed_pinned_memory_is_copied_when_the_scope_ends() {
    let context = need!(common::context());
    let stream = context.stream().expect("a stream");
    let scale = Scale::new(&context);
    let mut there = pinned(&context, &[1, 2, 3, 4]);
    let mut back = [pinned(&context, &[0; 4]), pinned(&context, &[0; 2])];
    let mut buffer = DeviceBuffer::<i32>::zeroed(&stream, 4).expect("memory");
    let given = stream.copy_scope(|scope| {
        assert_eq!(scope.stream(), &stream);
        scope.copy_from_pinned(&mut buffer, &mut there)?;
        scale.run(&stream, &mut buffer, 10, 1)?;
        let [all, part] = &mut back;
        scope.copy_to_pinned(&buffer, all)?;
        scope.copy_to_pinned(buffer.slice(1..3)?, part)
    });
    given.expect("copies");
    assert_eq!(*there, [1, 2, 3, 4]);
    assert_eq!(*back[0], [11, 21, 31, 41]);
    assert_eq!(*back[1], [21, 31]);
}

#[test]
fn a_scope_ends_with_its_wait_when_it_panics() {
    let context = need!(common::context());
    let stream = context.stream().expect("a stream");
    let buffer = DeviceBuffer::from_slice(&stream, &[7; 1 << 16]).expect("a copy");
    let mut back = pinned(&context, &[0; 1 << 16]);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        stream.copy_scope(|scope| {
            scope.copy_to_pinned(&buffer, &mut back)?;
            panic!("in the scope");
            #[allow(unreachable_code, reason = "it names the type of the error")]
            Ok::<_, Error>(())
        })
    }));
    let words = panicked.expect_err("the panic goes on");
    assert_eq!(words.downcast_ref(), Some(&"in the scope"));
    assert!(stream.is_complete().expect("a query"));
    assert_eq!(*back, [7; 1 << 16]);
}

#[test]
fn a_scope_refuses_other_lengths_and_memory_of_other_streams() {
    let context = need!(common::context());
    let (stream, other) = (
        context.stream().expect("a stream"),
        context.stream().expect("a stream"),
    );
    let mut host = [pinned(&context, &[1, 2]), pinned(&context, &[3])];
    let mut buffer = DeviceBuffer::<i32>::zeroed(&other, 1).expect("memory");
    let (lengths, streams) = stream
        .copy_scope(|scope| {
            let [two, one] = &mut host;
            Ok::<_, Error>((
                scope.copy_from_pinned(&mut buffer, two),
                scope.copy_to_pinned(&buffer, one),
            ))
        })
        .expect("a wait for nothing");
    match lengths {
        Err(Error::Invalid(invalid)) => {
            let (source, target) = (2, 1);
            assert_eq!(*invalid, Invalid::Lengths { source, target });
        }
        done => panic!("{done:?}"),
    }
    match streams {
        Err(Error::Invalid(invalid)) => {
            assert!(matches!(*invalid, Invalid::OtherStream { .. }), "{invalid}")
        }
        done => panic!("{done:?}"),
    }
    assert_eq!((&*host[0], &*host[1]), (&[1, 2][..], &[3][..]));
}

#[test]
fn a_scope_without_copies_is_a_wait() {
    let context = need!(common::context());
    let stream = context.stream().expect("a stream");
    let mut empty = PinnedBuffer::<u8>::zeroed(&context, 0).expect("no memory");
    let none = DeviceBuffer::<u8>::zeroed(&stream, 0).expect("no memory");
    stream
        .copy_scope(|scope| scope.copy_to_pinned(&none, &mut empty))
        .expect("no copy");
    assert_eq!(stream.copy_scope(|_| Ok::<_, Error>(5)), Ok(5));
}
