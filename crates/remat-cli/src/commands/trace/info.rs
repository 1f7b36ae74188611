//! `remat trace info`.

use crate::failure::Failure;
use crate::progress::Shown;
use crate::table;
use remat_core::{Bytes, Config, DeviceId};
use remat_trace::{Format, Header, Replayer, Summary, TraceReader};
use std::io::{self, Write};
use std::path::Path;

pub(crate) fn run(file: &Path, json: bool) -> Result<(), Failure> {
    let reader = remat_trace::open(file)?;
    let (format, header) = (reader.format(), reader.header().cloned());
    let info = read(reader, file)?;
    if json {
        print_json(file, format, header.as_ref(), &info)
    } else {
        table::print(&rows(file, format, header.as_ref(), &info))
    }
}

struct Info {
    summary: Summary,
    /// Highest memory of each device when there is no budget.
    peaks: Vec<Bytes>,
}

fn read(reader: TraceReader, file: &Path) -> Result<Info, Failure> {
    let mut summary = Summary::default();
    let mut replayer = Replayer::new(Config::default());
    for event in Shown::new(reader, file) {
        let event = event?;
        summary.add(&event);
        replayer.feed(&event).map_err(|refusal| {
            let place = file.display();
            Failure::Input(format!(
                "{place}: event {}: {refusal}; run `remat trace check` on it",
                summary.events
            ))
        })?;
    }
    let devices = u8::try_from(summary.devices.saturating_sub(1)).unwrap_or(u8::MAX);
    let peaks = (0..=devices)
        .map(|device| replayer.engine().peak(DeviceId(device)))
        .collect();
    Ok(Info { summary, peaks })
}

fn rows(
    file: &Path,
    format: Format,
    header: Option<&Header>,
    info: &Info,
) -> Vec<(String, String)> {
    let Info { summary, peaks } = info;
    let mut rows = vec![
        ("file".to_owned(), file.display().to_string()),
        ("format".to_owned(), described(format, header)),
        (
            "ops".to_owned(),
            format!(
                "{} ({} cannot be replayed)",
                summary.ops, summary.unreplayable
            ),
        ),
        ("tensors".to_owned(), summary.tensors.to_string()),
        (
            "constants".to_owned(),
            format!("{} ({})", summary.constants, Bytes(summary.constant_bytes)),
        ),
        (
            "bytes made by ops".to_owned(),
            Bytes(summary.output_bytes).to_string(),
        ),
        (
            "largest workspace".to_owned(),
            Bytes(summary.largest_workspace).to_string(),
        ),
        ("total cost".to_owned(), table::duration(summary.cost)),
    ];
    if summary.plans > 0 {
        rows.push(("plans adopted".to_owned(), summary.plans.to_string()));
    }
    for (device, peak) in peaks.iter().enumerate() {
        let name = header.and_then(|header| header.devices.get(device));
        let name = name.map_or_else(|| format!("pool {device}"), Clone::clone);
        rows.push((
            format!("unconstrained peak, {name}"),
            format!("{peak} ({} bytes)", peak.0),
        ));
    }
    if let Some(header) = header {
        rows.extend(
            header
                .about
                .iter()
                .map(|(key, value)| (key.clone(), value.clone())),
        );
    }
    rows
}

fn described(format: Format, header: Option<&Header>) -> String {
    match (format, header) {
        (Format::Dtr, _) => "DTR log".into(),
        (Format::Remat, None) => "Remat trace".into(),
        (Format::Remat, Some(header)) => {
            format!("Remat trace {}, by {}", header.version, header.created_by)
        }
    }
}

fn print_json(
    file: &Path,
    format: Format,
    header: Option<&Header>,
    info: &Info,
) -> Result<(), Failure> {
    let Info { summary, peaks } = info;
    let line = serde_json::json!({
        "file": file.display().to_string(),
        "format": match format { Format::Remat => "remat", Format::Dtr => "dtr" },
        "created_by": header.map(|header| header.created_by.as_str()),
        "pools": header.map(|header| header.devices.as_slice()),
        "about": header.map(|header| &header.about),
        "events": summary.events,
        "ops": summary.ops,
        "unreplayable_ops": summary.unreplayable,
        "tensors": summary.tensors,
        "constants": summary.constants,
        "constant_bytes": summary.constant_bytes,
        "output_bytes": summary.output_bytes,
        "largest_workspace_bytes": summary.largest_workspace,
        "cost_ns": summary.cost,
        "plans": summary.plans,
        "unconstrained_peak_bytes": peaks.iter().map(|peak| peak.0).collect::<Vec<_>>(),
    });
    writeln!(io::stdout(), "{line}").map_err(Failure::output)
}
