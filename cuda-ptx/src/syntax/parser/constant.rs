//! Constants and constant expressions.

use super::{Parser, Token};
use crate::syntax::{Immediate, ParseError};

/// The number of threads in a warp, which PTX calls `WARP_SZ`.
const WARP_SIZE: u64 = 32;

const INTEGER: &str = "an integer constant";

/// Returns the value of a number, or `None` if it is not correct or needs more than 64 bits.
fn number(text: &str) -> Option<Immediate> {
    let (prefix, digits) = text.split_at_checked(2).unwrap_or((text, ""));
    match prefix {
        "0f" | "0F" => return hexadecimal(digits, 8).map(|bits| Immediate::Single(bits as u32)),
        "0d" | "0D" => {
            return hexadecimal(digits, 16).map(|bits| Immediate::Double(f64::from_bits(bits)));
        }
        _ => {}
    }
    if let Some(bits) = integer(text) {
        let is_unsigned = text.ends_with('U') || bits > i64::MAX as u64;
        return Some(Immediate::Integer { bits, is_unsigned });
    }
    let is_decimal = text.contains(['.', 'e', 'E']) && !matches!(prefix, "0x" | "0X");
    // Rust accepts other spellings only for texts that begin with a letter or sign.
    is_decimal.then(|| text.parse().ok().map(Immediate::Double))?
}

/// Returns the value of an integer.
pub(super) fn integer(text: &str) -> Option<u64> {
    let text = text.strip_suffix('U').unwrap_or(text);
    let (prefix, digits) = text.split_at_checked(2).unwrap_or((text, ""));
    let (digits, radix) = match prefix {
        "0x" | "0X" => (digits, 16),
        "0b" | "0B" => (digits, 2),
        _ if text.starts_with('0') => (text, 8),
        _ => (text, 10),
    };
    // Rust accepts a sign here; the lexer keeps it out.
    u64::from_str_radix(digits, radix).ok()
}

/// Returns the value of exactly so many hexadecimal digits.
fn hexadecimal(digits: &str, count: usize) -> Option<u64> {
    (digits.len() == count).then(|| u64::from_str_radix(digits, 16).ok())?
}

/// Returns the precedence of a binary operator. A higher one binds tighter.
fn precedence(operator: &str) -> Option<u8> {
    Some(match operator {
        "||" => 1,
        "&&" => 2,
        "|" => 3,
        "^" => 4,
        "&" => 5,
        "==" | "!=" => 6,
        "<" | ">" | "<=" | ">=" => 7,
        "<<" | ">>" => 8,
        "+" | "-" => 9,
        "*" | "/" | "%" => 10,
        _ => return None,
    })
}

fn signed(value: bool) -> Immediate {
    Immediate::Integer { bits: value.into(), is_unsigned: false }
}

/// Returns the value of an operation, or the kind of operand that it requires instead. The rules are those of
/// ptxas where the manual and ptxas differ: `%` has an unsigned result, and `&`, `|`, `^` have one if an
/// operand is unsigned.
fn binary(operator: &str, a: Immediate, b: Immediate) -> Result<Immediate, &'static str> {
    let (a, a_unsigned, b, b_unsigned) = match (a, b) {
        (Immediate::Double(a), Immediate::Double(b)) => return double(operator, a, b),
        (
            Immediate::Integer { bits: a, is_unsigned: a_unsigned },
            Immediate::Integer { bits: b, is_unsigned: b_unsigned },
        ) => (a, a_unsigned, b, b_unsigned),
        (Immediate::Double(_), Immediate::Integer { .. }) => return Err("a decimal number"),
        _ => return Err(INTEGER),
    };
    let is_unsigned = a_unsigned || b_unsigned;
    let less = |a: u64, b: u64| if is_unsigned { a < b } else { (a as i64) < b as i64 };
    // The processor of the compiler uses the low bits of the number of a shift.
    let shift = (b % 64) as u32;
    let (bits, is_unsigned) = match operator {
        "+" => (a.wrapping_add(b), is_unsigned),
        "-" => (a.wrapping_sub(b), is_unsigned),
        "*" => (a.wrapping_mul(b), is_unsigned),
        "/" | "%" if b == 0 => return Err("a divisor other than zero"),
        "/" if is_unsigned => (a / b, true),
        "/" => ((a as i64).wrapping_div(b as i64) as u64, false),
        "%" => (a % b, true),
        "<<" => (a << shift, a_unsigned),
        ">>" if a_unsigned => (a >> shift, true),
        ">>" => (((a as i64) >> shift) as u64, false),
        "&" => (a & b, is_unsigned),
        "^" => (a ^ b, is_unsigned),
        "|" => (a | b, is_unsigned),
        "&&" => return Ok(signed(a != 0 && b != 0)),
        "||" => return Ok(signed(a != 0 || b != 0)),
        "==" => return Ok(signed(a == b)),
        "!=" => return Ok(signed(a != b)),
        "<" => return Ok(signed(less(a, b))),
        ">" => return Ok(signed(less(b, a))),
        "<=" => return Ok(signed(!less(b, a))),
        _ => return Ok(signed(!less(a, b))),
    };
    Ok(Immediate::Integer { bits, is_unsigned })
}

