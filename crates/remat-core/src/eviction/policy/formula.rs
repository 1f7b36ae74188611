//! Scores in words.

use super::rule::{Form, Gaps, Numerator, Price, Reach, Rule};

/// The score that a rule gives, as a formula or in words.
pub(super) fn formula(rule: &Rule) -> String {
    if let Some(about) = rule.about {
        return about.to_owned();
    }
    let score = format!("{}{}", numerator(rule.numerator), divisor(rule));
    match rule.window {
        Some(price) => window(&score, price),
        None => score,
    }
}

fn numerator(numerator: Numerator) -> &'static str {
    match numerator {
        Numerator::One => "1",
        Numerator::Cost => "cost of its own op",
        Numerator::Components => "cost of recomputing it and its evicted component",
        Numerator::Evicted(evicted) => match evicted.reach {
            Reach::Neighbourhood => "cost of recomputing it and its evicted neighbourhood",
            Reach::Ancestors => "cost of recomputing it and its evicted ancestors",
        },
    }
}

fn divisor(rule: &Rule) -> &'static str {
    match (rule.form, rule.gaps) {
        (Form::Quotient { size, stale }, Gaps::Ignored) => match (size, stale) {
            (true, true) => " / (size * staleness)",
            (true, false) => " / size",
            (false, true) => " / staleness",
            (false, false) => "",
        },
        (Form::Quotient { .. }, Gaps::Counted) => {
            " / ((size + free bytes beside it in the arena) * staleness)"
        }
        (Form::LastAccess | Form::Draw, _) => "",
    }
}

fn window(score: &str, price: Price) -> String {
    let per = match price {
        Price::Sum => "",
        Price::PerByte => " / bytes made free",
    };
    format!("neighbours in the arena, of which the sum of ({score}){per} is least")
}
