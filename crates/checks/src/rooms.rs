//! Allowed imports between the rooms of a crate: its top-level modules. A room imports only from lower rooms,
//! and no files import each other in a circle. Tests are free: a test may combine the rooms.
//!
//! The check reads paths that begin with `crate`, `self`, `super` or a child module, in `use` and elsewhere,
//! and follows a re-exported name to the file of the definition. `lib.rs` belongs to no room.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::Path;

/// Rooms of a crate, and its present contradictions, which may only become fewer.
struct Floors {
    krate: &'static str,
    /// The rooms, from low to high.
    rooms: &'static [&'static str],
    /// Known imports of a higher room: importer and imported room.
    upwards: &'static [(&'static str, &'static str)],
    /// Number of files on circles.
    on_circles: usize,
}

/// The checked crates. Add a line for each new room.
const FLOORS: &[Floors] = &[
    Floors {
        krate: "control",
        rooms: &[
            "error", "model", "device", "state", "tls", "report", "alert", "members", "record", "served",
            "config", "guard", "admin", "attach", "volume", "serve",
        ],
        upwards: &[],
        on_circles: 0,
    },
    Floors {
        krate: "engine",
        rooms: &[
            "error",
            "planted",
            "latency",
            "stats",
            "jobs",
            "shape",
            "buffer",
            "map",
            "devices",
            "core",
            "copier",
            "export",
            "epochs",
            "journal",
            "copies",
            "fence",
            "adopted",
            "request",
            "policy",
            "create",
            "moves",
            "open",
            "replace",
            "check",
            "volume",
            "life",
            "status",
            "region",
            "resizable",
        ],
        // The owners in `core` hold what these rooms keep, and verbs of these rooms are verbs of the owners.
        upwards: &[
            ("core", "adopted"),
            ("core", "copies"),
            ("core", "epochs"),
            ("core", "fence"),
            ("core", "journal"),
            ("core", "moves"),
            ("core", "policy"),
            ("core", "request"),
        ],
        on_circles: 44,
    },
];

/// Contradictions between the table of rooms and the source below `root`: a sentence for each.
pub fn rooms(root: &Path) -> Vec<String> {
    let check_crate = |floors: &Floors| {
        let mut code = BTreeMap::new();
        read(&root.join("crates").join(floors.krate).join("src"), &Module::new(), &mut code);
        assert!(code.len() > 5, "the source of {} is where this check looks for it", floors.krate);
        check(floors, &code)
    };
    FLOORS.iter().flat_map(check_crate).collect()
}

/// Path of a module with a file of its own. The crate's root is empty.
type Module = Vec<String>;
/// Code of each file, without tests and comments.
type Code = BTreeMap<Module, String>;
/// Files imported by each file.
type Imports = BTreeMap<Module, BTreeSet<Module>>;

fn read(folder: &Path, parent: &Module, into: &mut Code) {
    for path in fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())) {
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a source file has a name");
        let child = || [&parent[..], &[name.to_owned()]].concat();
        if path.is_dir() {
            read(&path, &child(), into);
        } else if path.extension().is_some_and(|extension| extension == "rs") && name != "tests" {
            let module = if ["lib", "mod"].contains(&name) { parent.clone() } else { child() };
            let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            into.insert(module, code_of(&text));
        }
    }
}

/// Removes comments, and tests, which stand at the end.
fn code_of(text: &str) -> String {
    let begins = |visibility: &str| text.find(&format!("\n#[cfg(test)]\n{visibility}mod "));
    let tests = ["", "pub(super) ", "pub(crate) "].iter().filter_map(|visibility| begins(visibility)).min();
    let tests = tests.unwrap_or(text.len());
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    text[..tests].lines().filter(is_code).map(|line| format!("{line}\n")).collect()
}

fn check(floors: &Floors, code: &Code) -> Vec<String> {
    let imports = imports(code);
    let mut wrong = upward(floors, &imports);
    let found: BTreeSet<&String> = code.keys().filter_map(|module| module.first()).collect();
    let unknown = found.iter().filter(|room| !floors.rooms.contains(&room.as_str()));
    wrong.extend(unknown.map(|room| {
        format!(
            "{}: room {room} is on no floor: add it to FLOORS in crates/checks/src/rooms.rs",
            floors.krate
        )
    }));
    let circles = circles(&imports);
    let (files, most): (usize, usize) = (circles.iter().map(|circle| circle.files).sum(), floors.on_circles);
    if files > most {
        let shown = circles.iter().map(|circle| show(&circle.shortest));
        wrong.extend(shown.map(|files| format!("{}: files import each other: {files}", floors.krate)));
    } else if files < most {
        wrong.push(format!("{}: {files} files are on circles: set on_circles to {files}", floors.krate));
    }
    wrong
}

