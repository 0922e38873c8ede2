//! The text of `oprc nfr`.

use std::fmt::Write as _;

use oprc_nfr::migration::WorkloadKind;
use oprc_rest::{
    ClassRuntime, Contact, FunctionStatus, NfrChange, NfrCompliance, NfrDecision, NfrSamples,
    OomKills, Recommendation, RequirementCompliance, UnitStatus,
};

use crate::output::{
    Charset, Column, Tone, api_name, duration, join_non_empty, paint, sanitize, sparkline, table,
};

const MAX_CHANGES: usize = 10;
const SPARKLINE_WIDTH: usize = 60;

pub(super) fn class(class: &ClassRuntime, charset: Charset, wide: bool, headers: bool) -> String {
    let unit = &class.unit;
    let mut text = format!("class {}", sanitize(&unit.class));
    for (label, value) in [
        ("environment", class.environment.as_str()),
        ("cluster", &class.cluster),
        ("deployment", class.deployment.as_deref().unwrap_or_default()),
    ] {
        if !value.is_empty() {
            let _ = write!(text, ", {label} {}", sanitize(value));
        }
    }
    if unit.contact != Contact::Fresh {
        let contact = api_name(&unit.contact).to_lowercase();
        let _ = write!(text, " ({contact}: values may be out of date)");
    }
    text.push('\n');
    if let Some(observed) = unit.nfr_observed.as_ref().filter(|it| !it.measured) {
        let why = join_non_empty(&[&observed.reason, &observed.message], ": ");
        let line = format!("{} for {}", sanitize(&why), duration::age(&observed.since));
        let _ = writeln!(text, "{}", paint(Tone::Fair, &line));
    }
    for it in &unit.functions {
        let _ = write!(text, "\n{}", function(it, unit, charset, headers));
    }
    let decided = unit.functions.iter().filter_map(|it| it.nfr_compliance.as_ref());
    let undecided = decided.flat_map(|it| &it.decisions).next().is_none();
    if !unit.nfr_recommendations.is_empty() && (wide || undecided) {
        let _ = write!(
            text,
            "\nrecommendations\n{}",
            table(&unit.nfr_recommendations, RECOMMENDATION_COLUMNS, headers)
        );
    }
    if !unit.nfr_history.is_empty() {
        let _ = write!(text, "\nlast changes\n{}", changes(&unit.nfr_history, charset, headers));
    }
    text
}

fn function(
    function: &FunctionStatus,
    unit: &UnitStatus,
    charset: Charset,
    headers: bool,
) -> String {
    let mut text = format!("function {}", sanitize(&function.key));
    let kills = unit.oom_kills.iter().filter(|it| it.function == function.key).map(oom_kills);
    let Some(compliance) = &function.nfr_compliance else {
        text.push_str(": no measurements\n");
        text.extend(kills);
        return text;
    };
    let age = duration::age(&compliance.observed_at);
    if compliance.observed_at.is_empty() {
        text.push_str(": no live values\n");
    } else {
        let _ = writeln!(text, ", measured {age} ago: {}", measured(compliance));
    }
    if compliance.requirements.is_empty() {
        text.push_str("no requirements\n");
    } else {
        let row = |it: &RequirementCompliance| Row { requirement: it.clone(), age: age.clone() };
        let rows: Vec<_> = compliance.requirements.iter().map(row).collect();
        text.push_str(&table(&rows, REQUIREMENT_COLUMNS, headers));
    }
    text.extend(kills);
    for it in &compliance.decisions {
        let mut own = unit.nfr_recommendations.iter().filter(|it| it.component == function.key);
        let recommended = own.find(|own| own.dimension == it.dimension);
        text.push_str(&decision(it, recommended, charset));
    }
    text.extend(compliance.samples.iter().map(|it| samples(it, charset)));
    text
}

fn oom_kills(it: &OomKills) -> String {
    let last = duration::age(&it.at);
    let limit = it.limit.map(|it| format!(", limit {}", bytes(it))).unwrap_or_default();
    let line = format!("out-of-memory kills: {}, last {last} ago{limit}", it.count);
    format!("{}\n", paint(Tone::Bad, &line))
}

