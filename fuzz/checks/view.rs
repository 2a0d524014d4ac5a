//! Views of arrays.

use super::Number;
use arbitrary::{Arbitrary, Unstructured};
use cuda_safe::Invalid;
use cuda_safe::interop::{Index, Layout};

/// A view of an array is within the array and has the elements that it states; any other view is
/// rejected.
pub(crate) fn view(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let Ok(array) = Array::arbitrary(&mut input) else {
        return;
    };
    let (shape, item_size) = (array.shape(), usize::from(array.item_size));
    let layout = match array.strides {
        None => Layout::c_contiguous(&shape, item_size),
        Some(strides) => {
            let near = |stride: Number| isize::try_from(i128::from(stride)).unwrap_or(8);
            let strides: Vec<isize> = strides.into_iter().map(near).collect();
            Layout::strided(&shape, &strides, item_size)
        }
    };
    let Ok(mut layout) = layout else {
        return;
    };
    let mut start = 0isize;
    for look in array.looks {
        let view = match look {
            Look::Index(by) => {
                let by: Vec<Index> = by.into_iter().map(Index::from).collect();
                layout.index(&by)
            }
            Look::Permute(order) => {
                let order: Vec<usize> = order.into_iter().map(usize::from).collect();
                layout.permuted(&order).map(|layout| (0, layout))
            }
            Look::Transpose => Ok((0, layout.clone().transposed())),
            Look::Broadcast(shape) => {
                layout.broadcast_to(&extents(shape)).map(|layout| (0, layout))
            }
            Look::Reshape(shape) => {
                let shape = extents(shape);
                let view = layout.reshaped(&shape);
                if let Ok(view) = &view {
                    assert_eq!((view.len(), view.shape()), (layout.len(), &shape[..]));
                    assert_eq!(view.byte_range(), layout.byte_range());
                }
                view.map(|layout| (0, layout))
            }
        };
        let (offset, view) = match view {
            Ok(view) => view,
            Err(Invalid::View { what, problem }) => {
                assert!(!what.is_empty() && !problem.is_empty());
                continue;
            }
            Err(other) => panic!("{other}"),
        };
        if !view.is_empty() {
            let (part, whole) = (view.byte_range(), layout.byte_range());
            assert!(part.start + offset >= whole.start && part.end + offset <= whole.end);
        }
        start = start.checked_add(offset).expect("within the array");
        layout = view;
    }
}

/// An array, and views of views of it.
#[derive(Arbitrary)]
struct Array {
    item_size: u8,
    shape: Vec<u8>,
    /// An extent that is not small.
    vast: Option<usize>,
    strides: Option<Vec<Number>>,
    looks: Vec<Look>,
}

#[derive(Arbitrary)]
enum Look {
    Index(Vec<At>),
    Permute(Vec<u8>),
    Transpose,
    Broadcast(Vec<u8>),
    Reshape(Vec<u8>),
}

#[derive(Arbitrary)]
enum At {
    One(i8),
    Range(Option<i8>, Option<i8>, i8),
    Far(Option<isize>, Option<isize>, isize),
    NewAxis,
    Rest,
}

impl From<At> for Index {
    fn from(at: At) -> Self {
        match at {
            At::One(at) => isize::from(at).into(),
            At::Range(None, None, 1) => (..).into(),
            At::Range(Some(start), None, 1) => (isize::from(start)..).into(),
            At::Range(None, Some(end), 1) => (..isize::from(end)).into(),
            At::Range(Some(start), Some(end), 1) => (start.into()..end.into()).into(),
            At::Range(None, None, step) if step < 0 => Self::reversed(-isize::from(step)),
            At::Range(start, end, step) => Self::Range {
                start: start.map(isize::from),
                end: end.map(isize::from),
                step: step.into(),
            },
            At::Far(start, end, step) => Self::Range { start, end, step },
            At::NewAxis => Self::NewAxis,
            At::Rest => Self::Rest,
        }
    }
}

impl Array {
    fn shape(&self) -> Vec<usize> {
        let shape = self.shape.iter().map(|extent| usize::from(*extent));
        shape.chain(self.vast).collect()
    }
}

fn extents(shape: Vec<u8>) -> Vec<usize> {
    shape.into_iter().map(usize::from).collect()
}
