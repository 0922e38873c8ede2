//! A test binary of its own, because logging is initialized once per process.

use oprc_observability::{Error, Format, init};

#[test]
fn rejects_a_second_init() {
    assert!(matches!(init(Format::Json, "hyper=wran"), Err(Error::Filter { .. })));
    let handle = init(Format::Json, "off").unwrap();
    assert!(matches!(init(Format::Pretty, "info"), Err(Error::AlreadyInitialized)));
    handle.clone().set("error").unwrap();
    assert_eq!(handle.get(), "error");
}
