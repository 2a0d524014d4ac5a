//! Functions of the driver: `vprintf`, `__assertfail`, `malloc`, and others.

use super::access::{Context, GRID_WINDOW};
use super::fault::{FaultKind, Raise};
use super::warp::{Warp, lanes_of};
use crate::device::Access;
use crate::program::{Intrinsic, Space};

/// The longest text that is read.
const LONGEST: usize = 1 << 16;

impl Warp {
    /// Reads a value of the frame above the top of a lane.
    fn above(&self, lane: usize, offset: u32, size: usize) -> u64 {
        let at = (self.top[lane] + offset) as usize;
        let bytes = self.local[lane].get(at..at + size).unwrap_or(&[]);
        bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
    }

    fn give(&mut self, lane: usize, value: u64, size: usize) {
        let at = self.top[lane] as usize;
        if let Some(bytes) = self.local[lane].get_mut(at..at + size) {
            bytes.copy_from_slice(&value.to_le_bytes()[..size]);
        }
    }

    /// Reads text up to its NUL at a generic address.
    fn text(&self, cx: &mut Context<'_, '_>, lane: usize, start: u64) -> Result<Vec<u8>, Raise> {
        let mut text = Vec::new();
        while text.len() < LONGEST {
            let address = start.wrapping_add(text.len() as u64);
            let place = self.place(cx, lane, (Space::Generic, address), 1, Access::Read)?;
            match self.read(cx, lane, place, 1)? as u8 {
                0 => break,
                byte => text.push(byte),
            }
        }
        Ok(text)
    }

    pub(super) fn intrinsic(
        &mut self,
        cx: &mut Context<'_, '_>,
        mask: u32,
        intrinsic: Intrinsic,
        params: &[u32],
    ) -> Result<(), Raise> {
        let param = |warp: &Self, lane: usize, index: usize, size: usize| {
            params.get(index).map_or(0, |offset| warp.above(lane, *offset, size))
        };
        for lane in lanes_of(mask) {
            match intrinsic {
                Intrinsic::Vprintf => {
                    let format = param(self, lane, 0, 8);
                    let arguments = param(self, lane, 1, 8);
                    let format = self.text(cx, lane, format)?;
                    let text = self.format(cx, lane, &format, arguments)?;
                    let count = text.1;
                    cx.device.print(&String::from_utf8_lossy(&text.0));
                    self.give(lane, count, 4);
                }
                Intrinsic::Assertfail => {
                    let of = |warp: &Self, cx: &mut Context<'_, '_>, index| {
                        let text = warp.text(cx, lane, param(warp, lane, index, 8))?;
                        Ok::<_, Raise>(String::from_utf8_lossy(&text).into_owned())
                    };
                    let assertion = of(self, cx, 0)?;
                    let file = of(self, cx, 1)?;
                    let line = param(self, lane, 2, 4);
                    let function = of(self, cx, 3)?;
                    let text = format!("{file}:{line}: {function}: Assertion `{assertion}` failed");
                    return Err(Raise::new(FaultKind::Assert, lane, text));
                }
                Intrinsic::Malloc => {
                    let address = cx.device.allocate(param(self, lane, 0, 8)).unwrap_or(0);
                    self.give(lane, address, 8);
                }
                Intrinsic::Free => {
                    let address = param(self, lane, 0, 8);
                    cx.regions.clear();
                    if address != 0 {
                        let freed = cx.device.free(address);
                        freed.map_err(|text| {
                            Raise::new(FaultKind::IllegalAddress, lane, text).at(address)
                        })?;
                    }
                }
                Intrinsic::GridHandle => {
                    let handle = if cx.launch.is_cooperative { GRID_WINDOW } else { 0 };
                    self.give(lane, handle, 8);
                }
                Intrinsic::GraphLaunch => {
                    let (graph, stream) = (param(self, lane, 0, 8), param(self, lane, 1, 8));
                    let launched = cx.device.launch_graph(graph, stream);
                    launched.map_err(|text| Raise::new(FaultKind::IllegalAddress, lane, text))?;
                    self.give(lane, 0, 4);
                }
                Intrinsic::GraphSetConditional => {
                    let (handle, value) = (param(self, lane, 0, 8), param(self, lane, 1, 4));
                    let set = cx.device.set_conditional(handle, value as u32);
                    set.map_err(|text| Raise::new(FaultKind::IllegalAddress, lane, text))?;
                }
            }
        }
        Ok(())
    }

