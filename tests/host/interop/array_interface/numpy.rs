//! Types, layouts and views compared with NumPy.

use crate::common;
use cuda_safe::Invalid;
use cuda_safe::interop::{Index, Layout, TypeString};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Command, Stdio};

/// Reads one array interface and one view from each input line, and prints one line: the type, the
/// size of an element in bytes, whether the array is C- and F-contiguous, where its bytes begin and
/// end, and its strides; then the start, the shape and the strides of the view. The script does not
/// access the elements.
const SCRIPT: &str = r"
import sys
import numpy as np
try:
    from numpy.lib.array_utils import byte_bounds
except ImportError:
    from numpy import byte_bounds

class Array:
    def __init__(self, interface):
        self.__array_interface__ = interface

def numbers(text):
    return tuple(int(number) for number in text.split(',') if number)

def index(text):
    if text == 'new':
        return np.newaxis
    if text == '...':
        return Ellipsis
    if ':' in text:
        return slice(*(int(number) if number else None for number in text.split(':')))
    return int(text)

def view(array, operation, by):
    if operation == 'index':
        items = tuple(index(item) for item in by.split())
        # Without it, one element is read.
        return array[items if Ellipsis in items else items + (Ellipsis,)]
    if operation == 'permute':
        return array.transpose(numbers(by))
    if operation == 'broadcast':
        return np.broadcast_to(array, numbers(by))
    return np.reshape(array, numbers(by), copy=False)

def described(array, operation, by, address):
    try:
        array = view(array, operation, by)
    except (ValueError, IndexError):
        return 'refused'
    some = array.size > 0
    start = array.__array_interface__['data'][0] - address if some else 0
    strides = (str(stride) if some and extent > 1 else '-'
               for extent, stride in zip(array.shape, array.strides))
    return f'''{start} {','.join(map(str, array.shape))} {','.join(strides)}'''

for line in sys.stdin:
    typestr, shape, strides, operation, by = line.rstrip('\n').split(';')
    try:
        dtype = np.dtype(typestr)
    except TypeError:
        print('no type')
        continue
    address = 1 << 44
    array = np.asarray(Array({
        'version': 3, 'typestr': dtype.str, 'shape': numbers(shape),
        'strides': None if strides == 'None' else numbers(strides),
        'data': (address, False),
    }))
    low, high = byte_bounds(array) if array.size else (address, address)
    flags = array.flags
    print(dtype.str, dtype.itemsize, int(flags.c_contiguous), int(flags.f_contiguous),
          low - address, high - address, ','.join(str(stride) for stride in array.strides),
          '|', described(array, operation, by, address))
";

fn random(state: &mut u64, below: u64) -> u64 {
    common::random::next(state) % below
}

/// Returns a type string, sometimes an invalid one.
fn typestr(state: &mut u64) -> String {
    let pick = |state: &mut u64, from: &'static [&'static str]| {
        from[random(state, from.len() as u64) as usize]
    };
    let order = pick(state, &["<", ">", "|", "="]);
    let kind = pick(state, &["b", "i", "u", "f", "c", "m", "M", "S", "U", "V"]);
    let size = match kind {
        "b" => pick(state, &["1", "1", "1", "2"]),
        "m" | "M" => pick(state, &["8", "8", "8", "4"]),
        "S" | "U" | "V" => pick(state, &["1", "3", "8", "100"]),
        _ => pick(state, &["1", "2", "4", "8", "16", "32", "3"]),
    };
    let unit = match kind {
        "m" | "M" => {
            pick(state, &["", "[s]", "[ns]", "[25us]", "[D]", "[7Y]", "[M]", "[generic]", "[q]"])
        }
        _ => "",
    };
    format!("{order}{kind}{size}{unit}")
}

struct Case {
    typestr: String,
    shape: Vec<usize>,
    strides: Option<Vec<isize>>,
    view: View,
}

