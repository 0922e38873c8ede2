//! Installation in an existing cluster by its kubeconfig.

use std::process::Command;

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Namespace, Secret},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, ObjectMeta, PostParams},
};
use oprc_sandbox::{NodeChoice, Options};
use oprc_tests::{archive, program, with_cluster};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn up_installs_into_an_existing_cluster_and_down_uninstalls() {
    let options = Options { node: NodeChoice::Real, no_fsync: true, ..Options::default() };
    with_cluster("test-any", &options, async |cluster| {
        for image in ["oprc-crm", "oprc-pm", "hello-fn", "oprc-odgm", "oprc-proxy"] {
            cluster.load_image(&archive(image)).await.unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let oprc = |arguments: &[&str]| {
            let done = Command::new(program("oprc"))
                .args(arguments)
                .env("OPRC_CONFIG", folder.path().join("config.yaml"))
                .output()
                .unwrap();
            let (stdout, stderr) =
                (done.stdout, String::from_utf8_lossy(&done.stderr).into_owned());
            assert!(done.status.success(), "{arguments:?}: {stderr}");
            String::from_utf8(stdout).unwrap()
        };
        let kubeconfig = cluster.kubeconfig();
        let this = ["--context", "oprc-test-any", "--kubeconfig", kubeconfig.to_str().unwrap()];
        for _ in 0..2 {
            let stdout = oprc(&[&["up", "--name", "far"], this.as_slice()].concat());
            assert!(stdout.contains("Hello, you!"), "{stdout}");
            let back = format!("oprc down --name far {} --classes", this.join(" "));
            assert!(stdout.contains(&back), "{stdout}");
        }
        // All through the API server, including events.
        assert!(oprc(&["status", "hello"]).contains("RUNNING"));
        oprc(&["check"]);
        assert!(oprc(&["logs", "hello"]).contains("listening on"));
        let client = cluster.client().await.unwrap();
        let config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), "oaas-system");
        let metadata = ObjectMeta { name: Some("theirs".to_owned()), ..ObjectMeta::default() };
        let config_map = ConfigMap { metadata, ..ConfigMap::default() };
        config_maps.create(&PostParams::default(), &config_map).await.unwrap();
        let down = [&["down", "--name", "far", "--classes"], this.as_slice()].concat();
        oprc(&down);
        // A namespace with objects of others stays; the installed objects are deleted.
        assert!(config_maps.get_opt("theirs").await.unwrap().is_some());
        let secrets: Api<Secret> = Api::namespaced(client.clone(), "oaas-system");
        assert!(secrets.get_opt("oprc-pm-tokens").await.unwrap().is_none());
        assert!(
            !std::fs::read_to_string(folder.path().join("config.yaml")).unwrap().contains("far")
        );
        config_maps.delete("theirs", &DeleteParams::default()).await.unwrap();
        oprc(&down);

        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        assert!(definitions.get_opt("classruntimes.oaas.io").await.unwrap().is_none());
        let namespaces: Api<Namespace> = Api::all(client.clone());
        assert!(namespaces.get_opt("oaas-system").await.unwrap().is_none());
        let left: Api<Deployment> = Api::namespaced(client, "default");
        let left = left.list(&ListParams::default()).await.unwrap();
        assert_eq!(left.items.len(), 0);
    })
    .await;
}
