//! A page is well-formed and self-contained, and agrees with the declarations.

use super::*;
use crate::experiments::find;
use crate::judge::Ruling;
use std::ops::ControlFlow;
use std::sync::OnceLock;

use crate::study::{Folder, How, News, Seeds, study};

const GO: ControlFlow<()> = ControlFlow::Continue(());

/// Two studies, run once for all tests.
fn studies() -> Vec<Study> {
    static STUDIES: OnceLock<Vec<Study>> = OnceLock::new();
    let run = || {
        let experiments = find(&["wardrop/fig9".to_owned(), "wardrop/table3".to_owned()]).unwrap();
        let how = How { seed: 1, seeds: Seeds::Fixed(1), quick: true, threads: None };
        study(&experiments, how, &Folder::none(), |_| GO).unwrap()
    };
    STUDIES.get_or_init(run).clone()
}

/// Elements without an end tag.
const VOID: [&str; 3] = ["meta", "input", "wbr"];

/// Parses elements, and returns their names with their attributes.
fn elements(text: &str) -> Vec<String> {
    let (mut open, mut found) = (Vec::new(), Vec::new());
    let mut rest = text.strip_prefix("<!DOCTYPE html>").unwrap_or(text);
    while let Some(begin) = rest.find('<') {
        let end = begin + rest[begin..].find('>').expect("what is opened with < ends with >");
        let inside = &rest[begin + 1..end];
        rest = &rest[end + 1..];
        let name = |text: &str| text.split_whitespace().next().unwrap_or_default().to_owned();
        if let Some(closed) = inside.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(closed), "closed in the order of opening");
        } else {
            assert_eq!(inside.matches('"').count() % 2, 0, "quotes of <{inside}>");
            found.push(inside.to_owned());
            if let Some(kind) = ["style", "script"].into_iter().find(|kind| *kind == name(inside)) {
                // The content is not markup.
                rest = &rest[rest.find(&format!("</{kind}>")).expect("a style or a script ends")..];
            }
            if !inside.ends_with('/') && !VOID.contains(&name(inside).as_str()) {
                open.push(name(inside));
            }
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
    found
}

#[test]
fn page_is_well_formed_and_self_contained() {
    let studies = studies();
    let page = page(&studies);
    let elements = elements(&page);
    for element in &elements {
        assert!(!element.starts_with("link"), "{element}");
        let from_elsewhere = ["src=", "href=\"http", "url("].iter().any(|text| element.contains(text));
        assert!(!from_elsewhere, "{element}");
    }
    for reach in ["@import", "url(", "fetch(", "XMLHttpRequest", "WebSocket", "import("] {
        assert!(!page.contains(reach), "{reach}");
    }
    assert!(elements.iter().any(|e| e.starts_with("meta name=\"viewport\"")));
    assert!(
        page.contains("@media print")
            && page.contains("@media (max-width")
            && page.contains("prefers-color-scheme: dark")
    );
    assert!(page.contains("Permission is hereby granted"), "the licence of the charts' library");
    let plots = elements.iter().filter(|e| e.starts_with("figure data-chart=")).count();
    assert_eq!(plots, studies.iter().map(|study| study.tables.len()).sum::<usize>());
}

/// The charts' data is embedded in the page, and cannot end its script.
#[test]
fn charts_embed_values_spread_and_published_numbers() {
    let mut studies = studies();
    studies[1].series[0].label = "</script><b>disk</b>".to_owned();
    studies[1].tables[0].half_widths[0][1] = 0.25;
    studies[1].tables[0].values[0][0] = None;
    let page = page(&studies);
    let (_, data) = page.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
    let (data, _) = data.split_once("</script>").unwrap();
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    let chart = &data["charts"][studies[0].tables.len()];
    assert_eq!(chart["series"][0]["label"], "</script><b>disk</b>");
    assert!(!page.contains("<b>disk</b>"));
    assert_eq!((&chart["y"]["label"], &chart["y"]["unit"]), (&"throughput".into(), &"MB/s".into()));
    assert_eq!(chart["x"]["values"], serde_json::json!([1, 10]));
    let curve = &chart["series"][0];
    assert!(curve["values"][0].is_null() && curve["values"][1].as_f64().unwrap() > 0.0);
    assert_eq!(curve["half_widths"][1], 0.25);
    let of_paper = chart["paper"].as_array().unwrap();
    assert!(
        of_paper.iter().any(|value| value["high"] == 25.9799 && value["axis_value"] == 10),
        "{of_paper:?}"
    );
}

