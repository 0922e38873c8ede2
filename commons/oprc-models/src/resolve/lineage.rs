//! The inheritance order of a class (C3 linearization).

use std::{collections::BTreeMap, rc::Rc};

use super::{Origin, Scope};
use crate::names::format_path;

/// Maximum length of a lineage, including the class itself.
const MAX_LINEAGE: usize = 32;

/// A class and all its ancestors, nearest first.
pub(super) type Lineage = Rc<[Origin]>;

/// Computes lineages and caches them.
#[derive(Default)]
pub(super) struct Lineages {
    known: BTreeMap<Origin, Result<Lineage, String>>,
    /// The classes being resolved, to detect cycles.
    in_progress: Vec<Origin>,
}

impl Lineages {
    pub(super) fn of(&mut self, class: &Origin, scope: &Scope<'_>) -> Result<Lineage, String> {
        if let Some(known) = self.known.get(class) {
            return known.clone();
        }
        if let Some(at) = self.in_progress.iter().position(|it| it == class) {
            let mut cycle: Vec<String> =
                self.in_progress.iter().skip(at).map(Origin::to_string).collect();
            cycle.push(class.to_string());
            let message = format!("the class inherits from itself: {}", format_path(&cycle));
            return Err(message);
        }
        if self.in_progress.len() > MAX_LINEAGE {
            return Err(too_long());
        }
        self.in_progress.push(class.clone());
        let found = self.linearize(class, scope);
        self.in_progress.pop();
        self.known.insert(class.clone(), found.clone());
        found
    }

    fn linearize(&mut self, class: &Origin, scope: &Scope<'_>) -> Result<Lineage, String> {
        let found = scope.class(class);
        let found = found.ok_or_else(|| format!("the class {class} does not exist"))?;
        let parents: Vec<Origin> =
            found.parents.iter().map(|it| Scope::origin(&class.package, it)).collect();
        let mut rows: Vec<Vec<Origin>> = Vec::new();
        for parent in &parents {
            rows.push(self.of(parent, scope)?.to_vec());
        }
        rows.push(parents);
        let mut order = vec![class.clone()];
        loop {
            rows.retain(|row| !row.is_empty());
            if rows.is_empty() {
                break;
            }
            // The first class that no remaining row lists behind another.
            let free = |candidate: &Origin| {
                rows.iter().all(|row| !row.iter().skip(1).any(|it| it == candidate))
            };
            let Some(next) = rows.iter().filter_map(|row| row.first()).find(|it| free(it)).cloned()
            else {
                let stuck: Vec<String> =
                    rows.iter().filter_map(|row| row.first()).map(Origin::to_string).collect();
                return Err(format!(
                    "the parents have no consistent order (C3): each of {} must come before another",
                    stuck.join(", ")
                ));
            };
            for row in &mut rows {
                row.retain(|it| *it != next);
            }
            order.push(next);
            if order.len() > MAX_LINEAGE {
                return Err(too_long());
            }
        }
        Ok(order.into())
    }
}

fn too_long() -> String {
    format!("the class has more than {MAX_LINEAGE} ancestors")
}
