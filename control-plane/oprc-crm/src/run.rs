//! The process: everything wired together, startable many times in one process for tests.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use k8s_openapi::jiff::Timestamp;
use kube::{Client, runtime::events::Reporter};
use oprc_observability::LevelHandle;
use oprc_server::{Access, Server, identity, stopped};
use tokio::sync::watch;
use tonic_health::ServingStatus;

use crate::{
    api,
    cluster::{Cache, Contact, Nodes, Watches, probe},
    config::Config,
    controller::{Clock, Controller, Hands, PlatformNow},
    leader::{Candidate, Leadership},
    metrics::Metrics,
    service::{Flights, Service},
};

/// What gRPC's health protocol knows us by.
const NAMES: [&str; 2] = ["", "deployment.DeploymentService"];
/// The namespace that CRM is installed in: one that somebody starts beside it by hand, with a
/// kubeconfig, is to wait for the same lease.
const INSTALLED: &str = "oaas-system";
/// How often it is looked whether something has been broken for too long.
const LOOK: Duration = Duration::from_secs(5);
/// How long those who follow our health have to take the last word.
const FAREWELL: Duration = Duration::from_millis(100);

/// A CRM that listens and hasn't begun to serve.
pub struct Crm {
    config: Config,
    client: Client,
    contact: Contact,
    clock: Clock,
    level: Option<LevelHandle>,
    server: Server,
    access: Access,
}

/// The time of day.
pub fn wall_clock() -> Clock {
    Arc::new(Timestamp::now)
}

