//! The operations, as methods of [`Communicator`] and of [`Group`](crate::Group).

use crate::communicator::Communicator;

/// Defines all operations: with `single`, as methods of a communicator that enqueue one operation, and with `grouped`,
/// as methods of a group that collect them.
macro_rules! collectives {
    ($form:ident) => {
        $crate::collective::collectives! { @$form
            /// Combines the elements of all ranks, and writes the result on all ranks.
            ///
            /// Both buffers have the same length on all ranks. Calls `ncclAllReduce`.
            ///
            /// Raw: [`ncclAllReduce`](fn@crate::sys::ncclAllReduce).
            "ncclAllReduce"
            all_reduce(send: source, receive: target, op: reduction);

            /// Does the same as [`all_reduce`](Self::all_reduce), with the result in the source.
            ///
            /// Raw: [`ncclAllReduce`](fn@crate::sys::ncclAllReduce).
            "ncclAllReduce"
            all_reduce_in_place(buffer: target, op: reduction);

            /// Combines the elements of all ranks, and writes the result on the root. Other ranks need no target.
            ///
            /// Both buffers have the same length on all ranks. Calls `ncclReduce`.
            ///
            /// Raw: [`ncclReduce`](fn@crate::sys::ncclReduce).
            "ncclReduce"
            reduce(send: source, receive: target_of_root, op: reduction, root: rank);

            /// Does the same as [`reduce`](Self::reduce), with the result in the source of the root. The buffers of the
            /// other ranks do not change.
            ///
            /// Raw: [`ncclReduce`](fn@crate::sys::ncclReduce).
            "ncclReduce"
            reduce_in_place(buffer: target, op: reduction, root: rank);

            /// Combines the elements of all ranks, and writes one part of the result on each rank, in the order of the
            /// ranks.
            ///
            /// The source is as long as the targets of all ranks. Calls `ncclReduceScatter`.
            ///
            /// Raw: [`ncclReduceScatter`](fn@crate::sys::ncclReduceScatter).
            "ncclReduceScatter"
            reduce_scatter(send: source, receive: target, op: reduction);

            /// Does the same as [`reduce_scatter`](Self::reduce_scatter), with the result in the part of this rank in
            /// the source. The contents of the other parts are unspecified afterwards.
            ///
            /// Raw: [`ncclReduceScatter`](fn@crate::sys::ncclReduceScatter).
            "ncclReduceScatter"
            reduce_scatter_in_place(buffer: target, op: reduction);

            /// Copies the source of the root to all ranks. Other ranks need no source.
            ///
            /// Both buffers have the same length on all ranks. Calls `ncclBroadcast`.
            ///
            /// Raw: [`ncclBroadcast`](fn@crate::sys::ncclBroadcast).
            "ncclBroadcast"
            broadcast(send: source_of_root, receive: target, root: rank);

            /// Does the same as [`broadcast`](Self::broadcast), with one buffer on each rank.
            ///
            /// Raw: [`ncclBroadcast`](fn@crate::sys::ncclBroadcast).
            "ncclBroadcast"
            broadcast_in_place(buffer: target, root: rank);

            /// Copies the sources of all ranks to all ranks, in the order of the ranks.
            ///
            /// The target is as long as the sources of all ranks. Calls `ncclAllGather`.
            ///
            /// Raw: [`ncclAllGather`](fn@crate::sys::ncclAllGather).
            "ncclAllGather"
            all_gather(send: source, receive: target);

            /// Does the same as [`all_gather`](Self::all_gather), with the source in the part of this rank in the
            /// target.
            ///
            /// Raw: [`ncclAllGather`](fn@crate::sys::ncclAllGather).
            "ncclAllGather"
            all_gather_in_place(buffer: target);

            /// Sends one part of the source to each rank, and receives a part from each, in the order of the ranks.
            ///
            /// Both buffers have the same length on all ranks. There is no form in place. Calls `ncclAlltoAll`, and
            /// before NCCL 2.28 sends and receipts in a group.
            ///
            /// Raw: [`ncclAlltoAll`](fn@crate::sys::ncclAlltoAll).
            "ncclAlltoAll"
            all_to_all(send: source, receive: target);

            /// Copies the sources of all ranks to the root, in the order of the ranks. Other ranks need no target.
            ///
            /// The target is as long as the sources of all ranks. Calls `ncclGather`, and before NCCL 2.28 sends and
            /// receipts in a group.
            ///
            /// Raw: [`ncclGather`](fn@crate::sys::ncclGather).
            "ncclGather"
            gather(send: source, receive: target_of_root, root: rank);

            /// Copies one part of the source of the root to each rank, in the order of the ranks. Other ranks need no
            /// source.
            ///
            /// The source is as long as the targets of all ranks. Calls `ncclScatter`, and before NCCL 2.28 sends and
            /// receipts in a group.
            ///
            /// Raw: [`ncclScatter`](fn@crate::sys::ncclScatter).
            "ncclScatter"
            scatter(send: source_of_root, receive: target, root: rank);

            /// Sends a buffer to another rank, which must [receive](Self::receive) it.
            ///
            /// Calls `ncclSend`. Operations between two ranks in both directions must be in a
            /// [group](crate::group()), since otherwise each may wait for the other.
            ///
            /// Raw: [`ncclSend`](fn@crate::sys::ncclSend).
            "ncclSend"
            send(send: source, to: rank);

            /// Receives a buffer from another rank, which must [send](Self::send) as many elements.
            ///
            /// Calls `ncclRecv`.
            ///
            /// Raw: [`ncclRecv`](fn@crate::sys::ncclRecv).
            "ncclRecv"
            receive(receive: target, from: rank);
        }
    };

    (@single $(
        $(#[doc = $doc:literal])* $alias:literal
        $name:ident($($argument:ident: $kind:ident),*);
    )*) => {
        impl Communicator {
            $(
                $(#[doc = $doc])*
                ///
                /// # Errors
                /// An [`Invalid`](crate::Invalid) argument; [`Invalid::Captured`](crate::Invalid::Captured);
                /// [`Error::Aborted`](crate::Error::Aborted); errors of NCCL and the driver.
                #[doc(alias = $alias)]
                #[inline]
                pub fn $name<'a, T: $crate::Element>(
                    &'a self,
                    $($argument: $crate::collective::collectives!(@type $kind)),*
                ) -> $crate::Result<()> {
                    $crate::operation::Operation::$name(
                        self,
                        $($crate::collective::collectives!(@convert $kind $argument)),*
                    )?
                    .run()
                }
            )*
        }
    };

    (@grouped $(
        $(#[doc = $doc:literal])* $alias:literal
        $name:ident($($argument:ident: $kind:ident),*);
    )*) => {
        impl<'a> Group<'a> {
            $(
                $(#[doc = $doc])*
                ///
                /// # Errors
                /// An [`Invalid`](crate::Invalid) argument. Other errors are those of the [group](crate::group()).
                #[doc(alias = $alias)]
                #[inline]
                pub fn $name<T: $crate::Element>(
                    &mut self,
                    communicator: &'a Communicator,
                    $($argument: $crate::collective::collectives!(@type $kind)),*
                ) -> $crate::Result<()> {
                    let operation = Operation::$name(
                        communicator,
                        $($crate::collective::collectives!(@convert $kind $argument)),*
                    )?;
                    self.push(operation);
                    Ok(())
                }
            )*
        }
    };

    (@type source) => { impl Into<cuda_safe::DeviceSlice<'a, T>> };
    (@type target) => { impl Into<cuda_safe::DeviceSliceMut<'a, T>> };
    (@type source_of_root) => { Option<cuda_safe::DeviceSlice<'a, T>> };
    (@type target_of_root) => { Option<cuda_safe::DeviceSliceMut<'a, T>> };
    (@type reduction) => { impl Into<$crate::Reduction<'a, T>> };
    (@type rank) => { u32 };

    (@convert source $argument:ident) => { $argument.into() };
    (@convert target $argument:ident) => { $argument.into() };
    (@convert reduction $argument:ident) => { $argument.into() };
    (@convert $other:ident $argument:ident) => { $argument };
}
pub(crate) use collectives;

collectives!(single);
