//! Trees.

use std::fmt::Write as _;

/// A line, and what is below it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    line: String,
    below: Vec<Tree>,
}

impl Tree {
    /// A line with nothing below it.
    pub(crate) fn new(line: impl Into<String>) -> Self {
        Self { line: line.into(), below: Vec::new() }
    }

    /// Puts something below it.
    pub(crate) fn push(&mut self, tree: Self) {
        self.below.push(tree);
    }

    /// The tree as text.
    pub(crate) fn render(&self) -> String {
        let mut text = format!("{}\n", self.line);
        self.branches(&mut text, "");
        text
    }

    fn branches(&self, text: &mut String, before: &str) {
        for (index, tree) in self.below.iter().enumerate() {
            let last = index + 1 == self.below.len();
            let (branch, below) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            let _ = writeln!(text, "{before}{branch}{}", tree.line);
            tree.branches(text, &format!("{before}{below}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_show_what_is_below_what() {
        let mut root = Tree::new("a");
        let mut one = Tree::new("b");
        one.push(Tree::new("c"));
        root.push(one);
        root.push(Tree::new("d"));
        assert_eq!(root.render(), "a\n├─ b\n│  └─ c\n└─ d\n");
    }
}
