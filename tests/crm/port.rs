//! The shared port: who may use it, and how it answers to whatever is sent there.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    process::{Command, Output},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{HeaderMap, Method, Request, StatusCode, header::AUTHORIZATION};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use k8s_openapi::api::events::v1::Event as KubeEvent;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use oprc_crm::config::SCHEMA;
use oprc_grpc::{
    CORRELATION,
    deployment::{
        GetClusterInfoRequest, GetClusterInfoResponse, GetDeploymentStatusRequest,
        deployment_service_client::DeploymentServiceClient,
    },
};
use oprc_sandbox::within;
use oprc_tests::{
    Place,
    class::{classes, hello, of, request},
    crm::{Begun, Crm, Options, Separate},
    eventually, in_namespace, program,
};
use prost::Message as _;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tonic::{Code, Status};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tonic_types::StatusExt as _;

use crate::{reflected::Reflected, refusals::until_all};

/// How long an answer may take.
const ANSWERED: Duration = Duration::from_secs(20);
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A client that speaks HTTP/2, over TLS where the address says so. Unlike a channel of tonic's it
/// adds nothing of its own, such as deadlines.
pub(crate) type Http = legacy::Client<HttpsConnector<HttpConnector>, tonic::body::Body>;

fn http(config: ClientConfig) -> Http {
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http2().build();
    legacy::Client::builder(TokioExecutor::new()).http2_only(true).build(connector)
}

/// A client that knows no authority.
pub(crate) fn plain() -> Http {
    trusting(&[], None)
}

fn trusting(authorities: &[&Authority], identity: Option<(String, String)>) -> Http {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots
            .add(CertificateDer::from_pem_slice(authority.certificate.as_bytes()).unwrap())
            .unwrap();
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    http(match identity {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            config.with_client_auth_cert(chain, key).unwrap()
        }
    })
}

