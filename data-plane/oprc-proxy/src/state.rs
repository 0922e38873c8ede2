//! What all calls of a proxy share.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use crate::{
    breaker::Breaker, config::Config, drain::Lifecycle, limiter::Limiter, metrics::Metrics,
    upstream::Upstream,
};

pub(crate) struct ProxyState {
    pub(crate) metrics: Metrics,
    pub(crate) limiter: Arc<Limiter>,
    pub(crate) upstream: Upstream,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) config: Config,
    breaker: Option<Mutex<Breaker>>,
}

impl ProxyState {
    pub(crate) fn new(config: Config) -> Self {
        let breaker = config
            .hard_latency
            .filter(|_| config.breaker)
            .map(|hard_latency| Mutex::new(Breaker::new(hard_latency, Instant::now())));
        Self {
            metrics: Metrics::new(&config),
            limiter: Arc::new(Limiter::new(config.max_concurrency, config.queue_length)),
            upstream: Upstream::new(config.app_port),
            lifecycle: Arc::new(Lifecycle::new()),
            breaker,
            config,
        }
    }

    /// Logs changes of the breaker's state. `None` if the breaker is not enabled.
    pub(crate) fn with_breaker<T>(&self, action: impl FnOnce(&mut Breaker) -> T) -> Option<T> {
        let mut breaker = self.breaker.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        let before = breaker.state_name();
        let result = action(&mut breaker);
        let after = breaker.state_name();
        if before != after {
            println!("oprc-proxy: breaker changed from {before} to {after}");
        }
        Some(result)
    }
}
