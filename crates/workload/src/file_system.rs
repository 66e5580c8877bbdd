//! A small file system for workloads that work on files. It maps files to bytes of the volume.
//!
//! Space is divided into clusters of 4 KiB. A growing file takes the cluster after its last cluster if the
//! cluster is free. Otherwise the file continues at the next free cluster after the place of the last such
//! search. There 32 KiB are left for the file, as in ext3's reservation. At the end of the space the search
//! wraps around (next fit). So files are contiguous while there is much room. Files that grow in turns are in
//! pieces of 32 KiB. After many creations and deletions, pieces are smaller. A table holds the successor of
//! each cluster: 4 bytes for each cluster, with no later allocation. The start of the space is reserved for
//! attributes: 256 B for each file, written in whole clusters. Contents, names and caches are not modelled.

use braid_base::{Bytes, Op, Request};

/// Unit of space.
pub(crate) const CLUSTER: Bytes = Bytes(4096);
/// Limit of clusters in all file systems of a workload: 256 MiB of tables.
pub(crate) const MOST_CLUSTERS: u64 = 1 << 26;
/// Limit of files in all file systems of a workload.
pub(crate) const MOST_FILES: u64 = 1 << 22;
/// Clusters left for a growing file.
const RESERVED: u32 = 8;
/// Bytes of attributes of a file: the size of an inode in ext3.
const ATTRIBUTES: Bytes = Bytes(256);

/// Allocation of the clusters of one file system.
pub(crate) struct FileSystem {
    /// Offset of the file system on the volume.
    start: Bytes,
    /// Offset of the first cluster from `start`: after the attributes.
    clusters_at: Bytes,
    /// For each cluster, the next cluster of the file, or `LAST`, or `FREE`.
    next: Vec<u32>,
    /// Start of the next search for a free cluster.
    rover: u32,
    free: u32,
}

const LAST: u32 = u32::MAX;
const FREE: u32 = u32::MAX - 1;

/// A file: its clusters in order, and its length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File {
    /// Number of the file, which determines the place of its attributes.
    pub number: u32,
    pub len: Bytes,
    first: u32,
    last: u32,
    clusters: u32,
}

/// Clusters of a file that are still to be read or written, in the order of the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    op: Op,
    cluster: u32,
    left: u32,
}

impl FileSystem {
    /// Returns the bytes that a file system of `files` files and `clusters` clusters takes on a volume.
    pub fn span(files: u64, clusters: u64) -> Bytes {
        attributes(files) + CLUSTER * clusters
    }

    /// Creates an empty file system.
    ///
    /// # Panics
    /// If `clusters` is above [`MOST_CLUSTERS`].
    pub fn new(start: Bytes, files: u64, clusters: u64) -> FileSystem {
        assert!(clusters <= MOST_CLUSTERS, "a file system of {clusters} clusters");
        let next = vec![FREE; clusters as usize];
        FileSystem { start, clusters_at: attributes(files), next, rover: 0, free: clusters as u32 }
    }

    /// Returns the number of free clusters.
    pub fn free(&self) -> u64 {
        u64::from(self.free)
    }

    /// Creates an empty file.
    pub fn create(number: u32) -> File {
        File { number, len: Bytes::ZERO, first: LAST, last: LAST, clusters: 0 }
    }

    /// Makes a file longer and returns the clusters to write, from the cluster of the old end on. `None`,
    /// without any change, if there is no room or `len` is zero.
    pub fn append(&mut self, file: &mut File, len: Bytes) -> Option<Extent> {
        let end = file.len + len;
        let clusters = (end.align_up(CLUSTER) / CLUSTER) as u32;
        let more = clusters - file.clusters;
        if more > self.free || len == Bytes::ZERO {
            return None;
        }
        // The cluster of the old end is written again, unless the old end lies on a boundary of clusters.
        let is_shared = !file.len.is_aligned(CLUSTER);
        let before = file.last;
        for _ in 0..more {
            let cluster = self.take(file.last);
            match file.last {
                LAST => file.first = cluster,
                last => self.next[last as usize] = cluster,
            }
            file.last = cluster;
        }
        (file.len, file.clusters) = (end, clusters);
        let cluster = match before {
            LAST => file.first,
            before if is_shared => before,
            before => self.next[before as usize],
        };
        Some(Extent { op: Op::Write, cluster, left: more + u32::from(is_shared) })
    }

