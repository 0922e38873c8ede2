//! The process: wires everything together. Tests start it many times in one process.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow};
use axum::Router;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use oprc_observability::LevelHandle;
use oprc_server::{Access, Server, identity, stopped};
use oprc_unit::Platform;
use tokio::sync::watch;
use tonic_health::{ServingStatus, server::HealthReporter};

use crate::{
    analyzer::{Analyzer, Options},
    api,
    cache::{ApiHealth, Cache, Detected, Nodes, Watches, probe},
    config::Config,
    controller::{Applier, Clock, Controller, GridReports, PlatformNow},
    kinds::AUTOSCALER,
    leader::{Candidate, Leadership},
    metrics::Metrics,
    observations::ObservationStore,
    provider::{MetricsProvider, PrometheusProvider},
    service::{Service, SingleFlight},
};

/// The services that gRPC health checks ask for.
const HEALTH_SERVICES: [&str; 2] = ["", "deployment.DeploymentService"];
/// The namespace that CRM is installed in. A CRM that is started by hand with a kubeconfig has to
/// wait for the Lease there.
const INSTALLED_NAMESPACE: &str = "oaas-system";
/// How often health checks whether a watch has been failing for too long.
const HEALTH_INTERVAL: Duration = Duration::from_secs(5);
/// How long health watchers have to receive the last status before their streams are closed.
const HEALTH_DRAIN: Duration = Duration::from_millis(100);

/// A CRM that is bound to its port and doesn't serve yet.
pub struct Crm {
    config: Config,
    client: Client,
    api_health: ApiHealth,
    clock: Clock,
    level: Option<LevelHandle>,
    server: Server,
    access: Access,
}

pub fn wall_clock() -> Clock {
    Arc::new(Timestamp::now)
}

impl Crm {
    /// Binds the port and loads certificates and tokens, so that errors in them are reported at
    /// start.
    pub async fn bind(
        config: Config,
        client: Client,
        api_health: ApiHealth,
        clock: Clock,
        level: Option<LevelHandle>,
    ) -> anyhow::Result<Self> {
        let (server, access) = config.server.bind().await?;
        Ok(Self { config, client, api_health, clock, level, server, access })
    }

