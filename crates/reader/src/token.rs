//! Tokens of a TSDL `metadata` file.

/// An error in a `metadata` file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ParseError {
    pub(super) line: usize,
    pub(super) what: String,
    /// At the end of the file, which may be truncated.
    pub(super) is_at_end: bool,
}

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    Word(&'a str),
    Number(i128),
    /// Contents of a string literal, unescaped.
    Text(String),
    Sign(char),
    /// `:=`
    Assign,
    /// `...`
    Range,
    /// End of the file.
    End,
}

/// Splits a text into tokens.
#[derive(Clone, Debug)]
pub(super) struct Tokens<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            rest: text,
            line: 1,
        }
    }

    /// The current line.
    pub(super) fn line(&self) -> usize {
        self.line
    }

    /// An error at the current line.
    pub(super) fn error(&self, what: impl Into<String>) -> ParseError {
        ParseError {
            line: self.line,
            what: what.into(),
            // The last word may be truncated.
            is_at_end: self.rest.is_empty(),
        }
    }

    /// An unexpected end of the file.
    pub(super) fn error_at_end(&self) -> ParseError {
        ParseError {
            line: self.line,
            what: "it ends in the middle of a declaration".to_owned(),
            is_at_end: true,
        }
    }

    fn skip(&mut self, len: usize) -> &'a str {
        let (skipped, rest) = self.rest.split_at(len);
        self.line += skipped.bytes().filter(|&b| b == b'\n').count();
        self.rest = rest;
        skipped
    }

    /// Skips white space and comments.
    fn skip_blanks(&mut self) -> Result<(), ParseError> {
        loop {
            let blanks = self.rest.len() - self.rest.trim_start().len();
            self.skip(blanks);
            let len = if let Some(comment) = self.rest.strip_prefix("/*") {
                comment.find("*/").ok_or_else(|| self.error_at_end())? + 4
            } else if self.rest.starts_with("//") {
                self.rest.find('\n').unwrap_or(self.rest.len())
            } else {
                return Ok(());
            };
            self.skip(len);
        }
    }

    pub(super) fn next(&mut self) -> Result<Token<'a>, ParseError> {
        self.skip_blanks()?;
        let Some(first) = self.rest.chars().next() else {
            return Ok(Token::End);
        };
        if first.is_ascii_alphabetic() || first == '_' {
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let len = self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len());
            return Ok(Token::Word(self.skip(len)));
        }
        if first.is_ascii_digit() || first == '-' {
            let behind = |c: char| !c.is_ascii_alphanumeric();
            let len = self.rest[1..]
                .find(behind)
                .map_or(self.rest.len(), |len| len + 1);
            let number = self.skip(len);
            let parsed = number.parse();
            return parsed
                .map(Token::Number)
                .map_err(|_| self.error(format!("{number} is no decimal number")));
        }
        if first == '"' {
            return self.text().map(Token::Text);
        }
        for (sign, token) in [(":=", Token::Assign), ("...", Token::Range)] {
            if self.rest.starts_with(sign) {
                self.skip(sign.len());
                return Ok(token);
            }
        }
        self.skip(first.len_utf8());
        Ok(Token::Sign(first))
    }

    fn text(&mut self) -> Result<String, ParseError> {
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.skip(at + 1);
                    return Ok(text);
                }
                '\\' => match chars.next() {
                    Some((_, c @ ('"' | '\\'))) => text.push(c),
                    Some((_, c)) => return Err(self.error(format!("\\{c} in a text"))),
                    None => break,
                },
                '\n' => return Err(self.error("a text that does not end on its line")),
                c => text.push(c),
            }
        }
        Err(self.error_at_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_split_into_tokens() {
        let mut tokens =
            Tokens::new("/* x\n */ a_1:=-5 ... \"q\\\"\\\\ü//\" // more\n{} 18446744073709551615;");
        let mut all = Vec::new();
        loop {
            match tokens.next().unwrap() {
                Token::End => break,
                token => all.push(token),
            }
        }
        let expected = [
            Token::Word("a_1"),
            Token::Assign,
            Token::Number(-5),
            Token::Range,
            Token::Text("q\"\\ü//".into()),
            Token::Sign('{'),
            Token::Sign('}'),
            Token::Number(u64::MAX.into()),
            Token::Sign(';'),
        ];
        assert_eq!(all, expected);
        assert_eq!(tokens.line(), 3);
    }

    #[test]
    fn invalid_tokens_are_refused() {
        for (text, is_at_end) in [
            ("0x10 ", false),
            ("- ", false),
            ("5a;", false),
            ("-", true),
            ("\"a\nb\"", false),
            ("\"\\n\"", false),
            ("\"abc", true),
            ("\"abc\\", true),
            ("/* abc", true),
        ] {
            let error = Tokens::new(text).next().unwrap_err();
            assert_eq!((error.line, error.is_at_end), (1, is_at_end), "{text}");
        }
    }
}
