//! A figure: drawing, words, and the numbers behind it.

use super::csv::Csv;
use super::pen::{Drawn, Pen, FINE};
use super::plot::Plot;
use super::residency::Map;
use super::style::WHITE;
use crate::failure::Failure;
use plotters::prelude::{BitMapBackend, DrawingArea, DrawingBackend, IntoDrawingArea, SVGBackend};

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
        ((width * FINE) as u32, (height * FINE) as u32)
    }

    fn draw<DB: DrawingBackend>(&self, area: DrawingArea<DB, plotters::coord::Shift>) -> Drawn<DB> {
        area.fill(&WHITE)?;
        let pen = Pen(&area);
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
        let area = SVGBackend::with_string(&mut text, self.drawing.size()).into_drawing_area();
        self.drawing.draw(area).map_err(|error| self.fault(error))?;
        Ok(text)
    }

    fn png(&self) -> Result<Vec<u8>, Failure> {
        let (width, height) = self.drawing.size();
        let mut dots = vec![0; width as usize * height as usize * 3];
        let area = BitMapBackend::with_buffer(&mut dots, (width, height)).into_drawing_area();
        self.drawing.draw(area).map_err(|error| self.fault(error))?;
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, width, height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let written = encoder.write_header().and_then(|mut writer| {
            writer.write_image_data(&dots)?;
            writer.finish()
        });
        written.map_err(|error| self.fault(error))?;
        Ok(file)
    }

    fn fault(&self, error: impl std::fmt::Display) -> Failure {
        let name = self.name;
        Failure::Input(format!("the figure {name} cannot be drawn: {error}; its numbers can be had with `remat simulate --json`"))
    }
}
