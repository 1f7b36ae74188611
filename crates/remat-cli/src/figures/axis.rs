//! Axes: from values to places, and where the ticks are.

use std::ops::Range;

/// How values become places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    Log,
}

/// An axis over a range of values.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    /// What is measured, and its unit.
    pub(super) label: String,
    from: f64,
    to: f64,
    scale: Scale,
}

impl Axis {
    /// An axis over exactly this range.
    pub(super) fn over(label: &str, from: f64, to: f64, scale: Scale) -> Axis {
        let (from, to) = match scale {
            Scale::Log => (from.max(f64::MIN_POSITIVE), to.max(f64::MIN_POSITIVE)),
            Scale::Linear => (from, to),
        };
        let to = match to > from {
            true => to,
            false => from + from.abs().max(1.0),
        };
        Axis {
            label: label.to_owned(),
            from,
            to,
            scale,
        }
    }

    /// An axis that holds all these values with a little air; of a log axis those above 0.
    pub(super) fn around(label: &str, values: impl IntoIterator<Item = f64>, scale: Scale) -> Axis {
        let fits = |value: &f64| value.is_finite() && (scale == Scale::Linear || *value > 0.0);
        let (mut from, mut to) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.into_iter().filter(fits) {
            (from, to) = (from.min(value), to.max(value));
        }
        if from > to {
            (from, to) = (1.0, 10.0);
        }
        match scale {
            Scale::Log => Axis::over(label, from / 1.3, to * 1.3, scale),
            Scale::Linear => {
                let air = (to - from) * 0.04;
                Axis::over(label, from - air, to + air, scale)
            }
        }
    }

    /// Where a value lies: 0 at the beginning of the axis, 1 at its end. `None` for what is not on the axis.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let part = match self.scale {
            Scale::Linear => (value - self.from) / (self.to - self.from),
            Scale::Log => (value / self.from).ln() / (self.to / self.from).ln(),
        };
        (-1e-9..=1.0 + 1e-9).contains(&part).then_some(part)
    }

    /// [`place`](Self::place) of the nearest value on the axis.
    pub(super) fn clamped(&self, value: f64) -> f64 {
        self.place(value.clamp(self.from, self.to)).unwrap_or(0.0)
    }

    /// Values with a tick, and what is written there.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        match self.scale {
            Scale::Linear => self.linear_ticks(),
            Scale::Log => self.log_ticks(),
        }
    }

    fn linear_ticks(&self) -> Vec<(f64, String)> {
        let rough = (self.to - self.from) / 6.0;
        let unit = 10f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * unit);
        let step = steps
            .into_iter()
            .find(|&step| step >= rough * 0.999)
            .unwrap_or(steps[3]);
        let decimals = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
        let (first, last) = ((self.from / step).ceil(), (self.to / step).floor());
        let count = (last - first).clamp(0.0, 20.0) as u32;
        (0..=count)
            .map(|tick| (first + f64::from(tick)) * step)
            .map(|value| (value, format!("{value:.decimals$}")))
            .collect()
    }

    fn log_ticks(&self) -> Vec<(f64, String)> {
        let (low, high) = (self.from.log10(), self.to.log10());
        let within: &[f64] = match high - low {
            span if span < 1.2 => &[1.0, 2.0, 3.0, 5.0],
            span if span < 3.0 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let every = ((high - low) / 8.0).ceil().max(1.0) as usize;
        let ticks: Vec<(f64, i32)> = (low.floor() as i32..=high.ceil() as i32)
            .step_by(every)
            .flat_map(|decade| within.iter().map(move |digit| (*digit, decade)))
            .filter(|&(digit, decade)| self.place(digit * 10f64.powi(decade)).is_some())
            .collect();
        if ticks.len() < FEW {
            return self.linear_ticks();
        }
        // One way of writing an axis.
        let far = |(_, decade): &(f64, i32)| !PLAIN.contains(decade);
        let plain = if ticks.iter().any(far) { 0..2 } else { PLAIN };
        let label = |(digit, decade)| (digit * 10f64.powi(decade), power(digit, decade, &plain));
        ticks.into_iter().map(label).collect()
    }
}

/// A log axis with fewer ticks has those of a linear one: it spans next to nothing.
const FEW: usize = 3;

/// Decades that are written out where no others are on the axis.
const PLAIN: Range<i32> = -3..4;

/// 0.05, 20, and of decades that are not plain 10⁵, 2·10⁶.
fn power(digit: f64, decade: i32, plain: &Range<i32>) -> String {
    match decade {
        _ if plain.contains(&decade) => {
            let decimals = (-decade).max(0) as usize;
            format!("{:.decimals$}", digit * 10f64.powi(decade))
        }
        _ if digit == 1.0 => format!("10{}", raised(decade)),
        _ => format!("{digit}·10{}", raised(decade)),
    }
}

fn raised(exponent: i32) -> String {
    let raise = |letter| match letter {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        digit => char::from_u32(digit as u32 - '0' as u32 + '⁰' as u32).unwrap_or(digit),
    };
    exponent.to_string().chars().map(raise).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<String> {
        axis.ticks().into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        let axis = |from, to, scale| Axis::over("", from, to, scale);
        assert_eq!(
            labels(&axis(0.0, 1.0, Scale::Linear)),
            ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]
        );
        assert_eq!(
            labels(&axis(7.0, 8300.0, Scale::Log)),
            ["10", "100", "1000"]
        );
        assert_eq!(labels(&axis(0.9, 9.0, Scale::Log)), ["1", "2", "3", "5"]);
        let wide = labels(&axis(1.0, 1e12, Scale::Log));
        assert_eq!(wide[..4], ["1", "10²", "10⁴", "10⁶"]);
        assert_eq!(
            labels(&axis(1e-4, 20.0, Scale::Log)),
            ["10⁻⁴", "10⁻³", "10⁻²", "10⁻¹", "1", "10"]
        );
        assert_eq!(
            labels(&axis(0.05, 20.0, Scale::Log)),
            ["0.05", "0.1", "0.2", "0.5", "1", "2", "5", "10", "20"]
        );
        let narrow = labels(&axis(78.0, 102.0, Scale::Log));
        assert_eq!(narrow, ["80", "85", "90", "95", "100"]);
    }

    #[test]
    fn places_run_from_0_to_1() {
        let axis = Axis::over("", 1.0, 100.0, Scale::Log);
        assert_eq!(axis.place(10.0), Some(0.5));
        assert_eq!(axis.place(1000.0), None);
        assert_eq!(axis.place(0.0), None);
        assert_eq!(axis.clamped(1000.0), 1.0);
    }

    #[test]
    fn an_axis_around_nothing_or_one_value_has_a_width() {
        for scale in [Scale::Linear, Scale::Log] {
            for values in [vec![], vec![3.0], vec![f64::NAN, 0.0]] {
                let axis = Axis::around("", values.clone(), scale);
                assert!(axis.to > axis.from, "{values:?}");
                assert!(!axis.ticks().is_empty(), "{axis:?}");
            }
        }
    }
}
