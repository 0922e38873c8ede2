//! Real nodes: kubelet, containerd and kube-proxy in their own network, mount and PID namespaces.
//!
//! Process 1 of a node only holds the namespaces and reaps zombies. When it exits, the kernel kills
//! everything in them, including pods, and removes mounts and links. So nothing is left behind even
//! if all processes of the sandbox are killed.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::{
    mount::{MountFlags, mount, mount_bind},
    process::{WaitOptions, wait},
};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    Error, Result,
    component::{Component, Place, file, flag},
    files,
    layout::Layout,
    paths, pki,
    spec::{NodeKind, Spec},
};

pub(crate) const PAUSE_IMAGE: &str = "localhost/oprc-pause:1";
/// Path inside a node; every node has its own `/run`.
pub(crate) const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";

/// The name of a component on a node; on the first node it has no suffix.
pub(crate) fn on_node(component: &str, node: u8) -> String {
    if node == 0 { component.to_owned() } else { format!("{component}-{node}") }
}

/// The numbers of the real nodes.
pub(crate) fn numbers(spec: &Spec) -> std::ops::Range<u8> {
    let real = if spec.kind == NodeKind::Real { spec.nodes } else { 0 };
    0..u8::try_from(real).unwrap_or_default()
}

/// Process 1 of each node.
pub(crate) fn inits(spec: &Spec, layout: &Layout) -> Vec<Component> {
    let init = |node| {
        let name = on_node("node", node);
        let data = layout.data(&name).display().to_string();
        let args = vec!["sandbox".into(), "hold-node".into(), data];
        Component::at(Place::NodeInit(node), name, &paths::oprc_program(), args)
    };
    numbers(spec).map(init).collect()
}

/// The other processes of each node.
pub(crate) fn components(spec: &Spec, layout: &Layout) -> Vec<Component> {
    let on = |node: u8| {
        let config = |name, extension| config_file(layout, name, extension, node);
        let folder = layout.data(&on_node("kubelet", node));
        let kubelet_args = vec![
            file("config", &config("kubelet", "json")),
            file("kubeconfig", &layout.kubeconfig(&on_node("kubelet", node))),
            flag("hostname-override", format!("node-{node}")),
            flag("node-ip", spec.addresses().node(node)),
            // Autoscaling starts after the second usage sample.
            flag("housekeeping-interval", "2s"),
            file("root-dir", &folder),
            file("cert-dir", &folder.join("pki")),
        ];
        let containerd_args = vec![
            "--config".to_owned(),
            config("containerd", "toml").display().to_string(),
            flag("log-level", "warn"),
        ];
        let proxy_args = vec![file("config", &config("kube-proxy", "json"))];
        let programs = &spec.programs;
        [
            ("containerd", &programs.containers.join("containerd"), containerd_args),
            ("kubelet", &programs.kubelet, kubelet_args),
            ("kube-proxy", &programs.kube_proxy, proxy_args),
        ]
        .map(|(name, program, args)| {
            Component::at(Place::Node(node), on_node(name, node), program, args)
        })
    };
    numbers(spec).flat_map(on).collect()
}

fn config_file(layout: &Layout, component: &str, extension: &str, node: u8) -> PathBuf {
    layout.config(&format!("{}.{extension}", on_node(component, node)))
}

pub(crate) fn write_configs(spec: &Spec, layout: &Layout) -> Result<()> {
    for node in numbers(spec) {
        let cni = layout.data(&on_node("cni", node));
        let own = layout.data(&on_node("node", node));
        create_overlay_folders(&own)?;
        files::create_folder(&own.join("log"))?;
        files::create_folder(&cni)?;
        let file = |name, extension| config_file(layout, name, extension, node);
        files::write(&file("kubelet", "json"), kubelet(spec, layout, node).to_string())?;
        files::write(&file("kube-proxy", "json"), kube_proxy(spec, layout, node).to_string())?;
        files::write(&cni.join("10-oprc.conflist"), network(spec, layout, node).to_string())?;
        files::write(&file("containerd", "toml"), containerd(spec, layout, node))?;
    }
    Ok(())
}

