//! The process: everything wired together, startable many times in one process for tests.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use k8s_openapi::jiff::Timestamp;
use kube::{
    Client,
    runtime::events::{Recorder, Reporter},
};
use oprc_observability::{LevelHandle, correlation};
use oprc_server::{Access, Options, Server, TokenFile};
use tokio::sync::watch;
use tonic_health::ServingStatus;

use crate::{
    api,
    cluster::{Cache, Contact, Nodes, Watches},
    config::Config,
    controller::{Clock, Controller, EnvironmentNow, Hands},
    leader::{Candidate, Leadership},
    metrics::Metrics,
    service::{Flights, Service},
};

const SERVICE: &str = "deployment.DeploymentService";
const MAX_CONNECTIONS: usize = 4096;

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
        let tokens = config.token_file.as_ref().map(TokenFile::load).transpose()?;
        if tokens.is_some() && config.tls.is_none() && !config.address.ip().is_loopback() {
            tracing::warn!("tokens travel in the open: there is no security.tls.certificate");
        }
        let access = if config.guarded() {
            Access::new(config.mtls, tokens)
        } else {
            tracing::warn!(address = %config.address, "nobody is asked who they are");
            Access::open()
        };
        let server = oprc_server::bind(Options {
            address: config.address,
            tls: config.tls.clone(),
            max_connections: MAX_CONNECTIONS,
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(30),
            max_streams: 1024,
            drain: config.drain,
        })
        .await?;
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
        let (cache, arriving) = Cache::new();
        let cache = Arc::new(cache);
        let nodes = Arc::new(Nodes::default());
        let metrics = Arc::new(Metrics::new(&self.contact));
        let watches = Watches::begin(
            self.client.clone(),
            only_namespace.clone(),
            Arc::clone(&cache),
            Arc::clone(&nodes),
        );
        if only_namespace.is_some() {
            look_for_knative(&self.client, &watches).await;
        }
        let environment = environment_now(config, &watches);
        let (stop, stopping) = watch::channel(false);
        let identity = identity();
        let (candidate, leadership) = if config.leader_election {
            let own = self.client.default_namespace();
            let (candidate, leadership) =
                Candidate::new(self.client.clone(), own, &config.lease, &identity);
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
                recorder: Recorder::new(
                    self.client.clone(),
                    Reporter { controller: "oprc-crm".to_owned(), instance: Some(identity) },
                ),
            }),
            cache: Arc::clone(&cache),
            environment,
            clock: self.clock,
            metrics,
            concurrency: config.concurrency,
        });
        let tell_health = health(Arc::clone(&service), reporter);
        let again = look_again(Arc::clone(&watches), Arc::clone(&cache));
        // Nobody leads who doesn't know everything yet.
        let lead = {
            let (service, stopping) = (Arc::clone(&service), stopping.clone());
            async move {
                tokio::select! {
                    () = filled(&service) => {}
                    () = stopped(stopping.clone()) => return,
                }
                match candidate {
                    None => stopped(stopping).await,
                    Some(candidate) => candidate.run(stopped(stopping)).await,
                }
            }
        };
        let control = async {
            filled(&service).await;
            controller.run(arriving).await;
        };
        let serve = self.server.serve(router, stopped(stopping));
        let stop_when_told = async {
            shutdown.await;
            stop.send_replace(true);
        };
        let ending = async { tokio::join!(stop_when_told, lead, serve) };
        tokio::select! {
            _ = ending => {}
            () = forever(control) => {}
            () = tell_health => {}
            () = again => {}
        }
        Ok(())
    }
}

/// Only what is told to stop may end.
async fn forever(work: impl Future<Output = ()>) {
    work.await;
    std::future::pending::<()>().await;
}

async fn stopped(mut stopping: watch::Receiver<bool>) {
    // A sender that is gone can't say it any more.
    let _ = stopping.wait_for(|stop| *stop).await;
}

async fn filled(service: &Service) {
    let mut filling = service.cache.filling();
    while !service.missing().is_empty() {
        if filling.changed().await.is_err() {
            return;
        }
    }
}

/// Who this process is among others like it.
fn identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "oprc-crm".to_owned());
    format!("{host}-{}", correlation::new_id().get(..8).unwrap_or_default())
}

fn environment_now(config: &Config, watches: &Arc<Watches>) -> EnvironmentNow {
    let (environment, knative) = (config.environment.clone(), watches.knative());
    Arc::new(move || {
        let mut environment = environment.clone();
        environment.knative = *knative.borrow();
        environment
    })
}

/// Who may not see definitions asks once what there is.
async fn look_for_knative(client: &Client, watches: &Arc<Watches>) {
    let group = &crate::kinds::KNATIVE_SERVICE.group;
    match tokio::time::timeout(Duration::from_secs(10), client.list_api_groups()).await {
        Ok(Ok(groups)) if groups.groups.iter().any(|it| it.name == *group) => {
            watches.found_knative();
        }
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::warn!(%error, "whether there is Knative isn't known"),
        Err(_) => tracing::warn!("whether there is Knative isn't known: no answer"),
    }
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
/// writes get through.
async fn health(service: Arc<Service>, reporter: tonic_health::server::HealthReporter) {
    let (mut filling, mut contact) = (service.cache.filling(), service.contact.changes());
    loop {
        let well = service.missing().is_empty() && !service.contact.is_lost();
        let status = if well { ServingStatus::Serving } else { ServingStatus::NotServing };
        for name in ["", SERVICE] {
            reporter.set_service_status(name, status).await;
        }
        tokio::select! {
            Ok(()) = filling.changed() => {}
            Ok(()) = contact.changed() => {}
            else => std::future::pending::<()>().await,
        }
    }
}
