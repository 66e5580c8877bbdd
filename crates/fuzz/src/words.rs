//! Words that people write to `braid`, and requests of a client of the daemon's admin socket.

use braid_base::DeviceClass;
use braid_control::{DeviceSpec, Request, VolumeName};

/// A word is accepted or refused. An accepted name stays within its directory.
pub fn command_line(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for class in [DeviceClass::Ssd, DeviceClass::Hdd] {
        if let Err(error) = DeviceSpec::parse(class, &text) {
            assert_eq!(error.exit_status(), 2, "'{text}': {error}");
        }
    }
    if let Ok(name) = text.parse::<VolumeName>() {
        assert!(!name.as_str().contains(['/', '\0']) && !name.as_str().starts_with('.'), "'{name}'");
    }
}

pub fn command_lines() -> Vec<Vec<u8>> {
    ["fast.img,size=2GiB,model=x25-m", "memory,size=1GiB,model=mba3073", "/dev/nvme0n1", "vault-1.2_a"]
        .map(|text| text.as_bytes().to_vec())
        .into()
}

/// A line is a request or an error.
pub fn admin_request(bytes: &[u8]) {
    let _ = serde_json::from_slice::<Request>(bytes);
}

pub fn admin_requests() -> Vec<Vec<u8>> {
    let policy = Request::SetPolicy { policy: "static,ssd=80%".to_owned() };
    let requests = [Request::Status, Request::Explain { offset_bytes: 4096 }, policy, Request::Stop];
    requests.iter().filter_map(|request| serde_json::to_vec(request).ok()).collect()
}
