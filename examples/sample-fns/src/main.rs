//! Functions of the example classes with state. The data grid sends `{"method", "object", "args"}` by
//! POST, on any path.
//!
//! | variable | effect |
//! | --- | --- |
//! | `PORT` | port to listen on, 8080 by default |
//! | `container` | set in images: listens on all addresses instead of loopback |

mod call;
mod cart;
mod chat;
mod counter;

use std::{env, net::Ipv4Addr, process::ExitCode};

use axum::{Json, Router, extract::rejection::JsonRejection, http::StatusCode, routing};
use tokio::{net::TcpListener, signal::unix::SignalKind};

use self::{
    call::{Answer, Call, NoArgs, Refusal},
    cart::Cart,
    chat::{Member, Room},
    counter::Counter,
};

fn dispatch(call: Call) -> Answer {
    let id = call.object.id.clone();
    match call.method.as_str() {
        "increment" => call.change(Counter::increment),
        "reset" => call.change(|counter: &mut Counter, _: &NoArgs| Ok(counter.reset())),
        "get" => call.read(Counter::get),
        "announce" => call.read(|counter: &Counter, change| {
            let line = counter.announce(&id, change);
            println!("{line}");
            line
        }),
        "add" => call.change(Cart::add),
        "remove" => call.change(Cart::remove),
        "total" => call.change(|cart: &mut Cart, _: &NoArgs| Ok(cart.total())),
        "reserve" => call.change(Cart::reserve),
        "pay" => call.change(|cart: &mut Cart, args| cart.pay(args, &id)),
        "close" => call.change(Cart::close),
        "say" => call.change(Room::say),
        "history" => call.read(Room::history),
        "greet" => call.read(Member::greet),
        other => Err(Refusal(StatusCode::NOT_FOUND, format!("there is no method {other:?}"))),
    }
}

async fn invoke(call: Result<Json<Call>, JsonRejection>) -> Answer {
    let hint = "objects are called through the data grid, as by `oprc invoke --object`";
    let Json(call) = call.map_err(|it| Refusal(it.status(), format!("{it}; {hint}")))?;
    dispatch(call)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sample-fns: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), String> {
    let port = env::var("PORT").unwrap_or_else(|_| "8080".to_owned());
    let port: u16 = port.parse().map_err(|_| format!("PORT={port}: must be a port number"))?;
    // Outside of a container only this machine may connect.
    let contained = env::var_os("container").is_some();
    let address = if contained { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST };
    let listener = TcpListener::bind((address, port)).await;
    let listener = listener.map_err(|error| format!("cannot listen on port {port}: {error}"))?;
    println!("sample-fns: listening on {address}:{port}");
    let routes =
        Router::new().route("/healthz", routing::get(|| async { "ok\n" })).fallback(invoke);
    let mut terminate =
        tokio::signal::unix::signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let terminated = async move {
        terminate.recv().await;
    };
    let served = axum::serve(listener, routes).with_graceful_shutdown(terminated).await;
    served.map_err(|error| error.to_string())
}
