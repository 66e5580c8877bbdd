//! Models as text: every named one comes back from its text, and a wrong text is answered with what would be
//! right.

use braid_base::{Bytes, GIB, KIB, Nanos, Rng};
use braid_model::{DeviceModel, Model, Op, Request, Spec, by_name, library};

fn text_of(name: &str) -> String {
    by_name(name).unwrap().to_toml().unwrap()
}

fn error_of(text: &str) -> String {
    Spec::from_toml(text).unwrap_err().to_string()
}

/// When each of a thousand mixed requests completes.
fn completions(mut device: DeviceModel) -> Vec<(u64, Nanos)> {
    let (mut rng, mut done, mut now) = (Rng::new(1), Vec::new(), Nanos::ZERO);
    let mut tags = Vec::new();
    for tag in 0..1_000 {
        let op = [Op::Read, Op::Write, Op::Write, Op::Discard, Op::Flush][rng.below(5) as usize];
        let offset = KIB * 4 * rng.below(200_000);
        let request = match op {
            Op::Flush => Request { op, offset: Bytes::ZERO, len: Bytes::ZERO },
            _ => Request { op, offset, len: KIB * 4 * rng.between(1, 20) },
        };
        device.submit(tag, request, now);
        while let Some(at) = device.next_event().filter(|at| tag % 8 == 7 || *at <= now) {
            now = at.max(now);
            device.advance(now, &mut tags);
            done.extend(tags.drain(..).map(|tag| (tag, now)));
        }
    }
    done
}

#[test]
fn library_model_survives_text_round_trip() {
    for spec in library() {
        let text = spec.to_toml().unwrap();
        let read = Spec::from_toml(&text).unwrap_or_else(|error| panic!("{}: {error}\n{text}", spec.name));
        assert_eq!((&read.name, &read.title, read.class), (&spec.name, &spec.title, spec.class));
        assert_eq!((read.capacity, &read.timing), (spec.capacity, &spec.timing), "{}", spec.name);
        let (one, other) = (completions(spec.build(GIB, 3)), completions(read.build(GIB, 3)));
        assert!(one.len() > 900 && one == other, "{}", spec.name);
        assert_eq!(read.to_toml().unwrap(), text, "{}", spec.name);
    }
}

#[test]
fn every_field_is_preceded_by_documentation() {
    for name in ["x25-m", "transcend-16g", "mba3073", "dram"] {
        let text = text_of(name);
        let lines: Vec<&str> = text.lines().collect();
        let fields: Vec<usize> = (0..lines.len()).filter(|&at| lines[at].contains(" = ")).collect();
        assert!(fields.len() >= 7, "{text}");
        for at in fields {
            assert!(lines[at - 1].starts_with("# ") && lines[at - 1].len() > 10, "{}", lines[at]);
            assert!(lines[at].len() < 120 && lines[at - 1].len() < 120, "{}", lines[at - 1]);
        }
    }
}

#[test]
fn missing_field_is_named_in_error() {
    for spec in library() {
        let text = spec.to_toml().unwrap();
        for line in text.lines().filter(|line| line.contains(" = ")) {
            let key = line.split(' ').next().unwrap();
            if key == "segments" {
                continue;
            }
            let error = error_of(&text.replacen(&format!("\n{line}\n"), "\n", 1));
            assert!(error.contains(&format!("'{key}'")), "{key}: {error}");
        }
    }
}

#[test]
fn missing_segments_field_defaults_to_sixteen() {
    let text = text_of("mba3073");
    let older = Spec::from_toml(&text.replacen("\nsegments = 8\n", "\n", 1)).unwrap();
    assert_eq!(older.to_toml().unwrap(), text.replacen("\nsegments = 8\n", "\nsegments = 16\n", 1));
}

