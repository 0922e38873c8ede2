//! What keeps the cost of a condition in proportion to its input.

use cel::{
    IdedExpr,
    common::ast::{EntryExpr, Expr, operators},
};

const MAX_DEPTH: usize = 32;
/// Each may copy a text or a list.
const MAX_ADDITIONS: usize = 8;
const VARIABLES: [&str; 3] = ["object", "args", "method"];
const FUNCTIONS: [&str; 9] =
    ["size", "contains", "startsWith", "endsWith", "int", "uint", "double", "string", "type"];

pub(crate) fn check_brackets(text: &str) -> Result<(), String> {
    let mut depth = 0_usize;
    for char in text.chars() {
        match char {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err(too_deep());
        }
    }
    Ok(())
}

pub(crate) fn check(expression: &IdedExpr) -> Result<(), String> {
    let mut additions = 0;
    // Not recursive: the expression may be deep.
    let mut pending = vec![(expression, 1)];
    while let Some((next, depth)) = pending.pop() {
        if depth > MAX_DEPTH {
            return Err(too_deep());
        }
        let mut parts: Vec<&IdedExpr> = Vec::new();
        match &next.expr {
            Expr::Comprehension(_) => {
                let reason = "all, exists, exists_one, filter and map are not allowed";
                return Err(reason.to_owned());
            }
            Expr::Ident(name) if !VARIABLES.contains(&name.as_str()) => {
                return Err(format!("{name} is unknown; expected: {}", VARIABLES.join(", ")));
            }
            Expr::Call(call) => {
                check_function(&call.func_name)?;
                additions += usize::from(call.func_name == operators::ADD);
                parts.extend(call.target.as_deref());
                parts.extend(&call.args);
            }
            Expr::List(list) => parts.extend(&list.elements),
            Expr::Select(select) => parts.push(&select.operand),
            Expr::Map(map) => parts.extend(map.entries.iter().flat_map(|it| entry(&it.expr))),
            Expr::Struct(_) => return Err("it must not construct messages".to_owned()),
            Expr::Unspecified => return Err("it is empty".to_owned()),
            Expr::Ident(_) | Expr::Literal(_) => {}
        }
        if additions > MAX_ADDITIONS {
            return Err(format!("it has more than {MAX_ADDITIONS} times the operator +"));
        }
        pending.extend(parts.into_iter().map(|it| (it, depth + 1)));
    }
    Ok(())
}

fn entry(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}

/// Names of operators don't start with a letter.
fn check_function(name: &str) -> Result<(), String> {
    let is_operator = !name.starts_with(|it: char| it.is_alphabetic());
    if is_operator || FUNCTIONS.contains(&name) {
        return Ok(());
    }
    Err(format!("the function {name} is not allowed; expected: {}", FUNCTIONS.join(", ")))
}

fn too_deep() -> String {
    format!("it is nested more than {MAX_DEPTH} times")
}
