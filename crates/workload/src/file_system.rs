//! A small file system, for workloads that speak of files: which bytes of the volume belong to which file.
//!
//! Space is cut into clusters of 4 KiB. A file that grows takes the cluster after its last one if that is
//! free. If not, it goes to the next free cluster after the place where the last file did so, and 32 KiB are
//! left for it there, as ext3 reserves them; behind the end the search starts again at the front (next fit).
//! So files are whole while there is much room, in pieces of 32 KiB where several grow by turns, and in
//! smaller ones once files have come and gone. A table holds the cluster that follows each one: 4 bytes for
//! each cluster, nothing is allocated later. A place at the start is kept for attributes: 256 B for each
//! file, written by whole clusters. Contents, names and caches do not exist here.

use braid_base::{Bytes, Op, Request};

/// The unit of space.
pub(crate) const CLUSTER: Bytes = Bytes(4096);
/// The most clusters that a workload may have in all its file systems: 256 MiB of tables.
pub(crate) const MOST_CLUSTERS: u64 = 1 << 26;
/// The most files that a workload may have in all its file systems.
pub(crate) const MOST_FILES: u64 = 1 << 22;
/// Clusters that are left for a file that grows.
const RESERVED: u32 = 8;
/// Bytes of attributes of a file, as an inode has in ext3.
const ATTRIBUTES: Bytes = Bytes(256);

/// The clusters of one file system and who owns them.
pub(crate) struct FileSystem {
    /// Where it begins on the volume.
    start: Bytes,
    /// Where clusters begin, from there: after the attributes.
    clusters_at: Bytes,
    /// For each cluster the one after it in its file, or `LAST`, or `FREE`.
    next: Vec<u32>,
    /// Where the search for a free cluster goes on.
    rover: u32,
    free: u32,
}

const LAST: u32 = u32::MAX;
const FREE: u32 = u32::MAX - 1;

/// A file: its clusters in order, and its length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File {
    /// Its number, which says where its attributes lie.
    pub number: u32,
    pub len: Bytes,
    first: u32,
    last: u32,
    clusters: u32,
}

/// Clusters of a file, one run after the other, that are still to be read or written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    op: Op,
    cluster: u32,
    left: u32,
}

impl FileSystem {
    /// The bytes that a file system of so many files and clusters takes on a volume.
    pub fn span(files: u64, clusters: u64) -> Bytes {
        attributes(files) + CLUSTER * clusters
    }

    /// An empty one.
    ///
    /// # Panics
    /// If it has more than [`MOST_CLUSTERS`].
    pub fn new(start: Bytes, files: u64, clusters: u64) -> FileSystem {
        assert!(clusters <= MOST_CLUSTERS, "a file system of {clusters} clusters");
        let next = vec![FREE; clusters as usize];
        FileSystem { start, clusters_at: attributes(files), next, rover: 0, free: clusters as u32 }
    }

    /// Clusters that no file has.
    pub fn free(&self) -> u64 {
        u64::from(self.free)
    }

    /// An empty file.
    pub fn create(number: u32) -> File {
        File { number, len: Bytes::ZERO, first: LAST, last: LAST, clusters: 0 }
    }

    /// Makes a file longer, and says what has to be written: from the cluster that holds its end on. `None`
    /// if there is no room; nothing has changed then.
    pub fn append(&mut self, file: &mut File, len: Bytes) -> Option<Extent> {
        let end = file.len + len;
        let clusters = (end.align_up(CLUSTER) / CLUSTER) as u32;
        let more = clusters - file.clusters;
        if more > self.free || len == Bytes::ZERO {
            return None;
        }
        // The cluster that holds the end is written again, unless the end lies between two.
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

    /// All of a file.
    pub fn whole(file: &File, op: Op) -> Extent {
        Extent { op, cluster: file.first, left: file.clusters }
    }

    /// The last clusters of a file that hold at least `len`, or all.
    pub fn tail(&self, file: &File, op: Op, len: Bytes) -> Extent {
        let wanted = ((len.align_up(CLUSTER) / CLUSTER) as u32).min(file.clusters);
        let mut cluster = file.first;
        for _ in wanted..file.clusters {
            cluster = self.next[cluster as usize];
        }
        Extent { op, cluster, left: wanted }
    }

    /// Frees a file's clusters.
    pub fn delete(&mut self, file: File) {
        let mut cluster = file.first;
        for _ in 0..file.clusters {
            cluster = std::mem::replace(&mut self.next[cluster as usize], FREE);
        }
        self.free += file.clusters;
    }

    /// The next request of an extent: clusters that follow each other on the volume, `most` at once. `None`
    /// at its end.
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

    /// A write of the attributes of a file.
    pub fn attributes_of(&self, file: u32) -> Request {
        let offset = self.start + (ATTRIBUTES * u64::from(file)).align_down(CLUSTER);
        Request { op: Op::Write, offset, len: CLUSTER }
    }

    /// Takes a free cluster: the one after `last`, or where the rover finds one. One must be free.
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

    /// The next free cluster; the rover goes on behind what is left for its file.
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
    fn a_fresh_file_lies_in_one_piece_behind_the_attributes() {
        let mut fs = FileSystem::new(MIB, 100, 1000);
        let mut file = FileSystem::create(3);
        let extent = fs.append(&mut file, KIB * 300).expect("room");
        let found: Vec<_> = requests(&fs, extent).iter().map(|r| (r.offset, r.len)).collect();
        let data = MIB + KIB * 28;
        assert_eq!(found, [(data, KIB * 128), (data + KIB * 128, KIB * 128), (data + KIB * 256, KIB * 44)]);
        assert_eq!(fs.attributes_of(17).offset, MIB + KIB * 4);
    }

    #[test]
    fn files_that_grow_in_turns_lie_in_pieces_of_eight_clusters() {
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
    fn an_append_writes_the_cluster_that_holds_the_end_again() {
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
    fn no_cluster_belongs_to_two_files_and_none_is_lost() {
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
    fn a_full_file_system_refuses_and_stays_as_it_is() {
        let mut fs = FileSystem::new(Bytes::ZERO, 16, 10);
        let (mut one, mut two) = (FileSystem::create(0), FileSystem::create(1));
        fs.append(&mut one, CLUSTER * 8).expect("room");
        assert!(fs.append(&mut two, CLUSTER * 3).is_none() && two.len == Bytes::ZERO && fs.free == 2);
        fs.delete(one);
        assert!(fs.append(&mut two, CLUSTER * 10).is_some());
    }
}