/// The measured values, without those that are unknown.
fn measured(it: &NfrCompliance) -> String {
    let parts = [
        it.throughput_actual.map(rate),
        it.latency_p50.map(|value| format!("p50 {}", milliseconds(value))),
        it.latency_p95.map(|value| format!("p95 {}", milliseconds(value))),
        it.latency_p99.map(|value| format!("p99 {}", milliseconds(value))),
        it.availability_actual.map(|value| format!("{} served", percent(value))),
        it.instances.map(|count| format!("instances {count}")),
        it.cpu_cores.map(|value| format!("CPU {}", cores(value))),
        it.memory_bytes.map(|value| format!("memory {}", bytes(value))),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "no requests".to_owned() } else { parts.join(", ") }
}

struct Row {
    requirement: RequirementCompliance,
    /// Of the measurement.
    age: String,
}

const REQUIREMENT_COLUMNS: &[Column<Row>] = &[
    ("REQUIREMENT", |it| match it.requirement.requirement.as_str() {
        "latency" => "latency p95".to_owned(),
        "hard_latency" => "hard latency".to_owned(),
        other => other.to_owned(),
    }),
    ("REQUIRED", |it| {
        let required = it.requirement.required;
        let text = |value| match it.requirement.requirement.as_str() {
            "throughput" => format!(">= {}", rate(value)),
            "latency" | "hard_latency" => format!("<= {}", milliseconds(value)),
            "availability" => format!(">= {}", percent(value)),
            _ => number(value),
        };
        required.map(text).unwrap_or_default()
    }),
    ("OBSERVED", |it| {
        let observed = it.requirement.observed;
        let text = |value| match it.requirement.requirement.as_str() {
            "throughput" => rate(value),
            "latency" => milliseconds(value),
            "availability" => percent(value),
            "hard_latency" => format!("{} too slow", rate(value)),
            _ => number(value),
        };
        observed.map(|value| format!("{} ({} ago)", text(value), it.age)).unwrap_or_default()
    }),
    ("STATUS", |it| join_non_empty(&[&it.requirement.state, &it.requirement.reason], ": ")),
    ("SINCE", |it| duration::age(&it.requirement.since)),
    ("ERROR BUDGET LEFT", |it| it.requirement.error_budget.map(percent).unwrap_or_default()),
];

/// What enforcement does, how it follows from the measurements, and what comes next.
fn decision(it: &NfrDecision, recommended: Option<&Recommendation>, charset: Charset) -> String {
    let value = |value: f64| quantity(&it.dimension, value);
    let change = format!("{} {} {}", value(it.current), charset.arrow(), value(it.target));
    let mut text = format!("{} ({}): {change}\n", sanitize(&it.dimension), sanitize(&it.mode));
    if !it.basis.is_empty() {
        let _ = writeln!(text, "  basis: {}", sanitize(&it.basis));
    }
    if let Some(it) = recommended.filter(|it| it.limit.is_some()) {
        let _ = writeln!(text, "  recommendation: {}", target(it));
    }
    let when = match duration::until(&it.next_change_at) {
        None => String::new(),
        Some(left) if left.is_zero() => "possible now".to_owned(),
        Some(left) => format!("possible in {}", duration::short(left)),
    };
    let waits = match it.waits_for.as_str() {
        "" => String::new(),
        waits_for => format!("waits for {}", sanitize(waits_for)),
    };
    let next = join_non_empty(&[&when, &waits], ", ");
    let next = match next.as_str() {
        "" if it.current.total_cmp(&it.target).is_eq() => "not needed",
        "" if it.mode == "observe" => "none, because the mode is observe",
        "" => "at the next evaluation",
        next => next,
    };
    let _ = writeln!(text, "  next change: {next}");
    text
}

/// Name, values and how to show one.
type Series<'a> = (&'static str, &'a [Option<f64>], fn(f64) -> String);

fn samples(samples: &NfrSamples, charset: Charset) -> String {
    let mut text = String::new();
    // A window has far less than 2^52 samples.
    #[allow(clippy::cast_precision_loss)]
    let seconds = samples.throughput.len().max(samples.latency_p95.len()) as f64
        * samples.step_seconds.max(0.0);
    let window = std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let window = duration::short(window);
    let series: [Series<'_>; 2] = [
        ("throughput", &samples.throughput, rate),
        ("latency p95", &samples.latency_p95, milliseconds),
    ];
    for (name, values, unit) in series {
        let known = || values.iter().flatten().copied();
        let (Some(min), Some(max)) = (known().reduce(f64::min), known().reduce(f64::max)) else {
            continue;
        };
        let line = sparkline(values, SPARKLINE_WIDTH, charset);
        let _ = writeln!(
            text,
            "{name:<11}  {line}  min {}, max {}, last {window}",
            unit(min),
            unit(max)
        );
    }
    text
}

