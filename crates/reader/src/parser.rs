//! Parses the `metadata` file of CTF 1.8: the part of TSDL that [`ctf`](usertrace_ctf) writes.

use std::collections::HashMap;

use usertrace_ring::schema::{FieldType, Integer, Label, Scalar};

use crate::declarations::{
    Declarations, Member, MemberError, Shape, Type, fields, is_hex, number_len, parse_uuid,
    unsigned,
};
use crate::field::Field;
use crate::metadata::{EnvValue, Metadata};
use crate::token::{ParseError, Token, Tokens};

/// Start of the file.
const SIGNATURE: &str = "/* CTF 1.8 */";

/// The native byte order, and the other one.
const BYTE_ORDERS: [&str; 2] = if cfg!(target_endian = "little") {
    ["le", "be"]
} else {
    ["be", "le"]
};

/// Parses the file.
pub(super) fn parse(text: &[u8]) -> Result<Metadata, ParseError> {
    let text = match std::str::from_utf8(text) {
        Ok(text) => text,
        Err(error) => {
            let before = &text[..error.valid_up_to()];
            return Err(ParseError {
                line: 1 + before.iter().filter(|&&b| b == b'\n').count(),
                what: "it is not text".to_owned(),
                is_at_end: error.error_len().is_none(),
            });
        }
    };
    let tokens = Tokens::new(text);
    if !text.starts_with(SIGNATURE) {
        return Err(tokens.error(format!("it does not begin with {SIGNATURE}")));
    }
    Parser::new(tokens).metadata()
}

impl Member {
    fn is(&self, name: &str, kind: &Type, shape: &Shape) -> bool {
        self.name == name && self.kind == *kind && self.shape == *shape
    }
}

struct Parser<'a> {
    tokens: Tokens<'a>,
    /// Only numbers, so that an alias cannot multiply the size of a type.
    aliases: HashMap<String, Type>,
    declared: Declarations,
}

impl<'a> Parser<'a> {
    fn new(tokens: Tokens<'a>) -> Self {
        Self {
            tokens,
            aliases: HashMap::new(),
            declared: Declarations::default(),
        }
    }

