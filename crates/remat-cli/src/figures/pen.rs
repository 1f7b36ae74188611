//! Lines, text and markers on any of plotters' backends.
//!
//! Places are pixels from the upper left corner; a backend has several dots a pixel.

use super::style::{Dash, Marker};
use plotters::coord::Shift;
use plotters::element::{Circle, DashedPathElement, PathElement, Polygon, Rectangle, Text};
use plotters::prelude::{DrawingArea, DrawingAreaErrorKind, DrawingBackend, FontTransform};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    register_font, Color, FontStyle, IntoFont, RGBAColor, RGBColor, ShapeStyle, TextStyle,
};

/// What a drawing ends in.
pub(super) type Drawn<DB> = Result<(), DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>>;

/// Makes the embedded font (DejaVu Sans, under a free licence) known to plotters: nothing depends on the machine's fonts.
/// SVGs name the reader's own sans-serif font.
pub(super) fn prepare() -> Result<(), String> {
    let fonts = [
        (FontStyle::Normal, dejavu::sans::regular()),
        (FontStyle::Bold, dejavu::sans::bold()),
    ];
    for (style, bytes) in fonts {
        register_font(FONT, style, bytes).map_err(|_| "the embedded font cannot be read")?;
    }
    Ok(())
}

const FONT: &str = "sans-serif";

/// Height of small text.
pub(super) const SMALL: f64 = 12.5;
/// Height of text.
pub(super) const BODY: f64 = 14.0;

/// How text lies.
#[derive(Clone, Copy)]
pub(super) enum Lie {
    /// From left to right, anchored at its left, middle or right.
    Left,
    Middle,
    Right,
    /// From below to above, anchored in the middle.
    Up,
}

/// Draws on an area.
pub(super) struct Pen<'a, DB: DrawingBackend> {
    pub(super) area: &'a DrawingArea<DB, Shift>,
    /// Dots a pixel.
    pub(super) fine: u32,
    /// What the backend puts the middle of text too high, in heights of it.
    pub(super) sink: f64,
}

