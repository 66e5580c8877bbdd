//! The parser with images made by the file systems' own programmes, and with arbitrary bytes.

use super::*;
use braid_base::{GIB, MIB, Rng};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Content of file data, for distinction from metadata: sectors begin with these bytes.
const MARK: &[u8; 16] = b"data of a file! ";

/// An image in its own folder, with files, made by a file system's programme. Tests without the programme are
/// skipped with a message.
struct Image {
    folder: PathBuf,
}

impl Image {
    fn new(name: &str, size: Bytes) -> Image {
        let folder = std::env::temp_dir().join(format!("braid-structures-{}-{name}", std::process::id()));
        fs::create_dir_all(folder.join("files")).expect("there is room");
        let image = Image { folder };
        File::create(image.path()).and_then(|file| file.set_len(size.0)).expect("there is room");
        for number in 0..40 {
            let folder = image.files().join(format!("folder {}", number % 5));
            fs::create_dir_all(&folder).expect("there is room");
            // Larger than the data that any file system stores beside an inode.
            fs::write(folder.join(format!("{number}")), MARK.repeat(1024)).expect("there is room");
        }
        image
    }

    fn path(&self) -> PathBuf {
        self.folder.join("image")
    }

    fn files(&self) -> PathBuf {
        self.folder.join("files")
    }

    /// False if the programme is missing.
    fn run(&self, programme: &str, arguments: &[&str]) -> bool {
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        let mut command = Command::new(programme);
        match command.args(arguments).arg(self.path()).env("PATH", path).output() {
            Err(error) => {
                println!("SKIPPED: {programme} cannot be run: {error}");
                false
            }
            Ok(output) => {
                assert!(output.status.success(), "{programme}: {}", String::from_utf8_lossy(&output.stderr));
                true
            }
        }
    }

    fn scan(&self) -> Structures {
        scan(&self.path())
    }

    /// Checks that no data sector of a file is found, and that all sectors accepted by `is_metadata` are
    /// found.
    fn check(&self, found: &Structures, is_metadata: impl Fn(&[u8]) -> bool) {
        let bytes = fs::read(self.path()).expect("it was made");
        let (mut data, mut metadata) = (0, 0);
        for (number, sector) in (0..).zip(bytes.chunks(512)) {
            let range = ByteRange::new(Bytes(number * 512), Bytes(512));
            let is_found = found.within(range).next().is_some();
            if sector.starts_with(MARK) {
                assert!(!is_found, "data at byte {}", range.start.0);
                data += 1;
            } else if is_metadata(sector) {
                assert!(is_found, "metadata at byte {}", range.start.0);
                metadata += 1;
            }
        }
        assert!(data >= 40 * 32 && metadata > 0, "{data} sectors of data and {metadata} of metadata");
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _is_gone = fs::remove_dir_all(&self.folder);
    }
}

fn scan(path: &Path) -> Structures {
    let file = File::open(path).expect("it was made");
    let volume = Bytes(file.metadata().expect("it is a file").len());
    let mut scan = Scan::new(volume);
    loop {
        let Some(range) = next(&scan) else { return scan.finish() };
        let mut bytes = vec![0; range.len().as_usize()];
        file.read_exact_at(&mut bytes, range.start.0).expect("steps lie within the volume");
        scan.take(range, &bytes);
    }
}

fn next(scan: &Scan) -> Option<ByteRange> {
    scan.next(1).next()
}

