//! The class `Cart` of `examples/packages/cart.yaml`.
//!
//! A call may run more than once, so each method that a step of the macro calls accepts the state that it
//! has made itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::call::{NoArgs, Refusal, conflict};

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Cart {
    items: BTreeMap<String, Item>,
    /// In cents. Computed by the trigger `total`.
    total: u64,
    status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<String>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Item {
    /// In cents.
    price: u64,
    quantity: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    #[default]
    Open,
    Reserved,
    Paid,
    Closed,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Add {
    sku: String,
    price: u64,
    #[serde(default = "one")]
    quantity: u32,
}

fn one() -> u32 {
    1
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Remove {
    sku: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Pay {
    amount: u64,
    card: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct Reserved {
    amount: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Receipt {
    receipt: String,
    amount: u64,
}

impl Cart {
    fn require(&self, allowed: &[Status], action: &str) -> Result<(), Refusal> {
        if allowed.contains(&self.status) {
            return Ok(());
        }
        let status = format!("{:?}", self.status).to_lowercase();
        Err(conflict(&format!("a cart that is {status} cannot be {action}")))
    }

    fn sum(&self) -> u64 {
        let prices = self.items.values().map(|it| it.price.saturating_mul(it.quantity.into()));
        prices.fold(0, u64::saturating_add)
    }

    pub(crate) fn add(&mut self, args: &Add) -> Result<usize, Refusal> {
        self.require(&[Status::Open], "changed")?;
        let Add { sku, price, quantity } = args;
        let item = self.items.entry(sku.clone()).or_insert(Item { price: *price, quantity: 0 });
        item.price = *price;
        item.quantity = item.quantity.saturating_add(*quantity);
        Ok(self.items.len())
    }

    pub(crate) fn remove(&mut self, args: &Remove) -> Result<usize, Refusal> {
        self.require(&[Status::Open], "changed")?;
        let missing = || conflict(&format!("the cart has no {:?}", args.sku));
        self.items.remove(&args.sku).ok_or_else(missing)?;
        Ok(self.items.len())
    }

    /// The data grid calls it after each change of a cart.
    pub(crate) fn total(&mut self) -> u64 {
        self.total = self.sum();
        self.total
    }

    pub(crate) fn reserve(&mut self, _: &NoArgs) -> Result<Reserved, Refusal> {
        self.require(&[Status::Open, Status::Reserved], "reserved")?;
        if self.items.is_empty() {
            return Err(conflict("an empty cart cannot be reserved"));
        }
        self.status = Status::Reserved;
        Ok(Reserved { amount: self.sum() })
    }

    pub(crate) fn pay(&mut self, args: &Pay, id: &str) -> Result<Receipt, Refusal> {
        self.require(&[Status::Reserved, Status::Paid], "paid")?;
        let Pay { amount, card } = args;
        if *amount != self.sum() {
            return Err(conflict("the cart has another price than the payment"));
        }
        let digits = card.chars().rev().take(4).collect::<String>();
        let digits: String = digits.chars().rev().collect();
        let receipt = format!("{id}-{digits}");
        self.receipt = Some(receipt.clone());
        self.status = Status::Paid;
        Ok(Receipt { receipt, amount: *amount })
    }

    pub(crate) fn close(&mut self, _: &NoArgs) -> Result<&'static str, Refusal> {
        self.require(&[Status::Paid, Status::Closed], "closed")?;
        self.status = Status::Closed;
        Ok("closed")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::call::tests::called;

    /// Calls methods one after the other, and returns the last result and the state.
    fn calls(methods: &[(&str, Value)]) -> (Value, Value) {
        let (mut result, mut state) = (Value::Null, json!({}));
        for (method, args) in methods {
            let mut answer = called(method, state, args.clone()).unwrap();
            (result, state) = (answer["result"].take(), answer["object"]["state"].take());
        }
        (result, state)
    }

    #[test]
    fn computes_the_total() {
        let added = [
            ("add", json!({"sku": "tea", "price": 450, "quantity": 2})),
            ("add", json!({"sku": "pot", "price": 1900})),
            ("remove", json!({"sku": "pot"})),
            ("add", json!({"sku": "tea", "price": 450})),
            // As a trigger is called.
            ("total", json!({"event": "UPDATED", "at": 0, "cause": {"depth": 0}})),
        ];
        let (total, state) = calls(&added);
        assert_eq!((total, &state["total"]), (json!(1350), &json!(1350)));
        assert_eq!(state["items"], json!({"tea": {"price": 450, "quantity": 3}}));
    }

    #[test]
    fn each_step_of_a_checkout_can_be_repeated() {
        let add = ("add", json!({"sku": "tea", "price": 450}));
        let pay = ("pay", json!({"amount": 450, "card": "4242424242421234"}));
        let (reserve, close) = (("reserve", json!(null)), ("close", json!({})));
        let steps = [add, reserve.clone(), reserve, pay.clone(), pay, close.clone(), close];
        let (_, state) = calls(&steps);
        assert_eq!((&state["status"], &state["receipt"]), (&json!("closed"), &json!("a-1234")));
        let error = called("add", state, json!({"sku": "tea", "price": 1})).unwrap_err();
        assert_eq!(error.1, "a cart that is closed cannot be changed");
    }

    #[test]
    fn refuses_steps_out_of_order() {
        assert!(called("reserve", json!({}), json!(null)).is_err(), "it is empty");
        let open = json!({"items": {"tea": {"price": 1, "quantity": 1}}});
        let payment = json!({"amount": 1, "card": "1234"});
        assert!(called("pay", open.clone(), payment.clone()).is_err(), "it is not reserved");
        assert!(called("close", open, json!(null)).is_err(), "it is not paid");
        let changed = json!({"items": {"tea": {"price": 2, "quantity": 1}}, "status": "reserved"});
        assert!(called("pay", changed, payment).is_err(), "it has another price");
    }
}
