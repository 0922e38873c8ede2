//! A gRPC client that knows CRM's API by reflection only.

use std::collections::BTreeMap;

use prost::Message as _;
use prost_reflect::{
    DescriptorPool, DynamicMessage, MessageDescriptor, SerializeOptions, ServiceDescriptor,
    prost_types::FileDescriptorProto,
};
use serde_json::Value;
use tonic::{
    Status, Streaming,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

use super::{Http, within_timeout};

const SERVICE: &str = "deployment.DeploymentService";

pub(crate) struct Reflected {
    service: ServiceDescriptor,
    grpc: Grpc<Http>,
}

impl Reflected {
    /// Reads the service's descriptors.
    pub(crate) async fn at(http: Http, url: &str) -> Self {
        let origin: hyper::Uri = url.parse().unwrap();
        let mut client = ServerReflectionClient::with_origin(http.clone(), origin.clone());
        let mut query = async |message: MessageRequest| {
            let request =
                ServerReflectionRequest { host: String::new(), message_request: Some(message) };
            let responses = client.server_reflection_info(futures::stream::iter([request])).await;
            let response = responses.unwrap().into_inner().message().await.unwrap().unwrap();
            response.message_response.unwrap()
        };
        let listed = query(MessageRequest::ListServices(String::new())).await;
        let MessageResponse::ListServicesResponse(listed) = listed else { panic!("{listed:?}") };
        assert!(listed.service.iter().any(|it| it.name == SERVICE), "{listed:?}");
        // A file descriptor names its dependencies.
        let mut pending = vec![MessageRequest::FileContainingSymbol(SERVICE.to_owned())];
        let mut files = BTreeMap::new();
        while let Some(message) = pending.pop() {
            let response = query(message).await;
            let MessageResponse::FileDescriptorResponse(response) = response else {
                panic!("{response:?}")
            };
            for file in &response.file_descriptor_proto {
                let file = FileDescriptorProto::decode(file.as_slice()).unwrap();
                let missing = file.dependency.iter().filter(|name| !files.contains_key(*name));
                pending.extend(missing.cloned().map(MessageRequest::FileByFilename));
                files.insert(file.name().to_owned(), file);
            }
        }
        let mut pool = DescriptorPool::new();
        pool.add_file_descriptor_protos(files.into_values()).unwrap();
        let service = pool.get_service_by_name(SERVICE).unwrap();
        Self { service, grpc: Grpc::with_origin(http, origin) }
    }

    async fn prepare(
        &self,
        method: &str,
        message: Value,
    ) -> (Grpc<Http>, tonic::Request<DynamicMessage>, hyper::http::uri::PathAndQuery, Dynamic) {
        let found = self.service.methods().find(|it| it.name() == method);
        let found = found.unwrap_or_else(|| panic!("there is no method {method}"));
        let message = DynamicMessage::deserialize(found.input(), message).unwrap();
        let path = format!("/{SERVICE}/{method}").parse().unwrap();
        let mut grpc = self.grpc.clone();
        grpc.ready().await.unwrap();
        (grpc, tonic::Request::new(message), path, Dynamic(found.output()))
    }

    /// Calls a method with JSON, and returns JSON.
    pub(crate) async fn call(&self, method: &str, message: Value) -> Result<Value, Status> {
        let (mut grpc, message, path, codec) = self.prepare(method, message).await;
        grpc.unary(message, path, codec).await.map(|response| json(&response.into_inner()))
    }

    /// Watches classes.
    pub(crate) async fn watch(&self, message: Value) -> Events {
        let (mut grpc, message, path, codec) = self.prepare("WatchClassRuntimes", message).await;
        Events(grpc.server_streaming(message, path, codec).await.unwrap().into_inner())
    }
}

fn json(message: &DynamicMessage) -> Value {
    let options = SerializeOptions::new().use_proto_field_name(true).skip_default_fields(false);
    message.serialize_with_options(serde_json::value::Serializer, &options).unwrap()
}

pub(crate) struct Events(Streaming<DynamicMessage>);

impl Events {
    pub(crate) async fn next(&mut self) -> Value {
        json(&within_timeout("an event", self.0.message()).await.expect("the watch ended"))
    }
}

/// A codec for messages by descriptor.
#[derive(Clone)]
pub(crate) struct Dynamic(MessageDescriptor);

/// An empty message, for unknown methods.
pub(crate) fn empty() -> DynamicMessage {
    DynamicMessage::new(raw().0)
}

pub(crate) fn raw() -> Dynamic {
    let pool = DescriptorPool::global();
    Dynamic(pool.get_message_by_name("google.protobuf.Empty").unwrap())
}

impl Codec for Dynamic {
    type Encode = DynamicMessage;
    type Decode = DynamicMessage;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        self.clone()
    }

    fn decoder(&mut self) -> Self {
        self.clone()
    }
}

impl Encoder for Dynamic {
    type Item = DynamicMessage;
    type Error = Status;

    fn encode(&mut self, item: DynamicMessage, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.encode(to).map_err(|error| Status::internal(error.to_string()))
    }
}

impl Decoder for Dynamic {
    type Item = DynamicMessage;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<DynamicMessage>, Status> {
        let message = DynamicMessage::decode(self.0.clone(), from);
        message.map(Some).map_err(|error| Status::internal(error.to_string()))
    }
}