    pub fn address(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Serves until `shutdown` completes; then stops reconciling, releases the Lease, and lets open
    /// calls finish.
    pub async fn run(
        self,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> anyhow::Result<()> {
        let (stop, stopping) = watch::channel(false);
        let Components { server, router, reporter, service, controller, analyzer, election } =
            self.assemble(stopping.clone())?;
        let health = report_health(Arc::clone(&service), reporter);
        let requeue = requeue_on_detection(Arc::clone(&service));
        let probe = probe(service.client.clone(), service.api_health.clone());
        let (idle, all_written) = watch::channel(false);
        let control = control(Arc::clone(&service), controller, analyzer, stopping.clone(), idle);
        let lead = election.run(service, stopping.clone(), all_written);
        let serve = server.serve(router, stopped(stopping));
        let signal = async {
            shutdown.await;
            stop.send_replace(true);
        };
        tokio::select! {
            _ = async { tokio::join!(signal, control, lead, serve) } => {}
            () = health => {}
            () = requeue => {}
            () = probe => {}
        }
        Ok(())
    }

    fn assemble(self, stopping: watch::Receiver<bool>) -> anyhow::Result<Components> {
        let Self { config, client, api_health, clock, level, server, access } = self;
        let namespace =
            config.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        let only_namespace = config.namespaced.then(|| namespace.clone());
        let cache = Arc::new(Cache::default());
        let nodes = Arc::new(Nodes::default());
        let watches = Watches::start(
            client.clone(),
            only_namespace.clone(),
            Arc::clone(&cache),
            api_health.clone(),
            Arc::clone(&nodes),
            config.prometheus.enabled,
        );
        let platform = platform_now(&config, &watches, &cache);
        let enforces = config.prometheus.is_configured() && config.nfr.enforcement;
        let freeze = if enforces {
            watches.freeze_switch(&installed_namespace(&config, &client), &config.nfr.configmap)
        } else {
            watch::channel(false).1
        };
        let lacks_monitors = lacks_monitors(&config, &watches);
        let identity = identity("oprc-crm");
        let (election, leadership) = LeaderElection::new(&config, &client, &identity);
        let observations = Arc::new(ObservationStore::default());
        let metrics = Arc::new(Metrics::new(
            &api_health,
            Arc::clone(&cache),
            leadership.clone(),
            Arc::clone(&observations),
        ));
        let service = Arc::new(Service {
            client: client.clone(),
            cache: Arc::clone(&cache),
            api_health: api_health.clone(),
            nodes,
            watches,
            platform: Arc::clone(&platform),
            leadership: leadership.clone(),
            default_namespace: namespace,
            only_namespace: only_namespace.clone(),
            observations: Arc::clone(&observations),
            measures: config.prometheus.is_configured(),
            enforces,
            single_flight: SingleFlight::default(),
            stopping,
        });
        let (router, reporter) = api::router(api::Parts {
            service: Arc::clone(&service),
            metrics: Arc::clone(&metrics),
            access,
            calls: config.calls,
            level,
        })
        .context("failed to build the routes")?;
        let grid_reports = GridReports::new(client.clone(), Arc::clone(&cache));
        let applier = Arc::new(Applier { client, cache: Arc::clone(&cache), leadership, identity });
        let analyzer = Analyzer {
            options: Options::of(&config, only_namespace.as_deref()),
            provider: metrics_provider(&config)?,
            lacks_monitors,
            freeze,
            cache: Arc::clone(&cache),
            api_health: api_health.clone(),
            applier: Arc::clone(&applier),
            platform: Arc::clone(&platform),
            clock: Arc::clone(&clock),
            observations,
            metrics: Arc::clone(&metrics),
        };
        let controller = Arc::new(Controller {
            applier,
            cache,
            api_health,
            platform,
            clock,
            metrics,
            grid_reports,
            concurrency: config.concurrency,
        });
        Ok(Components { server, router, reporter, service, controller, analyzer, election })
    }
}

struct Components {
    server: Server,
    router: Router,
    reporter: HealthReporter,
    service: Arc<Service>,
    controller: Arc<Controller>,
    analyzer: Analyzer,
    election: LeaderElection,
}

/// How this process becomes the leader.
struct LeaderElection {
    /// None without leader election.
    candidate: Option<Candidate>,
    /// Whether to look for the Lease of an installed CRM first.
    runs_outside: bool,
}

impl LeaderElection {
    fn new(config: &Config, client: &Client, identity: &str) -> (Self, Leadership) {
        if !config.leader_election {
            return (Self { candidate: None, runs_outside: false }, Leadership::always());
        }
        let own = client.default_namespace();
        let namespace = config.lease_namespace.as_deref().unwrap_or(own);
        let (candidate, leadership) =
            Candidate::new(client.clone(), namespace, &config.lease, identity);
        let runs_outside = runs_outside(config, client);
        (Self { candidate: Some(candidate), runs_outside }, leadership)
    }

    /// Runs for leader once the caches are synced, and releases the Lease only when no write is in
    /// progress any more.
    async fn run(
        self,
        service: Arc<Service>,
        stopping: watch::Receiver<bool>,
        all_written: watch::Receiver<bool>,
    ) {
        tokio::select! {
            () = synced(&service) => {}
            () = stopped(stopping) => return,
        }
        match self.candidate {
            None => stopped(all_written).await,
            Some(mut candidate) => {
                if self.runs_outside {
                    candidate.join(INSTALLED_NAMESPACE).await;
                }
                candidate.run(stopped(all_written)).await;
            }
        }
    }
}

/// Whether CRM runs outside of the cluster without a configured namespace of the Lease.
fn runs_outside(config: &Config, client: &Client) -> bool {
    let own = client.default_namespace();
    config.lease_namespace.is_none() && !config.namespaced && own != INSTALLED_NAMESPACE
}

/// The namespace in which CRM is configured.
fn installed_namespace(config: &Config, client: &Client) -> String {
    let own = client.default_namespace();
    let own = if runs_outside(config, client) { INSTALLED_NAMESPACE } else { own };
    config.lease_namespace.as_deref().unwrap_or(own).to_owned()
}

fn lacks_monitors(config: &Config, watches: &Watches) -> Box<dyn Fn() -> bool + Send + Sync> {
    let (prometheus, detected) = (config.prometheus.clone(), watches.detected());
    Box::new(move || {
        let Detected { service_monitors, pod_monitors, .. } = *detected.borrow();
        prometheus.lacks_monitors(service_monitors, pod_monitors)
    })
}

/// None if it is turned off or has no URL.
fn metrics_provider(config: &Config) -> anyhow::Result<Option<Box<dyn MetricsProvider>>> {
    let configured = config.prometheus.is_configured();
    let Some(options) = config.prometheus.options.clone().filter(|_| configured) else {
        return Ok(None);
    };
    let provider =
        PrometheusProvider::new(options).map_err(|error| anyhow!("prometheus.url {error}"))?;
    Ok(Some(Box::new(provider)))
}

/// Reconciles and measures once the caches are synced, and sets `idle` when no write is in progress any more.
async fn control(
    service: Arc<Service>,
    controller: Arc<Controller>,
    analyzer: Analyzer,
    stopping: watch::Receiver<bool>,
    idle: watch::Sender<bool>,
) {
    tokio::select! {
        () = synced(&service) => {
            let measure = analyzer.run(stopping.clone());
            tokio::join!(controller.run(stopped(stopping.clone())), measure);
        }
        () = stopped(stopping.clone()) => {}
    }
    idle.send_replace(true);
}

async fn synced(service: &Service) {
    let mut changes = service.cache.sync_changes();
    while !service.watches.missing().is_empty() {
        if changes.changed().await.is_err() {
            return;
        }
    }
}

fn platform_now(config: &Config, watches: &Watches, cache: &Arc<Cache>) -> PlatformNow {
    let (platform, detected) = (config.platform.clone(), watches.detected());
    let prometheus = config.prometheus.clone();
    let cache = Arc::clone(cache);
    Arc::new(move || {
        let Detected { knative, metrics, service_monitors, pod_monitors } = *detected.borrow();
        // CRM watches autoscalers anyway: the watch syncs only if autoscaling/v2 is served.
        let autoscaling = metrics && cache.is_synced(AUTOSCALER.plural);
        let monitors = prometheus.monitors(service_monitors, pod_monitors);
        Platform { knative, autoscaling, monitors, ..platform.clone() }
    })
}

/// Reconciles every class when an optional API appears or disappears.
async fn requeue_on_detection(service: Arc<Service>) {
    let mut detected = service.watches.detected();
    while detected.changed().await.is_ok() {
        service.cache.enqueue_all();
    }
    std::future::pending::<()>().await;
}

/// Reports SERVING to gRPC health checks while the caches are complete and current.
async fn report_health(service: Arc<Service>, mut reporter: HealthReporter) {
    let (mut syncs, mut api_health) = (service.cache.sync_changes(), service.api_health.changes());
    let mut stopping = service.stopping.clone();
    loop {
        let ends = service.is_stopping();
        let healthy = !ends
            && service.watches.missing().is_empty()
            && service.failing_watches().is_empty()
            && !service.api_health.is_stale();
        let status = if healthy { ServingStatus::Serving } else { ServingStatus::NotServing };
        for name in HEALTH_SERVICES {
            reporter.set_service_status(name, status).await;
        }
        if ends {
            break;
        }
        tokio::select! {
            _ = syncs.changed() => {}
            _ = api_health.changed() => {}
            _ = stopping.changed() => {}
            // Nothing notifies when a watch has been failing for too long.
            () = tokio::time::sleep(HEALTH_INTERVAL) => {}
        }
    }
    // Health watchers get that status, and then the end of their streams: an open stream would keep
    // the process from exiting.
    tokio::time::sleep(HEALTH_DRAIN).await;
    for name in HEALTH_SERVICES {
        reporter.clear_service_status(name).await;
    }
    std::future::pending::<()>().await;
}