#[test]
fn page_shows_the_text_of_the_declarations() {
    let studies = studies();
    let page = page(&studies);
    let plain = |text: &str| {
        text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
    };
    for study in &studies {
        let texts =
            [&study.title, &study.published].into_iter().chain(&study.differs).chain(&study.differs_in_all);
        let texts = texts.chain(&study.calibrated).chain(&study.contradictions);
        for text in
            texts.chain(study.claims.iter().map(|judged| &judged.claim).filter(|c| *c != "The table."))
        {
            assert!(page.contains(&plain(text)), "'{text}' is not on the page");
        }
    }
    assert!(page.contains("--quick"));
}

/// Claims of papers come first. Braid's aims are not counted with the claims; rows of tables are counted.
#[test]
fn first_table_tallies_paper_claims_by_standing() {
    use crate::experiment::Origin;
    use tally::Standing;
    let mut studies = studies();
    studies[0].claims[0].origin = Origin::Aim;
    for (claim, ruling) in studies[1].claims.iter_mut().zip([Ruling::Holds, Ruling::Fails, Ruling::Fails]) {
        claim.verdicts[0].ruling = Some(ruling);
    }
    let another = studies[1].claims[0].verdicts[0].numbers[0].clone();
    studies[1].claims[2].instead = vec![another];
    let all: usize = studies.iter().map(|study| study.claims.len()).sum();
    let tallies = tally::tally(&studies);
    let [tally] = &tallies[..] else { panic!("both are of one paper") };
    let count = |standing: Standing| tally.of_paper[standing as usize];
    assert_eq!((tally.system, tally.of_paper.iter().sum::<usize>()), ("wardrop", all - 1));
    assert_eq!((count(Standing::Held), count(Standing::FailedWithReason)), (1, 1));
    assert_eq!((count(Standing::FailedWithoutReason), count(Standing::NoVerdict)), (1, all - 4));
    assert_eq!(tally.others.iter().sum::<usize>(), 1);
    let page = page(&studies);
    let (before, papers) = page.split_once("<table id=\"papers\">").unwrap();
    assert!(!before.contains("<table"), "it is the first table");
    let (papers, rest) = papers.split_once("</table>").unwrap();
    assert!(
        papers.contains("Wu and Reddy 2012") && papers.contains(&format!("<td>{}</td>", all - 1)),
        "{papers}"
    );
    assert!(
        papers.contains("data-show=\"held\">1<") && papers.contains("data-show=\"failed\">1<"),
        "{papers}"
    );
    let rows = |of: &str| rest.matches(&format!("<tr data-paper=\"{of}\"")).count();
    assert_eq!((rows("wardrop"), rows("braid")), (all - 1, 1));
}

#[test]
fn claim_row_has_worst_number_and_reason() {
    let mut studies = studies();
    let all: usize = studies.iter().map(|study| study.claims.len()).sum();
    let claim = &mut studies[1].claims[2];
    claim.verdicts[0].ruling = Some(Ruling::Fails);
    claim.verdicts[0].numbers[1].ruling = Some(Ruling::Fails);
    claim.verdicts[0].numbers[0].ruling = Some(Ruling::Holds);
    claim.why = Some("the drive | was worn".to_owned());
    claim.instead = vec![claim.verdicts[0].numbers[0].clone()];
    let worst = claim.verdicts[0].numbers[1].clone();
    let document = markdown(&studies);
    let row = document.lines().find(|line| line.contains("ahead of either device alone")).unwrap();
    for part in [
        &worst.claimed,
        &worst.ours_shown(),
        &worst.needed,
        &worst.quantity,
        "does not hold",
        "another run: ",
    ] {
        assert!(row.contains(part), "'{part}' is not in {row}");
    }
    assert!(row.contains("the drive \\| was worn") && row.contains("`wardrop/table3`, 1 seed"), "{row}");
    assert_eq!(row.replace("\\|", "").matches('|').count(), 8, "{row}");
    assert_eq!(document.lines().filter(|line| line.contains("`, 1 seed |")).count(), all);
    assert!(document.contains("| Wu and Reddy 2012 (`wardrop`) |"));
    for study in &studies {
        rows(study, true).iter().for_each(|row| assert!(document.contains(row)));
    }
}

