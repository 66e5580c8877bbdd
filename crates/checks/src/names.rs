//! Names: a type's name is defined once in a crate, an owner's verb hides no verb of a lower owner, the
//! highest owner has few verbs, and a function has no tuple parameter.
//!
//! The name of a type then has a single meaning. A tuple pattern hides several
//! parameters: each part is a parameter, or all parts are fields of a struct.

use crate::style::rust_files;
use std::collections::BTreeMap;
use std::path::Path;

/// Names for the place of a type in the shape of its module: the crate, the names, and the shape.
const SHAPES: &[(&str, &[&str], &str)] = &[
    ("cli", &["Arguments", "Report"], "each command has its arguments, and its answer as JSON"),
    ("format", &["Raw", "RawEntry"], "each structure on disk has its bytes, private to its module"),
    ("model", &["Params"], "each kind of device has its parameters"),
    ("policy", &["Constants"], "each policy has the constants of its paper"),
    ("runtime", &["Inner"], "each handle has its shared state, private to its module"),
    ("sim", &["Inner"], "each handle has its shared state, private to its module"),
    ("trace", &["Counting"], "each measure has its counts while a trace is read"),
    ("workload", &["Next", "Plan"], "each workload has its plan, and each client its next step"),
];

/// Types whose name a crate defines more than once, outside tests: a sentence for each name.
pub fn names(root: &Path) -> Vec<String> {
    let mut crates: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for (file, text) in rust_files(root) {
        let Some((name, within)) = file.strip_prefix("crates/").and_then(|file| file.split_once("/src/"))
        else {
            continue;
        };
        let is_test = |part: &str| part.trim_end_matches(".rs") == "tests" || part.ends_with("_tests.rs");
        if !within.split('/').any(is_test) {
            crates.entry(name.to_owned()).or_default().push((file.clone(), without_tests(&code(&text))));
        }
    }
    crates.iter().flat_map(|(name, files)| repeated(name, files)).collect()
}

/// Owners of the engine, upwards: each dereferences to the owner before it.
const OWNERS: &[&str] = &["Store", "Durable", "Extents", "Upkeep", "Memory", "Core"];

/// Most verbs of `Core`: the requests of guests and their steps. Each other verb belongs to a lower owner.
const MOST_OF_CORE: usize = 40;

/// Verbs of the engine's owners: by name, the owners with a verb of the name, each with its file.
type Verbs<'a> = BTreeMap<String, BTreeMap<&'static str, &'a str>>;

/// Verbs of the engine's owners that hide a verb of a lower owner, and too many verbs of the highest owner: a
/// sentence for each.
pub fn verbs(root: &Path) -> Vec<String> {
    let files = rust_files(root).into_iter().filter(|(file, _)| file.starts_with("crates/engine/src/"));
    let files: Vec<_> = files.map(|(file, text)| (file, code(&text))).collect();
    let verbs = verbs_in(&files);
    hidden(&verbs).into_iter().chain(beyond(&verbs, MOST_OF_CORE)).collect()
}

fn verbs_in(files: &[(String, String)]) -> Verbs<'_> {
    let mut verbs = Verbs::new();
    for (file, text) in files {
        let mut owner = None;
        for line in text.lines() {
            if let Some(header) = line.strip_prefix("impl<").filter(|header| !header.contains(" for ")) {
                let is_of = |owner: &&&str| header.contains(&format!("> {owner}<"));
                owner = OWNERS.iter().find(is_of);
            } else if line == "}" {
                owner = None;
            }
            let verb = line.strip_prefix("    ").filter(|line| !line.starts_with(' '));
            if let (Some(owner), Some((_, rest))) = (owner, verb.and_then(|verb| verb.split_once("fn "))) {
                let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
                // Constructors are called by the name of their type.
                if rest.contains("(&self") || rest.ends_with('(') {
                    verbs.entry(name.to_owned()).or_default().insert(owner, file);
                }
            }
        }
    }
    verbs
}

fn hidden(verbs: &Verbs) -> Vec<String> {
    let twice = verbs.iter().filter(|(_, owners)| owners.len() > 1);
    twice.map(|(name, owners)| format!("verb {name} of several owners: {owners:?}; rename one")).collect()
}

/// A sentence if `Core` has more than `most` verbs.
fn beyond(verbs: &Verbs, most: usize) -> Option<String> {
    let count = verbs.values().filter(|owners| owners.contains_key("Core")).count();
    (count > most).then(|| {
        format!(
            "Core has {count} verbs: {most} at most: give a verb to the lowest owner that can answer \
             (crates/engine/src/core.rs), or merge a verb into its only caller"
        )
    })
}

