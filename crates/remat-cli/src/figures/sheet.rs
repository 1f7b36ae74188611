//! A figure: drawing, words, and the numbers behind it.

use super::csv::Csv;
use super::pen::{Drawn, Pen};
use super::plot::Plot;
use super::residency::Map;
use super::strip::Strip;
use super::style::WHITE;
use crate::failure::Failure;
use plotters::prelude::{DrawingArea, DrawingBackend, IntoDrawingArea, SVGBackend};
use std::io::Write;

/// Dots a pixel of both SVG and PNG, so that the latter is sharp on paper.
const FINE: u32 = 2;

/// Bitmaps are drawn with so many times more dots and averaged: the backend's lines have hard edges.
const SMOOTH: u32 = 2;

/// Bitmaps are drawn in strips of at most so many bytes, so that memory does not grow with the logs.
const STRIP: u32 = 16 << 20;

/// A figure that is ready to be written.
pub(super) struct Sheet {
    /// Name of its files, without the ending.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) caption: String,
    pub(super) drawing: Drawing,
    pub(super) numbers: Csv,
}

/// What is drawn.
pub(super) enum Drawing {
    Plot(Plot),
    Map(Map),
}

impl Drawing {
    fn size(&self) -> (u32, u32) {
        let (width, height) = match self {
            Drawing::Plot(plot) => plot.size(),
            Drawing::Map(map) => map.size(),
        };
        (width.ceil() as u32, height.ceil() as u32)
    }

    fn draw<DB: DrawingBackend>(
        &self,
        area: DrawingArea<DB, plotters::coord::Shift>,
        fine: u32,
        sink: f64,
    ) -> Drawn<DB> {
        area.fill(&WHITE)?;
        let pen = Pen {
            area: &area,
            fine,
            sink,
        };
        match self {
            Drawing::Plot(plot) => plot.draw(&pen),
            Drawing::Map(map) => map.draw(&pen),
        }?;
        area.present()
    }
}

impl Sheet {
    /// The names and contents of its files.
    pub(super) fn files(&self) -> Result<Vec<(String, Vec<u8>)>, Failure> {
        let named = |ending: &str| format!("{}.{ending}", self.name);
        Ok(vec![
            (named("svg"), self.svg()?.into_bytes()),
            (named("png"), self.png()?),
            (named("csv"), self.numbers.text().as_bytes().to_vec()),
        ])
    }

    fn svg(&self) -> Result<String, Failure> {
        let mut text = String::new();
        let (width, height) = self.drawing.size();
        let size = (width * FINE, height * FINE);
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        self.drawing
            .draw(area, FINE, 0.0)
            .map_err(|error| self.fault(error))?;
        Ok(text)
    }

    fn png(&self) -> Result<Vec<u8>, Failure> {
        let (width, height) = self.drawing.size();
        let (width, height) = (width * FINE, height * FINE);
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, width, height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header().map_err(|error| self.fault(error))?;
        let mut stream = writer.stream_writer().map_err(|error| self.fault(error))?;
        let most = (STRIP / (width * SMOOTH * SMOOTH * 3)).max(1);
        for top in (0..height).step_by(most as usize) {
            let strip = self.strip(top, most.min(height - top))?;
            let written = stream.write_all(&strip);
            written.map_err(|error| self.fault(error))?;
        }
        stream.finish().map_err(|error| self.fault(error))?;
        writer.finish().map_err(|error| self.fault(error))?;
        Ok(file)
    }

    /// The dots of so many lines of the picture.
    fn strip(&self, top: u32, lines: u32) -> Result<Vec<u8>, Failure> {
        let (width, height) = self.drawing.size();
        let fine = FINE * SMOOTH;
        let size = (width * fine, height * fine);
        let mut dots = vec![0; size.0 as usize * (lines * SMOOTH) as usize * 3];
        let area = Strip::of(&mut dots, size, top * SMOOTH).into_drawing_area();
        self.drawing
            .draw(area, fine, 0.15)
            .map_err(|error| self.fault(error))?;
        Ok(averaged(&dots, (width * FINE) as usize))
    }

    fn fault(&self, error: impl std::fmt::Display) -> Failure {
        let name = self.name;
        Failure::Input(format!("the figure {name} cannot be drawn: {error}; its numbers can be had with `remat simulate --json` or `remat plan chain --curve --json`"))
    }
}

/// Means of squares of [`SMOOTH`] by [`SMOOTH`] dots of three bytes, to a picture of this width.
fn averaged(dots: &[u8], width: usize) -> Vec<u8> {
    let smooth = SMOOTH as usize;
    let line = width * smooth * 3;
    let mut picture = Vec::with_capacity(dots.len() / (smooth * smooth));
    for lines in dots.chunks_exact(line * smooth) {
        for at in 0..width * 3 {
            let (dot, part) = (at / 3 * smooth, at % 3);
            let square = (0..smooth * smooth)
                .map(|place| (place / smooth) * line + (dot + place % smooth) * 3 + part);
            let sum: usize = square.map(|place| usize::from(lines[place])).sum();
            picture.push((sum / (smooth * smooth)) as u8);
        }
    }
    picture
}

#[cfg(test)]
mod tests {
    use super::super::axis::{Axis, Scale};
    use super::super::notes::Notes;
    use super::super::plot::{Key, Miss, Panel, Point, Series, Shade};
    use super::super::style::{Dash, Look};
    use super::super::{csv::Csv, pen};
    use super::*;

    #[test]
    fn strips_make_up_the_picture() {
        pen::prepare().unwrap();
        let points = (0..9).map(|x| (f64::from(x), f64::from(x * 5 % 8)));
        let panel = |log| Panel {
            title: format!("log {log}"),
            x: Axis::over("x", 0.0, 9.0, Scale::Linear),
            y: Axis::over("y", 0.0, 8.0, Scale::Linear),
            bands: vec![(0.0, 5.0, Shade::Constants)],
            series: vec![
                Series::through(Look::of(0), points.clone()),
                Series::of(
                    Look::of(log).dashed(Dash::Dotted),
                    vec![(1.0, Point::Missed(Miss::Oom)), (2.0, Point::At(3.0))],
                ),
            ],
            notes: Notes::default(),
        };
        let sheet = Sheet {
            name: "test",
            title: "",
            caption: String::new(),
            drawing: Drawing::Plot(Plot {
                columns: 2,
                panels: (1..=3).map(panel).collect(),
                legend: vec![(Key::Series(Look::of(0)), "points".into())],
            }),
            numbers: Csv::new(&[]),
        };
        let height = sheet.drawing.size().1 * FINE;
        let whole = sheet.strip(0, height).unwrap();
        let mut strips = Vec::new();
        for top in (0..height).step_by(333) {
            strips.extend(sheet.strip(top, 333.min(height - top)).unwrap());
        }
        let differ = whole
            .iter()
            .zip(&strips)
            .filter(|(one, other)| one != other);
        assert_eq!((differ.count(), whole.len()), (0, strips.len()));
    }

    #[test]
    fn dots_are_averaged_in_squares() {
        // Two by two dots make one: red 10, 20, 30, 40; green all 8; blue 0, 0, 0, 4.
        let dots = [10, 8, 0, 20, 8, 0, 30, 8, 0, 40, 8, 4];
        assert_eq!(averaged(&dots, 1), [25, 8, 1]);
    }
}
