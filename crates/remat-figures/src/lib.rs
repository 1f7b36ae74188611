//! The figures of the DTR, Coop and Rotor papers, of recorded steps and of chains: as data, on one page, and as SVG.
//!
//! This crate draws what `remat-sim` and `remat-plan` found, and computes nothing itself: it says which runs a figure needs, and
//! turns their outcomes into a [`Figure`](figure::Figure): series, axes, marks and the table of numbers behind them. One script,
//! `chart.js`, makes charts of figures, with Apache ECharts: in the browser on the [page](page::Page), where every point answers
//! to the pointer, and without a browser for the [SVG files](svg::Painter).
//!
//! ```
//! use remat_figures::csv::Csv;
//! use remat_figures::figure::{Axis, Entry, Figure, Panel, Scale, Series};
//! use remat_figures::look::Look;
//! use remat_figures::svg::Painter;
//!
//! let line = Series::through("line", Look::of(0), [(1.0, 1.0), (2.0, 4.0)]);
//! let axis = |label| Axis::over(label, 0.0, 5.0, Scale::Linear);
//! let figure = Figure {
//!     name: "squares",
//!     title: "Squares",
//!     caption: "y is the square of x.".into(),
//!     columns: 1,
//!     legend: vec![Entry::series("line", Look::of(0))],
//!     panels: vec![Panel::new("squares", axis("x"), axis("y"), vec![line])],
//!     csv: Csv::new(&["x", "y"]),
//! };
//! let svg = Painter::new()?.svg(&figure)?;
//! assert!(svg.starts_with("<svg") && svg.contains("squares"));
//! # Ok::<(), remat_figures::svg::Undrawn>(())
//! ```
//!
//! | module | it holds |
//! | --- | --- |
//! | [`figure`], [`look`], [`csv`] | a figure as data |
//! | [`runs`], [`titles`] | the runs of recorded steps that figures need, and what steps are called |
//! | [`figures`] | the figures, a file each subject |
//! | [`page`], [`svg`] | what is written |

pub mod csv;
pub mod figure;
pub mod figures;
pub mod look;
pub mod page;
pub mod runs;
pub mod svg;
pub mod titles;
