//! What is in memory while the linear network runs (DTR figure 5; 4 of the preprint).

use super::axis::{Axis, Scale};
use super::csv::Csv;
use super::draw::{draw_axes, Axes};
use super::pen::{Drawn, Lie, Pen, SMALL};
use super::sheet::{Drawing, Sheet};
use super::style::{Dash, BLACK, BLUE, ORANGE};
use crate::failure::Failure;
use plotters::prelude::DrawingBackend;
use plotters::style::RGBColor;
use remat_core::Policy;
use remat_sim::linear::{self, Held, Picture};

/// Layers, as in the paper.
const LAYERS: u32 = 200;

const SIZE: (f64, f64) = (1000.0, 460.0);
const NOTHING: RGBColor = RGBColor(240, 240, 240);

/// The picture, to be drawn.
pub(super) struct Map(Picture);

/// Figure 5 of the paper.
pub(super) fn sheet() -> Result<Sheet, Failure> {
    let budget = linear::root_budget(LAYERS);
    let picture = Picture::take(LAYERS, budget, Policy::E_STAR)
        .map_err(|unsound| Failure::Input(unsound.to_string()))?
        .ok_or_else(|| Failure::Input(format!("{LAYERS} layers do not fit into {budget}")))?;
    Ok(Sheet {
        name: "residency",
        title: "What is in memory while the linear network runs",
        caption: format!(
            "N = {LAYERS} layers, B = 2⌈√N⌉ = {} tensors, policy e-star, banishing (DTR figure 5; 4 of the preprint): a row a \
             layer, a column an op performed, {} in all. The rule marks the first gradient. Rows that stay filled are checkpoints, \
             evenly spaced; in the gaps between them the same happens again, smaller.",
            budget.0,
            picture.columns.len()
        ),
        numbers: numbers(&picture),
        drawing: Drawing::Map(Map(picture)),
    })
}

/// One row an op performed, one column a layer.
fn numbers(picture: &Picture) -> Csv {
    let names: Vec<String> = (1..=picture.layers)
        .map(|layer| format!("t{layer}"))
        .collect();
    let mut all = vec!["op", "phase"];
    all.extend(names.iter().map(String::as_str));
    let mut csv = Csv::new(&all);
    for (op, column) in picture.columns.iter().enumerate() {
        let phase = match op < picture.backward {
            true => "forward",
            false => "backward",
        };
        let mut row = vec![(op + 1).to_string(), phase.to_owned()];
        row.extend(column.iter().map(|held| {
            let held = match held {
                Held::Nothing => "0",
                Held::Result => "1",
                Held::Gradient => "1.5",
            };
            held.to_owned()
        }));
        csv.row(&row);
    }
    csv
}

impl Map {
    pub(super) fn size(&self) -> (f64, f64) {
        SIZE
    }

    pub(super) fn draw<DB: DrawingBackend>(&self, pen: &Pen<'_, DB>) -> Drawn<DB> {
        let (columns, layers) = (self.0.columns.len(), self.0.layers as usize);
        let x = Axis::over("ops performed", 0.0, columns as f64, Scale::Linear);
        let y = Axis::over("layer", 0.0, layers as f64, Scale::Linear);
        let axes = Axes {
            x: &x,
            y: &y,
            left: 70.0,
            top: 26.0,
            right: SIZE.0 - 20.0,
            bottom: SIZE.1 - 84.0,
        };
        draw_axes(pen, &axes)?;
        let corner = |column: usize, layer: usize| {
            let (x, y) = (column as f64 / columns as f64, layer as f64 / layers as f64);
            (axes.x(x), axes.y(y))
        };
        pen.fill(corner(0, layers), corner(columns, 0), NOTHING)?;
        for layer in 0..layers {
            for (from, to, colour) in self.runs(layer) {
                pen.fill(corner(from, layer + 1), corner(to, layer), colour)?;
            }
        }
        let rule = axes.x(self.0.backward as f64 / columns as f64);
        pen.line(
            &[(rule, axes.top), (rule, axes.bottom)],
            BLACK,
            1.4,
            Dash::Dashed,
        )?;
        pen.text((rule - 6.0, 14.0), "forward", SMALL, Lie::Right)?;
        pen.text((rule + 6.0, 14.0), "backward", SMALL, Lie::Left)?;
        pen.frame((axes.left, axes.top), (axes.right, axes.bottom), BLACK)?;
        self.draw_legend(pen)
    }

    fn draw_legend<DB: DrawingBackend>(&self, pen: &Pen<'_, DB>) -> Drawn<DB> {
        let y = SIZE.1 - 22.0;
        let mut x = 70.0;
        for (colour, name) in [
            (BLUE, "result of the layer in memory"),
            (ORANGE, "gradient of the layer in memory"),
            (
                NOTHING,
                "neither: not yet computed, evicted, or freed for good",
            ),
        ] {
            pen.fill((x, y - 6.0), (x + 24.0, y + 6.0), colour)?;
            pen.frame((x, y - 6.0), (x + 24.0, y + 6.0), BLACK)?;
            pen.text((x + 32.0, y), name, SMALL, Lie::Left)?;
            x += 32.0 + pen.width(name, SMALL) + 30.0;
        }
        Ok(())
    }

    /// Columns from and to which a layer is held without a break.
    fn runs(&self, layer: usize) -> Vec<(usize, usize, RGBColor)> {
        let mut runs: Vec<(usize, usize, RGBColor)> = Vec::new();
        for (place, column) in self.0.columns.iter().enumerate() {
            let colour = match column[layer] {
                Held::Nothing => continue,
                Held::Result => BLUE,
                Held::Gradient => ORANGE,
            };
            match runs.last_mut() {
                Some(run) if run.1 == place && run.2 == colour => run.1 += 1,
                _ => runs.push((place, place + 1, colour)),
            }
        }
        runs
    }
}
