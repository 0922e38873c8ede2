//! `oprc grid status`: what the package manager and the data grid itself report.

use std::{fmt::Write as _, time::Duration};

use anyhow::{Result, bail};
use clap::Args;
use oprc_grpc::odgm::{
    GetClusterInfoRequest, GetClusterInfoResponse, GetCollectionStatusRequest,
    data_service_client::DataServiceClient,
};
use oprc_rest::{Contact, GridStatus};
use serde::Serialize;
use serde_json::Value;
use tonic::transport::{Channel, Endpoint};

use crate::{
    connection::ApiArgs,
    error::CliError,
    grid::{Grid, GridArgs},
    output::{Column, Tone, duration, note, paint, sanitize, table},
};

const CALL_TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    grid: GridArgs,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct GridReport {
    /// Empty if the grid was reached directly.
    id: String,
    cluster: String,
    service: String,
    ready: bool,
    replicas: i32,
    nodes: Vec<NodeReport>,
    leader: String,
    active_shards: u32,
    total_shards: u32,
    collections: Vec<CollectionReport>,
    parked_events: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeReport {
    id: String,
    address: String,
    status: String,
    last_heartbeat: String,
}

/// Without counts if the data grid doesn't respond.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct CollectionReport {
    name: String,
    partitions: Option<u32>,
    active_partitions: Option<u32>,
    objects: Option<u64>,
}

const NODE_COLUMNS: &[Column<NodeReport>] = &[
    ("NODE", |it| it.id.clone()),
    ("STATUS", |it| it.status.clone()),
    ("HEARTBEAT", |it| duration::age(&it.last_heartbeat)),
    ("ADDRESS", |it| it.address.clone()),
];
const COLLECTION_COLUMNS: &[Column<CollectionReport>] = &[
    ("COLLECTION", |it| it.name.clone()),
    ("PARTITIONS", |it| match (it.active_partitions, it.partitions) {
        (Some(active), Some(all)) => format!("{active}/{all}"),
        _ => String::new(),
    }),
    ("OBJECTS", |it| it.objects.map(|it| it.to_string()).unwrap_or_default()),
];

pub(super) async fn run(command: StatusArgs) -> Result<()> {
    let StatusArgs { grid, api } = command;
    let (grid, unit) = grid.open_with_unit(&api.connection).await?;
    let mut report = GridReport::default();
    if let Some(unit) = unit {
        let unit = unit.status;
        if unit.contact != Contact::Fresh {
            note("the cluster doesn't respond to the package manager; its report may be outdated");
        }
        (report.id, report.cluster) = (unit.id, unit.cluster);
        report.add_status(unit.odgm.unwrap_or_default());
    }
    let asked = report.ask(&grid).await;
    api.show.one(&report, &[grid.name()], |_| report.text(!api.show.no_headers))?;
    if let Err(error) = asked {
        let name = grid.name();
        bail!(CliError::Unavailable(format!(
            "the data grid itself doesn't respond: {error:#}\nhint: see `oprc status {name} --pods`"
        )));
    }
    Ok(())
}

impl GridReport {
    fn add_status(&mut self, status: GridStatus) {
        let GridStatus { service, ready, replicas, collections } = status;
        (self.service, self.ready, self.replicas) = (service, ready, replicas);
        let named = |name| CollectionReport { name, ..CollectionReport::default() };
        self.collections = collections.into_iter().map(named).collect();
    }

    /// Adds what the data grid reports about itself.
    async fn ask(&mut self, grid: &Grid) -> Result<()> {
        let endpoint = Endpoint::from_shared(grid.grpc_url().await?)?;
        let endpoint = endpoint.connect_timeout(CALL_TIMEOUT).timeout(CALL_TIMEOUT);
        let mut client = DataServiceClient::new(endpoint.connect().await?);
        let info = client.get_cluster_info(GetClusterInfoRequest {}).await;
        self.add_info(info.map_err(|status| failed(&status))?.into_inner());
        for collection in &mut self.collections {
            collection.ask(&mut client).await?;
        }
        let parked: Vec<Value> = grid.get("/events/parked".to_owned()).await?;
        self.parked_events = parked.len();
        Ok(())
    }

    fn add_info(&mut self, info: GetClusterInfoResponse) {
        let nodes = info.nodes.into_iter().map(|node| NodeReport {
            id: node.node_id,
            address: node.address,
            status: node.status,
            last_heartbeat: node.last_heartbeat,
        });
        self.nodes = nodes.collect();
        self.leader = info.leader_node;
        (self.active_shards, self.total_shards) = (info.active_shards, info.total_shards);
    }

    fn text(&self, headers: bool) -> String {
        let mut text = String::new();
        if !self.id.is_empty() {
            let (state, tone) =
                if self.ready { ("ready", Tone::Good) } else { ("not ready", Tone::Bad) };
            let about = format!("{} on {}, {} nodes", self.id, self.cluster, self.replicas);
            let _ = writeln!(text, "{}: {}", sanitize(&about), paint(tone, state));
        }
        if !self.nodes.is_empty() {
            let Self { active_shards, total_shards, leader, .. } = self;
            let _ = write!(
                text,
                "{active_shards} of {total_shards} shards active, leader {}\n\n{}",
                sanitize(if leader.is_empty() { "unknown" } else { leader }),
                table(&self.nodes, NODE_COLUMNS, headers)
            );
        }
        if !self.collections.is_empty() {
            text.push('\n');
            text.push_str(&table(&self.collections, COLLECTION_COLUMNS, headers));
        }
        if self.parked_events > 0 {
            let parked = format!("\n{} parked events; see `oprc grid events`", self.parked_events);
            let _ = writeln!(text, "{}", paint(Tone::Bad, &parked));
        }
        text
    }
}

impl CollectionReport {
    async fn ask(&mut self, client: &mut DataServiceClient<Channel>) -> Result<()> {
        let request = GetCollectionStatusRequest { collection_name: self.name.clone() };
        let found = client.get_collection_status(request).await;
        let found = found.map_err(|status| failed(&status))?.into_inner();
        self.partitions = Some(found.partition_count);
        self.active_partitions = Some(found.active_partitions);
        self.objects = Some(found.total_objects);
        Ok(())
    }
}

fn failed(status: &tonic::Status) -> CliError {
    CliError::Unavailable(format!("{:?}: {}", status.code(), status.message()))
}
