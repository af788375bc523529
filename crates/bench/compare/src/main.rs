//! `compare`: esker beside its peers.
//!
//! The parent process runs rounds; in each, every engine is measured in processes of its own (the program executes
//! itself), so that no engine inherits another's memory, threads or page cache, and a crash costs one figure. Workloads
//! check every answer. The report is a Markdown table, CSV, JSON and charts.

mod chart;
mod cli;
mod data;
mod engine;
mod engines;
mod ffi;
mod gates;
mod parent;
mod report;
mod rows;
mod stress;
mod versions;
mod workloads;

use crate::cli::{Cli, Command};
use crate::engine::Result;
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        None => parent::run(&cli.run),
        Some(Command::Engines) => list(),
        Some(Command::Report { results, out }) => report::again(&results, &out),
        Some(Command::Gates { results }) => gates::print(&results),
        Some(Command::Stress(stress)) => stress::run(&stress),
        Some(Command::StressChild) => stress::child(),
        Some(Command::Child) => child(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compare: {error}");
            ExitCode::FAILURE
        }
    }
}

fn list() -> Result<()> {
    for name in engines::NAMES {
        let about = engines::about(name)?;
        println!("{} {}: {}", about.name, about.version, about.note);
    }
    Ok(())
}

/// Reads a plan, measures, prints each figure as a line of JSON.
fn child() -> Result<()> {
    let plan: workloads::Plan = serde_json::from_reader(std::io::stdin().lock())?;
    engines::with_engine(&plan.engine, &plan)
}
