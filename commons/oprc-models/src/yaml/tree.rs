//! A YAML document as a tree of values with source positions.
//!
//! Aliases share their target, but their expanded size is counted, so that a small file cannot
//! expand to a large document.

use std::{collections::HashMap, sync::Arc};

use granit_parser::{
    ErrorKind, Event, Marker, Options, Parser, ScalarStyle, ScanError, Span, StrInput, Tag,
};

use super::{MAX_DEPTH, MAX_DOCUMENTS, MAX_EXPANDED_SIZE, scalar::Scalar};
use crate::{
    diagnostics::{Diagnostics, Path, SourceLocation, segment},
    names::{quote, to_camel_case},
};

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) position: Position,
    pub(crate) kind: Kind,
    /// In bytes, with aliases expanded; see [`MAX_EXPANDED_SIZE`].
    size: usize,
    height: usize,
}

/// Line and column, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// `plain` scalars are unquoted and may be numbers, booleans or null.
    Scalar {
        text: Arc<str>,
        plain: bool,
    },
    List(Arc<[Node]>),
    /// In source order; a key may occur twice.
    Map(Arc<[(Key, Node)]>),
    /// Already reported; produces no further diagnostics.
    Invalid,
}

#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) text: Arc<str>,
    pub(crate) position: Position,
}

impl Node {
    pub(crate) fn without_key(&self, removed: &str) -> Self {
        let Kind::Map(entries) = &self.kind else { return self.clone() };
        let kept = entries.iter().filter(|(key, _)| &*key.text != removed).cloned().collect();
        Self { kind: Kind::Map(kept), ..self.clone() }
    }

    pub(crate) fn is_null(&self) -> bool {
        match &self.kind {
            Kind::Scalar { text, plain: true } => Scalar::of(text) == Scalar::Null,
            _ => false,
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<(&Key, &Self)> {
        let Kind::Map(entries) = &self.kind else { return None };
        entries.iter().find(|(key, _)| &*key.text == name).map(|(key, node)| (key, node))
    }

    /// The position of the value at a path, or of its closest existing ancestor.
    pub(crate) fn find(&self, path: &str) -> Position {
        let path = path.strip_prefix('.').unwrap_or(path);
        let rest_after = |segment: &str| {
            let rest = path.strip_prefix(segment)?;
            (rest.is_empty() || rest.starts_with(['.', '['])).then_some(rest)
        };
        let below = match &self.kind {
            Kind::Scalar { .. } | Kind::Invalid => None,
            Kind::List(items) => path.strip_prefix('[').and_then(|rest| {
                let (at, rest) = rest.split_once(']')?;
                Some((items.get(at.parse::<usize>().ok()?)?, rest))
            }),
            Kind::Map(entries) => entries.iter().find_map(|(key, node)| {
                let rest = rest_after(&segment(&key.text).0);
                let rest = rest.or_else(|| rest_after(&segment(&to_camel_case(&key.text)).0))?;
                Some((node, rest))
            }),
        };
        below.map_or(self.position, |(node, rest)| node.find(rest))
    }
}

/// A value cannot be read further; the diagnostic has been reported.
struct Abort;

struct Builder<'a> {
    parser: Parser<'a, StrInput<'a>>,
    source: &'a str,
    anchors: HashMap<usize, Node>,
    /// The expanded size of all documents so far.
    size: usize,
    diagnostics: Diagnostics,
}

/// The documents of a file, and the syntax errors in it. An unreadable document does not prevent
/// later ones from being read.
pub(crate) fn documents(text: &str, source: &str) -> (Vec<Node>, Diagnostics) {
    let options = granit_parser::options! {
        emit_comments: false,
        emit_unresolved_aliases: true,
        // Above MAX_DEPTH, whose diagnostic includes the path.
        flow_nesting_limit: MAX_DEPTH * 2,
        block_nesting_limit: MAX_DEPTH * 2,
    };
    let options: Options = options;
    let mut builder = Builder {
        parser: Parser::new_from_str_with_options(text, options),
        source,
        anchors: HashMap::new(),
        size: 0,
        diagnostics: Diagnostics::default(),
    };
    let mut documents = Vec::new();
    loop {
        match builder.next_document() {
            Ok(None) => break,
            Ok(Some(node)) if documents.len() < MAX_DOCUMENTS => documents.push(node),
            Ok(Some(node)) => {
                let message = format!("the file has more than {MAX_DOCUMENTS} documents");
                builder.add(&Path::default(), node.position, message, Some("split the file"));
                break;
            }
            // Every further document would exceed the size limit, too.
            Err(Abort) if builder.size > MAX_EXPANDED_SIZE => break,
            Err(Abort) => match builder.parser.proceed_next_document() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    builder.add_syntax_error(&Path::default(), &error);
                    break;
                }
            },
        }
    }
    (documents, builder.diagnostics)
}