const RECOMMENDATION_COLUMNS: &[Column<Recommendation>] = &[
    ("COMPONENT", |it| it.component.clone()),
    ("DIMENSION", |it| it.dimension.clone()),
    ("TARGET", target),
    ("CONFIDENCE", |it| it.confidence.map(percent).unwrap_or_default()),
    ("AGE", |it| duration::age(&it.since)),
    ("BASIS", |it| join_non_empty(&[&it.basis, &it.stopped], "; ")),
];

fn target(it: &Recommendation) -> String {
    let target = quantity(&it.dimension, it.target);
    match it.limit {
        Some(limit) => format!("request {target}, limit {}", quantity(&it.dimension, limit)),
        None => target,
    }
}

const CHANGE_COLUMNS: &[Column<[String; 6]>] = &[
    ("TIME", |it| it[0].clone()),
    ("AGE", |it| it[1].clone()),
    ("COMPONENT", |it| it[2].clone()),
    ("DIMENSION", |it| it[3].clone()),
    ("CHANGE", |it| it[4].clone()),
    ("BASIS", |it| it[5].clone()),
];

/// The latest changes, latest first.
fn changes(history: &[NfrChange], charset: Charset, headers: bool) -> String {
    let mut history: Vec<_> = history.iter().collect();
    history.sort_by(|left, right| right.at.cmp(&left.at));
    history.truncate(MAX_CHANGES);
    let arrow = charset.arrow();
    let row = |it: &&NfrChange| {
        let value = |value: f64| quantity(&it.dimension, value);
        [
            it.at.clone(),
            duration::age(&it.at),
            it.component.clone(),
            it.dimension.clone(),
            format!("{} {arrow} {}", value(it.from), value(it.to)),
            it.basis.clone(),
        ]
    };
    table(&history.iter().map(row).collect::<Vec<_>>(), CHANGE_COLUMNS, headers)
}

fn quantity(dimension: &str, value: f64) -> String {
    match dimension {
        "memory" => bytes(value),
        "cpu" => cores(value),
        "template" => WorkloadKind::of_value(value).as_str().to_owned(),
        _ => number(value),
    }
}

fn rate(per_second: f64) -> String {
    format!("{}/s", number(per_second))
}

fn milliseconds(value: f64) -> String {
    if value.abs() < 1000.0 {
        format!("{}ms", number(value))
    } else {
        format!("{}s", number(value / 1000.0))
    }
}

/// Rounded down, so that less than 100 % never looks like 100 %.
fn percent(fraction: f64) -> String {
    // A fraction such as 0.999 is slightly less in binary.
    let thousandths = (fraction * 100_000.0 + 1e-6).floor();
    format!("{}%", trim(&format!("{:.3}", thousandths / 1000.0)))
}

/// As Kubernetes quantities.
fn cores(value: f64) -> String {
    if value.abs() < 1.0 { format!("{:.0}m", value * 1000.0) } else { number(value) }
}

fn bytes(value: f64) -> String {
    let (mut value, mut unit) = (value, "B");
    for larger in ["Ki", "Mi", "Gi", "Ti"] {
        if value.abs() < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, larger);
    }
    format!("{}{unit}", number(value))
}

/// Three significant digits, but all of those before the point.
fn number(value: f64) -> String {
    let decimals = match value.abs() {
        it if it >= 100.0 => 0,
        it if it >= 10.0 => 1,
        it if it >= 0.1 => 2,
        _ => 3,
    };
    trim(&format!("{value:.decimals$}")).to_owned()
}

