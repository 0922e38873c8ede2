//! The gRPC API of objects: the same as the HTTP API.

mod request;
mod status;

use std::pin::Pin;

use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use oprc_grpc::odgm::{
    DeleteObjectRequest, DeleteObjectResponse, GetObjectRequest, GetObjectResponse, InvokeRequest,
    InvokeResponse, ListObjectsRequest, PatchObjectRequest, PutObjectRequest, StoredObject,
    WatchObjectsRequest, WatchObjectsResponse,
    object_service_server::{ObjectService, ObjectServiceServer},
    watch_objects_response::Type,
};
use tonic::{Request, Response, Status};

use self::request::{caller, collection, expected, json, passed_on};
use crate::{Grid, Invocation, Object, ObjectId, WatchEvent, class::Access, detached::finish};

const MAX_MESSAGE: usize = 1 << 20;

/// `caller` is what callers have that show no call token, as for the HTTP API.
pub fn object_service(grid: Grid, caller: Access) -> ObjectServiceServer<impl ObjectService> {
    ObjectServiceServer::new(objects(grid, caller)).max_decoding_message_size(MAX_MESSAGE)
}

pub(crate) fn objects(grid: Grid, caller: Access) -> impl ObjectService {
    Objects { grid, access: caller }
}

#[derive(Debug)]
struct Objects {
    grid: Grid,
    access: Access,
}

type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Objects {
    fn stored(&self, object: &Object) -> StoredObject {
        stored(&self.grid, object)
    }
}

fn stored(grid: &Grid, object: &Object) -> StoredObject {
    StoredObject {
        id: object.id.clone(),
        version: object.version,
        etag: grid.etag(object.version),
        state: serde_json::to_string(&object.state).unwrap_or_default(),
    }
}

