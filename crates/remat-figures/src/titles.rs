//! Short names of logs and chains, for the headings of panels.

/// The shortest ends of the paths that tell them apart, without endings; whole names where none does.
pub fn of<'a>(paths: impl Iterator<Item = &'a str>) -> Vec<String> {
    let names: Vec<&str> = paths.collect();
    let title = |&name: &&str| {
        let alone = |end: &&str| {
            let parts = end.split('/').count();
            let same = names.iter().filter(|other| end_of(other, parts) == *end);
            same.count() == 1
        };
        let mut ends = (1..=name.split('/').count()).map(|parts| end_of(name, parts));
        cut(ends.find(alone).unwrap_or(name))
    };
    names.iter().map(title).collect()
}

/// Letters of a title that fit above a panel.
const TITLE: usize = 40;

/// The end of a name that is too long for a title.
fn cut(name: &str) -> String {
    match name.chars().count() {
        ..=TITLE => name.to_owned(),
        count => "…"
            .chars()
            .chain(name.chars().skip(count - TITLE + 1))
            .collect(),
    }
}

/// The last so many parts of a path, without the file's endings.
fn end_of(name: &str, parts: usize) -> &str {
    let from = name.rmatch_indices('/').nth(parts - 1);
    short(from.map_or(name, |(slash, _)| &name[slash + 1..]))
}

/// A path without the endings of logs.
fn short(mut name: &str) -> &str {
    for ending in [".zst", ".gz", ".trace", ".log", ".dtr", ".json", ".jsonl"] {
        name = name.strip_suffix(ending).unwrap_or(name);
    }
    match name {
        "-" => "standard input",
        name => name,
    }
}