fn trim(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};
    use oprc_rest::{NfrObserved, UnitStatus};

    use super::*;

    /// The shown age is the same until almost a second later.
    fn ago(seconds: i64) -> String {
        let rounding = SignedDuration::from_millis(if seconds < 0 { 900 } else { 0 });
        (Timestamp::now() + rounding - SignedDuration::from_secs(seconds)).to_string()
    }

    fn requirement(name: &str, state: &str, required: f64, observed: f64) -> RequirementCompliance {
        RequirementCompliance {
            requirement: name.to_owned(),
            state: state.to_owned(),
            since: ago(3600),
            required: Some(required),
            observed: Some(observed),
            ..RequirementCompliance::default()
        }
    }

    fn decisions() -> Vec<NfrDecision> {
        vec![
            NfrDecision {
                dimension: "replicas".to_owned(),
                mode: "enforce".to_owned(),
                current: 3.0,
                target: 5.0,
                basis: "412 requests/s expected".to_owned(),
                waits_for: "cooldown".to_owned(),
                next_change_at: ago(-90),
                ..NfrDecision::default()
            },
            NfrDecision {
                dimension: "memory".to_owned(),
                mode: "observe".to_owned(),
                current: 268_435_456.0,
                target: 268_435_456.0,
                ..NfrDecision::default()
            },
            NfrDecision {
                dimension: "template".to_owned(),
                mode: "observe".to_owned(),
                current: 0.0,
                target: 1.0,
                template: "knative".to_owned(),
                ..NfrDecision::default()
            },
        ]
    }

    fn sample() -> ClassRuntime {
        let latency = RequirementCompliance {
            error_budget: Some(0.25),
            ..requirement("latency", "violated", 80.0, 95.4)
        };
        let compliance = NfrCompliance {
            throughput_actual: Some(412.3),
            latency_p95: Some(95.4),
            availability_actual: Some(0.999_96),
            instances: Some(3),
            cpu_cores: Some(0.25),
            memory_bytes: Some(130_023_424.0),
            observed_at: ago(12),
            requirements: vec![
                requirement("throughput", "met", 400.0, 412.3),
                latency,
                requirement("availability", "met", 0.999, 0.999_96),
                RequirementCompliance {
                    observed: None,
                    reason: "NoData".to_owned(),
                    ..requirement("hard_latency", "unknown", 5000.0, 0.0)
                },
            ],
            decisions: decisions(),
            samples: Some(NfrSamples {
                start: ago(60),
                step_seconds: 15.0,
                throughput: vec![Some(100.0), Some(200.0), None, Some(412.3)],
                latency_p95: vec![None; 4],
            }),
            ..NfrCompliance::default()
        };
        let change = |at: &str, from: f64, to: f64| NfrChange {
            at: at.to_owned(),
            component: "place".to_owned(),
            dimension: "replicas".to_owned(),
            from,
            to,
            basis: "412 requests/s".to_owned(),
            ..NfrChange::default()
        };
        let functions = vec![
            FunctionStatus {
                key: "place".to_owned(),
                nfr_compliance: Some(compliance),
                ..FunctionStatus::default()
            },
            FunctionStatus { key: "cancel".to_owned(), ..FunctionStatus::default() },
        ];
        ClassRuntime {
            cluster: "east".to_owned(),
            environment: "prod".to_owned(),
            deployment: Some("shop".to_owned()),
            unit: UnitStatus {
                class: "Order".to_owned(),
                functions,
                nfr_recommendations: vec![Recommendation {
                    component: "place".to_owned(),
                    dimension: "memory".to_owned(),
                    target: 268_435_456.0,
                    limit: Some(536_870_912.0),
                    ..Recommendation::default()
                }],
                oom_kills: vec![OomKills {
                    function: "place".to_owned(),
                    at: ago(300),
                    count: 3,
                    limit: Some(134_217_728.0),
                }],
                nfr_history: vec![
                    change("2026-11-16T11:00:00Z", 1.0, 2.0),
                    change("2026-11-16T12:00:00Z", 2.0, 3.0),
                ],
                ..UnitStatus::default()
            },
            ..ClassRuntime::default()
        }
    }

    fn rendered(it: &ClassRuntime, charset: Charset) -> String {
        anstream::adapter::strip_str(&class(it, charset, false, true)).to_string()
    }

    #[test]
    fn shows_requirements_enforcement_changes_and_samples() {
        let text = rendered(&sample(), Charset::Unicode);
        let changes = text.split_once("\nlast changes\n").unwrap();
        assert_eq!(
            changes.0,
            "class Order, environment prod, cluster east, deployment shop\n\n\
             function place, measured 12s ago: 412/s, p95 95.4ms, 99.996% served, instances 3, CPU 250m, \
             memory 124Mi\n\
             REQUIREMENT    REQUIRED   OBSERVED            STATUS            SINCE   ERROR BUDGET LEFT\n\
             throughput     >= 400/s   412/s (12s ago)     met               60m     -\n\
             latency p95    <= 80ms    95.4ms (12s ago)    violated          60m     25%\n\
             availability   >= 99.9%   99.996% (12s ago)   met               60m     -\n\
             hard latency   <= 5s      -                   unknown: NoData   60m     -\n\
             out-of-memory kills: 3, last 5m ago, limit 128Mi\n\
             replicas (enforce): 3 → 5\n  \
             basis: 412 requests/s expected\n  \
             next change: possible in 90s, waits for cooldown\n\
             memory (observe): 256Mi → 256Mi\n  \
             recommendation: request 256Mi, limit 512Mi\n  \
             next change: not needed\n\
             template (observe): k8s_deployment → knative\n  \
             next change: none, because the mode is observe\n\
             throughput   ▃▄ █  min 100/s, max 412/s, last 60s\n\n\
             function cancel: no measurements\n"
        );
        let lines: Vec<_> = changes.1.lines().collect();
        assert!(lines[1].starts_with("2026-11-16T12:00:00Z") && lines[1].contains("2 → 3"));
        assert!(lines[2].starts_with("2026-11-16T11:00:00Z") && lines[2].contains("1 → 2"));
    }

    #[test]
    fn ascii_output_has_no_other_characters() {
        let text = rendered(&sample(), Charset::Ascii);
        assert!(text.is_ascii() && text.contains("3 -> 5"), "{text}");
    }

    #[test]
    fn shows_why_values_are_missing() {
        let mut class = sample();
        class.unit.contact = Contact::Stale;
        class.unit.nfr_observed = Some(NfrObserved {
            reason: "NoData".to_owned(),
            message: "no metrics of place".to_owned(),
            since: ago(30),
            ..NfrObserved::default()
        });
        let text = rendered(&class, Charset::Ascii);
        assert!(text.contains("(stale: values may be out of date)\n"), "{text}");
        assert!(text.contains("\nNoData: no metrics of place for 30s\n"), "{text}");
    }

    #[test]
    fn recommendations_are_shown_if_nothing_is_decided() {
        let mut class = sample();
        class.unit.nfr_recommendations = vec![Recommendation {
            component: "place".to_owned(),
            dimension: "cpu".to_owned(),
            target: 1.5,
            stopped: "no effect".to_owned(),
            ..Recommendation::default()
        }];
        assert!(!rendered(&class, Charset::Ascii).contains("\nrecommendations\n"));
        class.unit.functions.clear();
        let text = rendered(&class, Charset::Ascii);
        assert!(
            text.contains("place       cpu         1.5      -            -     no effect"),
            "{text}"
        );
        class.unit.nfr_recommendations[0].limit = Some(2.0);
        let text = rendered(&class, Charset::Ascii);
        assert!(text.contains("place       cpu         request 1.5, limit 2   -  "), "{text}");
    }

    #[test]
    fn verdicts_without_live_values_have_no_observed_value() {
        let mut class = sample();
        let requirements = vec![RequirementCompliance {
            observed: None,
            ..requirement("latency", "violated", 80.0, 0.0)
        }];
        class.unit.functions[0].nfr_compliance =
            Some(NfrCompliance { requirements, ..NfrCompliance::default() });
        let text = rendered(&class, Charset::Ascii);
        let expected = "function place: no live values\n\
             REQUIREMENT   REQUIRED   OBSERVED   STATUS     SINCE   ERROR BUDGET LEFT\n\
             latency p95   <= 80ms    -          violated   60m     -\n";
        assert!(text.contains(expected), "{text}");
        assert!(
            text.contains("\nrecommendations\n") && text.contains("\nlast changes\n"),
            "{text}"
        );
    }

    #[test]
    fn out_of_memory_kills_are_shown_without_measurements() {
        let mut class = sample();
        class.unit.functions[0].nfr_compliance = None;
        class.unit.oom_kills[0].limit = None;
        let text = rendered(&class, Charset::Ascii);
        let expected = "function place: no measurements\nout-of-memory kills: 3, last 5m ago\n";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn numbers_have_units_and_three_digits() {
        assert_eq!(
            [0.0, 0.0123, 0.5, 3.0, 12.34, 12_345.6].map(number),
            ["0", "0.012", "0.5", "3", "12.3", "12346"]
        );
        assert_eq!([0.999, 0.999_999_9, 1.0].map(percent), ["99.9%", "99.999%", "100%"]);
        assert_eq!([210.0, 1500.0].map(milliseconds), ["210ms", "1.5s"]);
        assert_eq!([512.0, 1_610_612_736.0].map(bytes), ["512B", "1.5Gi"]);
        assert_eq!([0.25, 1.5].map(cores), ["250m", "1.5"]);
    }
}
