//! [`Run`]: one command, from the library's answer to text or JSON.
//!
//! A JSON document ends with its `faults`, also when there is nothing else to say; in `verify` they are what it is about
//! and come first. In text, faults that leave nothing to show go to the error output, and so do those of `scan`, whose
//! output is data.

use crate::args::{Args, Command, SalvageArgs, ScanArgs};
use esker_base::InternalKeyRef;
use esker_sst_dump::{
    Exit, Failure, Fault, Form, JsonDocument, LogItem, Shown, StateInfo, VerifyEvent, db, info, layout,
    manifest, salvage, scan, verify, wal, wal_files,
};
use esker_vfs::Vfs;
use serde::Serialize;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A command on its way.
pub(crate) struct Run<'a, W> {
    vfs: &'a dyn Vfs,
    /// Where the answer goes.
    pub(crate) out: W,
    json: bool,
    form: Form,
    /// What the exit code should be, by what was met so far.
    pub(crate) exit: Exit,
}

type Document<'a, W> = JsonDocument<&'a mut W>;

impl<'a, W: Write> Run<'a, W> {
    pub(crate) fn new(vfs: &'a dyn Vfs, out: W, args: &Args) -> Self {
        Run { vfs, out, json: args.json(), form: args.form(), exit: Exit::Fine }
    }

    /// Runs a command.
    ///
    /// # Errors
    ///
    /// A fault that left nothing to show, and failures of the output.
    pub(crate) fn command(&mut self, command: &Command) -> Result<(), Failure> {
        match command {
            Command::Info { files } => self.info(files),
            Command::Layout { file, blocks } => self.layout(file, *blocks),
            Command::Scan(args) => self.scan(args),
            Command::Verify { paths } => self.verify(paths),
            Command::Manifest { path } => self.manifest(path),
            Command::Wal { path, ops } => self.wal(path, *ops),
            Command::Db { dir } => self.db(dir),
            Command::Salvage(args) => self.salvage(args),
        }
    }