/// One seed gave "holds", without a mark.
#[test]
fn one_seed_study_has_numbers_but_no_verdict() {
    let experiments = find(&["hystor/tpch".to_owned()]).unwrap();
    let how = |seeds| How { seed: 1, seeds: Seeds::Fixed(seeds), quick: false, threads: None };
    let small = crate::experiment::Experiment {
        series: experiments[0].series.split_at(2).0,
        axis: crate::experiment::Axis::Numbers { label: "SSD, %", places: &[20, 40] },
        claims: &experiments[0].claims[..1],
        ..*experiments[0]
    };
    let of = |seeds| study(&[&small], how(seeds), &Folder::none(), |_| GO).unwrap().remove(0);
    let one = of(1);
    assert_eq!((one.seeds, one.claims[0].verdicts[0].ruling), (1, Some(Ruling::OneSeed)));
    assert_eq!(one.baselines[0].ruling, Some(Ruling::OneSeed));
    // The load ignores the seed except for the drawn rate.
    let three = of(3);
    assert_eq!(three.claims[0].verdicts[0].ruling, Some(Ruling::Untestable), "its rate was chosen for it");
    let spread = three.baselines[0].ours_high - three.baselines[0].ours_low;
    assert!(spread > 0.0 && three.baselines[0].ruling != Some(Ruling::OneSeed), "{:?}", three.baselines);
}

#[test]
fn plots_are_standalone_svg_files_with_unique_names() {
    let figures = figures(&studies());
    let mut names: Vec<&str> = figures.iter().map(|figure| figure.file_name.as_str()).collect();
    assert!(names.contains(&"wardrop-table3-throughput.svg"), "{names:?}");
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), figures.len());
    for figure in &figures {
        let elements = elements(&figure.svg);
        assert!(elements[0].contains("xmlns=\"http://www.w3.org/2000/svg\""), "{}", elements[0]);
        // Dashes and marks distinguish curves with equal colours.
        assert!(figure.svg.contains("wardrop") && figure.svg.contains("<polyline"));
    }
}

#[test]
fn page_does_not_depend_on_the_number_of_threads() {
    let experiments = find(&["wardrop/fig9".to_owned()]).unwrap();
    let page_on = |threads| {
        let how = How { seed: 1, seeds: Seeds::Fixed(1), quick: true, threads: Some(threads) };
        page(&study(&experiments, how, &Folder::none(), |_| GO).unwrap())
    };
    assert_eq!(page_on(1), page_on(2));
}

/// With runs of a twentieth, claims that hold were reported as "does not hold".
#[test]
fn short_runs_are_ruled_too_short() {
    let studies = studies();
    let verdicts = || studies.iter().flat_map(|study| &study.claims).flat_map(|claim| &claim.verdicts);
    let rulings = || verdicts().filter_map(|verdict| verdict.ruling);
    assert!(rulings().count() > 0 && rulings().all(|ruling| ruling == Ruling::TooShort));
    let of_numbers = || verdicts().flat_map(|verdict| &verdict.numbers).filter_map(|number| number.ruling);
    assert!(of_numbers().count() > 0 && of_numbers().all(|ruling| ruling == Ruling::TooShort));
    assert!(!page(&studies).contains(Ruling::Fails.words()));
}

#[test]
fn end_of_each_experiment_is_reported_once() {
    let experiments = find(&["wardrop/fig9".to_owned(), "wardrop/table3".to_owned()]).unwrap();
    let how = How { seed: 1, seeds: Seeds::Fixed(1), quick: true, threads: None };
    let mut ended = Vec::new();
    study(&experiments, how, &Folder::none(), |news| {
        if let News::Ended { experiment, .. } = news {
            ended.push(experiment.id);
        }
        GO
    })
    .unwrap();
    ended.sort_unstable();
    assert_eq!(ended, ["wardrop/fig9", "wardrop/table3"]);
}
