//! The parser, with a file for each subject: declarations, functions, statements, and constants.

mod constant;
mod declaration;
mod function;
mod statement;

use super::lexer::{Lexer, Token};
use super::{File, Item, Linkage, Module, ParseError, Position, Section};

/// The greatest number of blocks, lists, parentheses and operators that are nested. It limits the
/// recursion of the parser.
const MAX_DEPTH: u32 = 100;
const TOO_DEEP: &str = "at most 100 nested blocks, lists, parentheses and operators";

/// Parses the text of a module.
///
/// The syntax is that of PTX ISA 3.0 and later. Names, types and forms of instructions are not checked.
///
/// # Errors
///
/// The text is not PTX. The error has the place of the first token that does not fit.
///
/// # Examples
///
/// ```
/// let text = ".version 8.0\n.target sm_80\n.address_size 64\n.global .b32 x\n.global .b32 y;";
/// let error = cuda_ptx::syntax::parse(text).unwrap_err();
/// assert_eq!(error.to_string(), "line 5, column 1: expected `,` or `;`, found `.global`");
/// ```
pub fn parse(text: &str) -> Result<Module<'_>, ParseError> {
    Parser::new(text).module()
}

/// Parses the version at the start of a module, and nothing else.
///
/// # Errors
///
/// The text does not begin with `.version`, or the version is no version.
pub fn version(text: &str) -> Result<(u32, u32), ParseError> {
    Parser::new(text).header()
}

#[derive(Debug)]
struct Parser<'a> {
    lexer: Lexer<'a>,
    token: Token<'a>,
    /// The place of the token.
    position: Position,
    /// The offset of the token.
    start: usize,
    depth: u32,
}

/// A token and its place, for an error that is found later.
#[derive(Clone, Copy, Debug)]
struct Mark<'a> {
    token: Token<'a>,
    position: Position,
}