fn ext4(name: &str, options: &[&str]) {
    let image = Image::new(name, MIB * 600);
    let files = image.files();
    let mut arguments = vec!["-q", "-F", "-d", files.to_str().expect("the name is text")];
    arguments.extend(options);
    if !image.run("mkfs.ext4", &arguments) {
        return;
    }
    let found = image.scan();
    // An inode of a file or folder: its mode, and an extent tree or a block map that `check` ignores.
    image.check(&found, |sector| sector[40..42] == [0x0a, 0xf3] || sector[296..298] == [0x0a, 0xf3]);
    let listed = Command::new("/usr/sbin/dumpe2fs").arg(image.path()).output().expect("it comes with mkfs");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let number = |word: &str| {
        let line = listed.lines().find_map(|line| line.strip_prefix(word)).expect(word);
        line.trim().parse::<u64>().expect(word)
    };
    let block = number("Block size:");
    let places = ["Inode table at ", "Block bitmap at ", "Inode bitmap at "];
    let mut known = 0;
    for line in listed.lines() {
        for place in places.iter().filter_map(|place| line.split_once(place)) {
            let range = place.1.split([' ', ',']).next().expect("a number follows");
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            for at in [first, last].map(|at| at.parse::<u64>().expect(line)) {
                let range = ByteRange::new(Bytes(at * block), Bytes(block));
                assert_eq!(found.within(range).next(), Some(range), "{line}");
                known += 1;
            }
        }
    }
    assert!(known > 20, "{known}");
    let tables = number("Inode count:") * number("Inode size:");
    assert!(found.bytes() < Bytes(tables) + MIB * 16, "{} for tables of {}", found.bytes(), Bytes(tables));
}

#[test]
fn structures_of_ext4_are_recognised() {
    ext4("ext4", &[]);
    ext4("ext4-no-flex", &["-O", "^flex_bg,^64bit"]);
    ext4("ext4-small-blocks", &["-b", "1024"]);
}

#[test]
fn structures_of_xfs_are_recognised() {
    for (name, options) in [("xfs", &["-q", "-f"][..]), ("xfs-4", &["-q", "-f", "-m", "crc=0"])] {
        let image = Image::new(name, MIB * 600);
        // mkfs.xfs makes an image with files from a list.
        let mut list = "/stand/diskboot\n4872 110\nd--777 0 0\n".to_owned();
        for number in 0..40 {
            let path = image.files().join(format!("folder {}", number % 5)).join(number.to_string());
            let short = image.folder.join(format!("f{number}"));
            fs::copy(path, &short).expect("there is room");
            list += &format!("f{number} ---644 0 0 {}\n", short.display());
        }
        list += "$\n";
        let path = image.folder.join("list");
        fs::write(&path, list).expect("there is room");
        let mut arguments = options.to_vec();
        arguments.extend(["-p", path.to_str().expect("the name is text")]);
        if !image.run("mkfs.xfs", &arguments) {
            return;
        }
        let magics: [&[u8]; 10] =
            [b"XAGF", b"XAGI", b"XFSB", b"ABTB", b"AB3B", b"ABTC", b"AB3C", b"IABT", b"IAB3", b"IN\x81"];
        let found = image.scan();
        image.check(&found, |sector| magics.iter().any(|magic| sector.starts_with(magic)));
    }
}

#[test]
fn structures_of_btrfs_are_recognised() {
    for (name, options) in [("btrfs", &["-q", "-f"][..]), ("btrfs-single", &["-q", "-f", "-m", "single"])] {
        let image = Image::new(name, MIB * 600);
        let files = image.files();
        let mut arguments = options.to_vec();
        arguments.extend(["--rootdir", files.to_str().expect("the name is text")]);
        if !image.run("mkfs.btrfs", &arguments) {
            return;
        }
        let id = {
            let file = File::open(image.path()).expect("it was made");
            let mut id = [0; 16];
            file.read_exact_at(&mut id, (64 << 10) + 32).expect("it is there");
            id
        };
        let found = image.scan();
        // btrfs's programme lists the nodes in use; earlier nodes, no longer used, are still on the image.
        let mut list = Command::new("btrfs");
        let list = list.args(["inspect-internal", "dump-tree"]).arg(image.path()).output();
        let list = String::from_utf8_lossy(&list.expect("it comes with mkfs").stdout).into_owned();
        let used = |line: &str| {
            let place = line.strip_prefix("leaf ").or_else(|| line.strip_prefix("node "))?;
            place.split(' ').next()?.parse::<u64>().ok()
        };
        let used: Vec<u64> = list.lines().filter_map(used).collect();
        assert!(used.len() > 5, "{list}");
        // Each node has the file system's id and the address after the checksum.
        image.check(&found, |sector| {
            sector[32..48] == id && used.iter().any(|place| sector[48..56] == place.to_le_bytes())
        });
    }
}

