//! NumPy as the judge of types and layouts.

use crate::common;
use cuda_safe::interop::{Layout, TypeString};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Command, Stdio};

/// Arrays of random types and layouts, of which no element is looked at. A line for each: the type,
/// the bytes of an element, whether it is C- and F-contiguous, where its bytes begin and end.
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

for line in sys.stdin:
    typestr, shape, strides = line.rstrip('\n').split(';')
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
          low - address, high - address, ','.join(str(stride) for stride in array.strides))
";

fn random(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) % below
}

/// A type string, now and then one that is none.
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
        "m" | "M" => pick(
            state,
            &[
                "",
                "[s]",
                "[ns]",
                "[25us]",
                "[D]",
                "[7Y]",
                "[M]",
                "[generic]",
                "[q]",
            ],
        ),
        _ => "",
    };
    format!("{order}{kind}{size}{unit}")
}

struct Case {
    typestr: String,
    shape: Vec<usize>,
    strides: Option<Vec<isize>>,
}

fn case(state: &mut u64) -> Case {
    let typestr = typestr(state);
    let dimensions = random(state, 5);
    let shape: Vec<usize> = (0..dimensions)
        .map(|_| [0, 1, 1, 2, 3, 5, 7][random(state, 7) as usize])
        .collect();
    let item = typestr.parse::<TypeString>().map_or(8, |ty| ty.item_size());
    let strides = match random(state, 4) {
        0 => None,
        1 => {
            // Of another order of the dimensions, perhaps reversed.
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
    Case {
        typestr,
        shape,
        strides,
    }
}

fn list<T: ToString>(numbers: &[T]) -> String {
    let numbers: Vec<String> = numbers.iter().map(T::to_string).collect();
    numbers.join(",")
}

/// The same line as the script's.
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
    format!(
        "{ty} {} {} {} {} {} {}",
        ty.item_size(),
        u8::from(layout.is_c_contiguous()),
        u8::from(layout.is_f_contiguous()),
        range.start,
        range.end,
        list(layout.strides())
    )
}

#[test]
fn numpy_says_the_same_of_random_types_and_layouts() {
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has_numpy = Command::new(&python)
        .args(["-c", "import numpy"])
        .stderr(Stdio::null())
        .status();
    if !has_numpy.is_ok_and(|status| status.success()) {
        return common::skip(&format!("{python} has no NumPy"));
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
        let _ = writeln!(lines, "{};{};{strides}", case.typestr, list(&case.shape));
    }
    let mut input = child.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut count = 0;
    for (line, case) in output.lines().zip(&cases) {
        let (theirs, ours) = (line.expect("a line"), ours(case));
        assert_eq!(
            ours.trim(),
            theirs.trim(),
            "{} {:?} {:?}",
            case.typestr,
            case.shape,
            case.strides
        );
        count += 1;
    }
    writer.join().expect("no panic").expect("all was written");
    assert!(child.wait().expect("it ends").success());
    assert_eq!(count, cases.len());
}
