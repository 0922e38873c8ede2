//! Real nodes: kubelet, containerd and kube-proxy in network, mount and process namespaces of
//! their own.
//!
//! The first process of a node's namespaces does nothing but hold them and bury the dead. When it
//! ends, the kernel ends everything in them, pods included, and takes mounts and links away: so
//! nothing is left behind even when everything was killed at once.

use std::{collections::BTreeMap, fs, net::Ipv4Addr, path::Path};

use rustix::{
    mount::{MountFlags, mount, mount_bind},
    process::{WaitOptions, wait},
};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    Error, Result,
    components::{Component, Layout, Place},
    pki,
    spec::Spec,
};

/// The image that holds a pod's namespaces.
pub(crate) const PAUSE_IMAGE: &str = "localhost/oprc-pause:1";
/// containerd's socket; every node has a `/run` of its own.
pub(crate) const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";

/// A component's name on a node: the first node's have no number.
pub(crate) fn on_node(component: &str, node: u8) -> String {
    if node == 0 { component.to_owned() } else { format!("{component}-{node}") }
}

fn nodes(spec: &Spec) -> impl Iterator<Item = u8> {
    0..u8::try_from(spec.nodes).unwrap_or_default()
}

/// The process that holds the namespaces of each node.
pub(crate) fn inits(spec: &Spec, layout: &Layout) -> Vec<Component> {
    let init = |node| Component {
        name: on_node("node", node),
        program: crate::supervisor::program(),
        args: vec![
            "sandbox".into(),
            "hold-node".into(),
            layout.data(&on_node("node", node)).display().to_string(),
        ],
        env: BTreeMap::new(),
        place: Place::NodeInit(node),
    };
    nodes(spec).map(init).collect()
}

/// The processes in each node.
pub(crate) fn components(spec: &Spec, layout: &Layout) -> Vec<Component> {
    let on = |node: u8| {
        let config = |name: &str| {
            layout.config(&format!("{}.json", on_node(name, node))).display().to_string()
        };
        let folder = layout.data(&on_node("kubelet", node)).display().to_string();
        let component = |name, program: &Path, args| Component {
            name: on_node(name, node),
            program: program.to_owned(),
            args,
            env: BTreeMap::new(),
            place: Place::Node(node),
        };
        let toml = layout.config(&format!("{}.toml", on_node("containerd", node)));
        [
            component(
                "containerd",
                &spec.programs.containers.join("containerd"),
                vec!["--config".into(), toml.display().to_string(), "--log-level=warn".into()],
            ),
            component(
                "kubelet",
                &spec.programs.kubelet,
                vec![
                    format!("--config={}", config("kubelet")),
                    format!(
                        "--kubeconfig={}",
                        layout.kubeconfig(&on_node("kubelet", node)).display()
                    ),
                    format!("--hostname-override=node-{node}"),
                    format!("--node-ip={}", spec.addresses().node(node)),
                    // Figures of usage: autoscalers and people wait for the second one.
                    "--housekeeping-interval=2s".to_owned(),
                    format!("--root-dir={folder}"),
                    format!("--cert-dir={folder}/pki"),
                ],
            ),
            component(
                "kube-proxy",
                &spec.programs.kube_proxy,
                vec![format!("--config={}", config("kube-proxy"))],
            ),
        ]
    };
    nodes(spec).flat_map(on).collect()
}

/// Writes the configuration of each node's processes.
pub(crate) fn write_configs(spec: &Spec, layout: &Layout) -> Result<()> {
    for node in nodes(spec) {
        let cni = layout.data(&on_node("cni", node));
        let own = layout.data(&on_node("node", node));
        make_layers(&own)?;
        for folder in [cni.clone(), own.join("log")] {
            fs::create_dir_all(&folder)
                .map_err(Error::io(format!("making {}", folder.display())))?;
        }
        let write = |path: &Path, text: String| {
            fs::write(path, text).map_err(Error::io(format!("writing {}", path.display())))
        };
        let json = |name: &str| layout.config(&format!("{}.json", on_node(name, node)));
        write(&json("kubelet"), kubelet(spec, layout, node).to_string())?;
        write(&json("kube-proxy"), kube_proxy(spec, layout, node).to_string())?;
        write(&cni.join("10-oprc.conflist"), network(spec, layout, node).to_string())?;
        let toml = layout.config(&format!("{}.toml", on_node("containerd", node)));
        write(&toml, containerd(spec, layout, node))?;
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
        // A sandbox on a full disk is to say so, not to evict its pods.
        "evictionHard": {},
        "localStorageCapacityIsolation": false,
        "imageGCHighThresholdPercent": 100,
        // Without CAP_SYS_RESOURCE it can't lower an OOM score, and must not try.
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
        // The limits of the machine's connection table aren't a namespace's to change.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    })
}

fn network(spec: &Spec, layout: &Layout, node: u8) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "oprc",
        "plugins": [
            {
                // Not a bridge: answers between its ports would pass by the service's translation
                // where the kernel's bridges don't call iptables.
                "type": "ptp",
                "ipam": {
                    "type": "host-local",
                    "dataDir": layout.data(&on_node("cni-leases", node)),
                    "ranges": [[{"subnet": spec.addresses().pods(node)}]],
                    "routes": [{"dst": Ipv4Addr::UNSPECIFIED.to_string() + "/0"}],
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

/// The cgroup below which a node's pods are. Kubelets that share one remove each other's pods.
pub(crate) fn cgroup_root(spec: &Spec, node: u8) -> String {
    format!("/{}/node-{node}", spec.addresses().bridge())
}

/// The options of a mount that shows this machine's `/var/lib` and keeps changes below `data`.
pub(crate) fn layers(data: &Path) -> String {
    let (upper, work) = (data.join("lib"), data.join("work"));
    format!("lowerdir=/var/lib,upperdir={},workdir={}", upper.display(), work.display())
}

/// Makes the folders of those layers.
pub(crate) fn make_layers(data: &Path) -> Result<()> {
    for folder in ["lib", "work"].map(|name| data.join(name)) {
        fs::create_dir_all(&folder).map_err(Error::io(format!("making {}", folder.display())))?;
    }
    Ok(())
}

/// Runs as the first process of a node's namespaces: makes the mounts that keep the node's traces
/// off this machine, says `ready`, then buries the dead for ever.
pub async fn hold(data: &Path) -> Result<()> {
    let preparing = |error: rustix::io::Errno| Error::io("preparing a node's mounts")(error.into());
    // containerd, its shims, CNI and iptables keep sockets, namespaces and locks here.
    mount("tmpfs", "/run", "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=755")
        .map_err(preparing)?;
    mount_bind(data.join("log"), "/var/log").map_err(preparing)?;
    // kubelet and CNI have folders here that can't be moved elsewhere.
    let layers = std::ffi::CString::new(layers(data)).unwrap_or_default();
    mount("overlay", "/var/lib", "overlay", MountFlags::empty(), layers.as_c_str())
        .map_err(preparing)?;
    fs::write("/proc/sys/net/ipv4/ip_forward", "1")
        .map_err(Error::io("preparing a node's network"))?;
    let mut children = signal(SignalKind::child()).map_err(Error::io("waiting for processes"))?;
    println!("ready");
    loop {
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        children.recv().await;
    }
}
