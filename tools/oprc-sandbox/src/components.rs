//! The processes of a cluster: control plane, nodes, Prometheus and companions.

use crate::{
    companion::{self, Companion},
    component::{Component, file, flag},
    layout::Layout,
    node, pki, prometheus,
    spec::{NodeKind, Spec},
};

/// All processes of a cluster, in start order.
pub(crate) fn components(spec: &Spec, layout: &Layout) -> Vec<Component> {
    let mut all = vec![etcd(spec, layout)];
    // The API server listens on the bridge, so the networks of real nodes come first.
    all.extend(node::inits(spec, layout));
    if spec.kind == NodeKind::Simulated {
        all.push(kwok(spec, layout));
    }
    all.extend([apiserver, controller_manager, scheduler].map(|it| it(spec, layout)));
    all.extend(node::components(spec, layout));
    if spec.prometheus {
        all.push(prometheus::component(spec, layout));
    }
    all.extend(companion::load(&layout.0).iter().map(Companion::component));
    all
}

fn etcd(spec: &Spec, layout: &Layout) -> Component {
    let pki = layout.pki();
    let client = format!("https://127.0.0.1:{}", spec.ports.etcd);
    let peer = format!("https://127.0.0.1:{}", spec.ports.etcd_peer);
    let mut args = vec![
        flag("name", "etcd"),
        file("data-dir", &layout.data("etcd")),
        flag("listen-client-urls", &client),
        flag("advertise-client-urls", &client),
        flag("listen-peer-urls", &peer),
        flag("initial-advertise-peer-urls", &peer),
        flag("initial-cluster", format!("etcd={peer}")),
        flag("log-level", "warn"),
        // The default history of a day would fill the disk of a busy sandbox.
        flag("auto-compaction-retention", "10m"),
        flag("quota-backend-bytes", 4_u64 << 30),
    ];
    for prefix in ["", "peer-"] {
        args.extend([
            file(&format!("{prefix}cert-file"), &pki.certificate("etcd")),
            file(&format!("{prefix}key-file"), &pki.key("etcd")),
            file(&format!("{prefix}trusted-ca-file"), &pki.certificate(pki::ETCD)),
            flag(&format!("{prefix}client-cert-auth"), true),
        ]);
    }
    if !spec.fsync {
        args.push("--unsafe-no-fsync".to_owned());
    }
    Component::on_host("etcd", &spec.programs.etcd, args)
}

fn apiserver(spec: &Spec, layout: &Layout) -> Component {
    let pki = layout.pki();
    let ca = pki.certificate(pki::CLUSTER);
    let mut args = vec![
        flag("etcd-servers", format!("https://127.0.0.1:{}", spec.ports.etcd)),
        file("etcd-cafile", &pki.certificate(pki::ETCD)),
        file("etcd-certfile", &pki.certificate("etcd-client")),
        file("etcd-keyfile", &pki.key("etcd-client")),
        flag("bind-address", spec.host()),
        flag("advertise-address", spec.host()),
        flag("secure-port", spec.ports.api),
        file("tls-cert-file", &pki.certificate("apiserver")),
        file("tls-private-key-file", &pki.key("apiserver")),
        file("client-ca-file", &ca),
        file("service-account-key-file", &pki.public_key("tokens")),
        file("service-account-signing-key-file", &pki.key("tokens")),
        flag("service-account-issuer", "https://kubernetes.default.svc.cluster.local"),
        flag("service-cluster-ip-range", spec.services()),
        flag("authorization-mode", "Node,RBAC"),
        flag("allow-privileged", true),
        flag("profiling", false),
        flag("kubelet-preferred-address-types", "InternalIP"),
        file("kubelet-certificate-authority", &ca),
        file("kubelet-client-certificate", &pki.certificate("apiserver-kubelet")),
        file("kubelet-client-key", &pki.key("apiserver-kubelet")),
        file("requestheader-client-ca-file", &pki.certificate(pki::FRONT)),
        flag("requestheader-username-headers", "X-Remote-User"),
        flag("requestheader-group-headers", "X-Remote-Group"),
        flag("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
        file("proxy-client-cert-file", &pki.certificate("front-proxy")),
        file("proxy-client-key-file", &pki.key("front-proxy")),
        flag("enable-aggregator-routing", true),
    ];
    if spec.kind == NodeKind::Simulated {
        // No pod calls the API server, and a loopback address is not a valid endpoint.
        args.push(flag("endpoint-reconciler-type", "none"));
    }
    Component::on_host("kube-apiserver", &spec.programs.kube_apiserver, args)
}

fn controller_manager(spec: &Spec, layout: &Layout) -> Component {
    let pki = layout.pki();
    let args = vec![
        file("kubeconfig", &layout.kubeconfig("controller-manager")),
        file("service-account-private-key-file", &pki.key("tokens")),
        file("root-ca-file", &pki.certificate(pki::CLUSTER)),
        file("cluster-signing-cert-file", &pki.certificate(pki::CLUSTER)),
        file("cluster-signing-key-file", &pki.key(pki::CLUSTER)),
        flag("use-service-account-credentials", true),
        flag("leader-elect", false),
        flag("secure-port", 0),
        // The default of 20 requests per second would slow down mass deployments.
        flag("kube-api-qps", 500),
        flag("kube-api-burst", 1000),
        // Autoscalers react within seconds instead of minutes, for demos and tests.
        flag("horizontal-pod-autoscaler-sync-period", "5s"),
        flag("horizontal-pod-autoscaler-cpu-initialization-period", "10s"),
        flag("horizontal-pod-autoscaler-initial-readiness-delay", "5s"),
    ];
    Component::on_host("kube-controller-manager", &spec.programs.kube_controller_manager, args)
}

fn scheduler(spec: &Spec, layout: &Layout) -> Component {
    let args = vec![file("config", &layout.config("scheduler.json")), flag("secure-port", 0)];
    Component::on_host("kube-scheduler", &spec.programs.kube_scheduler, args)
}

fn kwok(spec: &Spec, layout: &Layout) -> Component {
    let args = vec![
        file("kubeconfig", &layout.kubeconfig("kwok")),
        file("config", &layout.config("kwok-stages.yaml")),
        flag("manage-nodes-with-annotation-selector", "kwok.x-k8s.io/node=fake"),
        flag("node-lease-duration-seconds", 40),
        flag("cidr", "198.18.0.0/16"),
    ];
    Component::on_host("kwok", &spec.programs.kwok, args)
}