fn kubelet(spec: &Spec, layout: &Layout, node: u8) -> Value {
    let pki = layout.pki();
    let serving = on_node("kubelet-server", node);
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup_root(spec, node),
        "failSwapOn": false,
        "failCgroupV1": false,
        "enforceNodeAllocatable": [],
        // On a full disk the sandbox reports an error instead of evicting pods.
        "evictionHard": {},
        "localStorageCapacityIsolation": false,
        "imageGCHighThresholdPercent": 100,
        // Without CAP_SYS_RESOURCE kubelet can't lower OOM scores and would fail.
        "featureGates": {"KubeletInUserNamespace": true},
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
        "clusterDNS": [spec.addresses().service(10)],
        "clusterDomain": "cluster.local",
        "resolvConf": "/dev/null",
        "address": spec.addresses().node(node),
        "maxPods": 240,
        "registerNode": true,
        "nodeStatusUpdateFrequency": "10s",
        "syncFrequency": "10s",
        "tlsCertFile": pki.certificate(&serving),
        "tlsPrivateKeyFile": pki.key(&serving),
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": pki.certificate(pki::CLUSTER)},
        },
        "authorization": {"mode": "Webhook"},
    })
}

fn kube_proxy(spec: &Spec, layout: &Layout, node: u8) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {"kubeconfig": layout.kubeconfig("kube-proxy")},
        "clusterCIDR": spec.addresses().all_pods(),
        "hostnameOverride": format!("node-{node}"),
        "bindAddress": spec.addresses().node(node),
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "iptables": {"minSyncPeriod": "100ms"},
        // A network namespace can't change the conntrack limits of the machine.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    })
}

fn network(spec: &Spec, layout: &Layout, node: u8) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "oprc",
        "plugins": [
            {
                // With a bridge, replies between pods of a node would bypass the NAT of services
                // on kernels where bridges don't call iptables.
                "type": "ptp",
                "ipam": {
                    "type": "host-local",
                    "dataDir": layout.data(&on_node("cni-leases", node)),
                    "ranges": [[{"subnet": spec.addresses().pods(node)}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}

fn containerd(spec: &Spec, layout: &Layout, node: u8) -> String {
    let quoted = |path: &Path| Value::from(path.display().to_string()).to_string();
    let data = layout.data(&on_node("containerd", node));
    let cni = layout.data(&on_node("cni", node));
    format!(
        r#"version = 2
root = {root}
state = "/run/containerd"
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = {opt}
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = {cni_bin}
    conf_dir = {cni_conf}
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = {runc}
"#,
        root = quoted(&data),
        opt = quoted(&data.join("opt")),
        cni_bin = quoted(&spec.programs.cni),
        cni_conf = quoted(&cni),
        runc = quoted(&spec.programs.runc),
    )
}

/// Parent cgroup of a node's pods. Kubelets that share one delete each other's pods.
pub(crate) fn cgroup_root(spec: &Spec, node: u8) -> String {
    format!("/{}/node-{node}", spec.addresses().bridge())
}

/// Mount options of an overlay over this machine's `/var/lib` that stores changes below `data`.
pub(crate) fn overlay_options(data: &Path) -> String {
    let (upper, work) = (data.join("lib"), data.join("work"));
    format!("lowerdir=/var/lib,upperdir={},workdir={}", upper.display(), work.display())
}

pub(crate) fn create_overlay_folders(data: &Path) -> Result<()> {
    files::create_folder(&data.join("lib"))?;
    files::create_folder(&data.join("work"))
}

/// Runs as process 1 of a node: mounts folders that keep the node's files off this machine, prints
/// `ready` and then reaps zombies until it is killed.
pub async fn hold(data: &Path) -> Result<()> {
    let options = std::ffi::CString::new(overlay_options(data)).unwrap_or_default();
    // For sockets, namespaces and locks of containerd, its shims, CNI and iptables.
    mount("tmpfs", "/run", "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=755")
        .and_then(|()| mount_bind(data.join("log"), "/var/log"))
        // kubelet and CNI have fixed folders below /var/lib.
        .and_then(|()| mount("overlay", "/var/lib", "overlay", MountFlags::empty(), &*options))
        .map_err(|error| Error::io("preparing a node's mounts")(error.into()))?;
    fs::write("/proc/sys/net/ipv4/ip_forward", "1")
        .map_err(Error::io("preparing a node's network"))?;
    let mut children = signal(SignalKind::child()).map_err(Error::io("waiting for processes"))?;
    println!("ready");
    loop {
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        children.recv().await;
    }
}
