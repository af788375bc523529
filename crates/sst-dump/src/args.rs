//! The command line.

use clap::{Parser, Subcommand, ValueEnum};
use esker_base::{FileNumber, ValueKind};
use esker_sst_dump::{Class, Failure, Fault, Form, SalvageOptions, ScanOptions, parse_key};
use std::path::{Path, PathBuf};

const EXIT_CODES: &str = "\
Exit codes (of several the heaviest counts: 2, 1, 3, 4):
  0  nothing is wrong
  1  damage was found, or something that may be damage: the end of a log that is not whole, for instance
  2  the arguments make no sense, or the command does not fit the file
  3  the operating system refused something: a missing file, a failed read
  4  a file of a newer format, a file that is none of esker's, or a directory without a database

Nothing is written, but the new file of `salvage`; no lock is taken, links in a directory are not followed. Of a database that is open, the answer
is about files that come and go: what is reported missing or torn may be all right a moment later.";

/// Looks into the files of an esker database: tables, log segments, manifests, and whole directories.
///
/// Kinds of files are told by their names, and by their first bytes where the name is none of esker's.
#[derive(Debug, Parser)]
#[command(name = "sst-dump", version, after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Print one JSON document with a "schema" field instead of text.
    #[arg(long, global = true)]
    json: bool,
    /// Show keys and values in hexadecimal digits.
    #[arg(long, global = true, conflicts_with = "text")]
    hex: bool,
    /// Show printable characters beyond ASCII in keys and values as they are. The default escapes them.
    #[arg(long, global = true)]
    text: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// One screen about each file: format, counts, ranges, and where the bytes go.
    Info {
        /// Files of any kind.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// The sections of a file with offset and length, which add up to its length.
    Layout {
        /// A file of any kind.
        file: PathBuf,
        /// Each data block of a table, and each record of a log or manifest.
        #[arg(long)]
        blocks: bool,
    },
    /// The entries of a table.
    Scan(ScanArgs),
    /// Everything that is wrong with files and directories; nothing else is read that thoroughly.
    Verify {
        /// Tables, log segments, manifests, CURRENT, or database directories.
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// The edits of a manifest, and the state that they add up to; also of a damaged one.
    Manifest {
        /// A manifest, or a database directory.
        path: PathBuf,
    },
    /// The records of a log segment, and how it ends; also of a damaged one.
    Wal {
        /// A log segment, or a database directory.
        path: PathBuf,
        /// Print each operation with key and value.
        #[arg(long)]
        ops: bool,
    },
    /// Copies every entry of a damaged table that can be read into a new table, and tells what is lost.
    Salvage(SalvageArgs),
    /// The tree of a database directory; also of one that does not open.
    Db {
        /// A database directory.
        dir: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct SalvageArgs {
    /// The damaged table. It is only read.
    pub(crate) input: PathBuf,
    /// The new table. There must be no such file.
    pub(crate) output: PathBuf,
    /// The id of the store, in hexadecimal digits, where header and footer are damaged.
    #[arg(long, value_name = "HEX", value_parser = hex_u128)]
    store_id: Option<u128>,
    /// The number of the table, where header and footer are damaged.
    #[arg(long, value_name = "N")]
    number: Option<u64>,
    /// The hash seed of the store, in hexadecimal digits, where the properties are damaged. Without it the new table has
    /// no filter.
    #[arg(long, value_name = "HEX", value_parser = hex_u64)]
    hash_seed: Option<u64>,
    /// A manifest of the store, to take its id and hash seed from.
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
}

impl SalvageArgs {
    pub(crate) fn options(&self) -> SalvageOptions {
        SalvageOptions {
            store_id: self.store_id,
            number: self.number.map(FileNumber),
            hash_seed: self.hash_seed,
            manifest: self.manifest.clone(),
        }
    }
}

fn hex_u128(argument: &str) -> Result<u128, String> {
    let digits = argument.strip_prefix("0x").unwrap_or(argument);
    u128::from_str_radix(digits, 16).map_err(|error| error.to_string())
}

fn hex_u64(argument: &str) -> Result<u64, String> {
    hex_u128(argument)?.try_into().map_err(|_| "more than 16 digits".to_owned())
}

#[derive(Debug, clap::Args)]
pub(crate) struct ScanArgs {
    /// A table.
    pub(crate) file: PathBuf,
    /// The smallest user key. Text with \xNN, \\, \", \', \n, \r, \t and \0 as escapes.
    #[arg(long, value_name = "KEY")]
    from: Option<String>,
    /// The user key before which the scan ends.
    #[arg(long, value_name = "KEY")]
    to: Option<String>,
    /// What user keys start with.
    #[arg(long, value_name = "KEY")]
    prefix: Option<String>,
    /// The keys of --from, --to and --prefix are hexadecimal digits.
    #[arg(long)]
    key_hex: bool,
    /// Only entries of this kind.
    #[arg(long)]
    kind: Option<Kind>,
    /// The smallest sequence number.
    #[arg(long, value_name = "N")]
    min_seq: Option<u64>,
    /// The largest sequence number.
    #[arg(long, value_name = "N")]
    max_seq: Option<u64>,
    /// How many entries at most.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// From the last entry to the first.
    #[arg(long)]
    reverse: bool,
    /// Print the number of entries only.
    #[arg(long)]
    pub(crate) count: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    Put,
    Delete,
}

impl Args {
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    pub(crate) fn form(&self) -> Form {
        match (self.hex, self.text) {
            (true, _) => Form::Hex,
            (_, true) => Form::Text,
            _ => Form::Escaped,
        }
    }
}

impl ScanArgs {
    /// What the library is asked for; a key that can't be parsed is a usage fault.
    pub(crate) fn options(&self) -> Result<ScanOptions, Failure> {
        let key = |argument: &Option<String>| match argument {
            None => Ok(None),
            Some(argument) => parse_key(argument, self.key_hex)
                .map(Some)
                .map_err(|what| Failure::Fault(Fault::of(Class::Usage, Path::new(""), what))),
        };
        Ok(ScanOptions {
            from: key(&self.from)?,
            to: key(&self.to)?,
            prefix: key(&self.prefix)?,
            kind: self.kind.map(|kind| match kind {
                Kind::Put => ValueKind::Put,
                Kind::Delete => ValueKind::Delete,
            }),
            min_seq: self.min_seq,
            max_seq: self.max_seq,
            limit: self.limit,
            reverse: self.reverse,
        })
    }
}
