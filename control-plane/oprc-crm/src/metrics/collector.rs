//! Gauges computed from the cache for each scrape, so that concurrent scrapes don't affect each
//! other.

use std::{fmt, sync::Arc};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, family::Family, gauge::Gauge},
};

use super::{Labels, by_template, environment};
use crate::{cache::Cache, crd::Phase, leader::Leadership, reconcile::ObservedClass};

pub(super) struct ClassCollector {
    pub(super) cache: Arc<Cache>,
    pub(super) leadership: Leadership,
}

impl fmt::Debug for ClassCollector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ClassCollector")
    }
}

impl Collector for ClassCollector {
    /// Only the leader counts classes, so that the sum over all replicas is right.
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let is_leader = self.leadership.holds();
        let leading: Gauge = Gauge::default();
        leading.set(i64::from(is_leader));
        let classes = if is_leader { self.cache.classes_after(None) } else { Vec::new() };
        let (active, templates) = count(&classes);
        let help = "1 if this process is the leader, otherwise 0.";
        encode_gauge(&mut encoder, "crm_leading", help, &leading)?;
        let help = "ClassRuntimes that are Available.";
        encode_gauge(&mut encoder, "crm_active_deployments", help, &active)?;
        let help = "ClassRuntimes by selected template.";
        encode_gauge(&mut encoder, "crm_template_usage", help, &templates)
    }
}

pub(super) fn encode_gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    metric: &impl EncodeMetric,
) -> fmt::Result {
    metric.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
}

fn count(classes: &[Arc<ObservedClass>]) -> (Family<Labels<1>, Gauge>, Family<Labels<2>, Gauge>) {
    let (active, templates) = (Family::<_, Gauge>::default(), Family::<_, Gauge>::default());
    for class in classes.iter().filter(|class| class.deleting.is_none()) {
        let status = class.status.as_ref();
        if status.is_some_and(|status| status.phase == Phase::Available) {
            active.get_or_create(&[environment(class)]).inc();
        }
        templates.get_or_create(&by_template(class, status)).inc();
    }
    (active, templates)
}