impl<'a> Builder<'a> {
    /// The next document that is not empty.
    fn next_document(&mut self) -> Result<Option<Node>, Abort> {
        let root = Path::default();
        loop {
            let Some((event, span)) = self.next_event(&root)? else { return Ok(None) };
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

    fn next_event(&mut self, path: &Path) -> Result<Option<(Event<'a>, Span)>, Abort> {
        match self.parser.next_event() {
            None => Ok(None),
            Some(Ok(next)) => Ok(Some(next)),
            Some(Err(error)) => {
                self.add_syntax_error(path, &error);
                Err(Abort)
            }
        }
    }

    /// The next event within a value that starts at `start`.
    fn next_inner_event(
        &mut self,
        path: &Path,
        start: Position,
    ) -> Result<(Event<'a>, Span), Abort> {
        let next = self.next_event(path)?;
        next.ok_or_else(|| self.abort(path, start, "the file ends inside this value"))
    }

    fn node(
        &mut self,
        event: Event<'a>,
        span: Span,
        path: &Path,
        depth: usize,
    ) -> Result<Node, Abort> {
        let position = Position::from_marker(span.start);
        if depth > MAX_DEPTH {
            return Err(self.abort(path, position, too_deep()));
        }
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = self.is_plain(style, tag.as_deref(), path, position);
                let text: Arc<str> = Arc::from(&*text);
                let size = self.add_size(path, position, text.len())?;
                let kind = Kind::Scalar { text, plain };
                Ok(self.store_anchor(anchor, Node { position, kind, size, height: 0 }))
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.collection_tag(tag.as_deref(), "seq", path, position);
                let node = self.list(position, path, depth)?;
                Ok(self.store_anchor(anchor, node))
            }
            Event::MappingStart(_, anchor, tag) => {
                self.collection_tag(tag.as_deref(), "map", path, position);
                let node = self.map(position, path, depth)?;
                Ok(self.store_anchor(anchor, node))
            }
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor).cloned() else {
                    let message = "the alias refers to a value that contains it";
                    return Err(self.abort(path, position, message));
                };
                if depth + node.height > MAX_DEPTH {
                    return Err(self.abort(path, position, too_deep()));
                }
                self.add_size(path, position, node.size)?;
                Ok(node)
            }
            Event::UnresolvedAlias(name) => {
                let message = format!("the anchor {} does not exist", quote(&name));
                self.add(path, position, message, None);
                Ok(Node { position, kind: Kind::Invalid, size: 64, height: 0 })
            }
            other => Err(self.abort(path, position, format!("unexpected YAML event: {other:?}"))),
        }
    }

    fn list(&mut self, position: Position, path: &Path, depth: usize) -> Result<Node, Abort> {
        let mut size = self.add_size(path, position, 0)?;
        let (mut items, mut height) = (Vec::new(), 0);
        loop {
            let path = path.index(items.len());
            let (event, span) = self.next_inner_event(&path, position)?;
            if matches!(event, Event::SequenceEnd) {
                break;
            }
            let item = self.node(event, span, &path, depth + 1)?;
            size = size.saturating_add(item.size);
            height = height.max(item.height + 1);
            items.push(item);
        }
        Ok(Node { position, kind: Kind::List(items.into()), size, height })
    }

    fn map(&mut self, position: Position, path: &Path, depth: usize) -> Result<Node, Abort> {
        let mut size = self.add_size(path, position, 0)?;
        let (mut entries, mut height) = (Vec::new(), 0);
        loop {
            let (event, span) = self.next_inner_event(path, position)?;
            if matches!(event, Event::MappingEnd) {
                break;
            }
            let key = self.node(event, span, path, depth + 1)?;
            let text = match &key.kind {
                Kind::Scalar { text, .. } => Some(text.clone()),
                Kind::List(_) | Kind::Map(_) | Kind::Invalid => None,
            };
            let below =
                text.as_ref().map_or_else(|| path.clone(), |text| path.key(&to_camel_case(text)));
            let (event, span) = self.next_inner_event(&below, position)?;
            let value = self.node(event, span, &below, depth + 1)?;
            size = size.saturating_add(key.size).saturating_add(value.size);
            height = height.max(value.height + 1);
            match text {
                Some(text) => entries.push((Key { text, position: key.position }, value)),
                None => self.add(path, key.position, "keys must be strings".to_owned(), None),
            }
        }
        Ok(Node { position, kind: Kind::Map(entries.into()), size, height })
    }

    /// Adds a value to the expanded size, and returns its own share.
    fn add_size(&mut self, path: &Path, position: Position, length: usize) -> Result<usize, Abort> {
        let size = length.saturating_add(64);
        self.size = self.size.saturating_add(size);
        if self.size > MAX_EXPANDED_SIZE {
            let message = "the file is too large after expanding aliases";
            self.add(path, position, message.to_owned(), Some("split the file"));
            return Err(Abort);
        }
        Ok(size)
    }

    fn store_anchor(&mut self, anchor: usize, node: Node) -> Node {
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        node
    }

    /// Whether a scalar may be something other than a string. Tags that change the type are rejected.
    fn is_plain(
        &mut self,
        style: ScalarStyle,
        tag: Option<&Tag>,
        path: &Path,
        position: Position,
    ) -> bool {
        match tag.map(|tag| (tag.core_suffix(), tag)) {
            None => style == ScalarStyle::Plain,
            Some((Some("str"), _)) => false,
            Some((_, tag)) if tag.handle().is_empty() && tag.suffix() == "!" => false,
            Some((_, tag)) => {
                self.reject_tag(tag, path, position);
                style == ScalarStyle::Plain
            }
        }
    }

    fn collection_tag(
        &mut self,
        tag: Option<&Tag>,
        allowed: &str,
        path: &Path,
        position: Position,
    ) {
        if let Some(tag) = tag.filter(|tag| !tag.is_yaml_core_schema_tag(allowed)) {
            self.reject_tag(tag, path, position);
        }
    }

    fn reject_tag(&mut self, tag: &Tag, path: &Path, position: Position) {
        let message = format!("the tag {} is not supported", quote(&tag.original()));
        self.add(path, position, message, Some("remove it"));
    }

    fn abort(&mut self, path: &Path, position: Position, message: impl Into<String>) -> Abort {
        self.add(path, position, message.into(), None);
        Abort
    }

    fn add_syntax_error(&mut self, path: &Path, error: &ScanError) {
        let position = Position::from_marker(*error.marker());
        let message = match error.kind() {
            // The parser looks ahead and may hit its own limit first.
            ErrorKind::RecursionLimitExceeded => too_deep(),
            _ => format!("invalid YAML: {}", error.info()),
        };
        self.add(path, position, message, None);
    }

    fn add(&mut self, path: &Path, position: Position, message: String, hint: Option<&str>) {
        let location = Some(position.location(self.source));
        self.diagnostics.add_at(path, location, message, hint.map(str::to_owned));
    }
}

impl Position {
    fn from_marker(marker: Marker) -> Self {
        Self { line: marker.line().max(1), column: marker.col() + 1 }
    }

    pub(crate) fn location(self, source: &str) -> SourceLocation {
        SourceLocation { source: source.to_owned(), line: self.line, column: self.column }
    }
}

fn too_deep() -> String {
    format!("is nested more than {MAX_DEPTH} levels deep")
}