impl<DB: DrawingBackend> Pen<'_, DB> {
    fn dot(&self, place: (f64, f64)) -> (i32, i32) {
        (self.dots(place.0), self.dots(place.1))
    }

    fn dots(&self, pixels: f64) -> i32 {
        (pixels * f64::from(self.fine)).round() as i32
    }

    fn stroke(&self, width: f64) -> u32 {
        self.dots(width).max(1) as u32
    }

    pub(super) fn line(
        &self,
        places: &[(f64, f64)],
        colour: RGBColor,
        width: f64,
        dash: Dash,
    ) -> Drawn<DB> {
        let places: Vec<_> = places.iter().map(|&place| self.dot(place)).collect();
        let style = colour.stroke_width(self.stroke(width));
        match dash {
            Dash::Solid => self.area.draw(&PathElement::new(places, style)),
            Dash::Dashed => self.dashed(places, 6.0, 3.0, style),
            Dash::Dotted => self.dashed(places, 1.5, 2.5, style),
        }
    }

    fn dashed(&self, places: Vec<(i32, i32)>, on: f64, off: f64, style: ShapeStyle) -> Drawn<DB> {
        let (on, off) = (self.dots(on), self.dots(off));
        self.area
            .draw(&DashedPathElement::new(places, on, off, style))
    }

    pub(super) fn fill(
        &self,
        from: (f64, f64),
        to: (f64, f64),
        colour: impl Into<RGBAColor>,
    ) -> Drawn<DB> {
        let style = colour.into().filled();
        self.area
            .draw(&Rectangle::new([self.dot(from), self.dot(to)], style))
    }

    pub(super) fn frame(&self, from: (f64, f64), to: (f64, f64), colour: RGBColor) -> Drawn<DB> {
        let style = colour.stroke_width(self.stroke(0.75));
        self.area
            .draw(&Rectangle::new([self.dot(from), self.dot(to)], style))
    }

    pub(super) fn text(&self, at: (f64, f64), text: &str, height: f64, lie: Lie) -> Drawn<DB> {
        self.write(at, text, height, lie, FontStyle::Normal)
    }

    pub(super) fn bold(&self, at: (f64, f64), text: &str, height: f64, lie: Lie) -> Drawn<DB> {
        self.write(at, text, height, lie, FontStyle::Bold)
    }

    fn write(
        &self,
        at: (f64, f64),
        text: &str,
        height: f64,
        lie: Lie,
        style: FontStyle,
    ) -> Drawn<DB> {
        let font = (FONT, height * f64::from(self.fine), style).into_font();
        let (font, across) = match lie {
            Lie::Left => (font, HPos::Left),
            Lie::Middle => (font, HPos::Center),
            Lie::Right => (font, HPos::Right),
            Lie::Up => (font.transform(FontTransform::Rotate270), HPos::Center),
        };
        let sink = self.sink * height;
        let at = match lie {
            Lie::Up => (at.0 + sink, at.1),
            Lie::Left | Lie::Middle | Lie::Right => (at.0, at.1 + sink),
        };
        let style = TextStyle::from(font).pos(Pos::new(across, VPos::Center));
        self.area
            .draw(&Text::new(text.to_owned(), self.dot(at), style))
    }

    /// Pixels that a text is wide.
    pub(super) fn width(&self, text: &str, height: f64) -> f64 {
        let style = TextStyle::from((FONT, height * f64::from(self.fine)).into_font());
        match self.area.estimate_text_size(text, &style) {
            Ok((width, _)) => f64::from(width) / f64::from(self.fine),
            Err(_) => text.chars().count() as f64 * height * 0.6,
        }
    }

    /// A marker with this radius.
    pub(super) fn marker(
        &self,
        at: (f64, f64),
        marker: Marker,
        radius: f64,
        colour: RGBColor,
    ) -> Drawn<DB> {
        let r = radius;
        let outline = colour.stroke_width(self.stroke(1.2));
        let around = |corners: &[(f64, f64)]| -> Vec<(i32, i32)> {
            let corner = |&(x, y): &(f64, f64)| self.dot((at.0 + x * r, at.1 + y * r));
            corners.iter().map(corner).collect()
        };
        let shape = |corners: &[(f64, f64)]| Polygon::new(around(corners), colour.filled());
        match marker {
            Marker::None => Ok(()),
            Marker::Disc => {
                self.area
                    .draw(&Circle::new(self.dot(at), self.dots(r), colour.filled()))
            }
            Marker::Ring => self
                .area
                .draw(&Circle::new(self.dot(at), self.dots(r), outline)),
            Marker::Square => {
                let half = r * 0.9;
                self.fill(
                    (at.0 - half, at.1 - half),
                    (at.0 + half, at.1 + half),
                    colour,
                )
            }
            Marker::Box => self.area.draw(&PathElement::new(
                around(&[
                    (-0.9, -0.9),
                    (0.9, -0.9),
                    (0.9, 0.9),
                    (-0.9, 0.9),
                    (-0.9, -0.9),
                ]),
                outline,
            )),
            Marker::Diamond => {
                self.area
                    .draw(&shape(&[(0.0, -1.2), (1.2, 0.0), (0.0, 1.2), (-1.2, 0.0)]))
            }
            Marker::Up => self
                .area
                .draw(&shape(&[(0.0, -1.2), (1.1, 0.8), (-1.1, 0.8)])),
            Marker::Down => self
                .area
                .draw(&shape(&[(0.0, 1.2), (1.1, -0.8), (-1.1, -0.8)])),
            Marker::Cross => {
                for stroke in [[(-0.9, -0.9), (0.9, 0.9)], [(-0.9, 0.9), (0.9, -0.9)]] {
                    self.area
                        .draw(&PathElement::new(around(&stroke), outline))?;
                }
                Ok(())
            }
            Marker::Plus => {
                for stroke in [[(-1.1, 0.0), (1.1, 0.0)], [(0.0, -1.1), (0.0, 1.1)]] {
                    self.area
                        .draw(&PathElement::new(around(&stroke), outline))?;
                }
                Ok(())
            }
        }
    }
}
