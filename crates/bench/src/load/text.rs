//! Runs as text: Markdown tables and CSV, and the files of a report.

use super::plot;
use super::recorder::Op;
use super::run::{Outcome, Sample};
use super::store::Result;
use super::verdict::judge;
use std::fmt::Write;
use std::path::Path;

/// A line for the terminal while a load is running.
pub fn line(sample: &Sample) -> String {
    let (put, get) = (&sample.ops[Op::Put as usize], &sample.ops[Op::Get as usize]);
    format!(
        "{:7.1} s {:>9.0} op/s  put p99 {:>9.1} max {:>9.1} us  get p99 {:>9.1} us  L0 {:>3}  debt {:>6.1} MiB  {:>6.1} MiB",
        sample.at,
        sample.per_second(),
        put.p99,
        put.max,
        get.p99,
        sample.inside.level0.map_or("–".into(), |tables| tables.to_string()),
        mib(sample.inside.debt),
        sample.resident_mib,
    )
}

/// Prints a line a second on standard error.
pub fn each_second() -> impl FnMut(&Sample) {
    let mut next = 0.0;
    move |sample| {
        if sample.at >= next {
            eprintln!("{}", line(sample));
            next = sample.at.floor() + 1.0;
        }
    }
}

/// Writes `stress.md`, `stress.csv`, `stress.json` and `stress.svg` to a folder, which is made if it is missing.
///
/// # Errors
///
/// When that fails.
#[expect(clippy::disallowed_methods, reason = "a report, and no file of a database")]
pub fn write(outcomes: &[Outcome], out: &Path) -> Result<()> {
    std::fs::create_dir_all(out)?;
    std::fs::write(out.join("stress.md"), report(outcomes))?;
    std::fs::write(out.join("stress.csv"), csv(outcomes))?;
    std::fs::write(out.join("stress.json"), serde_json::to_string(outcomes)?)?;
    plot::draw(outcomes, &out.join("stress.svg"))
}

fn mib(bytes: Option<u64>) -> f64 {
    bytes.unwrap_or_default() as f64 / f64::from(1 << 20)
}

/// Latencies, what else was seen, and the verdicts: Markdown.
pub fn report(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    // Writing to a string never fails.
    let _ = head(&mut text, outcomes).and_then(|()| latencies(&mut text, outcomes));
    let _ = totals(&mut text, outcomes).and_then(|()| verdicts(&mut text, outcomes));
    text
}

fn head(text: &mut String, outcomes: &[Outcome]) -> std::fmt::Result {
    let Some(setting) = outcomes.first().map(|outcome| &outcome.setting) else { return Ok(()) };
    writeln!(
        text,
        "Load `{}`: {} s, {} threads, {} keys, values of {} bytes, rate {}, memory limit {} MiB, seed {}.\n",
        setting.load.name(),
        setting.seconds,
        setting.threads,
        setting.keys,
        setting.value_len,
        setting.rate,
        setting.memory_limit >> 20,
        setting.seed
    )
}

fn latencies(text: &mut String, outcomes: &[Outcome]) -> std::fmt::Result {
    writeln!(text, "| engine | operation | count | a second | mean us | p50 | p99 | p99.9 | max |")?;
    writeln!(text, "|---|---|--:|--:|--:|--:|--:|--:|--:|")?;
    for outcome in outcomes {
        let seconds: f64 = outcome.samples.iter().map(|sample| sample.seconds).sum();
        for op in Op::ALL {
            let summary = &outcome.ops[op as usize];
            if summary.count == 0 {
                continue;
            }
            writeln!(
                text,
                "| {} | {} | {} | {:.0} | {:.2} | {:.2} | {:.1} | {:.1} | {:.0} |",
                outcome.engine,
                op.name(),
                summary.count,
                summary.count as f64 / seconds,
                summary.mean,
                summary.p50,
                summary.p99,
                summary.p999,
                summary.max
            )?;
        }
    }
    writeln!(text)
}

fn totals(text: &mut String, outcomes: &[Outcome]) -> std::fmt::Result {
    writeln!(
        text,
        "| engine | level 0 at most | debt at most, MiB | stalled, s | own count of memory at most, MiB |"
    )?;
    writeln!(text, "|---|--:|--:|--:|--:|")?;
    let told = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.1}"));
    for outcome in outcomes {
        let most = |of: fn(&Sample) -> Option<u64>| outcome.samples.iter().filter_map(of).max();
        let mib = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64 / f64::from(1 << 20));
        writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            outcome.engine,
            outcome.level0_max().map_or("–".to_owned(), |tables| tables.to_string()),
            told(mib(most(|sample| sample.inside.debt))),
            told(outcome.samples.last().and_then(|sample| sample.inside.stalled)),
            told(mib(most(|sample| sample.inside.memory))),
        )?;
    }
    writeln!(text)
}

fn verdicts(text: &mut String, outcomes: &[Outcome]) -> std::fmt::Result {
    writeln!(text, "| engine | verdict | found | aim | holds |")?;
    writeln!(text, "|---|---|--:|---|---|")?;
    for outcome in outcomes {
        let peers = if outcome.engine == "esker" { outcomes } else { &[] };
        for line in judge(outcome, peers) {
            let holds = line.holds.map_or("", |holds| if holds { "yes" } else { "**no**" });
            writeln!(
                text,
                "| {} | {} | {:.2} | {} | {holds} |",
                outcome.engine, line.what, line.found, line.aim
            )?;
        }
    }
    Ok(())
}

/// A line for each sample and operation.
pub fn csv(outcomes: &[Outcome]) -> String {
    let mut text = String::from(
        "engine,load,at_s,seconds,operation,count,mean_us,p50_us,p99_us,p999_us,max_us,level0,debt_bytes,memory_bytes,\
         stalled_s,resident_mib\n",
    );
    for outcome in outcomes {
        for sample in &outcome.samples {
            for op in Op::ALL.iter().filter(|op| outcome.ops[**op as usize].count > 0) {
                let (summary, inside) = (&sample.ops[*op as usize], &sample.inside);
                let count = |value: Option<u64>| value.map_or(String::new(), |value| value.to_string());
                let _ = writeln!(
                    text,
                    "{},{},{:.3},{:.3},{},{},{:.3},{:.3},{:.3},{:.3},{:.3},{},{},{},{},{:.1}",
                    outcome.engine,
                    outcome.setting.load.name(),
                    sample.at,
                    sample.seconds,
                    op.name(),
                    summary.count,
                    summary.mean,
                    summary.p50,
                    summary.p99,
                    summary.p999,
                    summary.max,
                    count(inside.level0),
                    count(inside.debt),
                    count(inside.memory),
                    inside.stalled.map_or(String::new(), |seconds| format!("{seconds:.3}")),
                    sample.resident_mib
                );
            }
        }
    }
    text
}
