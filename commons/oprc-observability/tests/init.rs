//! Logs of a whole process; alone here, as they are set up once in a process.

use oprc_observability::{Error, Format, init};

#[test]
fn a_second_init_is_an_error() {
    assert!(matches!(init(Format::Json, "hyper=wran"), Err(Error::Filter { .. })));
    let handle = init(Format::Json, "off").unwrap();
    assert!(matches!(init(Format::Pretty, "info"), Err(Error::AlreadySet)));
    handle.clone().set("error").unwrap();
    assert_eq!(handle.get(), "error");
}
