//! Fails on a cycle between sibling modules of any crate in the workspace.
//!
//! Reads the source as tokens, so paths inside macros count, and follows `use` and `pub use` to the
//! module that defines a name. A parent may use its children and they may use it. Code under
//! `#[cfg(test)]` and names that reach a module through a glob import are not seen.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::indexing_slicing))]

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result, ensure};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use serde_json::Value;

/// A module's path below the crate root; also a path of names.
type ModulePath = Vec<String>;
type ReadFile<'a> = &'a dyn Fn(&Path) -> Option<String>;

#[derive(Default)]
struct Module {
    /// What each imported name stands for, as written.
    imports: BTreeMap<String, ModulePath>,
    /// Every path that the module mentions, with its `file:line`.
    references: Vec<(ModulePath, String)>,
}

type Modules = BTreeMap<ModulePath, Module>;
type Edges<'a> = BTreeMap<(ModulePath, ModulePath), &'a str>;

fn main() -> Result<ExitCode> {
    let metadata =
        Command::new("cargo").args(["metadata", "--no-deps", "--format-version", "1"]).output()?;
    ensure!(metadata.status.success(), "cargo metadata: {}", metadata.status);
    let metadata: Value = serde_json::from_slice(&metadata.stdout)?;
    let base = text(&metadata, "workspace_root");
    let read = |path: &Path| fs::read_to_string(Path::new(base).join(path)).ok();
    let mut found = 0;
    for target in list(&metadata, "packages").flat_map(|package| list(package, "targets")) {
        let root = Path::new(text(target, "src_path"));
        let root = root.strip_prefix(base).unwrap_or(root);
        let modules = read_crate(root, &read).with_context(|| root.display().to_string())?;
        for cycle in cycles(&modules) {
            found += 1;
            eprintln!("{}: {cycle}", text(target, "name").trim_start_matches("oprc_"));
        }
    }
    if found == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "{found} module cycles: move what both sides use into a module below both, or pass it in from their parent"
    );
    Ok(ExitCode::FAILURE)
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(object: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    object.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn read_crate(root: &Path, read: ReadFile<'_>) -> Result<Modules> {
    let mut modules = Modules::new();
    let folder = root.parent().unwrap_or(Path::new("")).to_owned();
    read_file(root, folder, Vec::new(), read, &mut modules)?;
    Ok(modules)
}

fn read_file(
    file: &Path,
    folder: PathBuf,
    module: ModulePath,
    read: ReadFile<'_>,
    modules: &mut Modules,
) -> Result<()> {
    let text = read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let tokens: TokenStream =
        text.parse().map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))?;
    modules.entry(module.clone()).or_default();
    Reader { file, folder, module, read, modules }.walk(tokens)
}

/// Collects imports, references and submodules of one module.
struct Reader<'a> {
    file: &'a Path,
    /// Where the files of submodules are.
    folder: PathBuf,
    module: ModulePath,
    read: ReadFile<'a>,
    modules: &'a mut Modules,
}