    /// Returns the output of a format, and the number of arguments that it has.
    fn format(
        &self,
        cx: &mut Context<'_, '_>,
        lane: usize,
        format: &[u8],
        arguments: u64,
    ) -> Result<(Vec<u8>, u64), Raise> {
        let mut out = Vec::new();
        let mut at = arguments;
        let mut count = 0;
        let mut rest = format;
        while let [first, more @ ..] = rest {
            rest = more;
            if *first != b'%' {
                out.push(*first);
                continue;
            }
            if let [b'%', more @ ..] = rest {
                out.push(b'%');
                rest = more;
                continue;
            }
            let mut spec = Spec::default();
            while let [flag @ (b'-' | b'+' | b' ' | b'#' | b'0'), more @ ..] = rest {
                match flag {
                    b'-' => spec.left = true,
                    b'+' => spec.plus = true,
                    b' ' => spec.space = true,
                    b'#' => spec.alternate = true,
                    _ => spec.zero = true,
                }
                rest = more;
            }
            let mut next = |warp: &Self, cx: &mut Context<'_, '_>, size: u64| {
                at = at.next_multiple_of(size);
                let place = warp.place(cx, lane, (Space::Generic, at), size, Access::Read)?;
                at += size;
                count += 1;
                warp.read(cx, lane, place, size as u32)
            };
            if let [b'*', more @ ..] = rest {
                let width = next(self, cx, 4)? as i32;
                spec.left |= width < 0;
                spec.width = width.unsigned_abs() as usize;
                rest = more;
            } else {
                spec.width = number(&mut rest);
            }
            if let [b'.', more @ ..] = rest {
                rest = more;
                if let [b'*', more @ ..] = rest {
                    let precision = next(self, cx, 4)? as i32;
                    spec.precision = usize::try_from(precision).ok();
                    rest = more;
                } else {
                    spec.precision = Some(number(&mut rest));
                }
            }
            let mut is_long = false;
            while let [size @ (b'l' | b'h' | b'z' | b't' | b'j' | b'q'), more @ ..] = rest {
                is_long |= *size != b'h';
                rest = more;
            }
            let [kind, more @ ..] = rest else { break };
            rest = more;
            let text: Vec<u8> = match kind {
                b'd' | b'i' => {
                    let value = match is_long {
                        true => next(self, cx, 8)? as i64,
                        false => i64::from(next(self, cx, 4)? as i32),
                    };
                    spec.signed(value < 0, value.unsigned_abs().to_string())
                }
                b'u' | b'x' | b'X' | b'o' => {
                    let value = next(self, cx, if is_long { 8 } else { 4 })?;
                    spec.unsigned(*kind, value)
                }
                b'c' => spec.padded(vec![next(self, cx, 4)? as u8]),
                b's' => {
                    let address = next(self, cx, 8)?;
                    let mut text = self.text(cx, lane, address)?;
                    text.truncate(spec.precision.unwrap_or(usize::MAX));
                    spec.padded(text)
                }
                b'p' => {
                    let value = next(self, cx, 8)?;
                    spec.padded(format!("{value:#x}").into_bytes())
                }
                b'f' | b'F' | b'e' | b'E' | b'g' | b'G' | b'a' | b'A' => {
                    let value = f64::from_bits(next(self, cx, 8)?);
                    spec.float(*kind, value)
                }
                other => vec![b'%', *other],
            };
            out.extend(text);
        }
        Ok((out, count))
    }
}

fn number(rest: &mut &[u8]) -> usize {
    let mut value = 0usize;
    while let [digit @ b'0'..=b'9', more @ ..] = rest {
        value = value.saturating_mul(10).saturating_add((digit - b'0') as usize).min(4096);
        *rest = more;
    }
    value
}

/// A conversion of a format.
#[derive(Default)]
struct Spec {
    left: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    zero: bool,
    width: usize,
    precision: Option<usize>,
}

impl Spec {
    fn padded(&self, text: Vec<u8>) -> Vec<u8> {
        let missing = self.width.saturating_sub(text.len());
        let mut padding = vec![b' '; missing];
        if self.left {
            [text, padding].concat()
        } else {
            padding.extend(text);
            padding
        }
    }

    /// Joins a sign and digits, with zeros between them if the flags say so.
    fn join(&self, sign: &str, digits: &str, can_fill: bool) -> Vec<u8> {
        let length = sign.len() + digits.len();
        let zeros = match self.zero && !self.left && can_fill {
            true => "0".repeat(self.width.saturating_sub(length)),
            false => String::new(),
        };
        self.padded(format!("{sign}{zeros}{digits}").into_bytes())
    }