/// Imports of a higher room, and known imports without an occurrence.
fn upward(floors: &Floors, imports: &Imports) -> Vec<String> {
    let floor = |room: &str| floors.rooms.iter().position(|known| *known == room);
    let (mut wrong, mut present) = (Vec::new(), BTreeSet::new());
    let each = imports.iter().flat_map(|(from, to)| to.iter().map(move |to| (from, to)));
    for (from, to) in each {
        let (Some(room), Some(higher)) = (from.first(), to.first()) else { continue };
        if floor(room) >= floor(higher) {
            continue;
        }
        present.insert((room.as_str(), higher.as_str()));
        if !floors.upwards.contains(&(room, higher)) {
            let (krate, from, to) = (floors.krate, from.join("::"), to.join("::"));
            wrong.push(format!("{krate}: {from} imports {to}, and room {higher} is above room {room}"));
        }
    }
    let gone = floors.upwards.iter().filter(|known| !present.contains(*known));
    wrong.extend(gone.map(|(room, higher)| {
        format!("{}: room {room} imports {higher} no more: remove the pair from upwards", floors.krate)
    }));
    wrong
}

fn imports(code: &Code) -> Imports {
    let uses: BTreeMap<&Module, Vec<Vec<String>>> =
        code.iter().map(|(module, text)| (module, used(text))).collect();
    let of_file = |(module, text): (&Module, &String)| {
        let paths = uses[module].iter().cloned().chain(inline(text));
        let files = paths.filter_map(|path| resolve(&uses, module, &path, 0));
        (module.clone(), files.filter(|file| file != module).collect())
    };
    code.iter().map(of_file).collect()
}

/// Longest chain of re-exports.
const DEEPEST: u32 = 8;

/// Finds the file with the definition of a path's item; `None` for an item of another crate.
fn resolve(
    uses: &BTreeMap<&Module, Vec<Vec<String>>>,
    from: &Module,
    path: &[String],
    depth: u32,
) -> Option<Module> {
    let mut rest = path;
    let mut at = match path.first()?.as_str() {
        "crate" => Module::new(),
        "self" | "super" => from.clone(),
        child if uses.contains_key(&[&from[..], &[child.to_owned()]].concat()) => from.clone(),
        _ => return None,
    };
    while let [first, others @ ..] = rest {
        match first.as_str() {
            "crate" | "self" => {}
            "super" => drop(at.pop()),
            name => {
                let child = [&at[..], &[name.to_owned()]].concat();
                if !uses.contains_key(&child) {
                    break;
                }
                at = child;
            }
        }
        rest = others;
    }
    let Some(name) = rest.first().filter(|_| depth < DEEPEST) else { return Some(at) };
    let exported = uses.get(&at)?.iter().find(|path| path.last() == Some(name) && path.len() > 1);
    exported.map_or(Some(at.clone()), |path| resolve(uses, &at, path, depth + 1))
}

/// Returns the paths of all `use` declarations.
fn used(code: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for declaration in code.split_inclusive(';') {
        let is_use = |line: &str| {
            let line = line.trim_start();
            let line = line.strip_prefix("pub").map_or(line, |line| {
                line.strip_prefix('(').and_then(|line| line.split_once(')')).map_or(line, |(_, line)| line)
            });
            line.trim_start().starts_with("use ")
        };
        let Some(start) = declaration.lines().position(is_use) else { continue };
        let text: String = declaration.lines().skip(start).map(|line| format!("{line} ")).collect();
        let tree = text.split_once("use ").map_or("", |(_, tree)| tree);
        expand(&[], tree.trim_end().trim_end_matches(';'), &mut paths);
    }
    paths
}

/// Expands `a::{b, c::d}` to paths.
fn expand(before: &[String], tree: &str, into: &mut Vec<Vec<String>>) {
    let tree = tree.trim();
    if let Some((path, group)) = tree.split_once('{') {
        let before = [before, &segments(path)].concat();
        let group = group.rsplit_once('}').map_or(group, |(group, _)| group);
        let (mut depth, mut start) = (0, 0);
        for (at, c) in group.char_indices().chain([(group.len(), ',')]) {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    expand(&before, &group[start..at], into);
                    start = at + 1;
                }
                _ => {}
            }
        }
    } else if !tree.is_empty() {
        let path = tree.split(" as ").next().unwrap_or(tree);
        into.push([before, &segments(path)].concat());
    }
}

fn segments(path: &str) -> Vec<String> {
    let parts = path.split("::").map(str::trim);
    parts.filter(|part| !part.is_empty() && *part != "*").map(str::to_owned).collect()
}