impl Reader<'_> {
    fn walk(&mut self, tokens: TokenStream) -> Result<()> {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token {
                TokenTree::Group(group) => self.walk(group.stream())?,
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    let inner = is_punct(tokens.get(at), '!');
                    if tokens.get(at + usize::from(inner)).is_some_and(is_test_only) {
                        if inner {
                            return Ok(());
                        }
                        at = end_of_item(&tokens, at + 1);
                    }
                }
                TokenTree::Ident(word) if word == "use" => {
                    let end = position_of(&tokens, at, |token| is_punct(Some(token), ';'));
                    self.import(tokens.get(at..end).unwrap_or_default(), &Vec::new());
                    at = end;
                }
                TokenTree::Ident(word) if word == "mod" => {
                    if let (Some(TokenTree::Ident(name)), Some(body)) =
                        (tokens.get(at), tokens.get(at + 1))
                    {
                        self.submodule(&name.to_string(), body)?;
                        at += 2;
                    }
                }
                TokenTree::Ident(first) => {
                    let mut path = vec![name_of(first)];
                    while let Some(TokenTree::Ident(next)) = after_colons(&tokens, at) {
                        path.push(name_of(next));
                        at += 3;
                    }
                    if path.len() > 1 {
                        self.reference(path, first.span().start().line);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn submodule(&mut self, name: &str, body: &TokenTree) -> Result<()> {
        let module = [self.module.as_slice(), &[name.to_owned()]].concat();
        let (file, folder, read) = (self.file, self.folder.join(name), self.read);
        if let TokenTree::Group(group) = body {
            let mut inline = Reader { file, folder, module, read, modules: self.modules };
            inline.own();
            return inline.walk(group.stream());
        }
        let flat = self.folder.join(format!("{name}.rs"));
        let file = if read(&flat).is_some() { flat } else { folder.join("mod.rs") };
        read_file(&file, folder, module, read, self.modules)
    }

    fn own(&mut self) -> &mut Module {
        self.modules.entry(self.module.clone()).or_default()
    }

    /// Records what `use PREFIX::TREE` imports.
    fn import(&mut self, tree: &[TokenTree], prefix: &ModulePath) {
        let mut path = prefix.clone();
        let mut renamed = None;
        let mut line = 0;
        for (at, token) in tree.iter().enumerate() {
            match token {
                TokenTree::Ident(word) if word == "as" => {
                    renamed = tree.get(at + 1).map(ToString::to_string);
                    break;
                }
                TokenTree::Ident(word) if word == "self" && !path.is_empty() => {}
                TokenTree::Ident(word) => path.push(name_of(word)),
                TokenTree::Group(group) => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    for part in inner.split(|token| is_punct(Some(token), ',')) {
                        self.import(part, &path);
                    }
                    return;
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
            line = token.span().start().line;
        }
        if let Some(name) = renamed.or_else(|| path.last().cloned())
            && !is_punct(tree.last(), '*')
        {
            self.own().imports.insert(name, path.clone());
        }
        self.reference(path, line);
    }

    fn reference(&mut self, path: ModulePath, line: usize) {
        let place = format!("{}:{line}", self.file.display());
        self.own().references.push((path, place));
    }
}

fn name_of(word: &proc_macro2::Ident) -> String {
    word.to_string().trim_start_matches("r#").to_owned()
}

fn is_punct(token: Option<&TokenTree>, character: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == character)
}

fn after_colons(tokens: &[TokenTree], at: usize) -> Option<&TokenTree> {
    let colons = is_punct(tokens.get(at), ':') && is_punct(tokens.get(at + 1), ':');
    tokens.get(at + 2).filter(|_| colons)
}

/// The index of the first match at `from` or later, or the number of tokens.
fn position_of(
    tokens: &[TokenTree],
    from: usize,
    matches: impl FnMut(&TokenTree) -> bool,
) -> usize {
    tokens.iter().skip(from).position(matches).map_or(tokens.len(), |offset| from + offset)
}

fn is_test_only(attribute: &TokenTree) -> bool {
    let text: String = attribute.to_string().split_whitespace().collect();
    text.starts_with("[cfg(") && !text.contains("not(") && text.contains("test")
}

/// The index after the item that begins at `from`, which ends with `;` or a block.
fn end_of_item(tokens: &[TokenTree], from: usize) -> usize {
    let is_block = |token: &TokenTree| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
    let imports = tokens.iter().skip(from).take(3).any(|token| token.to_string() == "use");
    let block = position_of(tokens, from, |token| is_block(token) && !imports);
    block.min(position_of(tokens, from, |token| is_punct(Some(token), ';'))) + 1
}

/// The module that defines what `path` names when written in `module`; none for other crates.
fn resolve(modules: &Modules, module: &[String], path: &[String], depth: u8) -> Option<ModulePath> {
    let mut at = module.to_vec();
    for (index, name) in path.iter().enumerate() {
        match name.as_str() {
            "crate" => at.clear(),
            "self" => {}
            "super" => drop(at.pop()),
            _ => {
                let child: ModulePath = at.iter().chain([name]).cloned().collect();
                if modules.contains_key(&child) {
                    at = child;
                } else if let Some(import) = modules.get(&at).and_then(|it| it.imports.get(name))
                    && depth > 0
                    && import != path
                {
                    let path: ModulePath =
                        import.iter().chain(path.iter().skip(index + 1)).cloned().collect();
                    let found = resolve(modules, &at, &path, depth - 1);
                    return found.or((index > 0).then_some(at));
                } else {
                    return (index > 0).then_some(at);
                }
            }
        }
    }
    Some(at)
}

/// Which sibling module uses which, with the first place where it does.
fn edges(modules: &Modules) -> Edges<'_> {
    let mut edges = Edges::new();
    for (from, module) in modules {
        for (path, place) in &module.references {
            let Some(to) = resolve(modules, from, path, 8) else { continue };
            let shared = from.iter().zip(&to).take_while(|(one, other)| one == other).count();
            if let (Some(from), Some(to)) = (from.get(..=shared), to.get(..=shared)) {
                edges.entry((from.to_vec(), to.to_vec())).or_insert(place);
            }
        }
    }
    edges
}

fn shortest_path<'a>(
    edges: &'a Edges<'_>,
    from: &'a ModulePath,
    to: &ModulePath,
) -> Option<Vec<&'a ModulePath>> {
    let mut queue = VecDeque::from([vec![from]]);
    let mut visited = BTreeSet::new();
    while let Some(path) = queue.pop_front() {
        let last = *path.last()?;
        if last == to {
            return Some(path);
        }
        let next = edges.keys().filter(|(from, _)| from == last).map(|(_, next)| next);
        let new = next.filter(|next| visited.insert(*next));
        queue.extend(new.map(|next| path.iter().copied().chain([next]).collect::<Vec<_>>()));
    }
    None
}