/// A view of an array, sometimes an impossible one.
#[derive(Debug)]
enum View {
    Index(Vec<Index>),
    Permute(Vec<usize>),
    Broadcast(Vec<usize>),
    Reshape(Vec<usize>),
}

impl View {
    /// Returns the view in the format that the script reads.
    fn line(&self) -> String {
        let number = |number: &Option<isize>| number.map_or(String::new(), |n| n.to_string());
        let item = |index: &Index| match index {
            Index::At(at) => at.to_string(),
            Index::NewAxis => "new".to_owned(),
            Index::Rest => "...".to_owned(),
            Index::Range { start, end, step } => {
                format!("{}:{}:{step}", number(start), number(end))
            }
        };
        match self {
            Self::Index(by) => {
                let items: Vec<String> = by.iter().map(item).collect();
                format!("index;{}", items.join(" "))
            }
            Self::Permute(order) => format!("permute;{}", list(order)),
            Self::Broadcast(shape) => format!("broadcast;{}", list(shape)),
            Self::Reshape(shape) => format!("reshape;{}", list(shape)),
        }
    }

    fn of(&self, layout: &Layout) -> Result<(isize, Layout), Invalid> {
        match self {
            Self::Index(by) => layout.index(by),
            Self::Permute(order) => layout.permuted(order).map(|layout| (0, layout)),
            Self::Broadcast(shape) => layout.broadcast_to(shape).map(|layout| (0, layout)),
            Self::Reshape(shape) => layout.reshaped(shape).map(|layout| (0, layout)),
        }
    }
}

fn index(state: &mut u64) -> Index {
    let small = |state: &mut u64| random(state, 16) as isize - 8;
    let end = |state: &mut u64| match random(state, 3) {
        0 => None,
        _ => Some(small(state)),
    };
    match random(state, 10) {
        0 => Index::NewAxis,
        1 => Index::Rest,
        2 | 3 => Index::At(random(state, 6) as isize - 3),
        _ => Index::Range {
            start: end(state),
            end: end(state),
            step: [1, 1, 2, 3, -1, -2, 0, isize::MAX, isize::MIN][random(state, 9) as usize],
        },
    }
}

/// Returns other extents for a reshape, usually with the same product: some extents are split, and
/// some neighboring extents are multiplied into one.
fn extents(state: &mut u64, shape: &[usize]) -> Vec<usize> {
    let mut new: Vec<usize> = Vec::new();
    for extent in shape {
        match random(state, 5) {
            0 if !new.is_empty() => {
                let last = new.len() - 1;
                new[last] *= extent;
            }
            1 => new.extend([1, *extent]),
            2 if *extent == 6 => new.extend([2, 3]),
            3 if random(state, 30) == 0 => new.push(extent + 1),
            _ => new.push(*extent),
        }
    }
    new
}

fn view(state: &mut u64, shape: &[usize]) -> View {
    match random(state, 6) {
        0..=2 => View::Index((0..random(state, 6)).map(|_| index(state)).collect()),
        3 => {
            let mut order: Vec<usize> = (0..shape.len()).collect();
            order.sort_by_key(|_| random(state, 100));
            if random(state, 20) == 0 {
                order.push(random(state, 5) as usize);
            }
            View::Permute(order)
        }
        4 => {
            let mut new = shape.to_vec();
            for extent in new.iter_mut().filter(|extent| **extent == 1) {
                *extent = random(state, 4) as usize;
            }
            for _ in 0..random(state, 3) {
                new.insert(0, random(state, 4) as usize);
            }
            if random(state, 10) == 0 {
                new.pop();
            }
            View::Broadcast(new)
        }
        _ => View::Reshape(extents(state, shape)),
    }
}

