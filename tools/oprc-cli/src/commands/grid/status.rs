//! `oprc grid status`: what the package manager and the data grid itself report.

use std::{fmt::Write as _, time::Duration};

use anyhow::{Result, bail};
use clap::Args;
use oprc_grpc::odgm::{
    GetClusterInfoRequest, GetClusterInfoResponse, GetCollectionStatusRequest,
    data_service_client::DataServiceClient,
};
use oprc_rest::{Contact, GridCollection, GridNode, GridStatus, UnitGrid, UnitStatus};
use serde::Serialize;
use serde_json::Value;
use tokio::time::timeout;
use tonic::transport::Endpoint;

use crate::{
    client::escape,
    connection::ApiArgs,
    error::CliError,
    grid::{Grid, GridArgs, no_grid},
    output::{Column, Tone, duration, note, paint, sanitize, table},
};

const CALL_TIMEOUT: Duration = Duration::from_secs(15);
const PARKED_TIMEOUT: Duration = Duration::from_secs(5);

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
    /// Without an id if the grid was reached directly.
    #[serde(flatten)]
    grid: UnitGrid,
    /// `None` if they can't be read.
    parked_events: Option<usize>,
}

const NODE_COLUMNS: &[Column<GridNode>] = &[
    ("NODE", |it| it.id.clone()),
    ("STATUS", |it| it.status.clone()),
    ("HEARTBEAT", |it| duration::age(&it.last_heartbeat)),
    ("ADDRESS", |it| it.address.clone()),
];
const COLLECTION_COLUMNS: &[Column<GridCollection>] = &[
    ("COLLECTION", |it| it.name.clone()),
    ("PARTITIONS", |it| match (it.active_partitions, it.partitions) {
        (Some(active), Some(all)) => format!("{active}/{all}"),
        _ => String::new(),
    }),
    ("OBJECTS", |it| it.objects.map(|it| it.to_string()).unwrap_or_default()),
];

pub(super) async fn run(command: StatusArgs) -> Result<()> {
    let StatusArgs { grid: args, api } = command;
    let name = &args.deployment;
    let mut report = GridReport::default();
    if let Some(grid) = args.direct()? {
        report.ask(&grid).await;
    } else {
        let client = api.client().await?;
        let unit = args.unit(&client).await?;
        let status = &unit.status;
        if status.contact != Contact::Fresh {
            note("the cluster doesn't respond to the package manager; its report may be outdated");
        }
        if let Some(key) = &unit.deployment {
            let path = format!("/deployments/{}/grid", escape(key));
            let grids: Vec<UnitGrid> = client.list(&path).await?;
            let own = |it: &UnitGrid| it.id == status.id && it.cluster == status.cluster;
            let grid = grids.into_iter().find(own);
            report.grid = grid.ok_or_else(|| no_grid(name, status))?;
            if report.grid.error.is_none() {
                report.add_parked(args.open_unit(&unit, &api.connection)).await;
            }
        } else {
            // The package manager reports grids of its deployments only.
            let grid = args.open_unit(&unit, &api.connection).await?;
            report.grid = grid_of(status);
            report.ask(&grid).await;
        }
    }
    api.show.one(&report, &[name], |_| report.text(!api.show.no_headers))?;
    if let Some(error) = &report.grid.error {
        bail!(CliError::Unavailable(format!(
            "the data grid itself doesn't respond: {error}\nhint: see `oprc status {name} --pods`"
        )));
    }
    Ok(())
}

/// What the cluster reports about the grid.
fn grid_of(unit: &UnitStatus) -> UnitGrid {
    let UnitStatus { id, cluster, environment, class, odgm, .. } = unit.clone();
    let GridStatus { service, ready, replicas, collections } = odgm.unwrap_or_default();
    let named = |name| GridCollection { name, ..GridCollection::default() };
    let collections = collections.into_iter().map(named).collect();
    let known = UnitGrid { id, cluster, environment, class, service, ready, ..UnitGrid::default() };
    UnitGrid { replicas, collections, ..known }
}

impl GridReport {
    /// Adds what the data grid reports about itself, or why it doesn't.
    async fn ask(&mut self, grid: &Grid) {
        if let Err(error) = self.try_ask(grid).await {
            self.grid.error = Some(format!("{error:#}"));
        }
    }

