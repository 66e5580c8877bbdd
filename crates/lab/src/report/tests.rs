//! A page is well-formed, needs nothing but itself, and says what the declarations say.

use super::*;
use crate::experiments::find;
use crate::judge::Ruling;
use crate::study::{How, study};

fn studies() -> Vec<Study> {
    let experiments = find(&["wardrop/fig9".to_owned(), "wardrop/table3".to_owned()]).unwrap();
    study(&experiments, How { seed: 1, seeds: 1, quick: true, threads: None }, |_| {}, |_| {}).unwrap()
}

/// Reads elements as XML would, and gives their names with their attributes.
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
            if name(inside) == "style" {
                // What it holds is not markup.
                rest = &rest[rest.find("</style>").expect("a style ends")..];
            }
            if !inside.ends_with('/') {
                open.push(name(inside));
            }
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
    found
}

#[test]
fn the_page_is_well_formed_and_needs_nothing_but_itself() {
    let studies = studies();
    let page = page(&studies);
    let elements = elements(&page);
    for element in &elements {
        assert!(!element.starts_with("script") && !element.starts_with("link"), "{element}");
        let from_elsewhere = ["src=", "href=\"http", "url("].iter().any(|text| element.contains(text));
        assert!(!from_elsewhere, "{element}");
    }
    assert!(!page.contains("@import") && !page.contains("url("));
    assert!(elements.iter().any(|e| e.starts_with("meta name=\"viewport\"")));
    assert!(
        page.contains("@media print")
            && page.contains("@media (max-width")
            && page.contains("prefers-color-scheme: dark")
    );
    let plots = elements.iter().filter(|e| e.starts_with("svg ")).count();
    assert_eq!(plots, studies.iter().map(|study| study.tables.len()).sum::<usize>());
}

#[test]
fn the_page_says_what_the_declarations_say() {
    let studies = studies();
    let page = page(&studies);
    let plain = |text: &str| text.replace('"', "&quot;");
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

/// Claims of papers come first; what Braid aims at is not counted with them, and rows of tables are.
#[test]
fn the_summary_tells_papers_from_braid() {
    use crate::experiment::Origin;
    let mut studies = studies();
    studies[0].claims[0].origin = Origin::Aim;
    let page = page(&studies);
    let (papers, ours) = page.split_once("Braid's own aims").expect("a table of its own");
    let link = |study: &Study| format!("<a href=\"#{}\">", study.id);
    let (fig9, table3) = (&studies[0], &studies[1]);
    let (ours, _) = ours.split_once("<section").unwrap();
    assert_eq!(papers.matches(&link(fig9)).count(), fig9.claims.len() - 1);
    assert_eq!(papers.matches(&link(table3)).count(), table3.claims.len(), "its rows are judged, too");
    assert_eq!((ours.matches(&link(fig9)).count(), ours.matches(&link(table3)).count()), (1, 0));
}

/// One seed said "holds", without a mark.
#[test]
fn one_seed_gives_numbers_and_no_verdict() {
    let experiments = find(&["hystor/tpch".to_owned()]).unwrap();
    let how = |seeds| How { seed: 1, seeds, quick: false, threads: None };
    let small = crate::experiment::Experiment {
        series: experiments[0].series.split_at(2).0,
        axis: crate::experiment::Axis::Numbers { label: "SSD, %", places: &[20, 40] },
        claims: &experiments[0].claims[..1],
        ..*experiments[0]
    };
    let of = |seeds| study(&[&small], how(seeds), |_| {}, |_| {}).unwrap().remove(0);
    let one = of(1);
    assert_eq!((one.seeds, one.claims[0].verdicts[0].ruling), (1, Some(Ruling::OneSeed)));
    assert_eq!(one.baselines[0].ruling, Some(Ruling::OneSeed));
    // Its load ignores the seed but for the rate that the seed draws.
    let three = of(3);
    assert_eq!(three.claims[0].verdicts[0].ruling, Some(Ruling::Untestable), "its rate was chosen for it");
    let spread = three.baselines[0].ours_high - three.baselines[0].ours_low;
    assert!(spread > 0.0 && three.baselines[0].ruling != Some(Ruling::OneSeed), "{:?}", three.baselines);
}

#[test]
fn plots_are_documents_of_their_own_with_names_of_their_own() {
    let figures: Vec<Figure> = studies().iter().flat_map(figures).collect();
    let mut names: Vec<&str> = figures.iter().map(|figure| figure.file_name.as_str()).collect();
    assert!(names.contains(&"wardrop-table3-throughput.svg"), "{names:?}");
    names.dedup();
    assert_eq!(names.len(), figures.len());
    for figure in &figures {
        let elements = elements(&figure.svg);
        assert!(elements[0].contains("xmlns=\"http://www.w3.org/2000/svg\""), "{}", elements[0]);
        // Dashes and marks tell curves apart where colours do not.
        assert!(figure.svg.contains("wardrop") && figure.svg.contains("<polyline"));
    }
}

#[test]
fn the_same_experiment_gives_the_same_page_on_one_thread() {
    let experiments = find(&["wardrop/fig9".to_owned()]).unwrap();
    let page_on = |threads| {
        let how = How { seed: 1, seeds: 1, quick: true, threads: Some(threads) };
        page(&study(&experiments, how, |_| {}, |_| {}).unwrap())
    };
    assert_eq!(page_on(1), page_on(2));
}

/// With runs of a twentieth it said "does not hold" of claims that hold.
#[test]
fn runs_that_are_too_short_give_no_ruling() {
    let studies = studies();
    let verdicts = || studies.iter().flat_map(|study| &study.claims).flat_map(|claim| &claim.verdicts);
    let rulings = || verdicts().filter_map(|verdict| verdict.ruling);
    assert!(rulings().count() > 0 && rulings().all(|ruling| ruling == Ruling::TooShort));
    let of_numbers = || verdicts().flat_map(|verdict| &verdict.numbers).filter_map(|number| number.ruling);
    assert!(of_numbers().count() > 0 && of_numbers().all(|ruling| ruling == Ruling::TooShort));
    assert!(!page(&studies).contains(Ruling::Fails.words()));
}

#[test]
fn each_experiment_is_told_of_once_when_it_has_ended() {
    let experiments = find(&["wardrop/fig9".to_owned(), "wardrop/table3".to_owned()]).unwrap();
    let how = How { seed: 1, seeds: 1, quick: true, threads: None };
    let mut ended = Vec::new();
    study(&experiments, how, |_| {}, |experiment| ended.push(experiment.id)).unwrap();
    ended.sort_unstable();
    assert_eq!(ended, ["wardrop/fig9", "wardrop/table3"]);
}