    fn sign(&self, is_negative: bool) -> &'static str {
        match (is_negative, self.plus, self.space) {
            (true, ..) => "-",
            (_, true, _) => "+",
            (_, _, true) => " ",
            _ => "",
        }
    }

    /// Adds zeros up to the precision.
    fn digits(&self, digits: String) -> String {
        let precision = self.precision.unwrap_or(1);
        match precision {
            0 if digits == "0" => String::new(),
            precision => format!("{}{digits}", "0".repeat(precision.saturating_sub(digits.len()))),
        }
    }

    fn signed(&self, is_negative: bool, digits: String) -> Vec<u8> {
        self.join(self.sign(is_negative), &self.digits(digits), self.precision.is_none())
    }

    fn unsigned(&self, kind: u8, value: u64) -> Vec<u8> {
        let (prefix, digits) = match kind {
            b'x' => ("0x", format!("{value:x}")),
            b'X' => ("0X", format!("{value:X}")),
            b'o' => ("0", format!("{value:o}")),
            _ => ("", value.to_string()),
        };
        let prefix = if self.alternate && value != 0 { prefix } else { "" };
        self.join(prefix, &self.digits(digits), self.precision.is_none())
    }

    fn float(&self, kind: u8, value: f64) -> Vec<u8> {
        let is_upper = kind.is_ascii_uppercase();
        let sign = self.sign(value.is_sign_negative());
        let magnitude = value.abs();
        if !magnitude.is_finite() {
            let text = if magnitude.is_nan() { "nan" } else { "inf" };
            let text = if is_upper { text.to_uppercase() } else { text.to_owned() };
            return self.join(sign, &text, false);
        }
        let precision = self.precision.unwrap_or(6);
        let digits = match kind.to_ascii_lowercase() {
            b'f' => {
                let point = if self.alternate && precision == 0 { "." } else { "" };
                format!("{magnitude:.precision$}{point}")
            }
            b'e' => exponent(magnitude, precision),
            b'g' => self.general(magnitude, precision.max(1)),
            _ => hexadecimal(magnitude, self.precision),
        };
        let digits = if is_upper { digits.to_uppercase() } else { digits };
        self.join(sign, &digits, true)
    }

    /// `%g`: the shorter of the two notations, without zeros at the end.
    fn general(&self, value: f64, precision: usize) -> String {
        let scientific = exponent(value, precision - 1);
        let power: i32 = scientific.split('e').nth(1).and_then(|e| e.parse().ok()).unwrap_or(0);
        let is_scientific = power < -4 || power >= precision as i32;
        let text = match is_scientific {
            true => scientific,
            false => {
                let decimals = (precision as i32 - 1 - power).max(0) as usize;
                format!("{value:.decimals$}")
            }
        };
        if self.alternate {
            return text;
        }
        let (mantissa, exponent) = match text.split_once('e') {
            Some((mantissa, exponent)) => (mantissa, format!("e{exponent}")),
            None => (text.as_str(), String::new()),
        };
        let mantissa = match mantissa.contains('.') {
            true => mantissa.trim_end_matches('0').trim_end_matches('.'),
            false => mantissa,
        };
        format!("{mantissa}{exponent}")
    }
}

/// `%e`: the exponent has a sign and at least two digits.
fn exponent(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
    let power: i32 = power.parse().unwrap_or(0);
    let sign = if power < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", power.unsigned_abs())
}

/// `%a`.
fn hexadecimal(value: f64, precision: Option<usize>) -> String {
    let bits = value.to_bits();
    let (biased, fraction) = (bits >> 52 & 0x7ff, bits & ((1 << 52) - 1));
    let (lead, power) = match (biased, fraction) {
        (0, 0) => (0, 0),
        (0, _) => (0, -1022),
        _ => (1, biased as i32 - 1023),
    };
    let mut lead = lead;
    let digits = match precision {
        None => format!("{fraction:013x}").trim_end_matches('0').to_owned(),
        Some(precision) if precision >= 13 => {
            format!("{fraction:013x}{}", "0".repeat(precision - 13))
        }
        Some(precision) => {
            let dropped = 52 - 4 * precision as u32;
            let half = 1u64 << (dropped - 1);
            let kept = fraction >> dropped;
            let rest = fraction & ((1 << dropped) - 1);
            let is_up = rest > half || rest == half && kept & 1 == 1;
            let kept = kept + u64::from(is_up);
            lead += kept >> (4 * precision);
            let kept = kept & ((1u64 << (4 * precision)) - 1);
            match precision {
                0 => String::new(),
                precision => format!("{kept:0precision$x}"),
            }
        }
    };
    let point = if digits.is_empty() { "" } else { "." };
    let sign = if power < 0 { '-' } else { '+' };
    format!("0x{lead}{point}{digits}p{sign}{}", power.unsigned_abs())
}