/// Who signs certificates.
struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    /// A certificate and its key.
    fn sign(&self, names: &[&str]) -> (String, String) {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// Files that a CRM is given.
struct Files {
    folder: TempDir,
    server: Authority,
    clients: Authority,
}

impl Files {
    fn new() -> Self {
        let files = Self {
            folder: tempfile::tempdir().unwrap(),
            server: Authority::new("servers"),
            clients: Authority::new("clients"),
        };
        let (certificate, key) = files.server.sign(&["127.0.0.1"]);
        files.write("certificate", &certificate);
        files.write("key", &key);
        files.write("clients", &files.clients.certificate);
        files.write("tokens", &format!("# who may\noperator {TOKEN}\n"));
        files
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.path(name), content).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn options(&self, tls: bool, mtls: bool, token: bool) -> Options {
        let mut options = Options::default();
        let mut set = |variable: &str, file: &str| {
            let path = self.path(file);
            options = options
                .clone()
                .with(&format!("OPRC_CRM_SECURITY_{variable}"), path.to_str().unwrap());
        };
        if tls {
            set("TLS_CERTIFICATE", "certificate");
            set("TLS_KEY", "key");
        }
        if mtls {
            set("TLS_CLIENT_CA", "clients");
        }
        if token {
            set("TOKEN_FILE", "tokens");
        }
        options.with("OPRC_CRM_SECURITY_MTLS", &mtls.to_string())
    }
}

/// Asks over HTTP.
async fn ask(
    client: &Http,
    method: Method,
    url: &str,
    token: Option<&str>,
    body: &'static str,
) -> Result<(StatusCode, HeaderMap, String), String> {
    let mut request = Request::builder().method(method).uri(url);
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(tonic::body::Body::new(Full::new(Bytes::from(body)))).unwrap();
    let answering = async {
        let answer = client.request(request).await.map_err(|error| format!("{error:?}"))?;
        let (head, body) = answer.into_parts();
        let body = body.collect().await.map_err(|error| format!("{error:?}"))?.to_bytes();
        Ok((head.status, head.headers, String::from_utf8_lossy(&body).into_owned()))
    };
    tokio::time::timeout(ANSWERED, answering).await.unwrap()
}

/// Asks over gRPC for what anybody may know who may ask at all.
async fn call(client: &Http, url: &str, token: Option<&str>) -> Result<(), Status> {
    let mut request = tonic::Request::new(GetClusterInfoRequest {});
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    let mut client = DeploymentServiceClient::with_origin(client.clone(), url.parse().unwrap());
    let answer = tokio::time::timeout(ANSWERED, client.get_cluster_info(request)).await.unwrap();
    answer.map(drop)
}

async fn serving(client: &Http, url: &str, service: &str) -> Result<i32, Status> {
    let mut health = HealthClient::with_origin(client.clone(), url.parse().unwrap());
    let request = HealthCheckRequest { service: service.to_owned() };
    health.check(request).await.map(|answer| answer.into_inner().status)
}

/// Begins a CRM behind TLS, and waits until it is ready.
async fn guarded(place: &Place, files: &Files, options: &Options) -> (Begun, String) {
    let begun = Begun::start(place, options).await;
    let url = format!("https://{}", begun.address);
    let probe = trusting(&[&files.server], None);
    eventually("CRM to be ready", ANSWERED, || async {
        match ask(&probe, Method::GET, &format!("{url}/health/ready"), None, "").await? {
            (StatusCode::OK, ..) => Ok(()),
            (status, _, body) => Err(format!("{status}: {body}")),
        }
    })
    .await;
    (begun, url)
}

/// What is open to everybody is so to those who know nobody and have nothing.
async fn open_to_everybody(files: &Files, url: &str) {
    let nobody = trusting(&[&files.server], None);
    for path in ["/healthz", "/health/live", "/health/ready", "/metrics"] {
        let (status, ..) =
            ask(&nobody, Method::GET, &format!("{url}{path}"), None, "").await.unwrap();
        assert_eq!(status, StatusCode::OK, "{path}");
    }
    for service in ["", "deployment.DeploymentService"] {
        assert_eq!(serving(&nobody, url, service).await.unwrap(), ServingStatus::Serving as i32);
    }
    let (status, headers, body) =
        ask(&nobody, Method::GET, &format!("{url}/log-level"), None, "").await.unwrap();
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert_eq!(headers["www-authenticate"], "Bearer");
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["status"], 401);
}

fn unauthenticated(answer: Result<(), Status>) {
    let status = answer.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "{status:?}");
}

/// A handshake that failed: there is no answer at all, and what is said is about certificates.
fn no_handshake(answer: Result<(), Status>, about: &str) {
    let status = answer.unwrap_err();
    assert_ne!(status.code(), Code::Unauthenticated, "{status:?}");
    let said = format!("{status:?}");
    assert!(said.contains(about), "{said}");
}

#[tokio::test]
async fn certificates_and_tokens() {
    in_namespace(async |place: &Place| {
        let files = Files::new();
        let good = || Some(files.clients.sign(&["gateway"]));
        let stranger = Authority::new("strangers");

        let (_crm, url) = guarded(place, &files, &files.options(true, true, false)).await;
        open_to_everybody(&files, &url).await;
        call(&trusting(&[&files.server], good()), &url, None).await.unwrap();
        unauthenticated(call(&trusting(&[&files.server], None), &url, None).await);
        // A token isn't asked for, and is no substitute.
        unauthenticated(call(&trusting(&[&files.server], None), &url, Some(TOKEN)).await);
        no_handshake(call(&trusting(&[&stranger], good()), &url, None).await, "UnknownIssuer");
        let elsewhere = url.replace("127.0.0.1", "localhost");
        no_handshake(
            call(&trusting(&[&files.server], good()), &elsewhere, None).await,
            "NotValidForName",
        );
        let forged = Some(stranger.sign(&["gateway"]));
        no_handshake(call(&trusting(&[&files.server], forged), &url, None).await, "UnknownCA");
        // Nor is plain text.
        let bare = url.replace("https", "http");
        assert!(call(&plain(), &bare, None).await.is_err());

        let (_crm, url) = guarded(place, &files, &files.options(true, false, true)).await;
        open_to_everybody(&files, &url).await;
        let client = trusting(&[&files.server], None);
        call(&client, &url, Some(TOKEN)).await.unwrap();
        for wrong in
            [None, Some(""), Some("0123456789abcdef"), Some("0123456789abcdef0123456789abcdee")]
        {
            unauthenticated(call(&client, &url, wrong).await);
        }

        let (_crm, url) = guarded(place, &files, &files.options(true, true, true)).await;
        open_to_everybody(&files, &url).await;
        call(&trusting(&[&files.server], good()), &url, Some(TOKEN)).await.unwrap();
        unauthenticated(call(&trusting(&[&files.server], good()), &url, None).await);
        unauthenticated(call(&trusting(&[&files.server], None), &url, Some(TOKEN)).await);
    })
    .await;
}