    /// Returns all clusters of a file.
    pub fn whole(file: &File, op: Op) -> Extent {
        Extent { op, cluster: file.first, left: file.clusters }
    }

    /// Returns the last clusters of a file that hold at least `len`, or all clusters.
    pub fn tail(&self, file: &File, op: Op, len: Bytes) -> Extent {
        let wanted = ((len.align_up(CLUSTER) / CLUSTER) as u32).min(file.clusters);
        let mut cluster = file.first;
        for _ in wanted..file.clusters {
            cluster = self.next[cluster as usize];
        }
        Extent { op, cluster, left: wanted }
    }

    /// Frees the clusters of a file.
    pub fn delete(&mut self, file: File) {
        let mut cluster = file.first;
        for _ in 0..file.clusters {
            cluster = std::mem::replace(&mut self.next[cluster as usize], FREE);
        }
        self.free += file.clusters;
    }

    /// Returns the next request of an extent: adjacent clusters on the volume, at most `most` bytes but at
    /// least one cluster. `None` at the end of the extent.
    pub fn request(&self, extent: &mut Extent, most: Bytes) -> Option<Request> {
        if extent.left == 0 {
            return None;
        }
        let first = extent.cluster;
        let most = ((most / CLUSTER) as u32).min(extent.left).max(1);
        let mut run = 1;
        while run < most && self.next[(first + run - 1) as usize] == first + run {
            run += 1;
        }
        extent.cluster = self.next[(first + run - 1) as usize];
        extent.left -= run;
        let offset = self.start + self.clusters_at + CLUSTER * u64::from(first);
        Some(Request { op: extent.op, offset, len: CLUSTER * u64::from(run) })
    }

    /// Returns a write of the attributes of a file.
    pub fn attributes_of(&self, file: u32) -> Request {
        let offset = self.start + (ATTRIBUTES * u64::from(file)).align_down(CLUSTER);
        Request { op: Op::Write, offset, len: CLUSTER }
    }

    /// Takes a free cluster: the cluster after `last` if free, otherwise the cluster found by [`Self::rove`].
    /// At least one cluster must be free.
    fn take(&mut self, last: u32) -> u32 {
        let after = last.wrapping_add(1);
        let cluster = match self.next.get(after as usize) {
            Some(&FREE) if last != LAST => after,
            _ => self.rove(),
        };
        self.next[cluster as usize] = LAST;
        self.free -= 1;
        cluster
    }

    /// Returns the next free cluster. The next search starts behind the clusters left for the file.
    fn rove(&mut self) -> u32 {
        let all = self.next.len() as u32;
        while self.next[self.rover as usize] != FREE {
            self.rover = (self.rover + 1) % all;
        }
        let cluster = self.rover;
        self.rover = (self.rover + RESERVED) % all;
        cluster
    }
}