/// Functions of the programs, tests in their files included, with a tuple parameter: a sentence for each.
pub fn parameters(root: &Path) -> Vec<String> {
    let files = rust_files(root).into_iter().filter(|(file, _)| file.contains("/src/"));
    files.flat_map(|(file, text)| tuple_parameters(&file, &code(&text))).collect()
}

/// Names defined more than once in a crate, with all places of each.
fn repeated(name: &str, files: &[(String, String)]) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (file, text) in files {
        for (number, line) in text.lines().enumerate() {
            if let Some(defined) = defined(line) {
                places.entry(defined).or_default().push(format!("{file}:{}", number + 1));
            }
        }
    }
    let is_shape =
        |defined: &str| SHAPES.iter().any(|(of, names, _)| *of == name && names.contains(&defined));
    let wrong = places.iter().filter(|(defined, places)| places.len() > 1 && !is_shape(defined));
    wrong
        .map(|(defined, places)| {
            format!(
                "{name} defines the type {defined} more than once, in {}: rename all but one",
                places.join(", ")
            )
        })
        .collect()
}

/// The type defined by a line of code. An indented `type` is an associated type, and defines no name.
fn defined(line: &str) -> Option<&str> {
    let (indented, line) = (line.starts_with(' '), line.trim_start());
    let item = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.strip_prefix(' ')?,
        None => line,
    };
    let item = item.strip_prefix("unsafe ").unwrap_or(item);
    let (keyword, rest) = item.split_once(' ')?;
    let is_type = matches!(keyword, "struct" | "enum" | "union" | "trait") || keyword == "type" && !indented;
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (is_type && name.starts_with(char::is_uppercase)).then_some(name)
}

/// Functions in a file's code with a tuple as parameter.
fn tuple_parameters(file: &str, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (at, _) in text.match_indices("fn ") {
        let rest = &text[at + 3..];
        let name = &rest[..rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())];
        if name.is_empty() || text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        if parameters_of(&rest[name.len()..]).into_iter().any(is_tuple) {
            let line = text[..at].matches('\n').count() + 1;
            wrong.push(format!(
                "{file}:{line}: {name} has a tuple parameter: make its parts parameters, or a struct"
            ));
        }
    }
    wrong
}

/// The parameters of a function, from the text behind its name.
fn parameters_of(text: &str) -> Vec<&str> {
    let (mut found, mut depth, mut start, mut before) = (Vec::new(), 0, None, ' ');
    for (at, c) in text.char_indices() {
        match c {
            '(' if depth == 0 => (depth, start) = (1, Some(at + 1)),
            '(' | '[' | '{' | '<' => depth += 1,
            '>' if matches!(before, '-' | '=') => {}
            ')' | ']' | '}' | '>' => depth -= 1,
            _ => {}
        }
        if let Some(from) = start
            && (depth == 0 || depth == 1 && c == ',')
        {
            found.push(text[from..at].trim());
            start = Some(at + 1);
            if depth == 0 {
                break;
            }
        }
        before = c;
    }
    found
}

/// True if a parameter's pattern is a tuple, or a reference to a tuple.
fn is_tuple(parameter: &str) -> bool {
    parameter.trim_start_matches('&').starts_with('(')
}

/// Code without test modules: the lines of tests are empty.
fn without_tests(code: &str) -> String {
    let (mut kept, mut is_test) = (String::new(), false);
    let mut lines = code.lines().peekable();
    while let Some(line) = lines.next() {
        is_test |= line == "#[cfg(test)]" && lines.peek().is_some_and(|next| next.starts_with("mod "));
        kept.push_str(if is_test { "" } else { line });
        kept.push('\n');
        is_test &= line != "}" && !(line.starts_with("mod ") && line.ends_with(';'));
    }
    kept
}

/// A file's text with blanks for its comments and literals: lines and columns stay.
fn code(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = skipped(rest, code.chars().next_back()).unwrap_or(0);
        if len == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            code.extend(rest[..len].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = &rest[len..];
        }
    }
    code
}