fn double(operator: &str, a: f64, b: f64) -> Result<Immediate, &'static str> {
    Ok(match operator {
        "+" => Immediate::Double(a + b),
        "-" => Immediate::Double(a - b),
        "*" => Immediate::Double(a * b),
        "/" if b == 0.0 => return Err("a divisor other than zero"),
        "/" => Immediate::Double(a / b),
        "==" => signed(a == b),
        "!=" => signed(a != b),
        "<" => signed(a < b),
        ">" => signed(a > b),
        "<=" => signed(a <= b),
        ">=" => signed(a >= b),
        _ => return Err(INTEGER),
    })
}

impl Parser<'_> {
    /// Whether the token begins a constant, apart from parentheses.
    pub(super) fn is_constant(&self) -> bool {
        match self.token {
            Token::Number(_) | Token::Word("WARP_SZ") => true,
            Token::Symbol(symbol) => matches!(symbol, "+" | "-" | "!" | "~"),
            _ => false,
        }
    }

    /// Parses a constant expression and returns its value.
    pub(super) fn constant(&mut self) -> Result<Immediate, ParseError> {
        let start = self.mark();
        let condition = self.binary_expression(1)?;
        if !self.is_symbol("?") {
            return Ok(condition);
        }
        let Immediate::Integer { bits, .. } = condition else {
            return Err(start.error(INTEGER));
        };
        self.nested(|parser| {
            parser.advance();
            let value = parser.constant()?;
            parser.symbol(":", "`:`")?;
            let other = parser.constant()?;
            Ok(if bits == 0 { other } else { value })
        })
    }

    /// Parses a constant expression and returns its value, which is an integer.
    pub(super) fn integer_constant(&mut self) -> Result<u64, ParseError> {
        let start = self.mark();
        match self.constant()? {
            Immediate::Integer { bits, .. } => Ok(bits),
            _ => Err(start.error(INTEGER)),
        }
    }

    /// Parses operators that bind at least as tightly as a precedence.
    fn binary_expression(&mut self, least: u8) -> Result<Immediate, ParseError> {
        let mut left = self.unary_expression()?;
        while let Token::Symbol(operator) = self.token {
            let Some(level) = precedence(operator).filter(|level| *level >= least) else {
                break;
            };
            // The manual excludes `0f` numbers from expressions.
            if matches!(left, Immediate::Single(_)) {
                break;
            }
            self.advance();
            let start = self.mark();
            let right = self.binary_expression(level + 1)?;
            left = binary(operator, left, right).map_err(|expected| start.error(expected))?;
        }
        Ok(left)
    }

    fn unary_expression(&mut self) -> Result<Immediate, ParseError> {
        match self.token {
            Token::Number(text) => {
                let value =
                    number(text).ok_or_else(|| self.error("a number of at most 64 bits"))?;
                self.advance();
                Ok(value)
            }
            Token::Word("WARP_SZ") => {
                self.advance();
                Ok(Immediate::Integer { bits: WARP_SIZE, is_unsigned: false })
            }
            Token::Symbol(operator @ ("+" | "-" | "!" | "~")) => self.nested(|parser| {
                parser.advance();
                let start = parser.mark();
                let value = parser.unary_expression()?;
                unary(operator, value).map_err(|expected| start.error(expected))
            }),
            Token::Symbol("(") => self.nested(Self::parentheses),
            _ => Err(self.error("a constant")),
        }
    }

    /// Parses an expression in parentheses, or a type in parentheses and the constant that it converts.
    fn parentheses(&mut self) -> Result<Immediate, ParseError> {
        self.advance();
        let is_unsigned = match self.token {
            Token::Directive("s64") => false,
            Token::Directive("u64") => true,
            _ => {
                let value = self.constant()?;
                self.symbol(")", "an operator or `)`")?;
                return Ok(value);
            }
        };
        self.advance();
        self.symbol(")", "`)`")?;
        let start = self.mark();
        match self.unary_expression()? {
            Immediate::Integer { bits, .. } => Ok(Immediate::Integer { bits, is_unsigned }),
            _ => Err(start.error(INTEGER)),
        }
    }
}

fn unary(operator: &str, value: Immediate) -> Result<Immediate, &'static str> {
    match (operator, value) {
        ("+", Immediate::Integer { .. } | Immediate::Double(_)) => Ok(value),
        ("-", Immediate::Double(value)) => Ok(Immediate::Double(-value)),
        ("-", Immediate::Integer { bits, is_unsigned }) => {
            Ok(Immediate::Integer { bits: bits.wrapping_neg(), is_unsigned })
        }
        ("!", Immediate::Integer { bits, .. }) => Ok(signed(bits == 0)),
        ("~", Immediate::Integer { bits, .. }) => {
            Ok(Immediate::Integer { bits: !bits, is_unsigned: true })
        }
        ("+" | "-", Immediate::Single(_)) => Err("an integer or decimal number"),
        _ => Err(INTEGER),
    }
}
