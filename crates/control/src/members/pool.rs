//! The devices of a volume among the images of a Ceph pool.

use crate::device::look::look_at;
use crate::device::remote::images_of_pool;
use crate::device::spec::quoted;
use crate::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time limit for all images of a pool.
const LOOK: Duration = Duration::from_secs(60);

/// Replaces a pool (`rbd:POOL`) among the paths by its images with a superblock.
///
/// # Errors
/// `Invalid` if a pool has no image of a volume, or images of several volumes: names the images of each.
/// `Io` if the pool cannot be listed.
pub(crate) fn with_images_of_pools(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for path in paths {
        match images_of_pool(path)? {
            None => all.push(path.clone()),
            Some(images) => all.extend(of_one_volume(path, &images)?),
        }
    }
    Ok(all)
}

fn of_one_volume(pool: &Path, images: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut volumes: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for (image, look) in images.iter().zip(look_at(images, LOOK)) {
        if let Some(sighting) = look.sighting() {
            volumes.entry(sighting.header.volume.to_string()).or_default().push(image.clone());
        }
    }
    let shown = pool.display();
    match volumes.len() {
        0 => {
            let problem = format!(
                "{shown} has {} images, and none that can be read is a device of a volume: name the images \
                 (rbd ls), or check the name of the pool",
                images.len()
            );
            Err(Error::new(ErrorKind::Invalid, problem))
        }
        1 => Ok(volumes.into_values().flatten().collect()),
        _ => {
            let command = |images: &Vec<PathBuf>| {
                let images: Vec<String> = images.iter().map(|image| quoted(image)).collect();
                format!("braid import {}", images.join(" "))
            };
            let commands: Vec<String> = volumes.values().map(command).collect();
            let problem = format!(
                "{shown} holds images of {} volumes: name the images of one: {}",
                volumes.len(),
                commands.join("; or ")
            );
            Err(Error::new(ErrorKind::Invalid, problem))
        }
    }
}