#[test]
fn a_file_system_in_a_partition_is_found() {
    let image = Image::new("partition", MIB * 100);
    let mut arguments = vec!["-q", "-F", "-E", "offset=1048576"];
    arguments.extend(["-b", "4096"]);
    let file = File::options().write(true).open(image.path()).expect("it was made");
    let mut table = [0u8; 512];
    (table[510], table[511], table[450]) = (0x55, 0xaa, 0x83);
    table[454..458].copy_from_slice(&2048u32.to_le_bytes());
    table[458..462].copy_from_slice(&100_000u32.to_le_bytes());
    file.write_all_at(&table, 0).expect("there is room");
    let path = image.path();
    let path = path.to_str().expect("the name is text");
    arguments.push(path);
    let made = Command::new("/usr/sbin/mkfs.ext4").args(&arguments).arg("12000").output();
    let Ok(made) = made else { return println!("SKIPPED: mkfs.ext4 cannot be run") };
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let superblock = ByteRange::new(MIB + Bytes(1024), Bytes(1024));
    assert!(image.scan().within(superblock).next().is_some());
    // The same partition in a GPT: two sectors are enough to find the first partition.
    let mut gpt = [0u8; 1024];
    gpt[..8].copy_from_slice(b"EFI PART");
    gpt[72..80].copy_from_slice(&2u64.to_le_bytes());
    gpt[80..84].copy_from_slice(&128u32.to_le_bytes());
    gpt[84..88].copy_from_slice(&128u32.to_le_bytes());
    gpt[512] = 7;
    gpt[512 + 32..512 + 40].copy_from_slice(&2048u64.to_le_bytes());
    file.write_all_at(&[0; 512], 0).expect("there is room");
    file.write_all_at(&gpt, 512).expect("there is room");
    assert!(image.scan().within(superblock).next().is_some());
}

#[test]
fn partial_overlap_finds_range() {
    let ranges = [(10, 20), (15, 30), (30, 40), (100, 101)]
        .map(|(start, end)| ByteRange { start: MIB * start, end: MIB * end });
    let found = Structures::new(ranges.to_vec());
    let within = |start: u64, end: u64| {
        let range = ByteRange { start: Bytes(start), end: Bytes(end) };
        found.within(range).map(|part| (part.start.0, part.end.0)).collect::<Vec<_>>()
    };
    let mib = MIB.0;
    assert_eq!(found.bytes(), MIB * 31);
    assert_eq!(within(0, 10 * mib), []);
    assert_eq!(within(9 * mib, 10 * mib + 1), [(10 * mib, 10 * mib + 1)]);
    assert_eq!(within(39 * mib, 200 * mib), [(39 * mib, 40 * mib), (100 * mib, 101 * mib)]);
    assert_eq!(within(41 * mib, 42 * mib), []);
    assert_eq!(within(500 * mib, 501 * mib), []);
}

/// Superblocks with a valid magic, followed by arbitrary bytes.
#[test]
fn scan_survives_arbitrary_bytes() {
    let mut rng = Rng::new(11);
    for _ in 0..300 {
        let mut scan = Scan::new(GIB * 64);
        let mut steps = 0;
        while let Some(range) = next(&scan) {
            let mut bytes = vec![0; range.len().as_usize()];
            if rng.chance(0.7) {
                rng.fill(&mut bytes);
            }
            let (magic, at): (&[u8], usize) = match rng.below(6) {
                0 => (&[0x53, 0xef], 1024 + 56),
                1 => (b"XFSB", 0),
                2 => (b"_BHRfS_M", (64 << 10) + 64),
                3 => (b"IAB3", 0),
                4 => (b"EFI PART", 512),
                _ => (&[0x55, 0xaa], 510),
            };
            if let Some(place) = bytes.get_mut(at..at + magic.len()) {
                place.copy_from_slice(magic);
            }
            scan.take(range, &bytes);
            steps += 1;
            if steps == 200 {
                break;
            }
        }
        assert!(scan.ranges.len() <= MOST_RANGES && scan.steps.len() <= MOST_STEPS);
        assert!(scan.finish().bytes() <= GIB * 64);
    }
}