#[test]
fn invalid_value_is_refused_with_expected_values() {
    let (ssd, hdd) = (text_of("x25-m"), text_of("mba3073"));
    for (text, line, wrong, expected) in [
        (&ssd, "channels = 40", "channels = 0", "1 to 1024"),
        (&ssd, "channels = 40", "channels = \"many\"", "channels = \"many\""),
        (&ssd, "flash_page = \"4KiB\"", "flash_page = 4096", "from 512 B to 1 MiB"),
        (&ssd, "read = \"50us\"", "read = \"50\"", "read = \"50\""),
        (&ssd, "intake = \"70MB/s\"", "intake = \"70MB\"", "intake = \"70MB\""),
        (&ssd, "spare = 0.073", "spare = nan", "0.01 to 10"),
        (&ssd, "mapping = \"pages\"", "mapping = \"zones\"", "\"blocks\""),
        (&ssd, "trim = false", "trim = \"no\"", "trim = \"no\""),
        (&ssd, "trim = false", "trim = false\ncolour = 3", "'colour'"),
        (&ssd, "name = \"x25-m\"", "name = \"x25 m\"", "x25 m"),
        (&ssd, "kind = \"ssd\"", "kind = \"tape\"", "\"dram\""),
        (&ssd, "kind = \"ssd\"", "kind = ssd", "line 5"),
        (&hdd, "inner = \"75MB/s\"", "inner = \"130MB/s\"", "inner"),
        (&hdd, "average = \"3400us\"", "average = \"8ms\"", "seek"),
    ] {
        assert!(text.contains(line), "{line}\n{text}");
        let error = error_of(&text.replacen(line, wrong, 1));
        assert!(error.contains(expected), "{wrong}: {error}");
    }
    assert!(error_of(&"#".repeat(70_000)).contains("64 KiB"));
}

#[test]
fn text_with_wrong_kind_is_refused_with_missing_field() {
    let error = error_of(&text_of("mba3073").replace("kind = \"hdd\"", "kind = \"ssd\""));
    assert!(error.contains("'channels'"), "{error}");
}

#[test]
fn whatever_a_text_says_a_model_is_made_or_an_error() {
    let mut rng = Rng::new(4);
    let values = [
        "0",
        "1",
        "-1",
        "1e300",
        "nan",
        "\"\"",
        "\"1ns\"",
        "\"1B\"",
        "\"1MB/s\"",
        "\"1TB/s\"",
        "\"10s\"",
        "\"none\"",
        "\"16GiB\"",
        "65536",
        "true",
        "[]",
        "\"256TiB\"",
        "\"100ms\"",
        "\"1s\"",
    ];
    let mut made = 0;
    for round in 0..3_000 {
        let spec = &library()[round % library().len()];
        let mut text = spec.to_toml().unwrap();
        for _ in 0..rng.between(1, 4) {
            let lines: Vec<&str> = text.lines().filter(|line| line.contains(" = ")).collect();
            let line = lines[rng.below(lines.len() as u64) as usize].to_owned();
            let key = line.split(' ').next().unwrap();
            let value = values[rng.below(values.len() as u64) as usize];
            text = text.replacen(&format!("\n{line}\n"), &format!("\n{key} = {value}\n"), 1);
        }
        if let Ok(spec) = Spec::from_toml(&text) {
            made += 1;
            let mut device = spec.build(GIB, 1);
            let request = |op, at: u64| Request { op, offset: KIB * 4 * at, len: KIB * 4 };
            (0..40).for_each(|at| {
                device.submit(at, request([Op::Read, Op::Write][at as usize % 2], 6_000 * at), Nanos::ZERO)
            });
            let mut done = Vec::new();
            for _ in 0..10_000 {
                let Some(at) = device.next_event() else { break };
                device.advance(at, &mut done);
            }
            assert_eq!(done.len(), 40, "{text}");
        }
    }
    assert!(made > 100, "{made}");
}

#[test]
fn group_has_no_text_form() {
    let group = by_name("mba3073").unwrap().raid0(4, KIB * 64).unwrap();
    assert!(group.to_toml().is_err());
}
