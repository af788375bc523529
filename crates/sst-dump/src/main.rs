//! `sst-dump`: looks into the files of an esker database. See `--help`, and `docs/SST-DUMP.md`.
//!
//! The work is done by the library of the same name; here are the arguments and the output. A closed output, such as that
//! of `| head`, ends the program quietly.

mod args;
mod run;

use crate::args::Args;
use crate::run::Run;
use clap::Parser;
use esker_sst_dump::{Exit, Failure};
use esker_vfs::OsVfs;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let _ = error.print();
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Fine };
            return ExitCode::from(exit.code());
        }
    };
    let vfs = OsVfs::new();
    let mut run = Run::new(&vfs, BufWriter::with_capacity(64 << 10, io::stdout().lock()), &args);
    let ended = run.command(&args.command).and_then(|()| run.out.flush().map_err(Failure::Output));
    let mut exit = run.exit;
    // What is buffered must not be written again when the writer is dropped: the output may be closed.
    let _ = run.out.into_parts();
    match ended {
        Ok(()) => {}
        Err(Failure::Fault(fault)) => {
            exit = exit.max(fault.class.exit());
            let _ = writeln!(io::stderr(), "sst-dump: {fault}");
        }
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {}
        Err(Failure::Output(error)) => {
            exit = exit.max(Exit::Io);
            let _ = writeln!(io::stderr(), "sst-dump: can't write the output: {error}");
        }
    }
    ExitCode::from(exit.code())
}
