//! The order in which a class inherits: C3.

use std::{collections::BTreeMap, rc::Rc};

use super::{Origin, Scope};
use crate::names::way;

/// How many classes one may inherit from, itself included.
const MOST: usize = 32;

/// A class and all that it inherits from, nearest first.
pub(super) type Lineage = Rc<[Origin]>;

/// Why there is no such order.
#[derive(Clone, Debug)]
pub(super) enum Trouble {
    /// What is wrong with the class itself.
    Own(String),
    /// What is wrong with one that it inherits from.
    Inherited(String),
}

impl Trouble {
    fn below(self) -> Self {
        match self {
            Self::Own(message) | Self::Inherited(message) => Self::Inherited(message),
        }
    }
}

/// Orders that were found already.
#[derive(Default)]
pub(super) struct Lineages {
    known: BTreeMap<Origin, Result<Lineage, Trouble>>,
    /// The classes that are being asked about, for cycles to be seen.
    way: Vec<Origin>,
}

impl Lineages {
    pub(super) fn of(&mut self, class: &Origin, scope: &Scope<'_>) -> Result<Lineage, Trouble> {
        if let Some(known) = self.known.get(class) {
            return known.clone();
        }
        if let Some(at) = self.way.iter().position(|it| it == class) {
            let mut cycle: Vec<String> = self.way.iter().skip(at).map(Origin::to_string).collect();
            cycle.push(class.to_string());
            let message = format!("the class inherits from itself: {}", way(&cycle));
            return Err(Trouble::Own(message));
        }
        if self.way.len() > MOST {
            return Err(Trouble::Own(format!("there are more than {MOST} ancestors")));
        }
        self.way.push(class.clone());
        let found = self.find(class, scope);
        self.way.pop();
        self.known.insert(class.clone(), found.clone());
        found
    }

    fn find(&mut self, class: &Origin, scope: &Scope<'_>) -> Result<Lineage, Trouble> {
        let found = scope.class(class);
        let found = found.ok_or_else(|| Trouble::Own(format!("there is no class {class}")))?;
        let parents: Vec<Origin> =
            found.parents.iter().map(|it| Scope::origin(&class.package, it)).collect();
        let mut rows: Vec<Vec<Origin>> = Vec::new();
        for parent in &parents {
            rows.push(self.of(parent, scope).map_err(Trouble::below)?.to_vec());
        }
        rows.push(parents);
        let mut order = vec![class.clone()];
        loop {
            rows.retain(|row| !row.is_empty());
            if rows.is_empty() {
                break;
            }
            // The first that comes behind nothing else.
            let free =
                |wanted: &Origin| rows.iter().all(|row| !row.iter().skip(1).any(|it| it == wanted));
            let Some(next) = rows.iter().filter_map(|row| row.first()).find(|it| free(it)).cloned()
            else {
                let stuck: Vec<String> =
                    rows.iter().filter_map(|row| row.first()).map(Origin::to_string).collect();
                return Err(Trouble::Own(format!(
                    "its parents can't be put in an order: each of {} would have to come before \
                     another",
                    stuck.join(", ")
                )));
            };
            for row in &mut rows {
                row.retain(|it| *it != next);
            }
            order.push(next);
            if order.len() > MOST {
                return Err(Trouble::Own(format!("there are more than {MOST} ancestors")));
            }
        }
        Ok(order.into())
    }
}