fn watched(grid: &Grid, event: WatchEvent) -> WatchObjectsResponse {
    let (kind, object) = match event {
        WatchEvent::Created(object) => (Type::Created, Some(stored(grid, &object))),
        WatchEvent::Updated(object) => (Type::Updated, Some(stored(grid, &object))),
        WatchEvent::Synced => (Type::Synced, None),
        WatchEvent::Deleted(deleted) => {
            let (id, version) = (deleted.id, deleted.version);
            (Type::Deleted, Some(StoredObject { id, version, ..StoredObject::default() }))
        }
    };
    WatchObjectsResponse { r#type: kind.into(), object }
}

#[tonic::async_trait]
impl ObjectService for Objects {
    type ListObjectsStream = Messages<StoredObject>;
    type WatchObjectsStream = Messages<WatchObjectsResponse>;

    async fn get_object(
        &self,
        request: Request<GetObjectRequest>,
    ) -> Result<Response<GetObjectResponse>, Status> {
        let caller = caller(&self.grid, self.access, request.metadata())?;
        caller.permit_data(&self.grid.class())?;
        let request = request.into_inner();
        let id = ObjectId::parse(&request.id)?;
        let mut found = self.grid.get(collection(&request.collection), &id).await?;
        let resolve: Vec<_> = request.resolve.iter().map(String::as_str).collect();
        let references = self.grid.resolve(&found.state, &resolve, caller.access).await?;
        if !request.keys.is_empty() {
            found.state.retain(|key, _| request.keys.contains(key));
        }
        let references = (!resolve.is_empty()).then(|| serde_json::to_string(&references));
        let references = references.and_then(Result::ok).unwrap_or_default();
        Ok(Response::new(GetObjectResponse { object: Some(self.stored(&found)), references }))
    }

    async fn put_object(
        &self,
        request: Request<PutObjectRequest>,
    ) -> Result<Response<StoredObject>, Status> {
        let caller = caller(&self.grid, self.access, request.metadata())?;
        let request = request.into_inner();
        let id = ObjectId::parse(&request.id)?;
        caller.permit_write(&self.grid, collection(&request.collection), &id)?;
        let state = json(&request.state, "state")?;
        let expected = expected(&self.grid, request.precondition)?;
        let grid = self.grid.clone();
        let object = finish(async move {
            grid.put(collection(&request.collection), &id, state, expected).await
        });
        Ok(Response::new(self.stored(&object.await?)))
    }

    async fn patch_object(
        &self,
        request: Request<PatchObjectRequest>,
    ) -> Result<Response<StoredObject>, Status> {
        let caller = caller(&self.grid, self.access, request.metadata())?;
        let request = request.into_inner();
        let id = ObjectId::parse(&request.id)?;
        caller.permit_write(&self.grid, collection(&request.collection), &id)?;
        let changes = json(&request.changes, "changes")?;
        let expected = expected(&self.grid, request.precondition)?;
        let grid = self.grid.clone();
        let object = finish(async move {
            grid.patch(collection(&request.collection), &id, changes, expected).await
        });
        Ok(Response::new(self.stored(&object.await?)))
    }

    async fn delete_object(
        &self,
        request: Request<DeleteObjectRequest>,
    ) -> Result<Response<DeleteObjectResponse>, Status> {
        let caller = caller(&self.grid, self.access, request.metadata())?;
        let request = request.into_inner();
        let id = ObjectId::parse(&request.id)?;
        caller.permit_write(&self.grid, collection(&request.collection), &id)?;
        let expected = expected(&self.grid, request.precondition)?;
        let grid = self.grid.clone();
        finish(async move { grid.delete(collection(&request.collection), &id, expected).await })
            .await?;
        Ok(Response::new(DeleteObjectResponse {}))
    }

    async fn list_objects(
        &self,
        request: Request<ListObjectsRequest>,
    ) -> Result<Response<Self::ListObjectsStream>, Status> {
        let caller = caller(&self.grid, self.access, request.metadata())?;
        caller.permit_data(&self.grid.class())?;
        let request = request.into_inner();
        let grid = self.grid.clone();
        let pages = self.grid.list_stream(collection(&request.collection), &request.prefix)?;
        let objects = pages.map_err(Status::from).map_ok(move |page| {
            let all: Vec<_> = page.iter().map(|object| Ok(stored(&grid, object))).collect();
            stream::iter(all)
        });
        Ok(Response::new(Box::pin(objects.try_flatten())))
    }

    async fn watch_objects(
        &self,
        request: Request<WatchObjectsRequest>,
    ) -> Result<Response<Self::WatchObjectsStream>, Status> {
        let caller = caller(&self.grid, self.access, request.metadata())?;
        caller.permit_data(&self.grid.class())?;
        let request = request.into_inner();
        let grid = self.grid.clone();
        let events = self.grid.watch_stream(collection(&request.collection), &request.prefix)?;
        let events = events.map(move |events| match events {
            Ok(events) => stream::iter(
                events.into_iter().map(|it| Ok(watched(&grid, it))).collect::<Vec<_>>(),
            ),
            Err(error) => stream::iter(vec![Err(Status::from(error))]),
        });
        Ok(Response::new(Box::pin(events.flatten())))
    }

    async fn invoke(
        &self,
        request: Request<InvokeRequest>,
    ) -> Result<Response<InvokeResponse>, Status> {
        let caller = caller(&self.grid, self.access, request.metadata())?;
        let headers = passed_on(request.metadata());
        let request = request.into_inner();
        let key = Some(request.idempotency_key).filter(|it| !it.is_empty());
        let call = Invocation {
            collection: collection(&request.collection).map(str::to_owned),
            id: ObjectId::parse(&request.id)?,
            method: request.method,
            args: if request.args.is_empty() {
                serde_json::Value::Null
            } else {
                json(&request.args, "args")?
            },
            caller: caller.access,
            idempotency_key: key,
            expected: expected(&self.grid, request.precondition)?,
            origin: caller.origin,
            headers,
        };
        let grid = self.grid.clone();
        let outcome = finish(async move { grid.invoke(&call).await }).await?;
        Ok(Response::new(InvokeResponse {
            result: outcome.result.to_string(),
            etag: outcome.version.map(|it| self.grid.etag(it)).unwrap_or_default(),
            repeated: outcome.repeated,
            triggers_pending: outcome.triggers_pending,
        }))
    }
}

#[cfg(test)]
mod tests;
