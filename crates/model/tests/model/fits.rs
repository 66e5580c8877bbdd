//! Models made from measurements of named ones do what these do.

use braid_base::{DeviceClass, GIB};
use braid_model::{Observed, Spec, by_name, measure};

/// Measures a model, fits one to that, and holds it against all that was measured.
fn hold(name: &str, tolerance: f64) {
    let mut spec = by_name(name).unwrap().clone();
    // As a file is that is calibrated.
    spec.capacity = spec.capacity.min(GIB * 64);
    let wanted = Observed::wanted(spec.class, true);
    let figures: Vec<_> = wanted.into_iter().map(|wanted| (wanted, measure(&spec, wanted))).collect();
    let observed = Observed { class: spec.class, size: spec.capacity, figures, flush: None };
    let fitted = observed.fit("fitted", "as measured").unwrap();
    let mut table = String::new();
    let mut worst: f64 = 0.0;
    for (wanted, seen) in &observed.figures {
        let found = measure(&fitted.spec, *wanted);
        worst = worst.max((found / seen - 1.0).abs());
        table += &format!("{:60} {found:10.1} of {seen:10.1}\n", format!("{wanted:?}"));
    }
    println!("{name}\n{table}");
    assert!(worst <= tolerance, "{name}: {table}");
    let read = Spec::from_toml(&fitted.spec.to_toml().unwrap()).unwrap();
    assert_eq!(read.timing, fitted.spec.timing, "{name}");
}

#[test]
fn fitted_disk_model_reproduces_measured_figures() {
    for name in ["mba3073", "cheetah-15k5", "barracuda-7200.12", "exos-x20"] {
        hold(name, 0.15);
    }
}

#[test]
fn fitted_ssd_model_reproduces_measured_figures() {
    for name in ["x25-m", "x25-e", "sata-ssd", "nvme-ssd", "memoright-gt", "transcend-16g"] {
        hold(name, 0.15);
    }
}

#[test]
fn reads_alone_are_enough_for_a_model() {
    for name in ["mba3073", "x25-m"] {
        let spec = by_name(name).unwrap();
        let wanted = Observed::wanted(spec.class, false);
        let figures = wanted.into_iter().map(|wanted| (wanted, measure(spec, wanted))).collect();
        let observed = Observed { class: spec.class, size: spec.capacity, figures, flush: None };
        let fitted = observed.fit("reads", "as read").unwrap();
        for (wanted, seen) in &observed.figures {
            let found = measure(&fitted.spec, *wanted);
            assert!((found / seen - 1.0).abs() < 0.15, "{name}: {wanted:?} {found} of {seen}");
        }
    }
}

#[test]
fn impossible_figures_are_refused_and_odd_figures_fit() {
    let observed = Observed { class: DeviceClass::Hdd, size: GIB, figures: Vec::new(), flush: None };
    assert!(observed.fit("none", "none").is_err());
    let wanted = Observed::wanted(DeviceClass::Hdd, false);
    for value in [0.0, f64::NAN, f64::INFINITY, -1.0] {
        let figures = wanted.iter().map(|wanted| (*wanted, value)).collect();
        let observed = Observed { figures, ..observed.clone() };
        assert!(observed.fit("none", "none").is_err(), "{value}");
    }
    // Whatever was measured, a model that can be read comes of it.
    for value in [0.01, 1.0, 1e3, 1e6, 1e9] {
        for class in [DeviceClass::Hdd, DeviceClass::Ssd] {
            let figures = Observed::wanted(class, true).into_iter().map(|wanted| (wanted, value)).collect();
            let observed = Observed { class, figures, ..observed.clone() };
            let spec = observed.fit("odd", "odd").unwrap().spec;
            let text = spec.to_toml().unwrap();
            assert!(Spec::from_toml(&text).is_ok(), "{value}: {:?}\n{text}", Spec::from_toml(&text));
        }
    }
}
