//! A document as a tree in which everything knows where it stands.
//!
//! What aliases stand for is shared, not copied, and weighed as if it were copied, so that a small
//! text can't stand for a large one.

use std::{collections::HashMap, sync::Arc};

use granit_parser::{
    ErrorKind, Event, Options, Parser, ScalarStyle, ScanError, Span, StrInput, Tag,
};

use super::{MAX_DEPTH, MAX_DOCUMENTS, MAX_WEIGHT, scalar::Scalar};
use crate::{
    fault::{Faults, Path, Place, segment},
    names::{camel, shown},
};

/// A value and where it begins.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) at: Spot,
    pub(crate) kind: Kind,
    weight: usize,
    height: usize,
}

/// A line and a column, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// Its text, and whether it stands there without quotes and so may be more than text.
    Scalar {
        text: Arc<str>,
        plain: bool,
    },
    List(Arc<[Node]>),
    /// In the order of the text; a key may be there twice.
    Map(Arc<[(Key, Node)]>),
    /// What was refused already, and of which nothing more is said.
    Refused,
}

#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) text: Arc<str>,
    pub(crate) at: Spot,
}

impl Node {
    /// The same without some of its keys.
    pub(crate) fn without(&self, unwanted: &str) -> Self {
        let Kind::Map(entries) = &self.kind else { return self.clone() };
        let kept = entries.iter().filter(|(key, _)| &*key.text != unwanted).cloned().collect();
        Self { kind: Kind::Map(kept), ..self.clone() }
    }

    pub(crate) fn is_null(&self) -> bool {
        match &self.kind {
            Kind::Scalar { text, plain: true } => Scalar::of(text) == Scalar::Null,
            _ => false,
        }
    }

    pub(crate) fn get(&self, wanted: &str) -> Option<(&Key, &Self)> {
        let Kind::Map(entries) = &self.kind else { return None };
        entries.iter().find(|(key, _)| &*key.text == wanted).map(|(key, node)| (key, node))
    }

    /// Where what a path names begins, or the nearest thing around it.
    pub(crate) fn find(&self, path: &str) -> Spot {
        let path = path.strip_prefix('.').unwrap_or(path);
        let rest_after = |segment: &str| {
            let rest = path.strip_prefix(segment)?;
            (rest.is_empty() || rest.starts_with(['.', '['])).then_some(rest)
        };
        let below = match &self.kind {
            Kind::Scalar { .. } | Kind::Refused => None,
            Kind::List(items) => path.strip_prefix('[').and_then(|rest| {
                let (at, rest) = rest.split_once(']')?;
                Some((items.get(at.parse::<usize>().ok()?)?, rest))
            }),
            Kind::Map(entries) => entries.iter().find_map(|(key, node)| {
                let rest = rest_after(&segment(&key.text).0);
                let rest = rest.or_else(|| rest_after(&segment(&camel(&key.text)).0))?;
                Some((node, rest))
            }),
        };
        below.map_or(self.at, |(node, rest)| node.find(rest))
    }
}

/// A value was given up: what is wrong is noted.
struct Stop;

struct Builder<'a> {
    parser: Parser<'a, StrInput<'a>>,
    source: &'a str,
    anchors: HashMap<usize, Node>,
    /// What all documents together weigh so far.
    weight: usize,
    faults: Faults,
}

/// The documents of a text, and what is wrong with how they are written. A document that can't be
/// read doesn't keep later ones from being read.
pub(crate) fn documents(text: &str, source: &str) -> (Vec<Node>, Faults) {
    let options = granit_parser::options! {
        emit_comments: false,
        emit_unresolved_aliases: true,
        // Ours is the lower one, and tells where.
        flow_nesting_limit: MAX_DEPTH * 2,
        block_nesting_limit: MAX_DEPTH * 2,
    };
    let options: Options = options;
    let mut builder = Builder {
        parser: Parser::new_from_str_with_options(text, options),
        source,
        anchors: HashMap::new(),
        weight: 0,
        faults: Faults::default(),
    };
    let mut documents = Vec::new();
    loop {
        match builder.document() {
            Ok(None) => break,
            Ok(Some(node)) => {
                if documents.len() == MAX_DOCUMENTS {
                    let message = format!("there are more than {MAX_DOCUMENTS} documents");
                    builder.note(&Path::default(), node.at, message, Some("split the file"));
                    break;
                }
                documents.push(node);
            }
            Err(Stop) => {
                // What weighs too much goes on weighing too much.
                if builder.weight > MAX_WEIGHT {
                    break;
                }
                match builder.parser.proceed_next_document() {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => {
                        builder.syntax(&Path::default(), &error);
                        break;
                    }
                }
            }
        }
    }
    (documents, builder.faults)
}

