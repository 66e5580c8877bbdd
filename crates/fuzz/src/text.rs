//! Texts written by people: quantities with units, policies with settings, device models.

use braid_base::{Bytes, DeviceClass, DeviceId, KIB, MIB, Nanos};
use braid_model::{Model, Op, Request, Spec};
use braid_policy::{DeviceView, NAMES};

/// A text is a quantity, or an error with the text.
pub fn quantity(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Err(error) = text.parse::<Bytes>() {
        assert!(error.to_string().contains(&*text));
    }
    if let Err(error) = text.parse::<Nanos>() {
        assert!(error.to_string().contains(&*text));
    }
}

pub fn quantities() -> Vec<Vec<u8>> {
    [
        "4096",
        "128KiB",
        "1.5 GiB",
        "73GB",
        "5ms",
        "85µs",
        "1.5s",
        "10min",
        "18446744073709551615",
        "0.0000001TiB",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}

/// An accepted policy is accepted again in its form for the superblock.
pub fn policy(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let device = |id, class| DeviceView::empty(DeviceId(id), class, 1000);
    let mixed = [device(0, DeviceClass::Ssd), device(1, DeviceClass::Hdd), device(2, DeviceClass::Hdd)];
    for devices in [&mixed[..], &mixed[..1], &[device(0, DeviceClass::Hdd)]] {
        let Ok(policy) = braid_policy::parse(&text, devices) else { continue };
        let written = braid_policy::written(&*policy);
        let again = braid_policy::parse(&written, devices);
        let again = again.unwrap_or_else(|e| panic!("'{text}' was taken, '{written}' was not: {e}"));
        assert_eq!(braid_policy::written(&*again), written, "'{text}'");
    }
}

pub fn policies() -> Vec<Vec<u8>> {
    let settings = [
        "wardrop,period=2s,average=period,no-migration",
        "static,ssd=80%",
        "static,ssd=0.25",
        "stripe,unit=64KiB",
        "wardrop,period=0.000001s,alpha=1e308",
    ];
    NAMES.iter().chain(&settings).map(|text| text.as_bytes().to_vec()).collect()
}

/// An accepted model is accepted again in its written form, and serves requests.
pub fn model(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(spec) = Spec::from_toml(&text) else { return };
    let written = spec.to_toml().expect("a model from a text is not a group");
    assert_eq!(Spec::from_toml(&written), Ok(spec.clone()), "{written}");
    let mut device = spec.build(MIB, 1);
    for at in 0..8 {
        let op = [Op::Read, Op::Write][at as usize % 2];
        device.submit(at, Request { op, offset: KIB * 100 * at, len: KIB * 4 }, Nanos::ZERO);
    }
    let mut done = Vec::new();
    while let Some(at) = device.next_event().filter(|_| done.len() < 8) {
        device.advance(at, &mut done);
    }
    assert_eq!(done.len(), 8, "{written}");
}

pub fn models() -> Vec<Vec<u8>> {
    let texts = braid_model::library().iter().filter_map(|spec| spec.to_toml().ok());
    // Without the comments: damage should hit significant text.
    let bare = |text: String| {
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(" = ")).collect();
        lines.join("\n").into_bytes()
    };
    texts.map(bare).collect()
}
