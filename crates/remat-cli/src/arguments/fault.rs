//! The fault of arguments that cannot be understood, in one line: clap tells it in paragraphs.

use crate::terminal::plain;

/// The line for standard error: the fault, what was meant perhaps, and where help is.
pub(crate) fn one_line(told: &str) -> String {
    let fault = before(before(told, "\n\nFor more information"), "\n\nUsage:");
    let line = plain(&fault.replace("\n\n  tip:", ";").replace("\n  tip:", ";"));
    let words: Vec<&str> = line.split_whitespace().collect();
    format!("{}; see --help", words.join(" "))
}

/// The text before the last place of a mark, or all of it. What was typed stands in the text too, and comes earlier.
fn before<'a>(text: &'a str, mark: &str) -> &'a str {
    text.rfind(mark).map_or(text, |at| &text[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(arguments: &[&str]) -> String {
        use clap::Parser;
        let words = ["remat"].iter().chain(arguments);
        let fault = crate::arguments::Arguments::try_parse_from(words).unwrap_err();
        one_line(&fault.to_string())
    }

    #[test]
    fn a_fault_is_one_line_that_names_what_was_typed() {
        for (arguments, line) in [
            (
                &["simulat"][..],
                "error: unrecognized subcommand 'simulat'; a similar subcommand exists: 'simulate'; see --help",
            ),
            (
                &["trace", "info"],
                "error: the following required arguments were not provided: <FILE>; see --help",
            ),
            (
                &["trace", "convert", "a", "b", "--to", "zz"],
                "error: invalid value 'zz' for '--to <TO>' [possible values: dtr, remat]; see --help",
            ),
            (
                &["simulate", "x", "--policy"],
                "error: a value is required for '--policy <P>' but none was supplied; see --help",
            ),
            (
                &["trace", "info", "a", "b\n\nUsage: \u{7}c"],
                "error: unexpected argument 'b Usage: c' found; see --help",
            ),
        ] {
            assert_eq!(told(arguments), line);
        }
    }
}
