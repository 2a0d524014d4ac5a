//! The tokens of PTX.

use super::Position;

/// A token. Each is a part of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A name without a period, such as `%r1` or `ret`.
    Word(&'a str),
    /// A name with components, such as `%tid.x`, or a mnemonic such as `ld.global.L2::128B`.
    Dotted(&'a str),
    /// A directive or type, such as `.reg`, without its period.
    Directive(&'a str),
    /// A number that begins with a digit or a period.
    Number(&'a str),
    /// The content of a string.
    String(&'a str),
    /// A punctuation mark or operator.
    Symbol(&'a str),
    /// A character that is no part of PTX.
    Unknown(&'a str),
    /// The beginning of a comment or string without an end.
    Unterminated(&'static str),
    /// The end of the text.
    End,
}

/// The longest part of a token that an error shows, in bytes.
const SHOWN: usize = 60;

impl Token<'_> {
    /// Returns the token as an error shows it.
    pub(super) fn describe(self) -> String {
        match self {
            Self::Word(text) | Self::Dotted(text) | Self::Number(text) => quote("", text, ""),
            Self::Symbol(text) | Self::Unknown(text) => quote("", text, ""),
            Self::Directive(text) => quote(".", text, ""),
            Self::String(text) => quote("\"", text, "\""),
            Self::Unterminated(what) => format!("a {what} without an end"),
            Self::End => "the end of the text".to_owned(),
        }
    }
}

fn quote(before: &str, text: &str, after: &str) -> String {
    if text.len() <= SHOWN {
        return format!("`{before}{text}{after}`");
    }
    let end = (0..=SHOWN).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    format!("`{before}{}…`", &text[..end])
}

/// Splits a text into tokens.
#[derive(Debug)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    /// A copy of the text, and its length. Miri does more work for each access of the text itself, the more tokens refer
    /// to parts of it, and for each call that takes a slice. Bytes are therefore read by index.
    bytes: Box<[u8]>,
    length: usize,
    /// The offset of the first byte that is not part of a token yet.
    offset: usize,
    /// The number of the line at the offset.
    line: u32,
    /// The offset of the first byte of this line.
    line_start: usize,
    /// The line from this byte on, without its end.
    line_text: &'a str,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let (bytes, line_text) = (text.as_bytes().into(), first_line(text));
        Self { text, bytes, length: text.len(), offset: 0, line: 1, line_start: 0, line_text }
    }

    /// Returns the offset after the last token.
    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    /// Returns a part of the text. Both offsets are ends of tokens.
    pub(super) fn slice(&self, start: usize, end: usize) -> &'a str {
        let in_line = |offset: usize| offset.wrapping_sub(self.line_start);
        match self.line_text.get(in_line(start)..in_line(end)) {
            Some(part) => part,
            // It starts in another line.
            None => self.text.get(start..end).unwrap_or_default(),
        }
    }

    /// Returns the next token, and stays before it.
    pub(super) fn peek(&mut self) -> Token<'a> {
        let place = (self.offset, self.line, self.line_start, self.line_text);
        let (token, ..) = self.next();
        (self.offset, self.line, self.line_start, self.line_text) = place;
        token
    }

    /// Returns the next token with its place and offset.
    pub(super) fn next(&mut self) -> (Token<'a>, Position, usize) {
        let unterminated = self.skip_space();
        let start = self.offset;
        let column = u32::try_from(start - self.line_start + 1).unwrap_or(u32::MAX);
        let position = Position { line: self.line, column };
        let token = if unterminated { Token::Unterminated("comment") } else { self.token() };
        (token, position, start)
    }

    /// Returns the text up to the brace that closes a block, for a block whose content is not PTX. The
    /// last token is the brace that opens it; the next is the one that closes it.
    pub(super) fn raw_block(&mut self) -> &'a str {
        let start = self.offset;
        let mut depth = 0_usize;
        // An unterminated comment stops the loop; the next token reports it.
        while !self.skip_space() {
            match self.byte(0) {
                Some(b'}') if depth == 0 => break,
                Some(b'}') => depth -= 1,
                Some(b'{') => depth += 1,
                Some(_) => {}
                None => break,
            }
            if let Token::Unterminated(_) = self.token() {
                break;
            }
        }
        self.slice(start, self.offset)
    }

    fn byte(&self, ahead: usize) -> Option<u8> {
        let at = self.offset + ahead;
        if at < self.length { Some(self.bytes[at]) } else { None }
    }

    /// Skips white space and comments. Returns whether it stops at a comment without an end.
    fn skip_space(&mut self) -> bool {
        while let Some(byte) = self.byte(0) {
            match byte {
                b'\n' => {
                    self.offset += 1;
                    self.start_line();
                }
                b' ' | b'\t' | b'\r' | b'\x0b' | b'\x0c' => self.offset += 1,
                b'/' if self.byte(1) == Some(b'/') => {
                    while self.byte(0).is_some_and(|byte| byte != b'\n') {
                        self.offset += 1;
                    }
                }
                b'/' if self.byte(1) == Some(b'*') => {
                    let Some(length) = self.text[self.offset + 2..].find("*/") else {
                        return true;
                    };
                    self.skip_lines(self.offset + 2 + length + 2);
                }
                _ => return false,
            }
        }
        false
    }

    fn start_line(&mut self) {
        self.line = self.line.saturating_add(1);
        self.line_start = self.offset;
        self.line_text = self.text.get(self.offset..).map_or("", first_line);
    }

    /// Skips to an offset and counts the lines on the way.
    fn skip_lines(&mut self, end: usize) {
        while self.offset < end {
            self.offset += 1;
            if self.bytes[self.offset - 1] == b'\n' {
                self.start_line();
            }
        }
    }

    /// Returns the token at the offset, which is not white space.
    fn token(&mut self) -> Token<'a> {
        let start = self.offset;
        let Some(first) = self.byte(0) else {
            return Token::End;
        };
        let is_word = |byte: Option<u8>| byte.is_some_and(is_word_byte);
        match first {
            b'a'..=b'z' | b'A'..=b'Z' => self.word(),
            // `_` alone is a word; `%` alone is an operator.
            b'_' => self.word(),
            b'%' | b'$' if is_word(self.byte(1)) => self.word(),
            b'0'..=b'9' => self.number(),
            b'.' if self.byte(1).is_some_and(|byte| byte.is_ascii_digit()) => self.number(),
            b'.' if is_word(self.byte(1)) => {
                self.offset += 1;
                self.skip_word();
                Token::Directive(self.slice(start + 1, self.offset))
            }
            b'"' => match self.text[start + 1..].find('"') {
                Some(length) => {
                    self.skip_lines(start + 1 + length + 1);
                    Token::String(self.slice(start + 1, start + 1 + length))
                }
                None => Token::Unterminated("string"),
            },
            _ => self.symbol(first),
        }
    }

    fn symbol(&mut self, first: u8) -> Token<'a> {
        let start = self.offset;
        let length = match (first, self.byte(1)) {
            (b'<', Some(b'<' | b'=')) | (b'>', Some(b'>' | b'=')) => 2,
            (b'=' | b'!', Some(b'=')) | (b'&', Some(b'&')) | (b'|', Some(b'|')) => 2,
            (b',' | b';' | b':' | b'(' | b')' | b'[' | b']' | b'{' | b'}' | b'@' | b'|', _) => 1,
            (b'+' | b'-' | b'*' | b'/' | b'%' | b'<' | b'>' | b'=' | b'!' | b'&', _) => 1,
            (b'^' | b'~' | b'?', _) => 1,
            _ => {
                let length = self.text[start..].chars().next().map_or(0, char::len_utf8);
                self.offset += length;
                return Token::Unknown(self.slice(start, self.offset));
            }
        };
        self.offset += length;
        Token::Symbol(self.slice(start, self.offset))
    }

    fn skip_word(&mut self) {
        while self.byte(0).is_some_and(is_word_byte) {
            self.offset += 1;
        }
    }

    /// Returns a word with all its components after `.` and `::`.
    fn word(&mut self) -> Token<'a> {
        let start = self.offset;
        let mut is_dotted = false;
        self.offset += 1;
        loop {
            self.skip_word();
            let separator = match (self.byte(0), self.byte(1)) {
                (Some(b'.'), Some(next)) if is_word_byte(next) => 1,
                (Some(b':'), Some(b':')) if self.byte(2).is_some_and(is_word_byte) => 2,
                _ => break,
            };
            is_dotted = true;
            self.offset += separator;
        }
        let text = self.slice(start, self.offset);
        if is_dotted { Token::Dotted(text) } else { Token::Word(text) }
    }

    /// Returns all of a number, which need not be correct.
    fn number(&mut self) -> Token<'a> {
        let start = self.offset;
        let prefix = self.byte(1).filter(|_| self.byte(0) == Some(b'0'));
        let is_decimal = !matches!(prefix, Some(b'x' | b'X' | b'f' | b'F' | b'd' | b'D'));
        loop {
            match (self.byte(0), self.byte(1)) {
                (Some(b'e' | b'E'), Some(b'+' | b'-')) if is_decimal => self.offset += 2,
                (Some(b'.'), next) if is_decimal && !next.is_some_and(is_word_start) => {
                    self.offset += 1;
                }
                (Some(byte), _) if is_word_byte(byte) => self.offset += 1,
                _ => break,
            }
        }
        Token::Number(self.slice(start, self.offset))
    }
}

fn first_line(text: &str) -> &str {
    text.split('\n').next().unwrap_or_default()
}

/// Whether each byte is part of a name, except for the first of a name. A table makes the lexer faster.
static IS_WORD_BYTE: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128_u8 {
        table[byte as usize] = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$');
        byte += 1;
    }
    table
};

fn is_word_byte(byte: u8) -> bool {
    IS_WORD_BYTE[usize::from(byte)]
}

fn is_word_start(byte: u8) -> bool {
    is_word_byte(byte) && !byte.is_ascii_digit()
}