impl Mark<'_> {
    fn error(self, expected: &'static str) -> ParseError {
        ParseError { position: self.position, expected, found: self.token.describe() }
    }
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        let mut lexer = Lexer::new(text);
        let (token, position, start) = lexer.next();
        Self { lexer, token, position, start, depth: 0 }
    }

    fn advance(&mut self) {
        (self.token, self.position, self.start) = self.lexer.next();
    }

    /// Returns the token after the current one.
    fn peek(&mut self) -> Token<'a> {
        self.lexer.peek()
    }

    fn mark(&self) -> Mark<'a> {
        Mark { token: self.token, position: self.position }
    }

    fn error(&self, expected: &'static str) -> ParseError {
        self.mark().error(expected)
    }

    /// Parses a part that can contain itself.
    fn nested<T>(
        &mut self,
        part: impl FnOnce(&mut Self) -> Result<T, ParseError>,
    ) -> Result<T, ParseError> {
        if self.depth == MAX_DEPTH {
            return Err(self.error(TOO_DEEP));
        }
        self.depth += 1;
        let value = part(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn is_symbol(&self, symbol: &str) -> bool {
        matches!(self.token, Token::Symbol(found) if found == symbol)
    }

    /// Skips a symbol if it is there.
    fn accept(&mut self, symbol: &str) -> bool {
        let is_there = self.is_symbol(symbol);
        if is_there {
            self.advance();
        }
        is_there
    }

    fn symbol(&mut self, symbol: &str, expected: &'static str) -> Result<(), ParseError> {
        if self.accept(symbol) { Ok(()) } else { Err(self.error(expected)) }
    }

    /// Skips a directive if it is there.
    fn accept_directive(&mut self, name: &str) -> bool {
        let is_there = self.token == Token::Directive(name);
        if is_there {
            self.advance();
        }
        is_there
    }

    /// Parses the name of something.
    fn name(&mut self, expected: &'static str) -> Result<&'a str, ParseError> {
        match self.token {
            Token::Word(name) if name != "_" => {
                self.advance();
                Ok(name)
            }
            _ => Err(self.error(expected)),
        }
    }

    /// Skips a word that has a meaning.
    fn keyword(&mut self, word: &str, expected: &'static str) -> Result<(), ParseError> {
        if self.token != Token::Word(word) {
            return Err(self.error(expected));
        }
        self.advance();
        Ok(())
    }

    /// Parses an unsigned number of a type.
    fn number<T: TryFrom<u64>>(&mut self, expected: &'static str) -> Result<T, ParseError> {
        let Token::Number(text) = self.token else {
            return Err(self.error(expected));
        };
        let value = constant::integer(text).and_then(|value| T::try_from(value).ok());
        let value = value.ok_or_else(|| self.error(expected))?;
        self.advance();
        Ok(value)
    }

    fn string(&mut self) -> Result<&'a str, ParseError> {
        let Token::String(text) = self.token else {
            return Err(self.error("a string"));
        };
        self.advance();
        Ok(text)
    }

    /// Parses one or more elements with commas between them.
    fn list<T>(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<T, ParseError>,
    ) -> Result<Vec<T>, ParseError> {
        let mut list = Vec::with_capacity(4);
        list.push(element(self)?);
        while self.accept(",") {
            list.push(element(self)?);
        }
        Ok(list)
    }

    fn module(&mut self) -> Result<Module<'a>, ParseError> {
        let version = self.header()?;
        if !self.accept_directive("target") {
            return Err(self.error("`.target`"));
        }
        let target = self.list(|parser| parser.name("an architecture or option of `.target`"))?;
        let mut address_size = 32;
        if self.accept_directive("address_size") {
            let mark = self.mark();
            address_size = self.number("32 or 64")?;
            if !matches!(address_size, 32 | 64) {
                return Err(mark.error("32 or 64"));
            }
        }
        let mut items = Vec::new();
        while self.token != Token::End {
            self.item(&mut items)?;
        }
        Ok(Module { version, target, address_size, items })
    }

    fn header(&mut self) -> Result<(u32, u32), ParseError> {
        if !self.accept_directive("version") {
            return Err(self.error("`.version`"));
        }
        let parts = match self.token {
            Token::Number(text) => text.split_once('.'),
            _ => None,
        };
        let number =
            |(major, minor): (&str, &str)| Some((major.parse().ok()?, minor.parse().ok()?));
        let version = parts.and_then(number).ok_or_else(|| self.error("a version such as 8.0"))?;
        self.advance();
        Ok(version)
    }

    fn item(&mut self, items: &mut Vec<Item<'a>>) -> Result<(), ParseError> {
        if self.accept_directive("file") {
            items.push(Item::File(self.file()?));
        } else if self.accept_directive("section") {
            items.push(Item::Section(self.section()?));
        } else if self.accept_directive("pragma") {
            items.push(Item::Pragma(self.pragma()?));
        } else if self.accept_directive("alias") {
            let name = self.name("a name")?;
            self.symbol(",", "`,`")?;
            let function = self.name("a function")?;
            self.symbol(";", "`;`")?;
            items.push(Item::Alias { name, function });
        } else {
            let linkage = self.linkage();
            if self.accept_directive("entry") {
                items.push(Item::Function(self.function(linkage, true)?));
            } else if self.accept_directive("func") {
                items.push(Item::Function(self.function(linkage, false)?));
            } else {
                self.variables(linkage, |variable| items.push(Item::Variable(variable)))?;
            }
        }
        Ok(())
    }

    fn linkage(&mut self) -> Linkage {
        let linkage = match self.token {
            Token::Directive("extern") => Linkage::Extern,
            Token::Directive("visible") => Linkage::Visible,
            Token::Directive("weak") => Linkage::Weak,
            Token::Directive("common") => Linkage::Common,
            _ => return Linkage::Internal,
        };
        self.advance();
        linkage
    }

    fn file(&mut self) -> Result<File<'a>, ParseError> {
        let index = self.number("the number of the file")?;
        let name = self.string()?;
        let mut time_and_size = None;
        if self.accept(",") {
            let time = self.number("the time of the last change")?;
            self.symbol(",", "`,`")?;
            time_and_size = Some((time, self.number("the size of the file")?));
        }
        Ok(File { index, name, time_and_size })
    }

    fn section(&mut self) -> Result<Section<'a>, ParseError> {
        let Token::Directive(_) = self.token else {
            return Err(self.error("the name of a section, which begins with a period"));
        };
        let name = self.lexer.slice(self.start, self.lexer.offset());
        self.advance();
        if !self.is_symbol("{") {
            return Err(self.error("`{`"));
        }
        let content = self.lexer.raw_block();
        self.advance();
        self.symbol("}", "`}`")?;
        Ok(Section { name, content })
    }

    /// Parses the strings of `.pragma`.
    fn pragma(&mut self) -> Result<Vec<&'a str>, ParseError> {
        let strings = self.list(Self::string)?;
        self.symbol(";", "`,` or `;`")?;
        Ok(strings)
    }
}
