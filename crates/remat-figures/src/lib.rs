//! The figures of the DTR, Coop and Rotor papers, of recorded steps and of chains.
//!
//! A figure is a [table](csv::Csv) of numbers. [`tables`] says which runs a figure needs and writes what `remat-sim`
//! and `remat-plan` found as rows; `figures.js` reads the rows as panels of series; `chart.js` makes a chart of them,
//! with Apache ECharts. The scripts are the same on the [page](page::html), where every point answers to the pointer,
//! and in the [painter](svg::Painter), which draws SVG without a browser. Nothing is simulated or planned here.
//!
//! ```
//! use remat_figures::csv::Csv;
//! use remat_figures::figure::Figure;
//! use remat_figures::svg::Painter;
//!
//! let mut csv = Csv::new(["strategy", "stages", "budget_part", "budget_bytes", "seconds", "slope"]);
//! csv.row(["persistent", "16", "0.5", "4096", "0.25", ""].map(Into::into));
//! let figure = Figure::new("growth", csv).told("limit", 60.0);
//! let svg = Painter::new()?.svg(&figure)?;
//! assert!(svg.starts_with("<svg") && svg.contains("planning time (s)"));
//! # Ok::<(), remat_figures::svg::Undrawn>(())
//! ```

pub mod csv;
pub mod figure;
pub mod page;
pub mod runs;
pub mod svg;
pub mod tables;
