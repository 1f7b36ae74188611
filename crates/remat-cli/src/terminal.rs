//! Text of others as a terminal shows it: names may hold characters that move its cursor or begin a line.

/// A text without control characters, each of which is a blank instead.
pub(crate) fn plain(text: &str) -> String {
    text.replace(char::is_control, " ")
}
