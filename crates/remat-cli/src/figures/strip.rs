//! A strip of a bitmap. The whole drawing is drawn over each strip, and only what falls into it is kept: memory does not grow
//! with the drawing.

use plotters::prelude::{BitMapBackend, DrawingBackend};
use plotters_backend::{rasterizer, BackendColor, BackendCoord, BackendStyle, DrawingErrorKind};

/// Some lines of a drawing.
pub(super) struct Strip<'a> {
    dots: BitMapBackend<'a>,
    /// Of the whole drawing, in dots.
    size: (u32, u32),
    /// Lines of the drawing that lie above, and that the strip has.
    above: i32,
    lines: i32,
}

impl Strip<'_> {
    /// The strip from `above` on, of as many lines as there are dots for, three bytes a dot.
    pub(super) fn of(dots: &mut [u8], size: (u32, u32), above: u32) -> Strip<'_> {
        let lines = (dots.len() / (size.0 as usize * 3)) as u32;
        Strip {
            dots: BitMapBackend::with_buffer(dots, (size.0, lines)),
            size,
            above: above as i32,
            lines: lines as i32,
        }
    }
}

type Drawn = Result<(), DrawingErrorKind<<BitMapBackend<'static> as DrawingBackend>::ErrorType>>;

/// Lines, circles and letters come as dots.
impl DrawingBackend for Strip<'_> {
    type ErrorType = <BitMapBackend<'static> as DrawingBackend>::ErrorType;

    fn get_size(&self) -> (u32, u32) {
        self.size
    }

    fn ensure_prepared(&mut self) -> Drawn {
        self.dots.ensure_prepared()
    }

    fn present(&mut self) -> Drawn {
        self.dots.present()
    }

    fn draw_pixel(&mut self, (x, y): BackendCoord, colour: BackendColor) -> Drawn {
        self.dots.draw_pixel((x, y - self.above), colour)
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
        fill: bool,
    ) -> Drawn {
        if !fill {
            return rasterizer::draw_rect(self, from, to, style, fill);
        }
        // The bitmap's fast way, which leaves out the last line and column.
        let (top, bottom) = (from.1.min(to.1) - self.above, from.1.max(to.1) - self.above);
        let (top, bottom) = (top.max(0), bottom.min(self.lines));
        match top < bottom {
            true => self
                .dots
                .draw_rect((from.0, top), (to.0, bottom), style, fill),
            false => Ok(()),
        }
    }
}
