use super::*;
use std::os::unix::fs::PermissionsExt;

fn record(name: &str) -> VolumeRecord {
    let storage = Storage::Path("/dev/sdb".into());
    let device = DeviceRecord::new(&storage, DeviceClass::Ssd, Some("x25-m"), 1 << 30);
    let name = name.parse().unwrap();
    VolumeRecord {
        version: RECORD_VERSION,
        name,
        uuid: "u".to_owned(),
        temporary: false,
        devices: vec![device],
        models: BTreeMap::new(),
    }
}

#[test]
fn record_is_loaded_as_saved_and_removed_when_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::new(&dir.path().join("deep/state")).unwrap();
    let record = record("vault");
    assert_eq!(state.names(), Ok(vec![]));
    state.save(&record).unwrap();
    assert_eq!(state.load(&record.name), Ok(record.clone()));
    assert_eq!(state.names(), Ok(vec![record.name.clone()]));
    let mode = std::fs::metadata(state.volume_dir(&record.name)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    state.remove(&record.name).unwrap();
    assert!(!state.volume_dir(&record.name).exists());
}

#[test]
fn unknown_volume_is_refused_with_the_known_names() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::new(dir.path()).unwrap();
    state.save(&record("vault")).unwrap();
    let error = state.load(&"valut".parse().unwrap()).unwrap_err().to_string();
    assert!(error.contains("'valut'") && error.contains("vault"), "{error}");
}

#[test]
fn a_record_of_a_newer_version_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::new(dir.path()).unwrap();
    state.save(&VolumeRecord { version: 2, ..record("vault") }).unwrap();
    let error = state.load(&"vault".parse().unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

#[test]
fn invalid_volume_names_are_refused() {
    let long = "x".repeat(64);
    for wrong in ["", ".", "..", "a/b", "../x", "-x", ".x", "a b", "ä", long.as_str()] {
        assert!(wrong.parse::<VolumeName>().is_err(), "{wrong}");
    }
    assert!("vm-1.disk_2".parse::<VolumeName>().is_ok());
}
