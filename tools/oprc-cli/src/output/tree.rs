//! Trees of text lines.

use std::fmt::Write as _;

#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    line: String,
    children: Vec<Tree>,
}

impl Tree {
    pub(crate) fn new(line: impl Into<String>) -> Self {
        Self { line: line.into(), children: Vec::new() }
    }

    pub(crate) fn push(&mut self, tree: Self) {
        self.children.push(tree);
    }

    pub(crate) fn render(&self) -> String {
        let mut text = format!("{}\n", self.line);
        self.branches(&mut text, "");
        text
    }

    fn branches(&self, text: &mut String, indent: &str) {
        for (index, tree) in self.children.iter().enumerate() {
            let last = index + 1 == self.children.len();
            let (branch, below) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            let _ = writeln!(text, "{indent}{branch}{}", tree.line);
            tree.branches(text, &format!("{indent}{below}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renders_nested_branches() {
        let mut root = Tree::new("a");
        let mut one = Tree::new("b");
        one.push(Tree::new("c"));
        root.push(one);
        root.push(Tree::new("d"));
        assert_eq!(root.render(), "a\n├─ b\n│  └─ c\n└─ d\n");
    }
}