fn case(state: &mut u64) -> Case {
    let typestr = typestr(state);
    let dimensions = random(state, 5);
    let shape: Vec<usize> =
        (0..dimensions).map(|_| [0, 1, 1, 2, 3, 6, 7][random(state, 7) as usize]).collect();
    let item = typestr.parse::<TypeString>().map_or(8, |ty| ty.item_size());
    let strides = match random(state, 4) {
        0 => None,
        1 => {
            // The dimensions are permuted, and some of them may be reversed.
            let mut order: Vec<usize> = (0..shape.len()).collect();
            order.sort_by_key(|_| random(state, 100));
            let mut strides = vec![0; shape.len()];
            let mut next = item as isize;
            for dimension in order {
                let sign = if random(state, 4) == 0 { -1 } else { 1 };
                strides[dimension] = sign * next;
                next *= shape[dimension].max(1) as isize;
            }
            Some(strides)
        }
        _ => Some(
            (0..dimensions)
                .map(|_| random(state, 9) as isize * item as isize - 3 * item as isize)
                .collect(),
        ),
    };
    Case { typestr, view: view(state, &shape), shape, strides }
}

fn list<T: ToString>(numbers: &[T]) -> String {
    let numbers: Vec<String> = numbers.iter().map(T::to_string).collect();
    numbers.join(",")
}

/// Returns the line that the script should print, as computed by this crate.
fn ours(case: &Case) -> String {
    let Ok(ty) = case.typestr.parse::<TypeString>() else {
        return "no type".to_owned();
    };
    let layout = match &case.strides {
        None => Layout::c_contiguous(&case.shape, ty.item_size()),
        Some(strides) => Layout::strided(&case.shape, strides, ty.item_size()),
    };
    let layout = layout.expect("a small array");
    let range = layout.byte_range();
    let view = match case.view.of(&layout) {
        Err(Invalid::View { problem, .. }) if !problem.is_empty() => "refused".to_owned(),
        Err(other) => other.to_string(),
        Ok((start, view)) => {
            let stride = |(extent, stride): (&usize, &isize)| match extent {
                0 | 1 => "-".to_owned(),
                _ if view.is_empty() => "-".to_owned(),
                _ => stride.to_string(),
            };
            let strides: Vec<_> = view.shape().iter().zip(view.strides()).map(stride).collect();
            format!("{start} {} {}", list(view.shape()), strides.join(","))
        }
    };
    format!(
        "{ty} {} {} {} {} {} {} | {view}",
        ty.item_size(),
        u8::from(layout.is_c_contiguous()),
        u8::from(layout.is_f_contiguous()),
        range.start,
        range.end,
        list(layout.strides())
    )
}

#[test]
fn numpy_agrees_on_random_types_layouts_and_views() {
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has_numpy = Command::new(&python)
        .args(["-c", "import numpy; numpy.reshape([1], 1, copy=None)"])
        .stderr(Stdio::null())
        .status();
    if !has_numpy.is_ok_and(|status| status.success()) {
        return common::skip(&format!("{python} has no NumPy from 2.1 on"));
    }
    let mut child = Command::new(&python)
        .args(["-W", "ignore", "-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python starts");
    let mut state = 1;
    let cases: Vec<Case> = (0..100_000).map(|_| case(&mut state)).collect();
    let mut lines = String::new();
    for case in &cases {
        let strides = case.strides.as_deref().map_or("None".to_owned(), list);
        let (typestr, shape, view) = (&case.typestr, list(&case.shape), case.view.line());
        let _ = writeln!(lines, "{typestr};{shape};{strides};{view}");
    }
    let mut input = child.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    let (mut count, mut refused) = (0, 0);
    for (line, case) in output.lines().zip(&cases) {
        let (theirs, ours) = (line.expect("a line"), ours(case));
        assert_eq!(
            ours.trim(),
            theirs.trim(),
            "{} {:?} {:?} {:?}",
            case.typestr,
            case.shape,
            case.strides,
            case.view
        );
        count += 1;
        refused += usize::from(ours.ends_with("refused"));
    }
    writer.join().expect("no panic").expect("all lines were written");
    assert!(child.wait().expect("it ends").success());
    assert_eq!(count, cases.len());
    println!(
        "NumPy and this crate agree on {count} arrays and views, {refused} of them impossible"
    );
}