    fn met<'f>(&mut self, faults: impl IntoIterator<Item = &'f Fault>) {
        self.exit = self.exit.max(Exit::of(faults));
    }

    /// Writes a document whose body returns the faults; a fault that ended the body is one of them.
    fn document(
        &mut self,
        schema: &str,
        body: impl FnOnce(&mut Document<'_, W>) -> Result<Vec<Fault>, Failure>,
    ) -> Result<(), Failure> {
        let mut document = JsonDocument::begin(&mut self.out, schema)?;
        let faults = match body(&mut document) {
            Err(Failure::Fault(fault)) => vec![fault],
            ended => ended?,
        };
        self.exit = self.exit.max(Exit::of(&faults));
        document.field("faults", &faults)?;
        Ok(document.end()?)
    }

    fn info(&mut self, files: &[PathBuf]) -> Result<(), Failure> {
        let (vfs, form) = (self.vfs, self.form);
        let exit = &mut self.exit;
        let infos = files.iter().map(|file| {
            let info = info(vfs, file, form);
            *exit = (*exit).max(Exit::of(&info.faults));
            info
        });
        if !self.json {
            return infos.into_iter().try_for_each(|info| Ok(write!(self.out, "{info}")?));
        }
        let mut document = JsonDocument::begin(&mut self.out, "sst-dump/info/1")?;
        document.field("bytes", form.name())?;
        document.list("files")?;
        infos.into_iter().try_for_each(|info| document.item(&info))?;
        Ok(document.end()?)
    }

    fn layout(&mut self, file: &Path, blocks: bool) -> Result<(), Failure> {
        let vfs = self.vfs;
        if self.json {
            return self.document("sst-dump/layout/1", |document| {
                document.field("file", &file.display().to_string())?;
                document.list("sections")?;
                let summary = layout(vfs, file, blocks, &mut |section| document.item(&section))?;
                document.field("kind", &summary.kind)?;
                document.field("size", &summary.size)?;
                Ok(summary.faults)
            });
        }
        let out = &mut self.out;
        let summary = layout(vfs, file, blocks, &mut |section| writeln!(out, "{section}"))?;
        self.met(&summary.faults);
        writeln!(self.out, "{:>12}", summary.size)?;
        self.lines(&summary.faults)
    }

    fn lines(&mut self, faults: &[Fault]) -> Result<(), Failure> {
        faults.iter().try_for_each(|fault| Ok(writeln!(self.out, "{fault}")?))
    }

    fn scan(&mut self, args: &ScanArgs) -> Result<(), Failure> {
        let options = args.options()?;
        let (vfs, form, silent) = (self.vfs, self.form, args.count);
        if self.json {
            return self.document("sst-dump/scan/1", |document| {
                document.field("file", &args.file.display().to_string())?;
                document.field("bytes", form.name())?;
                document.list("entries")?;
                let summary = scan(vfs, &args.file, &options, &mut |key, value| match silent {
                    true => Ok(()),
                    false => document.item(&Entry::new(key, value, form)),
                })?;
                document.field("count", &summary.count)?;
                Ok(summary.faults)
            });
        }
        let out = &mut self.out;
        let summary = scan(vfs, &args.file, &options, &mut |key, value| match silent {
            true => Ok(()),
            false => Entry::new(key, value, form).write(out),
        })?;
        self.met(&summary.faults);
        if silent {
            writeln!(self.out, "{}", summary.count)?;
        }
        self.out.flush()?;
        for fault in &summary.faults {
            let _ = writeln!(io::stderr(), "sst-dump: {fault}");
        }
        Ok(())
    }

    fn verify(&mut self, paths: &[PathBuf]) -> Result<(), Failure> {
        if self.json {
            let mut document = JsonDocument::begin(&mut self.out, "sst-dump/verify/1")?;
            document.list("faults")?;
            let mut files = Vec::new();
            let exit = &mut self.exit;
            verify(self.vfs, paths, &mut |event| match event {
                VerifyEvent::Fault(fault) => {
                    *exit = (*exit).max(fault.class.exit());
                    document.item(&fault)
                }
                VerifyEvent::Checked(file) => {
                    files.push(file);
                    Ok(())
                }
            })?;
            document.list("files")?;
            files.iter().try_for_each(|file| document.item(file))?;
            return Ok(document.end()?);
        }
        let (mut files, mut faults) = (0_u64, 0_u64);
        let (out, exit) = (&mut self.out, &mut self.exit);
        verify(self.vfs, paths, &mut |event| match event {
            VerifyEvent::Fault(fault) => {
                faults += 1;
                *exit = (*exit).max(fault.class.exit());
                writeln!(out, "{fault}")
            }
            VerifyEvent::Checked(file) => {
                files += 1;
                writeln!(out, "{file}")
            }
        })?;
        Ok(writeln!(self.out, "{files} files, {faults} faults")?)
    }

    fn manifest(&mut self, path: &Path) -> Result<(), Failure> {
        let (vfs, form) = (self.vfs, self.form);
        if self.json {
            return self.document("sst-dump/manifest/1", |document| {
                let report = manifest(vfs, path)?;
                document.field("file", &report.file())?;
                document.field("bytes", form.name())?;
                document.field("number", &report.dump.number.0)?;
                document.field("size", &report.dump.len)?;
                document.list("items")?;
                report.items(form).try_for_each(|item| document.item(&item))?;
                document.field("state", &StateInfo::new(&report.picture, form))?;
                Ok(report.all_faults().collect())
            });
        }
        let report = manifest(vfs, path)?;
        let faults: Vec<Fault> = report.all_faults().collect();
        self.met(&faults);
        self.lines(&report.faults)?;
        let (file, size) = (report.file(), report.dump.len);
        writeln!(
            self.out,
            "{}: {size} bytes, store {:032x}",
            esker_sst_dump::Safe(&file),
            report.dump.store_id
        )?;
        for item in report.items(form) {
            write!(self.out, "{item}")?;
        }
        Ok(write!(self.out, "{}", StateInfo::new(&report.picture, form))?)
    }

    fn wal(&mut self, path: &Path, ops: bool) -> Result<(), Failure> {
        let (vfs, ops) = (self.vfs, ops.then_some(self.form));
        let form = self.form;
        if self.json {
            return self.document("sst-dump/wal/1", |document| {
                let mut faults = Vec::new();
                document.field("bytes", form.name())?;
                document.list("items")?;
                for file in wal_files(vfs, path)? {
                    document.item(&FileItem { item: "file", file: file.display().to_string() })?;
                    let walked = wal(vfs, &file, ops, &mut |item| {
                        if let LogItem::Fault(fault) = &item {
                            faults.push(fault.clone());
                        }
                        document.item(&item)
                    });
                    match walked {
                        Err(Failure::Fault(fault)) => faults.push(fault),
                        walked => drop(walked?),
                    }
                }
                Ok(faults)
            });
        }
        for file in wal_files(vfs, path)? {
            writeln!(self.out, "{}", esker_sst_dump::Safe(&file.display().to_string()))?;
            let (out, exit) = (&mut self.out, &mut self.exit);
            let walked = wal(vfs, &file, ops, &mut |item| {
                if let LogItem::Fault(fault) = &item {
                    *exit = (*exit).max(fault.class.exit());
                }
                write!(out, "{item}")
            });
            match walked {
                Err(Failure::Fault(fault)) => {
                    self.met([&fault]);
                    writeln!(self.out, "{fault}")?;
                }
                walked => drop(walked?),
            }
        }
        Ok(())
    }

    fn db(&mut self, dir: &Path) -> Result<(), Failure> {
        let (vfs, form) = (self.vfs, self.form);
        if self.json {
            return self.document("sst-dump/db/1", |document| {
                let mut report = db(vfs, dir, form)?;
                let faults = std::mem::take(&mut report.faults);
                document.field("bytes", form.name())?;
                document.field("db", &report)?;
                Ok(faults)
            });
        }
        let report = db(vfs, dir, form)?;
        self.met(&report.faults);
        Ok(write!(self.out, "{report}")?)
    }

    fn salvage(&mut self, args: &SalvageArgs) -> Result<(), Failure> {
        let (vfs, form, options) = (self.vfs, self.form, args.options());
        if self.json {
            return self.document("sst-dump/salvage/1", |document| {
                let report = salvage(vfs, &args.input, &args.output, &options, form)?;
                document.field("bytes", form.name())?;
                document.field("salvage", &report)?;
                Ok(report.faults)
            });
        }
        let report = salvage(vfs, &args.input, &args.output, &options, form)?;
        self.met(&report.faults);
        Ok(write!(self.out, "{report}")?)
    }
}

/// Starts the items of one file.
#[derive(Serialize)]
struct FileItem {
    item: &'static str,
    file: String,
}

/// An entry of a table.
#[derive(Serialize)]
struct Entry<'a> {
    key: Shown<'a>,
    seq: u64,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Shown<'a>>,
}

impl<'a> Entry<'a> {
    fn new(key: InternalKeyRef<'a>, value: &'a [u8], form: Form) -> Self {
        let has_value = !value.is_empty() || !matches!(key.kind.name(), "delete" | "single-delete");
        Entry {
            key: Shown::new(key.user_key, form),
            seq: key.seq,
            kind: key.kind.name(),
            value: has_value.then(|| Shown::new(value, form)),
        }
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        write!(out, "{} @{} {}", self.key, self.seq, self.kind)?;
        match &self.value {
            Some(value) => writeln!(out, " => {value}"),
            None => writeln!(out),
        }
    }
}
