//! The HTTP API: objects by id, calls of their methods, and their events.

mod body;
mod calls;
mod events;
mod new_object_id;
mod objects;
mod preconditions;
mod problem;
mod request;
mod streams;

use axum::{
    Router,
    extract::DefaultBodyLimit,
    routing::{get, post},
};

pub(crate) use self::problem::Problem;
use self::request::Api;
use crate::{Grid, class::Access};

/// Of arguments or a state, and their names.
const MAX_BODY: usize = 1 << 20;

/// Routes for the first collection, and for each by its name. `caller` is what callers have that show no
/// call token: [`Access::Internal`] on the port for workloads of the cluster, [`Access::Public`] on the port
/// for others.
pub fn router(grid: Grid, caller: Access) -> Router {
    let objects = Router::new()
        .route("/objects", get(objects::list).post(objects::create))
        .route("/objects:batchGet", post(objects::batch_get))
        .route(
            "/objects/{id}",
            get(objects::read).put(objects::replace).patch(objects::change).delete(objects::delete),
        )
        .route("/objects/{id}/{method}", post(calls::invoke));
    Router::new()
        .merge(objects.clone())
        .nest("/collections/{collection}", objects)
        .route("/events/parked", get(events::parked))
        .route("/events/parked/retry", post(events::retry))
        .route("/events/parked/discard", post(events::discard))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(Api { grid, caller })
}

#[cfg(test)]
mod proof;
#[cfg(test)]
mod tests;
