//! Bytes as text that is safe to print: no control byte of a key, a value or a file name ever reaches the terminal.

use serde::{Serialize, Serializer};
use std::fmt::{self, Write as _};

/// How keys and values are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Printable ASCII as it is; every other byte as `\xNN` or `\n`, `\r`, `\t`; quotes and backslashes behind a
    /// backslash. [`parse_key`] reads it back.
    #[default]
    Escaped,
    /// As `Escaped`, but printable characters beyond ASCII as they are too.
    Text,
    /// Two hexadecimal digits a byte.
    Hex,
}

impl Form {
    /// The name that the JSON output states.
    pub fn name(self) -> &'static str {
        match self {
            Form::Escaped => "escaped",
            Form::Text => "text",
            Form::Hex => "hex",
        }
    }
}

/// Bytes in a form. `Display` puts quotes around all but hexadecimal digits; `Serialize` gives a plain string. Neither
/// makes a copy.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// How they are shown.
    pub form: Form,
}

impl<'a> Shown<'a> {
    /// Shows `bytes` in `form`.
    pub fn new(bytes: &'a [u8], form: Form) -> Self {
        Shown { bytes, form }
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.form {
            Form::Hex => Unquoted(*self).fmt(f),
            _ => write!(f, "\"{}\"", Unquoted(*self)),
        }
    }
}

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Unquoted(*self))
    }
}

struct Unquoted<'a>(Shown<'a>);

impl fmt::Display for Unquoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shown { bytes, form } = self.0;
        match form {
            Form::Escaped => write!(f, "{}", bytes.escape_ascii()),
            Form::Hex => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
            Form::Text => bytes.utf8_chunks().try_for_each(|chunk| {
                chunk.valid().chars().try_for_each(|c| write_char(f, c))?;
                chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))
            }),
        }
    }
}

fn write_char(f: &mut fmt::Formatter<'_>, c: char) -> fmt::Result {
    if c.is_ascii() || is_hidden(c) {
        write!(f, "{}", c.encode_utf8(&mut [0; 4]).as_bytes().escape_ascii())
    } else {
        f.write_char(c)
    }
}

/// Whether a character moves the cursor, changes the direction of the text, or cannot be seen.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// A text of ours with a foreign part, such as a file name: shown with hidden characters escaped.
#[derive(Clone, Copy, Debug)]
pub struct Safe<'a>(pub &'a str);

impl fmt::Display for Safe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match is_hidden(c) {
            true => c.escape_unicode().fmt(f),
            false => f.write_char(c),
        })
    }
}

/// The key that an argument names: text with the escapes `\xNN`, `\\`, `\"`, `\'`, `\n`, `\r`, `\t` and `\0`, or
/// hexadecimal digits when `hex`.
///
/// # Errors
///
/// What is wrong with it, for people.
pub fn parse_key(argument: &str, hex: bool) -> Result<Vec<u8>, String> {
    if hex {
        return parse_hex(argument);
    }
    let mut key = Vec::with_capacity(argument.len());
    let mut chars = argument.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            key.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        key.push(match chars.next() {
            Some('n') => b'\n',
            Some('r') => b'\r',
            Some('t') => b'\t',
            Some('0') => 0,
            Some('\\') => b'\\',
            Some('"') => b'"',
            Some('\'') => b'\'',
            Some('x') => hex_byte(chars.next(), chars.next())
                .ok_or_else(|| format!("two hexadecimal digits must follow \\x in {argument:?}"))?,
            _ => return Err(format!("unknown escape in {argument:?}; a backslash is written \\\\")),
        });
    }
    Ok(key)
}

fn parse_hex(argument: &str) -> Result<Vec<u8>, String> {
    let mut key = Vec::with_capacity(argument.len() / 2);
    let mut chars = argument.chars();
    while let Some(high) = chars.next() {
        let byte = hex_byte(Some(high), chars.next());
        key.push(byte.ok_or_else(|| format!("{argument:?} is no even number of hexadecimal digits"))?);
    }
    Ok(key)
}

fn hex_byte(high: Option<char>, low: Option<char>) -> Option<u8> {
    u8::try_from(high?.to_digit(16)? << 4 | low?.to_digit(16)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is printed can be typed: every byte comes back, in both forms, and none is a control byte.
    #[test]
    fn keys_are_printed_and_parsed_back() {
        let mut bytes: Vec<u8> = (0..=255).collect();
        bytes.extend("grün \u{202e}\u{85}".bytes());
        for form in [Form::Escaped, Form::Text, Form::Hex] {
            let shown = Unquoted(Shown::new(&bytes, form)).to_string();
            assert!(!shown.chars().any(is_hidden), "{shown}");
            assert_eq!(parse_key(&shown, form == Form::Hex).unwrap(), bytes, "{shown}");
        }
        assert!(Shown::new("grün".as_bytes(), Form::Text).to_string().contains("grün"));
        assert_eq!(Shown::new("ü\"".as_bytes(), Form::Escaped).to_string(), r#""\xc3\xbc\"""#);
    }

    #[test]
    fn bad_keys_are_refused() {
        for (argument, hex) in [("\\", false), ("\\q", false), ("\\x1", false), ("abc", true), ("0g", true)] {
            assert!(parse_key(argument, hex).is_err(), "{argument}");
        }
    }

    #[test]
    fn texts_lose_their_hidden_characters() {
        assert_eq!(Safe("a\x1b[2J\u{202e}ü").to_string(), "a\\u{1b}[2J\\u{202e}ü");
    }
}