impl Crm {
    /// Takes its port and reads its certificates and tokens: what is wrong with them is known now.
    pub async fn bind(
        config: Config,
        client: Client,
        contact: Contact,
        clock: Clock,
        level: Option<LevelHandle>,
    ) -> anyhow::Result<Self> {
        let (server, access) = config.server.bind().await?;
        Ok(Self { config, client, contact, clock, level, server, access })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Serves until it is told to stop: it gives its lease back at once, and lets open calls end.
    pub async fn run(
        self,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> anyhow::Result<()> {
        let config = &self.config;
        let namespace =
            config.namespace.clone().unwrap_or_else(|| self.client.default_namespace().to_owned());
        let only_namespace = config.namespaced.then(|| namespace.clone());
        let cache = Arc::new(Cache::default());
        let nodes = Arc::new(Nodes::default());
        let metrics = Arc::new(Metrics::new(&self.contact));
        let watches = Watches::begin(
            self.client.clone(),
            only_namespace.clone(),
            Arc::clone(&cache),
            self.contact.clone(),
            Arc::clone(&nodes),
        );
        let environment = platform_now(config, &watches);
        let (stop, stopping) = watch::channel(false);
        let identity = identity("oprc-crm");
        let (candidate, leadership) = if config.leader_election {
            let said = config.lease_namespace.as_deref();
            let place = said.unwrap_or_else(|| self.client.default_namespace());
            let (candidate, leadership) =
                Candidate::new(self.client.clone(), place, &config.lease, &identity);
            (Some(candidate), leadership)
        } else {
            (None, Leadership::always())
        };
        let service = Arc::new(Service {
            client: self.client.clone(),
            cache: Arc::clone(&cache),
            contact: self.contact.clone(),
            nodes,
            watches: Arc::clone(&watches),
            environment: Arc::clone(&environment),
            leadership: leadership.clone(),
            default_namespace: namespace,
            only_namespace,
            flights: Flights::default(),
            stopping: stopping.clone(),
        });
        let (router, reporter) = api::router(api::Parts {
            service: Arc::clone(&service),
            metrics: Arc::clone(&metrics),
            access: self.access,
            calls: config.calls,
            level: self.level,
        })
        .context("the routes")?;
        let controller = Arc::new(Controller {
            hands: Arc::new(Hands {
                client: self.client.clone(),
                cache: Arc::clone(&cache),
                leadership,
                reporter: Reporter { controller: "oprc-crm".to_owned(), instance: Some(identity) },
            }),
            cache: Arc::clone(&cache),
            contact: self.contact.clone(),
            environment,
            clock: self.clock,
            metrics,
            concurrency: config.concurrency,
        });
        let tell_health = health(Arc::clone(&service), reporter);
        let again = look_again(Arc::clone(&watches), Arc::clone(&cache));
        let signs_of_life = probe(self.client.clone(), self.contact.clone());
        let (idle, all_written) = watch::channel(false);
        // Nobody leads who doesn't know everything yet, nor gives the lease back who still writes.
        let lead = {
            let (service, stopping) = (Arc::clone(&service), stopping.clone());
            let elsewhere = config.lease_namespace.is_none()
                && !config.namespaced
                && self.client.default_namespace() != INSTALLED;
            async move {
                tokio::select! {
                    () = filled(&service) => {}
                    () = stopped(stopping) => return,
                }
                match candidate {
                    None => stopped(all_written).await,
                    Some(mut candidate) => {
                        if elsewhere {
                            candidate.join(INSTALLED).await;
                        }
                        candidate.run(stopped(all_written)).await;
                    }
                }
            }
        };
        let control = {
            let (service, stopping) = (Arc::clone(&service), stopping.clone());
            async move {
                tokio::select! {
                    () = filled(&service) => controller.run(stopped(stopping)).await,
                    () = stopped(stopping.clone()) => {}
                }
                idle.send_replace(true);
            }
        };
        let serve = self.server.serve(router, stopped(stopping));
        let stop_when_told = async {
            shutdown.await;
            stop.send_replace(true);
        };
        tokio::select! {
            _ = async { tokio::join!(stop_when_told, control, lead, serve) } => {}
            () = tell_health => {}
            () = again => {}
            () = signs_of_life => {}
        }
        Ok(())
    }
}

async fn filled(service: &Service) {
    let mut filling = service.cache.filling();
    while !service.missing().is_empty() {
        if filling.changed().await.is_err() {
            return;
        }
    }
}

fn platform_now(config: &Config, watches: &Arc<Watches>) -> PlatformNow {
    let (environment, knative) = (config.environment.clone(), watches.knative());
    Arc::new(move || {
        let mut environment = environment.clone();
        environment.knative = *knative.borrow();
        environment
    })
}

/// When the cluster's abilities change, every class is looked at again.
async fn look_again(watches: Arc<Watches>, cache: Arc<Cache>) {
    let mut knative = watches.knative();
    while knative.changed().await.is_ok() {
        cache.mark_all();
    }
    std::future::pending::<()>().await;
}

/// Tells gRPC's health protocol the truth: serving means that what is known is complete, and that
/// it is kept so.
async fn health(service: Arc<Service>, mut reporter: tonic_health::server::HealthReporter) {
    let (mut filling, mut contact) = (service.cache.filling(), service.contact.changes());
    let mut stopping = service.stopping.clone();
    while !service.is_stopping() {
        let well = service.missing().is_empty()
            && service.broken().is_empty()
            && !service.contact.is_lost();
        let status = if well { ServingStatus::Serving } else { ServingStatus::NotServing };
        for name in NAMES {
            reporter.set_service_status(name, status).await;
        }
        tokio::select! {
            _ = filling.changed() => {}
            _ = contact.changed() => {}
            _ = stopping.changed() => {}
            // How long something has been broken is told by nobody.
            () = tokio::time::sleep(LOOK) => {}
        }
    }
    for name in NAMES {
        reporter.set_service_status(name, ServingStatus::NotServing).await;
    }
    // Whoever follows is told that, and then that there is no more to be told: a stream that stays
    // open would keep the process from ending.
    tokio::time::sleep(FAREWELL).await;
    for name in NAMES {
        reporter.clear_service_status(name).await;
    }
    std::future::pending::<()>().await;
}
