//! Publishing packages, and checking what publishing would do.

use std::sync::Arc;

use oprc_models::{Body, Document, OClassDeployment, ResolvedPackage, check_against};
use oprc_rest::Published;

use super::{
    Registry,
    prepare::{Prepared, packages, prepare},
};
use crate::{blocking::run_blocking, clock, error::Error, state::packages::rank};

impl Registry {
    /// Publishes all packages of a file, or none; deployments in the file are ignored. A version
    /// that was published before with the same content is reported as unchanged.
    pub async fn publish(
        &self,
        documents: &[Document],
        by: Option<&str>,
    ) -> Result<Vec<Published>, Error> {
        let shared: Arc<[Document]> = documents.into();
        let build = || async {
            let (registry, documents) = (self.clone(), Arc::clone(&shared));
            let name = by.map(ToOwned::to_owned);
            run_blocking(move || registry.prepare(&documents, name.as_deref())?.attempt()).await?
        };
        let published = self.cache.commit_with_retry(build).await?;
        for it in published.iter().filter(|it| !it.unchanged) {
            tracing::info!(package = it.name, version = it.version, by, "published a package");
        }
        Ok(published)
    }

    /// Checks a file as publishing would, and its deployments. CPU-bound: call it through
    /// [`run_blocking`].
    pub fn validate(&self, documents: &[Document]) -> Result<Vec<Published>, Error> {
        let prepared = self.prepare(documents, None)?;
        prepared.attempt()?;
        for document in documents {
            if let Body::Deployment(deployment) = &document.body {
                document.check()?;
                let package = self.package_with(deployment, &prepared)?;
                check_against(deployment, &package).map_err(|it| document.locate(it))?;
            }
        }
        Ok(prepared.published)
    }

    fn prepare(&self, documents: &[Document], by: Option<&str>) -> Result<Prepared, Error> {
        let names: Vec<&str> = packages(documents)
            .flat_map(|(_, it)| {
                let dependencies = it.dependencies.iter().map(|it| it.name.as_str());
                dependencies.chain([it.name.as_str()])
            })
            .collect();
        let known = self.cache.packages(|index| index.with_dependencies(names));
        prepare(&known, documents, by, &clock::now().to_string())
    }

    /// The package that a deployment would use if those of a file were published. CPU-bound: call
    /// it through [`run_blocking`].
    pub fn package_of(
        &self,
        deployment: &OClassDeployment,
        documents: &[Document],
    ) -> Result<Arc<ResolvedPackage>, Error> {
        self.package_with(deployment, &self.prepare(documents, None)?)
    }

    fn package_with(
        &self,
        deployment: &OClassDeployment,
        prepared: &Prepared,
    ) -> Result<Arc<ResolvedPackage>, Error> {
        let name = deployment.package.as_deref().unwrap_or_default();
        let range = deployment.version.as_ref();
        let here = prepared
            .resolved
            .iter()
            .filter(|it| it.name == name && range.is_none_or(|range| range.matches(&it.version)));
        let rank = |version, deprecated| rank(version, deprecated, range.is_some());
        let here = here.max_by_key(|it| rank(&it.version, false));
        match (here, self.find(name, range)) {
            (Some(here), Ok(there))
                if rank(&there.package.version, there.deprecated.is_some())
                    > rank(&here.version, false) =>
            {
                self.resolve(&there)
            }
            (Some(here), _) => Ok(here.clone()),
            (None, there) => self.resolve(&*there?),
        }
    }
}