#[tokio::test]
async fn the_level_of_the_logs_is_for_those_who_may() {
    in_namespace(async |place: &Place| {
        let files = Files::new();
        let crm = Separate::start(place, &files.options(false, false, true)).await;
        let (client, url) = (plain(), format!("{}/log-level", crm.url));
        let put = async |token: Option<&str>, filter: &'static str| {
            ask(&client, Method::PUT, &url, token, filter).await.unwrap().0
        };
        assert_eq!(put(None, "debug").await, StatusCode::UNAUTHORIZED);
        assert_eq!(put(Some(TOKEN), "info,oprc_crm=trace").await, StatusCode::NO_CONTENT);
        assert_eq!(put(Some(TOKEN), "oprc_crm=loud").await, StatusCode::BAD_REQUEST);
        let (status, _, level) = ask(&client, Method::GET, &url, Some(TOKEN), "").await.unwrap();
        assert_eq!(status, StatusCode::OK);
        assert!(level.contains("oprc_crm=trace"), "{level}");
    })
    .await;
}

#[tokio::test]
async fn by_reflection_only() {
    in_namespace(async |place: &Place| {
        let crm = Crm::start(place, &Options::default()).await;
        let api = Reflected::at(plain(), &crm.url).await;
        let info = api.call("GetClusterInfo", json!({})).await.unwrap();
        assert_eq!(info["capabilities"]["odgm"], true, "{info}");

        let mut events = api.watch(json!({})).await;
        assert_eq!(events.next().await["kind"], "SNAPSHOT_BEGIN");
        let end = events.next().await;
        assert_eq!(end["kind"], "SNAPSHOT_END");

        let names: Vec<String> = (0..5).map(|at| format!("class-{at}")).collect();
        for (at, name) in names.iter().enumerate() {
            let mut spec = of(&[hello("greet")]);
            spec["paused"] = json!(true);
            spec["target_environment"] = json!(if at == 0 { "prod" } else { "stage" });
            spec["deployment_unit"] =
                json!({"id": name, "package": if at < 2 { "shop" } else { "bank" }});
            let answer =
                api.call("Deploy", json!({"deployment_id": name, "spec": spec})).await.unwrap();
            assert_eq!(answer["class_runtime"]["deployment_id"], *name, "{answer}");
        }
        let label = json!({"metadata": {"labels": {"team": "a", "tier": "b"}}});
        let merge = Patch::Merge(&label);
        classes(place).patch("class-3", &PatchParams::default(), &merge).await.unwrap();
        // Deltas, until all of them are as they are to be.
        let (mut settled, mut last) = (BTreeSet::new(), end.clone());
        while settled.len() < 5 {
            last = events.next().await;
            assert_eq!(last["kind"], "CHANGED", "{last}");
            let class = &last["class_runtime"];
            let name = class["name"].as_str().unwrap();
            let marked = name != "class-3" || class["labels"]["team"] == "a";
            if class["status"]["phase"] == "Progressing" && marked {
                settled.insert(name.to_owned());
            }
        }

        let one =
            api.call("GetDeploymentStatus", json!({"deployment_id": "class-3"})).await.unwrap();
        assert_eq!(one["class_runtime"]["labels"]["tier"], "b");
        assert_eq!(one["class_runtime"]["status"]["state"], "PENDING");

        let (mut seen, mut token) = (Vec::new(), json!(""));
        loop {
            let asked = json!({"page_size": 2, "page_token": token});
            let page = api.call("ListClassRuntimes", asked).await.unwrap();
            let page_names = names_of(&page);
            assert!((1..=2).contains(&page_names.len()), "{page}");
            seen.extend(page_names);
            token = page["next_page_token"].clone();
            if token == "" {
                break;
            }
        }
        assert_eq!(seen, names);
        for (filter, found) in [
            (json!({"environment": "prod"}), &names[..1]),
            (json!({"package": "shop"}), &names[..2]),
            (json!({"package": "shop", "environment": "stage"}), &names[1..2]),
            (json!({"label_selector": "team=a,tier=b"}), &names[3..4]),
            (json!({"label_selector": "team=b"}), &[]),
            (json!({"phase": "Progressing"}), &names[..]),
            (json!({"phase": "Available"}), &[]),
        ] {
            let page = api.call("ListClassRuntimes", filter.clone()).await.unwrap();
            assert_eq!(names_of(&page), found, "{filter}");
        }
        for wrong in [
            json!({"phase": "Splendid"}),
            json!({"page_size": -1}),
            json!({"page_token": "x"}),
            json!({"label_selector": "team"}),
        ] {
            let refused = api.call("ListClassRuntimes", wrong.clone()).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{wrong}");
        }

        let refused =
            api.call("GetOdgmStatus", json!({"deployment_id": "class-0"})).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert_eq!(refused.get_error_details().error_info().unwrap().reason, "NO_ODGM");

        // Who comes back hears what was missed and no more; who makes something up begins anew.
        let mut resumed = api.watch(json!({"resume_token": last["resume_token"]})).await;
        let mut from_the_end = api.watch(json!({"resume_token": end["resume_token"]})).await;
        assert_eq!(from_the_end.next().await["kind"], "CHANGED");
        let mut bogus = api.watch(json!({"resume_token": "made-up.7"})).await;
        assert_eq!(bogus.next().await["kind"], "SNAPSHOT_BEGIN");
        for _ in 0..5 {
            assert_eq!(bogus.next().await["kind"], "SNAPSHOT");
        }
        assert_eq!(bogus.next().await["kind"], "SNAPSHOT_END");

        let deleted =
            api.call("DeleteDeployment", json!({"deployment_id": "class-4"})).await.unwrap();
        assert_eq!(deleted["accepted"], true);
        for stream in [&mut resumed, &mut bogus, &mut events] {
            loop {
                let event = stream.next().await;
                assert_eq!(event["class_runtime"]["name"], "class-4", "{event}");
                if event["kind"] == "DELETED" {
                    break;
                }
                assert_eq!(event["kind"], "CHANGED", "{event}");
            }
        }
        let refused = api.call("GetDeploymentStatus", json!({"deployment_id": "class-4"})).await;
        assert_eq!(refused.unwrap_err().code(), Code::NotFound);
    })
    .await;
}