    fn metadata(mut self) -> Result<Metadata, ParseError> {
        let mut cut = None;
        loop {
            match self.declaration() {
                Ok(true) => {}
                Ok(false) => break,
                // The declarations before the cut suffice, if they include a trace.
                Err(error) if error.is_at_end && self.declared.is_enough() => {
                    cut = Some(error.line);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        let tokens = self.tokens;
        self.declared.end(cut).map_err(|what| tokens.error(what))
    }

    fn expect(&mut self, expected: &Token<'_>) -> Result<(), ParseError> {
        match self.tokens.next()? {
            Token::End => Err(self.tokens.error_at_end()),
            found if found == *expected => Ok(()),
            found => Err(self.unexpected(&found)),
        }
    }

    fn sign(&mut self, sign: char) -> Result<(), ParseError> {
        self.expect(&Token::Sign(sign))
    }

    fn unexpected(&self, found: &Token<'_>) -> ParseError {
        if *found == Token::End {
            return self.tokens.error_at_end();
        }
        self.tokens.error(match found {
            Token::Word(word) => format!("unexpected {word}"),
            Token::Number(number) => format!("unexpected {number}"),
            Token::Text(text) => format!("unexpected {text:?}"),
            Token::Sign(sign) => format!("unexpected {sign:?}"),
            Token::Assign => "unexpected :=".to_owned(),
            Token::Range => "unexpected ...".to_owned(),
            Token::End => unreachable!(),
        })
    }

    fn word(&mut self) -> Result<&'a str, ParseError> {
        match self.tokens.next()? {
            Token::Word(word) => Ok(word),
            found => Err(self.unexpected(&found)),
        }
    }

    fn text(&mut self) -> Result<String, ParseError> {
        match self.tokens.next()? {
            Token::Text(text) => Ok(text),
            found => Err(self.unexpected(&found)),
        }
    }

    fn number(&mut self) -> Result<i128, ParseError> {
        match self.tokens.next()? {
            Token::Number(number) => Ok(number),
            found => Err(self.unexpected(&found)),
        }
    }

    fn number_as<T: TryFrom<i128>>(&mut self) -> Result<T, ParseError> {
        let number = self.number()?;
        T::try_from(number).map_err(|_| self.tokens.error(format!("{number} is out of range")))
    }

    /// Parses the rest of a dotted path, and the token behind it.
    fn path(&mut self, first: &'a str) -> Result<(String, Token<'a>), ParseError> {
        let mut path = first.to_owned();
        loop {
            match self.tokens.next()? {
                Token::Sign('.') => {
                    path.push('.');
                    path.push_str(self.word()?);
                }
                behind => return Ok((path, behind)),
            }
        }
    }

    /// Parses the start of `NAME = ...;` or `NAME := ...;`. None if there is a closing brace
    /// instead, which is consumed.
    fn attribute(&mut self) -> Result<Option<String>, ParseError> {
        let word = match self.tokens.next()? {
            Token::Word(word) => word,
            Token::Sign('}') => return Ok(None),
            found => return Err(self.unexpected(&found)),
        };
        match self.path(word)? {
            (path, Token::Sign('=') | Token::Assign) => Ok(Some(path)),
            (_, found) => Err(self.unexpected(&found)),
        }
    }

    fn unknown(&self, what: &str) -> ParseError {
        self.tokens.error(format!("unknown {what}"))
    }

    /// Parses a declaration. False at the end of the file.
    fn declaration(&mut self) -> Result<bool, ParseError> {
        match self.tokens.next()? {
            Token::Word("typealias") => self.typealias()?,
            Token::Word("trace") => self.trace()?,
            Token::Word("env") => self.environment()?,
            Token::Word("clock") => self.clock()?,
            Token::Word("stream") => self.stream()?,
            Token::Word("event") => self.event()?,
            Token::End => return Ok(false),
            found => return Err(self.unexpected(&found)),
        }
        Ok(true)
    }

    /// Parses the end of a declaration. It only counts if this succeeds.
    fn end(&mut self) -> Result<(), ParseError> {
        self.sign(';')
    }

    fn typealias(&mut self) -> Result<(), ParseError> {
        let kind = self.type_()?;
        let is_own = matches!(kind, Type::Time | Type::EventTime | Type::EventId);
        if !is_own && !matches!(kind, Type::Field(FieldType::Scalar(_))) {
            return Err(self.tokens.error("an alias of what is no number"));
        }
        self.expect(&Token::Assign)?;
        let name = self.word()?.to_owned();
        self.end()?;
        self.aliases.insert(name, kind);
        Ok(())
    }

    fn trace(&mut self) -> Result<(), ParseError> {
        let (mut uuid, mut has_header) = (None, false);
        self.sign('{')?;
        while let Some(name) = self.attribute()? {
            match &name[..] {
                "major" | "minor" => {
                    let version = if name == "major" { 1 } else { 8 };
                    if self.number()? != version {
                        return Err(self.tokens.error("a version other than 1.8"));
                    }
                }
                "uuid" => {
                    let text = self.text()?;
                    uuid = parse_uuid(&text);
                    if uuid.is_none() {
                        return Err(self.tokens.error(format!("{text:?} is no UUID")));
                    }
                }
                "byte_order" => {
                    if self.word()? != BYTE_ORDERS[0] {
                        return Err(self.tokens.error("the byte order of another machine"));
                    }
                }
                "packet.header" => {
                    let bytes = Type::Field(unsigned(1));
                    let u32 = Type::Field(unsigned(4));
                    let u64 = Type::Field(unsigned(8));
                    self.layout(&[
                        ("magic", &u32, Shape::Single),
                        ("uuid", &bytes, Shape::Array(16)),
                        ("stream_id", &u32, Shape::Single),
                        ("stream_instance_id", &u64, Shape::Single),
                    ])?;
                    has_header = true;
                }
                _ => return Err(self.unknown(&name)),
            }
            self.sign(';')?;
        }
        self.end()?;
        let uuid = uuid.filter(|_| has_header);
        let uuid = uuid.ok_or_else(|| self.tokens.error("a trace without a UUID or a header"))?;
        let declared = self.declared.trace(uuid);
        declared.map_err(|what| self.tokens.error(what))?;
        Ok(())
    }

    fn environment(&mut self) -> Result<(), ParseError> {
        let mut env = Vec::new();
        self.sign('{')?;
        while let Some(name) = self.attribute()? {
            let value = match self.tokens.next()? {
                Token::Text(text) => EnvValue::Text(text),
                Token::Number(number) => {
                    let number = i64::try_from(number);
                    EnvValue::Number(number.map_err(|_| self.tokens.error("a number too large"))?)
                }
                found => return Err(self.unexpected(&found)),
            };
            env.push((name, value));
            self.sign(';')?;
        }
        self.end()?;
        self.declared.environment(env);
        Ok(())
    }

    fn clock(&mut self) -> Result<(), ParseError> {
        let (mut name, mut freq, mut offset_s, mut offset) = (None, 0u64, 0i64, 0u64);
        let (mut uid, mut precision) = (None, None);
        self.sign('{')?;
        while let Some(attribute) = self.attribute()? {
            match &attribute[..] {
                "name" => name = Some(self.text()?),
                "description" => drop(self.text()?),
                "freq" => freq = self.number_as()?,
                "offset_s" => offset_s = self.number_as()?,
                "offset" => offset = self.number_as()?,
                "uuid" => uid = Some(self.text()?),
                "precision" => precision = Some(self.number_as()?),
                // The clocks of usertrace are all absolute.
                "absolute" => drop(self.word()?),
                _ => return Err(self.unknown(&attribute)),
            }
            self.sign(';')?;
        }
        self.end()?;
        let name = name.ok_or_else(|| self.tokens.error("a clock without a name"))?;
        let declared = self.declared.clock(name, freq, offset_s, offset);
        declared.map_err(|what| self.tokens.error(what))?;
        self.declared.clock_quality(uid, precision);
        Ok(())
    }

    fn stream(&mut self) -> Result<(), ParseError> {
        let (mut id, mut packet, mut has_header, mut contexts) = (0, None, false, None);
        self.sign('{')?;
        while let Some(name) = self.attribute()? {
            match &name[..] {
                "id" => id = self.number_as()?,
                "packet.context" => {
                    let mut members = self.members()?;
                    let own = members.split_off(members.len().min(6));
                    let u64 = Type::Field(unsigned(8));
                    self.compare(
                        &members,
                        &[
                            ("timestamp_begin", &Type::Time, Shape::Single),
                            ("timestamp_end", &Type::Time, Shape::Single),
                            ("content_size", &u64, Shape::Single),
                            ("packet_size", &u64, Shape::Single),
                            ("packet_seq_num", &u64, Shape::Single),
                            ("events_discarded", &u64, Shape::Single),
                        ],
                    )?;
                    packet = Some(self.fields(own)?);
                }
                "event.header" => {
                    self.layout(&[
                        ("id", &Type::EventId, Shape::Single),
                        ("timestamp", &Type::EventTime, Shape::Single),
                    ])?;
                    has_header = true;
                }
                "event.context" => {
                    let members = self.members()?;
                    contexts = Some(self.fields(members)?);
                }
                _ => return Err(self.unknown(&name)),
            }
            self.sign(';')?;
        }
        self.end()?;
        let packet = packet.filter(|_| has_header);
        let packet = packet.ok_or_else(|| self.tokens.error("a stream without a header"))?;
        let declared = self.declared.stream(id, packet, contexts);
        declared.map_err(|what| self.tokens.error(what))
    }

    fn event(&mut self) -> Result<(), ParseError> {
        let (mut id, mut stream_id, mut name, mut loglevel, mut fields) = (0, 0, None, None, None);
        self.sign('{')?;
        while let Some(attribute) = self.attribute()? {
            match &attribute[..] {
                "name" => name = Some(self.text()?),
                "id" => id = self.number_as()?,
                "stream_id" => stream_id = self.number_as()?,
                "loglevel" => loglevel = Some(self.number_as()?),
                "fields" => {
                    let members = self.members()?;
                    fields = Some(self.fields(members)?);
                }
                _ => return Err(self.unknown(&attribute)),
            }
            self.sign(';')?;
        }
        self.end()?;
        let (Some(name), Some(fields)) = (name, fields) else {
            return Err(self
                .tokens
                .error("an event without a name, or without fields"));
        };
        let declared = self.declared.event(stream_id, id, name, loglevel, fields);
        declared.map_err(|what| self.tokens.error(what))
    }

    /// Parses a structure that must have these members.
    fn layout(&mut self, expected: &[(&str, &Type, Shape)]) -> Result<(), ParseError> {
        let members = self.members()?;
        self.compare(&members, expected)
    }

    fn compare(
        &self,
        members: &[Member],
        expected: &[(&str, &Type, Shape)],
    ) -> Result<(), ParseError> {
        let mut pairs = members.iter().zip(expected);
        let differs = pairs.find(|(member, (name, kind, shape))| !member.is(name, kind, shape));
        let line = match differs {
            Some((member, _)) => member.line,
            None if members.len() == expected.len() => return Ok(()),
            None => self.tokens.line(),
        };
        let names: Vec<_> = expected.iter().map(|(name, ..)| *name).collect();
        Err(ParseError {
            line,
            what: format!("a header other than of {}", names.join(", ")),
            is_at_end: false,
        })
    }

    /// The members of a structure.
    fn members(&mut self) -> Result<Vec<Member>, ParseError> {
        self.expect(&Token::Word("struct"))?;
        self.sign('{')?;
        let mut members = Vec::new();
        loop {
            let first = self.tokens.next()?;
            if first == Token::Sign('}') {
                return Ok(members);
            }
            let kind = self.type_of(first)?;
            let name = self.word()?.to_owned();
            let line = self.tokens.line();
            let mut shape = Shape::Single;
            match self.tokens.next()? {
                Token::Sign(';') => {}
                Token::Sign('[') => {
                    shape = match self.tokens.next()? {
                        Token::Number(len) => Shape::Array(len),
                        Token::Word(name) => Shape::Sequence(name.to_owned()),
                        found => return Err(self.unexpected(&found)),
                    };
                    self.sign(']')?;
                    self.sign(';')?;
                }
                found => return Err(self.unexpected(&found)),
            }
            members.push(Member {
                line,
                name,
                kind,
                shape,
            });
        }
    }

    fn fields(&self, members: Vec<Member>) -> Result<Vec<Field>, ParseError> {
        fields(members, shown).map_err(|(line, what): MemberError| ParseError {
            line: line.unwrap_or(self.tokens.line()),
            what,
            is_at_end: false,
        })
    }

    fn type_(&mut self) -> Result<Type, ParseError> {
        let first = self.tokens.next()?;
        self.type_of(first)
    }

    fn type_of(&mut self, first: Token<'a>) -> Result<Type, ParseError> {
        match first {
            Token::Word("integer") => self.integer(),
            Token::Word("floating_point") => self.float(),
            Token::Word("string") => {
                self.sign('{')?;
                while let Some(name) = self.attribute()? {
                    if name != "encoding" || self.word()? != "UTF8" {
                        return Err(self.unknown(&name));
                    }
                    self.sign(';')?;
                }
                Ok(Type::Field(FieldType::Str))
            }
            Token::Word("enum") => self.enumeration(),
            Token::Word(name) => match self.aliases.get(name) {
                Some(kind) => Ok(kind.clone()),
                None => Err(self.unknown(name)),
            },
            found => Err(self.unexpected(&found)),
        }
    }

    fn integer(&mut self) -> Result<Type, ParseError> {
        let (mut size, mut signed, mut base, mut order) = (0, false, 10, BYTE_ORDERS[0]);
        let (mut is_char, mut is_time, mut align) = (false, false, 8);
        self.sign('{')?;
        while let Some(name) = self.attribute()? {
            match &name[..] {
                "size" => size = self.number()?,
                "align" => align = self.number()?,
                "base" => base = self.number()?,
                "signed" => {
                    signed = match self.word()? {
                        "true" => true,
                        "false" => false,
                        word => return Err(self.unknown(word)),
                    }
                }
                "byte_order" => order = self.word()?,
                "encoding" => match self.word()? {
                    "UTF8" => is_char = true,
                    word => return Err(self.unknown(word)),
                },
                "map" => {
                    let first = self.word()?;
                    let (path, behind) = self.path(first)?;
                    let name = path.strip_prefix("clock.");
                    let name = name.and_then(|name| name.strip_suffix(".value"));
                    if name.is_none_or(|name| !self.declared.is_clock(name)) {
                        return Err(self.unknown(&path));
                    }
                    is_time = true;
                    if behind != Token::Sign(';') {
                        return Err(self.unexpected(&behind));
                    }
                    continue;
                }
                _ => return Err(self.unknown(&name)),
            }
            self.sign(';')?;
        }
        let big_endian = match BYTE_ORDERS.iter().position(|&known| known == order) {
            Some(0) => false,
            // A big-endian machine has no such field.
            Some(1) if order == "be" => true,
            _ => return Err(self.unknown(order)),
        };
        // The two parts of an event's header.
        if !signed && base == 10 && !is_char && !big_endian {
            match (size, align, is_time) {
                (16, 64, false) => return Ok(Type::EventId),
                (48, 8, true) => return Ok(Type::EventTime),
                _ => {}
            }
        }
        self.is_aligned(align)?;
        let integer = Integer {
            len: number_len(size)
                .ok_or_else(|| self.tokens.error(format!("an integer of {size} bits")))?,
            signed,
            hex: is_hex(base)
                .ok_or_else(|| self.tokens.error(format!("an integer of base {base}")))?,
            big_endian,
        };
        let kind = FieldType::Scalar(Scalar::Integer(integer));
        match (is_char, is_time) {
            (false, false) => Ok(Type::Field(kind)),
            (true, false) if kind == unsigned(1) => Ok(Type::Char),
            (false, true) if kind == unsigned(8) => Ok(Type::Time),
            _ => Err(self.tokens.error("an integer of a strange kind")),
        }
    }

    /// Checks that an alignment is one byte, as for everything except event headers.
    fn is_aligned(&self, align: i128) -> Result<(), ParseError> {
        match align {
            8 => Ok(()),
            other => Err(self.tokens.error(format!("an alignment of {other}"))),
        }
    }

    fn float(&mut self) -> Result<Type, ParseError> {
        let (mut exponent, mut mantissa) = (0, 0);
        self.sign('{')?;
        while let Some(name) = self.attribute()? {
            match &name[..] {
                "exp_dig" => exponent = self.number()?,
                "mant_dig" => mantissa = self.number()?,
                "align" => {
                    let align = self.number()?;
                    self.is_aligned(align)?;
                }
                _ => return Err(self.unknown(&name)),
            }
            self.sign(';')?;
        }
        let len = match (exponent, mantissa) {
            (8, 24) => 4,
            (11, 53) => 8,
            _ => {
                return Err(self
                    .tokens
                    .error("a floating point number of a strange kind"));
            }
        };
        Ok(Type::Field(FieldType::Scalar(Scalar::Float { len })))
    }

    fn enumeration(&mut self) -> Result<Type, ParseError> {
        self.sign(':')?;
        // Not any type, which could be nested arbitrarily deep.
        self.expect(&Token::Word("integer"))?;
        let Type::Field(FieldType::Scalar(Scalar::Integer(integer))) = self.integer()? else {
            return Err(self.tokens.error("an enumeration of what is no integer"));
        };
        self.sign('{')?;
        let mut labels = Vec::new();
        loop {
            let name = self.text()?;
            self.sign('=')?;
            let first = self.number()?;
            let mut last = first;
            let mut behind = self.tokens.next()?;
            if behind == Token::Range {
                last = self.number()?;
                behind = self.tokens.next()?;
            }
            if first > last {
                return Err(self.tokens.error(format!("label {name:?} of nothing")));
            }
            labels.push(Label { name, first, last });
            match behind {
                Token::Sign(',') => {}
                Token::Sign('}') => break,
                found => return Err(self.unexpected(&found)),
            }
        }
        // A label with several ranges stays at the place of its first one.
        let mut first = HashMap::new();
        let places: Vec<_> = (0usize..)
            .zip(&labels)
            .map(|(place, label)| *first.entry(label.name.clone()).or_insert(place))
            .collect();
        let mut labels: Vec<_> = places.into_iter().zip(labels).collect();
        labels.sort_by_key(|(place, _)| *place);
        let labels = labels.into_iter().map(|(_, label)| label).collect();
        Ok(Type::Field(FieldType::Enum(integer, labels)))
    }
}

/// The displayed name: without the prefix that keeps it apart from keywords.
fn shown(name: &str) -> &str {
    name.strip_prefix('_').unwrap_or(name)
}
