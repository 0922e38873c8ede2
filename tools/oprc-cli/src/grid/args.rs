//! The arguments of commands that use the data grid of a class.

use std::time::Duration;

use anyhow::Result;

use super::Grid;
use crate::{
    client::Client,
    connection::ConnectionArgs,
    deployed_unit::{self, DeployedUnit, UnitSelector},
    kube::KubeArgs,
    output::duration,
};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GridArgs {
    /// Deployment, or class: CLASS, PACKAGE.CLASS, or the id of a ClassRuntime.
    #[arg(value_name = "CLASS")]
    pub(crate) deployment: String,
    /// Class, if the deployment has several.
    #[arg(long = "class", value_name = "CLASS")]
    class: Option<String>,
    /// Cluster, if the class runs on several.
    #[arg(long)]
    cluster: Option<String>,
    /// Environment, if the class runs in several.
    #[arg(long = "env", value_name = "ENVIRONMENT")]
    environment: Option<String>,
    /// Maximum time to wait for a response, such as 30s or 5m.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse)]
    timeout: Duration,
    /// URL of the data grid, if it can be reached directly, such as http://localhost:8081 after
    /// `kubectl port-forward` [default: through the API server].
    #[arg(long, value_name = "URL", conflicts_with_all = ["class", "cluster", "environment", "kubeconfig", "kube_context"])]
    grid_url: Option<String>,
    #[command(flatten)]
    access: KubeArgs,
}

impl GridArgs {
    pub(crate) async fn open(&self, connection: &ConnectionArgs) -> Result<Grid> {
        if let Some(grid) = self.direct()? {
            return Ok(grid);
        }
        let unit = self.unit(&connection.client().await?).await?;
        self.open_unit(&unit, connection).await
    }

    /// The grid for calls of single objects: of any member of the deployment, or else of the only unit.
    pub(crate) async fn open_for_objects(&self, connection: &ConnectionArgs) -> Result<Grid> {
        if let Some(grid) = self.direct()? {
            return Ok(grid);
        }
        let units = deployed_unit::find(&connection.client().await?, self.selector()).await?;
        let context = connection.resolve()?;
        Grid::of_members(&self.deployment, units, &self.access, &context, self.timeout).await
    }

    /// The grid at `--grid-url`.
    pub(crate) fn direct(&self) -> Result<Option<Grid>> {
        let at = |url: &String| Grid::at(&self.deployment, url, self.timeout);
        self.grid_url.as_ref().map(at).transpose()
    }

    /// The grid of a unit, through the API server of its cluster.
    pub(crate) async fn open_unit(
        &self,
        unit: &DeployedUnit,
        connection: &ConnectionArgs,
    ) -> Result<Grid> {
        let context = connection.resolve()?;
        Grid::of_unit(&self.deployment, unit, &self.access, &context, self.timeout).await
    }

    /// The unit that the arguments select.
    pub(crate) async fn unit(&self, client: &Client) -> Result<DeployedUnit> {
        Ok(deployed_unit::only(deployed_unit::find(client, self.selector()).await?)?)
    }

    fn selector(&self) -> UnitSelector<'_> {
        UnitSelector {
            name: &self.deployment,
            class: self.class.as_deref(),
            cluster: self.cluster.as_deref(),
            environment: self.environment.as_deref(),
        }
    }
}
