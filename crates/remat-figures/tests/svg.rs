//! Tables that are odd or hostile are drawn all the same, or refused with a reason.

use remat_figures::csv::Csv;
use remat_figures::figure::Figure;
use remat_figures::page;
use remat_figures::svg::Painter;
use roxmltree::Document;

const COLUMNS: [&str; 12] = [
    "log",
    "policy",
    "ratio",
    "budget_bytes",
    "status",
    "overhead",
    "peak_bytes",
    "base_memory_bytes",
    "base_cost_ns",
    "const_bytes",
    "bottleneck_bytes",
    "evictions",
];

/// A run of each log, with these values: overhead and status.
fn overhead(logs: &[&str], runs: &[(&str, &str)]) -> Figure {
    let mut csv = Csv::new(COLUMNS);
    for log in logs {
        for (at, (value, status)) in runs.iter().enumerate() {
            let ratio = format!("0.{}", at + 1);
            let row = [
                log, "dtr", &ratio, "100", status, value, "90", "1000", "5", "10", "20", "3",
            ];
            csv.row(row.map(String::from));
        }
    }
    Figure::new("overhead", csv)
}

fn texts(svg: &str) -> Vec<String> {
    let parsed = Document::parse(svg).unwrap_or_else(|fault| panic!("{fault}: {svg}"));
    let texts = parsed
        .descendants()
        .filter(|part| part.has_tag_name("text"));
    texts
        .filter_map(|part| part.text().map(String::from))
        .collect()
}

#[test]
fn panels_are_called_by_the_shortest_ends_that_tell_paths_apart() {
    let titles = |logs: &[&str]| {
        let svg = Painter::new()
            .unwrap()
            .svg(&overhead(logs, &[("1.5", "ok")]));
        let all = texts(&svg.unwrap());
        let known = ["dtr", "overhead (×)", "constants", "largest op"];
        let named = all.into_iter().filter(|text| {
            let tick = text
                .chars()
                .all(|letter| letter.is_ascii_digit() || letter == '.');
            !tick && !text.starts_with("memory ratio") && !known.contains(&text.as_str())
        });
        named.collect::<Vec<_>>()
    };
    assert_eq!(
        titles(&["a/b/unet.trace.zst", "resnet32.log.gz", "-"]),
        ["unet", "resnet32", "standard input"]
    );
    assert_eq!(
        titles(&["x/a/unet.log", "x/b/unet.trace"]),
        ["a/unet", "b/unet"]
    );
    assert_eq!(
        titles(&["unet.log", "unet.trace"]),
        ["unet.log", "unet.trace"]
    );
    let long = "x".repeat(100);
    assert_eq!(titles(&[&long]), [format!("…{}", "x".repeat(39))]);
}

#[test]
fn hostile_names_are_text_in_svg_and_page() {
    let names = [
        "a,b\"c\nd<img onerror=alert(1)>&amp;.log",
        "e</script><script>alert(2)</script>.log",
    ];
    let figure = overhead(&names, &[("1.5", "ok"), ("2", "oom")]);
    let svg = Painter::new().unwrap().svg(&figure).unwrap();
    assert!(!svg.contains("<img") && !svg.contains("<script"));
    let title = "a,b\"c\nd<img onerror=alert(1)>&amp;";
    let shown: String = texts(&svg).concat();
    assert!(
        shown.contains(title) || shown.contains(&title.replace('\n', "")),
        "{shown}"
    );
    let page = page::html(&[figure]).unwrap();
    assert!(!page.contains("alert(2)</script>") && !page.contains("<img onerror"));
    assert!(page.contains("alert(2)\\u003c/script>"));
}

#[test]
fn values_that_are_no_numbers_have_no_place() {
    let runs = [
        ("NaN", "ok"),
        ("inf", "ok"),
        ("-inf", "ok"),
        ("1.25", "ok"),
        ("0", "thrash"),
    ];
    let svg = Painter::new()
        .unwrap()
        .svg(&overhead(&["odd.log"], &runs))
        .unwrap();
    assert!(!svg.contains("NaN") && !svg.contains("Infinity"), "{svg}");
    assert!(texts(&svg).contains(&"given up: thrashing".to_owned()));
    let none = Painter::new()
        .unwrap()
        .svg(&overhead(&["odd.log"], &[("NaN", "ok")]));
    assert!(!none.unwrap().contains("NaN"));
    let empty = Painter::new().unwrap().svg(&overhead(&[], &[]));
    assert!(texts(&empty.unwrap()).is_empty());
}

#[test]
fn the_same_table_gives_the_same_picture() {
    let figure = overhead(&["one.log", "two.log"], &[("1.5", "ok"), ("1.2", "ok")]);
    let draw = || Painter::new().unwrap().svg(&figure).unwrap();
    assert_eq!(draw(), draw());
}

#[test]
fn a_figure_that_no_script_knows_is_refused_with_its_name() {
    let unknown = Figure::new("no-such-figure", Csv::new(["x"]));
    let refused = Painter::new()
        .unwrap()
        .svg(&unknown)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("no-such-figure"), "{refused}");
    assert_eq!(refused.lines().count(), 1, "{refused}");
}