fn names_of(page: &Value) -> Vec<String> {
    let all = page["class_runtimes"].as_array().unwrap();
    all.iter().map(|class| class["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn deadlines_sizes_and_ids() {
    in_namespace(async |place: &Place| {
        let crm = Crm::start(place, &Options::default()).await;
        let origin = || crm.url.parse().unwrap();
        let mut client = DeploymentServiceClient::with_origin(plain(), origin());
        let mut paused = of(&[hello("greet")]);
        paused["paused"] = json!(true);

        let mut late = tonic::Request::new(request("late", &paused));
        late.metadata_mut().insert("grpc-timeout", "1n".parse().unwrap());
        assert_eq!(client.deploy(late).await.unwrap_err().code(), Code::DeadlineExceeded);
        let mut odd = tonic::Request::new(request("late", &paused));
        odd.metadata_mut().insert("grpc-timeout", "soon".parse().unwrap());
        assert_eq!(client.deploy(odd).await.unwrap_err().code(), Code::InvalidArgument);

        let mut large = paused.clone();
        large["functions"][0]["provision"]["env"][0]["value"] = json!("x".repeat(5 << 20));
        let status = client.deploy(request("large", &large)).await.unwrap_err();
        let too_large = [Code::OutOfRange, Code::ResourceExhausted];
        assert!(too_large.contains(&status.code()), "{status:?}");

        let mut known = tonic::Request::new(request("known", &of(&[hello("greet")])));
        known.metadata_mut().insert(CORRELATION, "call-4711".parse().unwrap());
        let answer = client.deploy(known).await.unwrap();
        assert_eq!(answer.metadata().get(CORRELATION).unwrap(), "call-4711");
        let answer = answer.into_inner();
        assert_eq!(answer.correlation_id, "call-4711");
        assert_eq!(answer.class_runtime.unwrap().correlation_id, "call-4711");
        let class = classes(place).get("known").await.unwrap();
        assert_eq!(class.annotations()["oaas.io/correlation-id"], "call-4711");
        let events: Api<KubeEvent> = Api::namespaced(place.client.clone(), &place.namespace);
        until_all(&events, "an Event with the id", ANSWERED, |all| {
            all.values().any(|event| {
                let about = event.regarding.as_ref().and_then(|it| it.name.as_deref());
                let note = event.note.as_deref().unwrap_or_default();
                about == Some("known") && note.ends_with("[call-4711]")
            })
        })
        .await;
        // An id comes back with a refusal too, and one that isn't fit is replaced.
        let missing = || GetDeploymentStatusRequest {
            deployment_id: "none".to_owned(),
            namespace: String::new(),
        };
        for (sent, kept) in [("call-4712", true), ("not \"fit\"", false)] {
            let mut asked = tonic::Request::new(missing());
            asked.metadata_mut().insert(CORRELATION, sent.parse().unwrap());
            let status = client.get_deployment_status(asked).await.unwrap_err();
            assert_eq!(status.code(), Code::NotFound);
            let back = status.metadata().get(CORRELATION).unwrap();
            assert_eq!(back == sent, kept, "{back:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn browsers_and_those_who_are_lost() {
    in_namespace(async |place: &Place| {
        let crm = Crm::start(place, &Options::default()).await;
        // HTTP/1.1, as browsers speak it where there is no TLS; an empty message in its frame.
        let old: legacy::Client<HttpConnector, Full<Bytes>> =
            legacy::Client::builder(TokioExecutor::new()).build_http();
        let web = |path: &str| {
            Request::post(format!("{}{path}", crm.url))
                .header("content-type", "application/grpc-web+proto")
                .header("x-grpc-web", "1")
                .body(Full::new(Bytes::from_static(&[0; 5])))
                .unwrap()
        };
        let answer =
            old.request(web("/deployment.DeploymentService/GetClusterInfo")).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()["content-type"], "application/grpc-web+proto");
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let length = usize::try_from(u32::from_be_bytes(body[1..5].try_into().unwrap())).unwrap();
        assert_eq!(body[0], 0);
        let info = GetClusterInfoResponse::decode(&body[5..5 + length]).unwrap();
        assert!(info.templates.contains(&"k8s_deployment".to_owned()));
        let trailers = &body[5 + length..];
        assert_eq!(trailers[0], 0x80);
        let trailers = String::from_utf8_lossy(&trailers[5..]).to_lowercase();
        assert!(trailers.contains("grpc-status:0"), "{trailers}");

        let nowhere = format!("{}/nowhere", crm.url);
        let (status, headers, body) = ask(&plain(), Method::GET, &nowhere, None, "").await.unwrap();
        assert_eq!(status, StatusCode::NOT_FOUND);
        assert_eq!(headers["content-type"], "application/problem+json");
        assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["status"], 404);
        for path in ["/some.Service/Method", "/deployment.DeploymentService/Nothing"] {
            let mut grpc = tonic::client::Grpc::with_origin(plain(), crm.url.parse().unwrap());
            grpc.ready().await.unwrap();
            let codec = crate::reflected::raw();
            let asked = tonic::Request::new(crate::reflected::empty());
            let status = grpc.unary(asked, path.parse().unwrap(), codec).await.unwrap_err();
            assert_eq!(status.code(), Code::Unimplemented, "{path}: {status:?}");
            let web = old.request(web(path)).await.unwrap();
            assert_eq!(web.status(), StatusCode::OK, "{path}");
        }
        let unknown = serving(&plain(), &crm.url, "some.Service").await.unwrap_err();
        assert_eq!(unknown.code(), Code::NotFound);
        for service in ["", "deployment.DeploymentService"] {
            let status = serving(&plain(), &crm.url, service).await.unwrap();
            assert_eq!(status, ServingStatus::Serving as i32);
        }
    })
    .await;
}

fn oprc_crm(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program("oprc-crm"));
    command.args(arguments).env_clear().envs(variables.iter().copied());
    command.output().unwrap()
}

#[test]
fn the_program_tells_what_it_can_be_told() {
    let help = oprc_crm(&["--help"], &[]);
    assert!(help.status.success());
    let help = String::from_utf8(help.stdout).unwrap();
    // Lines are as wide as the terminal: a text may go on in the next.
    let words: Vec<&str> = help.split_whitespace().collect();
    let (text, command) = (words.join(" "), SCHEMA.command());
    for setting in SCHEMA.settings {
        let argument = command.get_arguments().find(|it| it.get_id() == setting.path).unwrap();
        let flag = format!("--{}", argument.get_long().unwrap());
        assert!(
            words.iter().any(|word| word.split(['=', '[']).next() == Some(&flag)),
            "{flag}: {help}"
        );
        assert!(text.contains(setting.help), "{flag}: {}", setting.help);
        for variable in setting.env {
            assert!(text.contains(variable), "{variable}");
        }
    }

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("crm.yaml");
    let path = file.to_str().unwrap();
    fs::write(&file, "crm:\n  templates:\n    drain: 7s\n").unwrap();
    let shown =
        oprc_crm(&["config", "--config", path, "--odgm-disk=3Gi"], &[("HTTP_PORT", "1234")]);
    assert!(shown.status.success(), "{shown:?}");
    let shown = String::from_utf8(shown.stdout).unwrap();
    let row = |setting: &str| -> Vec<&str> {
        let row = shown.lines().find(|line| line.split_whitespace().next() == Some(setting));
        row.unwrap_or_else(|| panic!("{setting}: {shown}")).split_whitespace().collect()
    };
    assert_eq!(row("server.port")[1..], ["1234", "variable", "HTTP_PORT"]);
    assert_eq!(row("odgm.disk")[1..], ["3Gi", "flag", "--odgm-disk"]);
    assert_eq!(row("templates.drain")[1..], ["7s", "file", path, "(crm.templates.drain)"]);
    assert_eq!(row("kubernetes.lease")[2..], ["default", "of", "dev"]);
    for setting in SCHEMA.settings {
        row(setting.path);
    }

    fs::write(&file, "crm:\n  templates:\n    drian: 7s\n").unwrap();
    let refused = oprc_crm(&["--config", path], &[]);
    assert!(!refused.status.success());
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("crm.templates.drian") && said.contains("did you mean"), "{said}");
}

/// The next of a stream, within a time.
pub(crate) async fn soon<T>(what: &str, coming: impl Future<Output = Result<T, Status>>) -> T {
    within(what, ANSWERED, coming).await.unwrap()
}