/// Returns all other paths. A path before `{` belongs to a `use` declaration.
fn inline(code: &str) -> Vec<Vec<String>> {
    let words = code.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    words.filter(|word| word.contains("::") && !word.ends_with(':')).map(segments).collect()
}

/// Files that import each other.
struct Circle {
    files: usize,
    /// The shortest way from the first file to itself.
    shortest: Vec<Module>,
}

fn circles(imports: &Imports) -> Vec<Circle> {
    let (mut seen, mut circles) = (BTreeSet::new(), Vec::new());
    for file in imports.keys() {
        let Some(shortest) = way(imports, file, file).filter(|_| !seen.contains(file)) else { continue };
        let is_on =
            |other: &&Module| way(imports, file, other).is_some() && way(imports, other, file).is_some();
        let files: Vec<&Module> = imports.keys().filter(is_on).collect();
        circles.push(Circle { files: files.len(), shortest });
        seen.extend(files);
    }
    circles
}

/// Returns the shortest way of at least one import between two files.
fn way(imports: &Imports, from: &Module, to: &Module) -> Option<Vec<Module>> {
    let mut ways = VecDeque::from([vec![from.clone()]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        for next in imports.get(way.last()?).into_iter().flatten() {
            let longer = [&way[..], std::slice::from_ref(next)].concat();
            if next == to {
                return Some(longer);
            }
            if seen.insert(next) {
                ways.push_back(longer);
            }
        }
    }
    None
}

fn show(way: &[Module]) -> String {
    let name = |module: &Module| if module.is_empty() { "lib".to_owned() } else { module.join("::") };
    way.iter().map(name).collect::<Vec<_>>().join(" → ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: Floors = Floors { krate: "house", rooms: &["low", "high"], upwards: &[], on_circles: 0 };

    fn found(floors: &Floors, files: &[(&str, &str)]) -> Vec<String> {
        let rooms = ["", "low", "high"].map(|room| (segments(room), String::new()));
        let files = files.iter().map(|(path, text)| (segments(path), code_of(text)));
        check(floors, &rooms.into_iter().chain(files).collect())
    }

    #[test]
    fn import_of_a_higher_room_is_named() {
        for text in [
            "use crate::high::b;",
            "use crate::{\n    low::c,\n    high::{b::Item, b as Other},\n};",
            "fn f() { crate::high::b::run() }",
            "pub(crate) use super::super::high::b::Item as Other;",
            "use crate::Item;",
        ] {
            let files = [("", "pub use high::b::Item;"), ("low::a", text), ("low::c", ""), ("high::b", "")];
            let wrong = found(&TWO, &files);
            assert!(wrong.len() == 1 && wrong[0].contains("low::a imports high::b"), "{text}: {wrong:?}");
        }
    }

    #[test]
    fn downward_imports_comments_and_tests_are_free() {
        let tests = "//! As [`crate::high`].\n#[cfg(test)]\nmod tests {\n    use crate::high::b;\n}\n";
        assert_eq!(
            found(&TWO, &[("low::a", tests), ("high::b", "use crate::low::a;\nuse other::high::b;")]),
            [""; 0]
        );
    }

    #[test]
    fn circle_of_files_is_named_once() {
        let files = [
            ("low", "pub use c::Third;"),
            ("low::a", "use super::b;"),
            ("low::b", "use super::Third;"),
            ("low::c", "fn f() { super::a::run() }"),
            ("low::d", "use crate::low::a;"),
        ];
        let wrong = found(&TWO, &files);
        assert_eq!(wrong, ["house: files import each other: low::a → low::b → low::c → low::a"]);
        let parent = found(&TWO, &[("low", "mod a;\nfn f() { a::run() }"), ("low::a", "use super::Item;")]);
        assert_eq!(parent, ["house: files import each other: low → low::a → low"]);
    }

    #[test]
    fn known_contradictions_may_only_become_fewer() {
        let known = Floors { upwards: &[("low", "high")], on_circles: 2, ..TWO };
        let (low, high) = (("low::a", "use crate::high::b;"), ("high::b", "use crate::low::a;"));
        assert_eq!(found(&known, &[low, high]), [""; 0]);
        let fewer = found(&known, &[("low::a", ""), high]);
        assert!(
            fewer.len() == 2 && fewer[0].contains("remove") && fewer[1].contains("on_circles to 0"),
            "{fewer:?}"
        );
        let more = found(&known, &[low, high, ("low::c", "use super::d;"), ("low::d", "use super::c;")]);
        assert_eq!(more.len(), 2, "{more:?}");
    }

    #[test]
    fn room_without_a_floor_is_noticed() {
        assert!(found(&TWO, &[("attic", "")])[0].contains("room attic"));
    }
}
