//! [`JsonDocument`]: one JSON document, written piece by piece, so that a list in it may be longer than memory.
//!
//! Everything beyond printable ASCII is written as `\uXXXX`: a document is safe to print.

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use std::io::{self, Write};

/// A JSON object on its way to a writer.
///
/// ```
/// use esker_sst_dump::JsonDocument;
///
/// let mut out = Vec::new();
/// let mut document = JsonDocument::begin(&mut out, "example/1").unwrap();
/// document.list("squares").unwrap();
/// for n in 1..=2 {
///     document.item(&(n * n)).unwrap();
/// }
/// document.field("count", &2).unwrap();
/// document.end().unwrap();
/// assert_eq!(String::from_utf8(out).unwrap(), "{\"schema\":\"example/1\",\n\"squares\":[\n1,\n4],\n\"count\":2}\n");
/// ```
#[derive(Debug)]
pub struct JsonDocument<W> {
    out: W,
    /// Items in the list that is open, if one is.
    items: Option<u64>,
}

impl<W: Write> JsonDocument<W> {
    /// Starts a document with its schema: a name, a slash, a version.
    ///
    /// # Errors
    ///
    /// Those of the writer, here and in the other calls.
    pub fn begin(mut out: W, schema: &str) -> io::Result<Self> {
        out.write_all(b"{\"schema\":")?;
        write_ascii(&mut out, schema)?;
        Ok(JsonDocument { out, items: None })
    }

    /// Adds a field; ends the list before it.
    pub fn field(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> io::Result<()> {
        self.name(name)?;
        write_ascii(&mut self.out, value)
    }

    /// Adds a field that is a list; its items follow.
    pub fn list(&mut self, name: &str) -> io::Result<()> {
        self.name(name)?;
        self.items = Some(0);
        self.out.write_all(b"[")
    }

    /// Adds an item to the list.
    pub fn item(&mut self, value: &(impl Serialize + ?Sized)) -> io::Result<()> {
        let items = self.items.get_or_insert(0);
        self.out.write_all(if *items == 0 { b"\n" } else { b",\n" })?;
        *items += 1;
        write_ascii(&mut self.out, value)
    }

    /// Ends the document.
    pub fn end(mut self) -> io::Result<()> {
        self.end_list()?;
        self.out.write_all(b"}\n")
    }

    fn name(&mut self, name: &str) -> io::Result<()> {
        self.end_list()?;
        self.out.write_all(b",\n")?;
        write_ascii(&mut self.out, name)?;
        self.out.write_all(b":")
    }

    fn end_list(&mut self) -> io::Result<()> {
        match self.items.take() {
            Some(_) => self.out.write_all(b"]"),
            None => Ok(()),
        }
    }
}

fn write_ascii(out: &mut impl Write, value: &(impl Serialize + ?Sized)) -> io::Result<()> {
    value.serialize(&mut Serializer::with_formatter(out, AsciiFormatter)).map_err(io::Error::from)
}

struct AsciiFormatter;

impl Formatter for AsciiFormatter {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        for part in fragment.split_inclusive(|c: char| !(' '..='~').contains(&c)) {
            let plain = part.trim_end_matches(|c: char| !(' '..='~').contains(&c));
            out.write_all(plain.as_bytes())?;
            for unit in part.get(plain.len()..).unwrap_or_default().encode_utf16() {
                write!(out, "\\u{unit:04x}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_ascii_and_come_back() {
        let text = "a\u{7f}ü\u{202e}\u{1f600}\n\"z";
        let mut out = Vec::new();
        write_ascii(&mut out, text).unwrap();
        assert!(out.iter().all(|byte| (b' '..=b'~').contains(byte)));
        assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
    }
}
