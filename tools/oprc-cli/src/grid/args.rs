//! The arguments of commands that use the data grid of a class.

use std::time::Duration;

use anyhow::Result;

use super::Grid;
use crate::{
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
        Ok(self.open_with_unit(connection).await?.0)
    }

    /// Also the unit, unless the grid is reached directly.
    pub(crate) async fn open_with_unit(
        &self,
        connection: &ConnectionArgs,
    ) -> Result<(Grid, Option<DeployedUnit>)> {
        let name = &self.deployment;
        if let Some(url) = &self.grid_url {
            return Ok((Grid::at(name, url, self.timeout)?, None));
        }
        let client = connection.client().await?;
        let selector = UnitSelector {
            name,
            class: self.class.as_deref(),
            cluster: self.cluster.as_deref(),
            environment: self.environment.as_deref(),
        };
        let unit = deployed_unit::only(deployed_unit::find(&client, selector).await?)?;
        let context = connection.resolve()?;
        let grid = Grid::of_unit(name, &unit, &self.access, &context, self.timeout).await?;
        Ok((grid, Some(unit)))
    }
}