    async fn try_ask(&mut self, grid: &Grid) -> Result<()> {
        let endpoint = Endpoint::from_shared(grid.grpc_url().await?)?;
        let endpoint = endpoint.connect_timeout(CALL_TIMEOUT).timeout(CALL_TIMEOUT);
        let mut client = DataServiceClient::new(endpoint.connect().await?);
        let info = client.get_cluster_info(GetClusterInfoRequest {}).await;
        self.add_info(info.map_err(|status| failed(&status))?.into_inner());
        for collection in &mut self.grid.collections {
            let request = GetCollectionStatusRequest { collection_name: collection.name.clone() };
            let found = client.get_collection_status(request).await;
            let found = found.map_err(|status| failed(&status))?.into_inner();
            collection.partitions = Some(found.partition_count);
            collection.active_partitions = Some(found.active_partitions);
            collection.objects = Some(found.total_objects);
        }
        self.parked_events = Some(count_parked(grid).await?);
        Ok(())
    }

    /// Adds the number of parked events, which only the grid itself knows. Not everyone who can ask the
    /// package manager can reach it.
    async fn add_parked(&mut self, grid: impl Future<Output = Result<Grid>>) {
        let counted = timeout(PARKED_TIMEOUT, async { count_parked(&grid.await?).await });
        match counted.await {
            Ok(Ok(count)) => self.parked_events = Some(count),
            Ok(Err(error)) => note(&format!("the number of parked events is unknown: {error:#}")),
            Err(_) => note("the number of parked events is unknown: the cluster doesn't respond"),
        }
    }

    fn add_info(&mut self, info: GetClusterInfoResponse) {
        let nodes = info.nodes.into_iter().map(|node| GridNode {
            id: node.node_id,
            address: node.address,
            status: node.status,
            last_heartbeat: node.last_heartbeat,
        });
        let has_quota = info.store_quota_bytes > 0;
        let grid = &mut self.grid;
        grid.nodes = nodes.collect();
        grid.leader = info.leader_node;
        (grid.active_shards, grid.total_shards) = (info.active_shards, info.total_shards);
        grid.store_bytes = has_quota.then_some(info.store_bytes);
        grid.store_quota_bytes = has_quota.then_some(info.store_quota_bytes);
        grid.low_on_space = info.low_on_space;
    }

    fn text(&self, headers: bool) -> String {
        let UnitGrid { id, cluster, ready, replicas, nodes, leader, collections, .. } = &self.grid;
        let UnitGrid { active_shards, total_shards, .. } = &self.grid;
        let mut text = String::new();
        if !id.is_empty() {
            let (state, tone) =
                if *ready { ("ready", Tone::Good) } else { ("not ready", Tone::Bad) };
            let about = format!("{id} on {cluster}, {replicas} nodes");
            let _ = writeln!(text, "{}: {}", sanitize(&about), paint(tone, state));
        }
        if !nodes.is_empty() {
            let leader = sanitize(if leader.is_empty() { "unknown" } else { leader });
            let _ =
                writeln!(text, "{active_shards} of {total_shards} shards active, leader {leader}");
            if let Some(space) = space(&self.grid) {
                let tone = if self.grid.low_on_space { Tone::Bad } else { Tone::Faint };
                let _ = writeln!(text, "{}", paint(tone, &space));
            }
            let _ = write!(text, "\n{}", table(nodes, NODE_COLUMNS, headers));
        }
        if !collections.is_empty() {
            text.push('\n');
            text.push_str(&table(collections, COLLECTION_COLUMNS, headers));
        }
        if let Some(parked) = self.parked_events.filter(|it| *it > 0) {
            let parked = format!("\n{parked} parked events; see `oprc grid events`");
            let _ = writeln!(text, "{}", paint(Tone::Bad, &parked));
        }
        text
    }
}

/// How much of its quota the store of a replicated grid uses.
pub(crate) fn space(grid: &UnitGrid) -> Option<String> {
    let (used, quota) = (grid.store_bytes? >> 20, grid.store_quota_bytes? >> 20);
    let low = if grid.low_on_space { "low on space: " } else { "" };
    Some(format!("{low}{used} of {quota} MiB used"))
}

async fn count_parked(grid: &Grid) -> Result<usize> {
    let parked: Vec<Value> = grid.get("/events/parked".to_owned()).await?;
    Ok(parked.len())
}

fn failed(status: &tonic::Status) -> CliError {
    CliError::Unavailable(format!("{:?}: {}", status.code(), status.message()))
}