impl<'a> Builder<'a> {
    /// The next document, without those that are empty.
    fn document(&mut self) -> Result<Option<Node>, Stop> {
        let root = Path::default();
        loop {
            let Some((event, span)) = self.next(&root)? else { return Ok(None) };
            match event {
                Event::StreamEnd => return Ok(None),
                Event::DocumentStart(..) => self.anchors.clear(),
                Event::StreamStart | Event::DocumentEnd => {}
                event => {
                    let node = self.node(event, span, &root, 0)?;
                    if !node.is_null() {
                        return Ok(Some(node));
                    }
                }
            }
        }
    }

    fn next(&mut self, path: &Path) -> Result<Option<(Event<'a>, Span)>, Stop> {
        match self.parser.next_event() {
            None => Ok(None),
            Some(Ok(next)) => Ok(Some(next)),
            Some(Err(error)) => {
                self.syntax(path, &error);
                Err(Stop)
            }
        }
    }

    /// The next event within a value, where the text can't just end.
    fn inner(&mut self, path: &Path, begun: Spot) -> Result<(Event<'a>, Span), Stop> {
        match self.next(path)? {
            Some(next) => Ok(next),
            None => {
                self.note(path, begun, "the text ends within what begins here".to_owned(), None);
                Err(Stop)
            }
        }
    }

