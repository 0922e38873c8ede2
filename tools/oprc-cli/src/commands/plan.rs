//! `oprc plan`: the plan of a deployment with its reasons.

use anyhow::Result;
use oprc_models::{Body, OClassDeployment, OPackage, to_yaml};
use oprc_rest::{Plan, Reason};
use oprc_unit::TemplateScore;

use crate::{
    client::Client,
    connection::ApiArgs,
    output::{Format, OutputArgs, Tone, Tree, join_non_empty, paint, sanitize},
    target::{Target, TargetArgs},
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  oprc plan hello\n  oprc plan examples/packages/hello.yaml\n  oprc plan counter --cluster east -o json"
)]
pub(crate) struct Command {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    api: ApiArgs,
}

pub(crate) async fn run(Command { target, api }: Command) -> Result<()> {
    api.show.reject_formats(&[Format::Wide])?;
    let client = api.client().await?;
    show(&client, &target.resolve(&client).await?, &api.show).await
}

pub(super) async fn show(client: &Client, target: &Target, show: &OutputArgs) -> Result<()> {
    let mut plans = Vec::new();
    for deployment in &target.deployments {
        plans.push(fetch(client, deployment, &target.packages).await?);
    }
    let units: Vec<_> = plans.iter().flat_map(|it| &it.units).map(|it| it.id.as_str()).collect();
    show.one(&plans, &units, |_| plans.iter().map(|it| tree(it).render()).collect())
}

/// Plans a deployment as if `packages` were published.
pub(super) async fn fetch(
    client: &Client,
    deployment: &OClassDeployment,
    packages: &[OPackage],
) -> Result<Plan> {
    let packages = packages.iter().map(|it| Body::Package(Box::new(it.clone())));
    let deployment = Body::Deployment(Box::new(deployment.clone()));
    let all: Vec<_> = packages.chain([deployment]).collect();
    client.send_yaml("/plan", to_yaml(&all)?).await
}

fn tree(plan: &Plan) -> Tree {
    let title = format!("{} → {} {}", plan.deployment, plan.package, plan.version);
    let mut root = Tree::new(sanitize(&title));
    for warning in &plan.warnings {
        root.push(Tree::new(paint(Tone::Fair, &format!("warning: {}", sanitize(warning)))));
    }
    plan.reasons.iter().for_each(|it| root.push(reason(it)));
    for unit in &plan.units {
        let place = join_non_empty(&[&unit.cluster, &unit.environment], "/");
        let title = format!("{place}: {} ({})", unit.class, unit.id);
        let mut below = Tree::new(sanitize(&title));
        if let Some(template) = &unit.template {
            let mut selected = reason(&Reason {
                field: "template".to_owned(),
                value: template.clone(),
                because: unit.template_basis.clone(),
            });
            unit.scores.iter().for_each(|it| selected.push(score(it)));
            below.push(selected);
        }
        unit.reasons.iter().for_each(|it| below.push(reason(it)));
        root.push(below);
    }
    root
}

/// One row of the score sheet: `knative 7.5 (burst 9, steady 5)`, or why the template is rejected.
fn score(score: &TemplateScore) -> Tree {
    let value = score.score.map_or_else(|| "no score".to_owned(), |it| format!("{it:.1}"));
    let rows: Vec<String> = score.rows.iter().map(|(name, it)| format!("{name} {it}")).collect();
    let rows = if rows.is_empty() { String::new() } else { format!(" ({})", rows.join(", ")) };
    let rejected = score.rejected.as_ref().map(|it| format!(", rejected: {it}"));
    let rejected = rejected.unwrap_or_default();
    Tree::new(sanitize(&format!("{} {value}{rows}{rejected}", score.template)))
}

fn reason(reason: &Reason) -> Tree {
    let because = paint(Tone::Faint, &format!("— {}", sanitize(&reason.because)));
    Tree::new(format!("{}: {} {because}", sanitize(&reason.field), sanitize(&reason.value)))
}

#[cfg(test)]
mod tests {
    use oprc_rest::UnitPlan;

    use super::*;

    #[test]
    fn renders_a_plan_with_its_reasons() {
        let why = |field: &str, value: &str, because: &str| Reason {
            field: field.to_owned(),
            value: value.to_owned(),
            because: because.to_owned(),
        };
        let plan = Plan {
            deployment: "hello".to_owned(),
            package: "hello".to_owned(),
            version: "0.1.0".to_owned(),
            units: vec![UnitPlan {
                id: "hello.Hello".to_owned(),
                cluster: "east".to_owned(),
                environment: "dev".to_owned(),
                class: "Hello".to_owned(),
                template: Some("k8s_deployment".to_owned()),
                template_basis: "the best score".to_owned(),
                scores: vec![
                    TemplateScore {
                        template: "k8s_deployment".to_owned(),
                        score: Some(9.0),
                        rows: [("steady".to_owned(), 9.0)].into(),
                        rejected: None,
                    },
                    TemplateScore {
                        template: "knative".to_owned(),
                        rejected: Some("Knative is not installed".to_owned()),
                        ..TemplateScore::default()
                    },
                ],
                reasons: vec![why("replicas", "2", "availability 0.99 requires 2")],
                ..UnitPlan::default()
            }],
            reasons: vec![why("clusters", "east", "the only one")],
            warnings: vec!["east is full".to_owned()],
        };
        let plain = anstream::adapter::strip_str(&tree(&plan).render()).to_string();
        assert_eq!(
            plain,
            "hello → hello 0.1.0\n\
             ├─ warning: east is full\n\
             ├─ clusters: east — the only one\n\
             └─ east/dev: Hello (hello.Hello)\n   \
             ├─ template: k8s_deployment — the best score\n   \
             │  ├─ k8s_deployment 9.0 (steady 9)\n   \
             │  └─ knative no score, rejected: Knative is not installed\n   \
             └─ replicas: 2 — availability 0.99 requires 2\n"
        );
    }
}
