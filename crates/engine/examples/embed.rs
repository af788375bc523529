//! The smallest program that stores something: it counts how often it was run.
//!
//! ```sh
//! cargo run --example embed
//! ```

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let db = esker::Db::open(std::env::temp_dir().join("esker-embed"))?;
    let runs: u64 = db.get("runs")?.map_or(Ok(0), |text| String::from_utf8_lossy(&text).parse())?;
    db.put("runs", (runs + 1).to_string())?;
    println!("This program was run {} times; {} knows.", runs + 1, db.path().display());
    Ok(db.close()?)
}
