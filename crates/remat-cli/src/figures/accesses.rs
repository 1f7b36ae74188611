//! Work of deciding against memory ratio (DTR appendix D.3, figure 12).

use super::axis::{Axis, Scale};
use super::notes::Notes;
use super::overhead::{self, MAIN};
use super::plot::{self, Key, Panel, Plot, Series};
use super::runs::Runs;
use super::sheet::{Drawing, Sheet};
use super::style::Look;
use remat_sim::Outcome;

/// Storages looked at; and of these, scores computed.
pub(super) fn sheets(runs: &Runs<'_>) -> [Sheet; 2] {
    [
        Sheet {
            name: "accesses",
            title: "Metadata accesses while deciding",
            caption: "Storages looked at to score candidates and to keep neighbourhoods up to date, each score counted as one \
                (DTR appendix D.3, figure 12). Runs that evict nothing have no point on the logarithmic axis. Marks above the \
                plots and shades as in the figure of overheads."
                .into(),
            drawing: Drawing::Plot(plot(runs, "metadata accesses", |outcome| {
                outcome.counters.metadata_accesses
            })),
            numbers: runs.numbers(&MAIN),
        },
        Sheet {
            name: "evaluations",
            title: "Scores evaluated while deciding",
            caption: "Candidates scored in all searches together: the part of the metadata accesses that an index over the \
                candidates can save."
                .into(),
            drawing: Drawing::Plot(plot(runs, "score evaluations", |outcome| {
                outcome.counters.score_evaluations
            })),
            numbers: runs.numbers(&MAIN),
        },
    ]
}

fn plot(runs: &Runs<'_>, label: &str, count: impl Fn(&Outcome) -> u64) -> Plot {
    let panels: Vec<Panel> = (0..runs.logs.len())
        .map(|log| {
            let series: Vec<Series> = MAIN
                .iter()
                .map(|&way| {
                    let points = runs.points(log, way, |outcome| count(outcome) as f64);
                    Series::of(Look::of_policy(way.0), points)
                })
                .collect();
            Panel {
                title: runs.titles[log].clone(),
                x: overhead::ratios(runs),
                y: Axis::around(label, series.iter().flat_map(Series::values), Scale::Log),
                bands: overhead::bands(runs, log),
                series,
                notes: Notes::default(),
            }
        })
        .collect();
    let mut legend: Vec<_> = MAIN
        .iter()
        .map(|way| (Key::Series(Look::of_policy(way.0)), way.0.to_owned()))
        .collect();
    legend.extend(plot::misses(&panels));
    legend.extend(overhead::shades());
    Plot {
        columns: 3,
        panels,
        legend,
    }
}
