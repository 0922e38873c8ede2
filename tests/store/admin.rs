//! Administrative calls to an etcd that the store doesn't have.

use prost::Message;
use tonic::{
    client::Grpc,
    transport::{Channel, Endpoint},
};

use oprc_tests::etcd::Etcd;

#[derive(Clone, PartialEq, Message)]
struct Empty {}

/// A name, then a password or a role.
#[derive(Clone, PartialEq, Message)]
struct Pair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    other: String,
}

#[derive(Clone, PartialEq, Message)]
struct Grant {
    #[prost(string, tag = "1")]
    role: String,
    #[prost(message, optional, tag = "2")]
    permission: Option<Permission>,
}

#[derive(Clone, PartialEq, Message)]
struct Permission {
    /// 2 is read and write.
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    end: Vec<u8>,
}

/// Creates the users `root` and `pm`, the latter for keys below `pm/`, and enables authentication.
pub(crate) async fn enable_users(etcd: &Etcd, root_password: &str, pm_password: &str) {
    let mut admin = Admin::of(etcd).await;
    let pair = |name: &str, other: &str| Pair { name: name.to_owned(), other: other.to_owned() };
    admin.call("Auth/UserAdd", pair("root", root_password)).await;
    admin.call("Auth/UserGrantRole", pair("root", "root")).await;
    admin.call("Auth/UserAdd", pair("pm", pm_password)).await;
    admin.call("Auth/RoleAdd", pair("pm", "")).await;
    let permission = Permission { kind: 2, key: b"pm/".to_vec(), end: b"pm0".to_vec() };
    let grant = Grant { role: "pm".to_owned(), permission: Some(permission) };
    admin.call("Auth/RoleGrantPermission", grant).await;
    admin.call("Auth/UserGrantRole", pair("pm", "pm")).await;
    admin.call("Auth/AuthEnable", Empty {}).await;
}

struct Admin(Grpc<Channel>);

impl Admin {
    async fn of(etcd: &Etcd) -> Self {
        etcd.wait_until_ready().await;
        let channel = Endpoint::from_shared(etcd.endpoint()).unwrap().connect().await.unwrap();
        Self(Grpc::new(channel))
    }

    async fn call(&mut self, method: &str, message: impl Message + Default + 'static) {
        self.0.ready().await.unwrap();
        let path = format!("/etcdserverpb.{method}").parse().unwrap();
        let codec = tonic_prost::ProstCodec::<_, Empty>::default();
        let response = self.0.unary(tonic::Request::new(message), path, codec).await;
        response.unwrap_or_else(|status| panic!("{method}: {status}"));
    }
}