    fn node(
        &mut self,
        event: Event<'a>,
        span: Span,
        path: &Path,
        depth: usize,
    ) -> Result<Node, Stop> {
        let at = spot(&span);
        if depth > MAX_DEPTH {
            return self.too_deep(path, at);
        }
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = self.plain(style, tag.as_deref(), path, at);
                let text: Arc<str> = Arc::from(&*text);
                let weight = self.weigh(path, at, text.len())?;
                let kind = Kind::Scalar { text, plain };
                Ok(self.anchored(anchor, Node { at, kind, weight, height: 0 }))
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.collection_tag(tag.as_deref(), "seq", path, at);
                let node = self.list(at, path, depth)?;
                Ok(self.anchored(anchor, node))
            }
            Event::MappingStart(_, anchor, tag) => {
                self.collection_tag(tag.as_deref(), "map", path, at);
                let node = self.map(at, path, depth)?;
                Ok(self.anchored(anchor, node))
            }
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor).cloned() else {
                    let message = "stands for something that it is itself a part of".to_owned();
                    self.note(path, at, message, None);
                    return Err(Stop);
                };
                if depth + node.height > MAX_DEPTH {
                    return self.too_deep(path, at);
                }
                self.weigh(path, at, node.weight)?;
                Ok(node)
            }
            Event::UnresolvedAlias(name) => {
                let message = format!("there is no anchor {}", shown(&name));
                self.note(path, at, message, None);
                Ok(Node { at, kind: Kind::Refused, weight: 64, height: 0 })
            }
            other => {
                self.note(path, at, format!("can't be read: {other:?}"), None);
                Err(Stop)
            }
        }
    }

    fn list(&mut self, at: Spot, path: &Path, depth: usize) -> Result<Node, Stop> {
        let mut weight = self.weigh(path, at, 0)?;
        let (mut items, mut height) = (Vec::new(), 0);
        loop {
            let path = path.index(items.len());
            let (event, span) = self.inner(&path, at)?;
            if matches!(event, Event::SequenceEnd) {
                break;
            }
            let item = self.node(event, span, &path, depth + 1)?;
            weight = weight.saturating_add(item.weight);
            height = height.max(item.height + 1);
            items.push(item);
        }
        Ok(Node { at, kind: Kind::List(items.into()), weight, height })
    }

    fn map(&mut self, at: Spot, path: &Path, depth: usize) -> Result<Node, Stop> {
        let mut weight = self.weigh(path, at, 0)?;
        let (mut entries, mut height) = (Vec::new(), 0);
        loop {
            let (event, span) = self.inner(path, at)?;
            if matches!(event, Event::MappingEnd) {
                break;
            }
            let key = self.node(event, span, path, depth + 1)?;
            let text = match &key.kind {
                Kind::Scalar { text, .. } => Some(text.clone()),
                Kind::List(_) | Kind::Map(_) | Kind::Refused => None,
            };
            let below = text.as_ref().map_or_else(|| path.clone(), |text| path.key(&camel(text)));
            let (event, span) = self.inner(&below, at)?;
            let value = self.node(event, span, &below, depth + 1)?;
            weight = weight.saturating_add(key.weight).saturating_add(value.weight);
            height = height.max(value.height + 1);
            match text {
                Some(text) => entries.push((Key { text, at: key.at }, value)),
                None => self.note(path, key.at, "a key must be text".to_owned(), None),
            }
        }
        Ok(Node { at, kind: Kind::Map(entries.into()), weight, height })
    }

    /// Adds to what all documents weigh: text counts by its length, everything by something.
    fn weigh(&mut self, path: &Path, at: Spot, length: usize) -> Result<usize, Stop> {
        let weight = length.saturating_add(64);
        self.weight = self.weight.saturating_add(weight);
        if self.weight > MAX_WEIGHT {
            let message = "the file says too much, aliases counted as what they stand for";
            self.note(path, at, message.to_owned(), Some("split the file"));
            return Err(Stop);
        }
        Ok(weight)
    }

    fn anchored(&mut self, anchor: usize, node: Node) -> Node {
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        node
    }

    /// Whether a scalar may be more than text. Tags other than those that say what is so anyway
    /// are refused.
    fn plain(&mut self, style: ScalarStyle, tag: Option<&Tag>, path: &Path, at: Spot) -> bool {
        match tag.map(|tag| (tag.core_suffix(), tag)) {
            None => style == ScalarStyle::Plain,
            Some((Some("str"), _)) => false,
            Some((_, tag)) if tag.handle().is_empty() && tag.suffix() == "!" => false,
            Some((_, tag)) => {
                self.refuse_tag(tag, path, at);
                style == ScalarStyle::Plain
            }
        }
    }

    fn collection_tag(&mut self, tag: Option<&Tag>, allowed: &str, path: &Path, at: Spot) {
        if let Some(tag) = tag.filter(|tag| !tag.is_yaml_core_schema_tag(allowed)) {
            self.refuse_tag(tag, path, at);
        }
    }

    fn refuse_tag(&mut self, tag: &Tag, path: &Path, at: Spot) {
        let message = format!("the tag {} means nothing here", shown(&tag.original()));
        self.note(path, at, message, Some("leave it out"));
    }

    fn too_deep(&mut self, path: &Path, at: Spot) -> Result<Node, Stop> {
        self.note(path, at, too_deep(), None);
        Err(Stop)
    }

    fn syntax(&mut self, path: &Path, error: &ScanError) {
        let marker = error.marker();
        let at = Spot { line: marker.line().max(1), column: marker.col() + 1 };
        let message = match error.kind() {
            // The reader sees it further ahead than we do.
            ErrorKind::RecursionLimitExceeded => too_deep(),
            _ => format!("isn't YAML: {}", error.info()),
        };
        self.note(path, at, message, None);
    }

    fn note(&mut self, path: &Path, at: Spot, message: String, hint: Option<&str>) {
        self.faults.push(path, Some(at.place(self.source)), message, hint.map(str::to_owned));
    }
}

impl Spot {
    pub(crate) fn place(self, source: &str) -> Place {
        Place { source: source.to_owned(), line: self.line, column: self.column }
    }
}

fn too_deep() -> String {
    format!("is more than {MAX_DEPTH} levels deep")
}

fn spot(span: &Span) -> Spot {
    Spot { line: span.start.line().max(1), column: span.start.col() + 1 }
}
