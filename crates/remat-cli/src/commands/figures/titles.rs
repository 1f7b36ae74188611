//! What logs and chains are called in figures.

/// The shortest ends of the paths that tell them apart, without endings; whole names where none does.
pub(super) fn of<'a>(paths: impl Iterator<Item = &'a str>) -> Vec<String> {
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

/// Letters that fit above a panel.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_the_shortest_ends_that_tell_paths_apart() {
        let logs = |names: &[&str]| of(names.iter().copied());
        assert_eq!(
            logs(&["a/b/unet.trace.zst", "resnet32.log.gz", "-"]),
            ["unet", "resnet32", "standard input"]
        );
        assert_eq!(
            logs(&["x/a/unet.log", "x/b/unet.trace", "unet.log"]),
            ["a/unet", "b/unet", "unet.log"]
        );
        assert_eq!(
            logs(&["unet.log", "unet.trace"]),
            ["unet.log", "unet.trace"]
        );
        let long = "x".repeat(100);
        assert_eq!(logs(&[&long]), [format!("…{}", "x".repeat(39))]);
    }
}
