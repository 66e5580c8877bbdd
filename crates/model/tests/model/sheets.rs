//! The models against their published figures.

use braid_base::{DeviceClass, Rng};
use braid_model::{Standing, Timing, UnknownModel, by_name, hdd, library, measure};
use std::fmt::Write;

#[test]
fn every_model_reproduces_published_figures() {
    let mut table = String::new();
    let mut missed = 0;
    for spec in library() {
        for figure in spec.figures {
            let found = measure(spec, figure.measure);
            let off = found / figure.value - 1.0;
            let verdict = if off.abs() <= figure.tolerance { "" } else { "MISSED" };
            missed += usize::from(!verdict.is_empty());
            writeln!(
                table,
                "{:18} {:60} {:>10.0} of {:>10.0} {:>+6.1} % ({:.0} %, {}) {verdict}",
                spec.name,
                format!("{:?}", figure.measure),
                found,
                figure.value,
                off * 100.0,
                figure.tolerance * 100.0,
                figure.standing,
            )
            .unwrap();
        }
    }
    println!("{table}");
    assert_eq!(missed, 0, "{table}");
}

#[test]
fn figures_with_a_source_are_held_to_a_tenth() {
    for spec in library() {
        for figure in spec.figures {
            let known = matches!(figure.standing, Standing::Sheet | Standing::Review | Standing::Paper);
            assert!(!known || figure.tolerance <= 0.10, "{}: {:?}", spec.name, figure.measure);
        }
    }
}

#[test]
fn the_mean_seek_over_random_pairs_is_the_average_seek() {
    for spec in library() {
        let Timing::Hdd(params) = &spec.timing else { continue };
        let stroke = hdd::Geometry::new(params, spec.capacity).stroke();
        let curve = hdd::Curve::fit(params.seek);
        let mut rng = Rng::new(5);
        let mut cylinder = || rng.below(u64::from(stroke) + 1) as u32;
        let pairs = 200_000;
        let sum: u64 = (0..pairs).map(|_| curve.read(cylinder().abs_diff(cylinder()), stroke).0).sum();
        let (mean, average) = (sum as f64 / pairs as f64, params.seek.average.0 as f64);
        assert!((mean / average - 1.0).abs() < 0.01, "{}: {mean} ns against {average}", spec.name);
    }
}

#[test]
fn unknown_model_error_lists_known_names() {
    assert!(by_name("floppy").is_none());
    let message = UnknownModel("floppy".to_owned()).to_string();
    assert!(library().iter().all(|spec| message.contains(&*spec.name)), "{message}");
}

#[test]
fn names_are_unique_and_classes_fit() {
    for spec in library() {
        assert_eq!(by_name(&spec.name).unwrap().title, spec.title);
        let is_disk = match &spec.timing {
            Timing::Hdd(_) => true,
            Timing::Rates(params) => params.class == DeviceClass::Hdd,
            _ => false,
        };
        assert_eq!(spec.class == DeviceClass::Hdd, is_disk, "{}", spec.name);
    }
}
