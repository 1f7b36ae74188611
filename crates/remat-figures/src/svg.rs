//! Figures as SVG: the page's chart library, run by a JavaScript engine in place of a browser.

use crate::figure::Figure;
use rquickjs::{CatchResultExt, Context, Ctx, Function, Object, Runtime};
use std::fmt;

/// The chart library; `vendor/refresh` makes it.
pub(crate) const LIBRARY: &str = include_str!("../vendor/echarts.min.js");

/// The scripts that read tables as figures, and make charts of figures.
pub(crate) const SCRIPTS: [&str; 2] = [include_str!("figures.js"), include_str!("chart.js")];

/// The timers that the library expects of a browser; still pictures need none.
const TIMERS: &str = "globalThis.setTimeout = () => 0; globalThis.clearTimeout = () => undefined;";

/// Bytes of stack that the library's calls may take; less than a thread of Rust has.
const STACK: usize = 1 << 20;

/// Draws figures, without a browser.
pub struct Painter(Context);

/// Why a figure could not be drawn.
#[derive(Debug)]
pub struct Undrawn(String);

impl fmt::Display for Undrawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Undrawn {}

/// The first line of an error; where in the scripts it came up says nothing to users.
fn undrawn(error: impl fmt::Display) -> Undrawn {
    let words = error.to_string();
    Undrawn(words.lines().next().unwrap_or_default().to_owned())
}

impl Painter {
    /// Loads the chart library.
    pub fn new() -> Result<Painter, Undrawn> {
        let runtime = Runtime::new().map_err(undrawn)?;
        runtime.set_max_stack_size(STACK);
        let context = Context::full(&runtime).map_err(undrawn)?;
        context.with(|ctx| {
            let load = |source: &str| ctx.eval::<(), _>(source).catch(&ctx).map_err(undrawn);
            [TIMERS, LIBRARY]
                .into_iter()
                .chain(SCRIPTS)
                .try_for_each(load)
        })?;
        Ok(Painter(context))
    }

    /// The figure as an SVG document.
    pub fn svg(&self, figure: &Figure) -> Result<String, Undrawn> {
        let json = serde_json::to_string(figure).map_err(undrawn)?;
        self.0
            .with(|ctx| draw(&ctx, json).catch(&ctx).map_err(undrawn))
    }
}

fn draw(ctx: &Ctx<'_>, figure: String) -> rquickjs::Result<String> {
    let chart: Object = ctx.globals().get("remat")?;
    chart.get::<_, Function>("svg")?.call((figure,))
}
