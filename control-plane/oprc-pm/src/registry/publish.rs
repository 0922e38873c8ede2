//! Publishing, and what would come of it.

use std::sync::Arc;

use oprc_models::{Body, Document, OClassDeployment, ResolvedPackage, check_against};
use oprc_rest::Published;

use super::{
    ATTEMPTS, Registry,
    index::rank,
    prepare::{Prepared, packages, prepare},
    race,
};
use crate::{error::Error, heavy::heavy, stamp};

impl Registry {
    /// Publishes all packages of a file, or none. Deployments that stand in it are left to the
    /// caller. What was published before, just the same, is told to be unchanged.
    pub async fn publish(
        &self,
        documents: &[Document],
        by: Option<&str>,
    ) -> Result<Vec<Published>, Error> {
        let shared: Arc<[Document]> = documents.into();
        for _ in 0..ATTEMPTS {
            let (registry, documents) = (self.clone(), Arc::clone(&shared));
            let name = by.map(ToOwned::to_owned);
            let prepare = move || -> Result<_, Error> {
                let prepared = registry.prepare(&documents, name.as_deref())?;
                let transaction = prepared.transaction()?;
                Ok((prepared, transaction))
            };
            let (prepared, transaction) = heavy(prepare).await??;
            let Some(transaction) = transaction else { return Ok(prepared.published) };
            if self.commit(transaction).await? {
                for it in &prepared.published {
                    tracing::info!(package = it.name, version = it.version, by, "Published");
                }
                return Ok(prepared.published);
            }
        }
        let (_, first) = packages(documents).next().unzip();
        Err(race(first.map_or("the package", |it| &it.name)))
    }

    /// Checks a file as publishing would, its deployments too, and changes nothing. Takes a while
    /// for a large one.
    pub fn validate(&self, documents: &[Document]) -> Result<Vec<Published>, Error> {
        let prepared = self.prepare(documents, None)?;
        prepared.transaction()?;
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
        let known = self.inner.followed.read(|index| index.reach(names));
        prepare(&known, documents, by, &stamp::text(stamp::now()))
    }

    /// What a deployment would be of if the packages of a file were published. Takes a while for a
    /// large one.
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
                self.settle(&there)
            }
            (Some(here), _) => Ok(here.clone()),
            (None, there) => self.settle(&*there?),
        }
    }
}