fn attributes(files: u64) -> Bytes {
    (ATTRIBUTES * files).align_up(CLUSTER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{KIB, MIB, Rng};

    fn requests(files: &FileSystem, mut extent: Extent) -> Vec<Request> {
        std::iter::from_fn(|| files.request(&mut extent, KIB * 128)).collect()
    }

    #[test]
    fn fresh_file_is_contiguous_after_the_attributes() {
        let mut fs = FileSystem::new(MIB, 100, 1000);
        let mut file = FileSystem::create(3);
        let extent = fs.append(&mut file, KIB * 300).expect("room");
        let found: Vec<_> = requests(&fs, extent).iter().map(|r| (r.offset, r.len)).collect();
        let data = MIB + KIB * 28;
        assert_eq!(found, [(data, KIB * 128), (data + KIB * 128, KIB * 128), (data + KIB * 256, KIB * 44)]);
        assert_eq!(fs.attributes_of(17).offset, MIB + KIB * 4);
    }

    #[test]
    fn alternately_growing_files_get_pieces_of_eight_clusters() {
        let mut fs = FileSystem::new(Bytes::ZERO, 16, 1000);
        let mut grown = [FileSystem::create(0), FileSystem::create(1)];
        for turn in 0..32 {
            fs.append(&mut grown[turn % 2], CLUSTER).expect("room");
        }
        let pieces: Vec<_> =
            requests(&fs, FileSystem::whole(&grown[1], Op::Read)).iter().map(|r| r.len).collect();
        assert_eq!(pieces, [CLUSTER * 8, CLUSTER * 8]);
    }

    #[test]
    fn append_rewrites_the_last_partial_cluster() {
        let mut fs = FileSystem::new(Bytes::ZERO, 16, 1000);
        let mut file = FileSystem::create(0);
        fs.append(&mut file, Bytes(5000)).expect("room");
        let extent = fs.append(&mut file, Bytes(100)).expect("room");
        assert_eq!(requests(&fs, extent)[0].offset, CLUSTER * 2);
        let extent = fs.append(&mut file, Bytes(4000)).expect("room");
        let found: Vec<_> = requests(&fs, extent).iter().map(|r| (r.offset / CLUSTER, r.len)).collect();
        assert_eq!(found, [(2, CLUSTER * 2)]);
    }

    #[test]
    fn no_cluster_is_shared_or_lost() {
        let (mut fs, mut rng) = (FileSystem::new(Bytes::ZERO, 64, 2000), Rng::new(1));
        let mut live: Vec<File> = Vec::new();
        for number in 0..20_000 {
            match rng.below(3) {
                0 if !live.is_empty() => {
                    let file = live.swap_remove(rng.below(live.len() as u64) as usize);
                    fs.delete(file);
                }
                1 if !live.is_empty() => {
                    let at = rng.below(live.len() as u64) as usize;
                    fs.append(&mut live[at], Bytes(1 + rng.below(50_000)));
                }
                _ if live.len() < 64 => {
                    let mut file = FileSystem::create(number % 64);
                    if fs.append(&mut file, Bytes(1 + rng.below(100_000))).is_some() {
                        live.push(file);
                    }
                }
                _ => {}
            }
        }
        let mut owned = vec![0; 2000];
        for file in &live {
            for request in requests(&fs, FileSystem::whole(file, Op::Read)) {
                let first = (request.offset - attributes(64)) / CLUSTER;
                (first..first + request.len / CLUSTER).for_each(|cluster| owned[cluster as usize] += 1);
            }
            let tail = requests(&fs, fs.tail(file, Op::Read, KIB * 8));
            assert_eq!(tail.iter().map(|r| r.len).sum::<Bytes>(), (KIB * 8).min(file.len.align_up(CLUSTER)));
        }
        assert!(owned.iter().all(|&count| count <= 1), "two files share a cluster");
        assert_eq!(owned.iter().filter(|&&count| count == 0).count() as u32, fs.free);
    }

    #[test]
    fn full_file_system_rejects_appends_unchanged() {
        let mut fs = FileSystem::new(Bytes::ZERO, 16, 10);
        let (mut one, mut two) = (FileSystem::create(0), FileSystem::create(1));
        fs.append(&mut one, CLUSTER * 8).expect("room");
        assert!(fs.append(&mut two, CLUSTER * 3).is_none() && two.len == Bytes::ZERO && fs.free == 2);
        fs.delete(one);
        assert!(fs.append(&mut two, CLUSTER * 10).is_some());
    }
}