/// The shortest cycle through each edge that is part of one.
fn cycles(modules: &Modules) -> Vec<String> {
    let edges = edges(modules);
    let mut found = BTreeSet::new();
    for (from, to) in edges.keys() {
        let Some(mut cycle) = shortest_path(&edges, to, from) else { continue };
        // Each cycle is reported once: it begins with the first of its modules by name.
        let first = (0..cycle.len()).min_by_key(|index| cycle.get(*index)).unwrap_or_default();
        cycle.rotate_left(first);
        cycle.extend(cycle.first().copied());
        found.insert(cycle);
    }
    let describe = |cycle: Vec<&ModulePath>| {
        let names: Vec<_> = cycle.iter().map(|module| module.join("::")).collect();
        let steps = cycle.iter().zip(cycle.iter().skip(1)).map(|(&from, &to)| {
            let place = edges.get(&(from.clone(), to.clone())).copied().unwrap_or_default();
            format!("\n  {} -> {}: {place}", from.join("::"), to.join("::"))
        });
        names.join(" -> ") + &steps.collect::<String>()
    };
    found.into_iter().map(describe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycles_in(files: &[(&str, &str)]) -> Vec<String> {
        let read = |path: &Path| {
            let file = files.iter().find(|(name, _)| Path::new(name) == path);
            file.map(|(_, text)| (*text).to_owned())
        };
        let modules = read_crate(Path::new("src/lib.rs"), &read).unwrap();
        cycles(&modules)
    }

    #[test]
    fn names_a_planted_cycle_with_one_place_for_each_edge() {
        let found = cycles_in(&[
            ("src/lib.rs", "mod controller;\nmod reconcile;\nmod leaf;"),
            ("src/controller.rs", "use crate::{leaf, reconcile::decide};\nfn run() { decide() }"),
            ("src/reconcile/mod.rs", "mod events;\npub fn decide() {}"),
            ("src/reconcile/events.rs", "\nfn send() { log!(crate::controller::run()); }"),
            ("src/leaf.rs", ""),
        ]);
        assert_eq!(
            found,
            ["controller -> reconcile -> controller\
              \n  controller -> reconcile: src/controller.rs:1\
              \n  reconcile -> controller: src/reconcile/events.rs:2"]
        );
    }

    #[test]
    fn follows_re_exports_and_renamed_imports() {
        let found = cycles_in(&[
            ("src/lib.rs", "#![cfg_attr(test, allow(x))] mod a; mod b; pub use b::Thing as Other;"),
            ("src/a.rs", "use crate::Other;"),
            ("src/b.rs", "use super::a as first; fn f() { first::g() }"),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn finds_cycles_between_nested_siblings_and_in_inline_modules() {
        let found = cycles_in(&[(
            "src/lib.rs",
            "mod outer { mod a { use super::b::X; } mod b { use super::a; } mod c { mod d {} } }",
        )]);
        assert!(found[0].starts_with("outer::a -> outer::b -> outer::a"), "{found:?}");
    }

    #[test]
    fn parents_children_and_test_code_form_no_cycle() {
        let found = cycles_in(&[
            ("src/lib.rs", "mod a; mod b; pub fn top() { a::f() }"),
            ("src/a.rs", "mod inner { use super::f; }\npub fn f() { inner::g(); crate::top() }"),
            ("src/b.rs", "use crate::a;\n#[cfg(test)]\nmod tests { use super::*; }"),
        ]);
        assert!(found.is_empty(), "{found:?}");
        let found = cycles_in(&[
            ("src/lib.rs", "mod a; mod b;"),
            ("src/a.rs", "#[cfg(test)] use crate::b::{X}; #[cfg(test)] mod tests;"),
            ("src/b.rs", "use crate::a; #[cfg(all(test, unix))] fn f() { crate::a::g() }"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }
}