/// Length of the comment or literal at the beginning of the text, if there is one.
fn skipped(text: &str, before: Option<char>) -> Option<usize> {
    let is_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if text.starts_with("//") {
        return text.find('\n').or(Some(text.len()));
    }
    if text.starts_with("/*") {
        return text.find("*/").map(|end| end + 2);
    }
    if !is_word && let Some(raw) = text.strip_prefix('r').filter(|raw| raw.starts_with(['#', '"'])) {
        let marks = raw.bytes().take_while(|b| *b == b'#').count();
        let body = raw[marks..].strip_prefix('"')?;
        let end = format!("\"{}", "#".repeat(marks));
        return Some(1 + marks + 1 + body.find(&end)? + end.len());
    }
    let escaped = |quote: char| {
        let mut characters = text.char_indices().skip(1);
        while let Some((at, c)) = characters.next() {
            match c {
                '\\' => _ = characters.next(),
                c if c == quote => return Some(at + 1),
                _ => {}
            }
        }
        None
    };
    match text.chars().next()? {
        '"' => escaped('"'),
        // A lifetime has no quote behind its first character.
        '\'' if text[1..].starts_with('\\') || text[1..].chars().nth(1) == Some('\'') => escaped('\''),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repeated_in(files: &[(&str, &str)]) -> Vec<String> {
        let stripped = |(file, text): &(&str, &str)| (file.to_string(), without_tests(&code(text)));
        repeated("policy", &files.iter().map(stripped).collect::<Vec<_>>())
    }

    #[test]
    fn type_name_defined_twice_is_reported_with_both_places() {
        let found = repeated_in(&[("a.rs", "pub(super) struct Run {\n}\n"), ("b.rs", "\nenum Run {}\n")]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("policy defines the type Run ") && found[0].contains("a.rs:1, b.rs:2"));
        for second in ["type Run = u64;", "pub trait Run {", "    struct Run<'a>(&'a str);"] {
            assert_eq!(repeated_in(&[("a.rs", "struct Run;"), ("b.rs", second)]).len(), 1, "{second}");
        }
    }

    #[test]
    fn tests_comments_associated_types_and_shapes_may_repeat_names() {
        let test = "#[cfg(test)]\nmod tests {\n    struct Run;\n}\n";
        let associated = "impl Iterator for A {\n    type Run = u64;\n}\n";
        let literal = "const A: &str = \"\\\"\nstruct Run;\n\";\nconst B: &str = r#\"\"\nstruct Run;\"#;\n";
        for second in [test, associated, literal, "/*\nstruct Run;\n*/\n", "// a\n// struct Run;\n"] {
            assert_eq!(repeated_in(&[("a.rs", "struct Run;\n"), ("b.rs", second)]), [""; 0], "{second}");
        }
        let behind = format!("#[cfg(test)]\nmod more;\n{test}struct Run;\n");
        assert_eq!(repeated_in(&[("a.rs", "struct Run;\n"), ("b.rs", &behind)]).len(), 1);
        assert_eq!(repeated_in(&[("a.rs", "struct Constants;"), ("b.rs", "struct Constants;")]), [""; 0]);
    }

    #[test]
    fn verb_that_hides_a_verb_of_a_lower_owner_is_reported() {
        let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let low = file("low.rs", "impl<R, D> Durable<R, D> {\n    pub async fn write(&self) {}\n}\n");
        let high =
            |verb| file("high.rs", &format!("impl<R, D> Extents<R, D> {{\n    fn {verb}(&self) {{}}\n}}\n"));
        assert_eq!(hidden(&verbs_in(&[low.clone(), high("write")])).len(), 1);
        assert_eq!(hidden(&verbs_in(&[low.clone(), high("read")])), [""; 0]);
        let other = file("other.rs", "impl<R, D> Deref for Extents<R, D> {\n    fn write(&self) {}\n}\n");
        assert_eq!(hidden(&verbs_in(&[low, other])), [""; 0]);
    }

    #[test]
    fn verbs_of_core_beyond_the_limit_are_reported_with_the_remedy() {
        let text = "impl<R, D> Core<R, D> {\n    fn read(&self) {}\n    async fn write(\n        &self,\n    ) {}\n}\n\
                    impl<R, D> Memory<R, D> {\n    fn fetch(&self) {}\n}\n";
        let files = [("a.rs".to_owned(), text.to_owned())];
        assert_eq!(beyond(&verbs_in(&files), 2), None);
        let found = beyond(&verbs_in(&files), 1).expect("two verbs");
        assert!(found.starts_with("Core has 2 verbs: 1 at most: give a verb to the lowest owner"), "{found}");
    }

    #[test]
    fn tuple_parameter_is_reported_with_file_and_line() {
        let found = tuple_parameters("a.rs", &code("// '\nfn f(\n    a: u8,\n    (b, c): (u8, u8),\n) {}\n"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("a.rs:2: f has a tuple parameter"), "{found:?}");
        for text in
            ["fn f<'a, T: Fn(u8) -> u8>(&(b, _): &'a (T, u8))", "pub async fn f(self, ((a, b), c): D)"]
        {
            assert_eq!(tuple_parameters("a.rs", &code(text)).len(), 1, "{text}");
        }
    }

    #[test]
    fn closures_and_parameters_of_tuple_types_are_accepted() {
        for text in ["let f = |(a, b): (u8, u8)| a + b;", "fn f(a: (u8, u8), b: fn(u8) -> (u8, u8)) {}"] {
            assert_eq!(tuple_parameters("a.rs", &code(text)), [""; 0], "{text}");
        }
    }
}
