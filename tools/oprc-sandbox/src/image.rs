//! Writes and inspects OCI image archives without a container engine.

use std::{
    fs::File,
    io::{self, Read, Seek as _, Write},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{Error, Result, files};

const USER: &str = "65532:65532";
/// Variables of every image; `container` tells programs that they run in one.
const ENVIRONMENT: [&str; 2] = ["PATH=/", "container=oci"];
const MAX_INDEX_SIZE: u64 = 1 << 20;

/// An image with a single layer.
#[derive(Debug, Clone)]
pub struct Image {
    /// With registry and tag.
    pub name: String,
    /// The program with its arguments.
    pub entrypoint: Vec<String>,
    /// Paths in the image, each with the local file to copy.
    pub files: Vec<(String, PathBuf)>,
}

impl Image {
    /// An image with one static program at `/NAME`.
    pub fn of_program(name: &str, program: &Path) -> Self {
        let file = program.file_name().unwrap_or_default().to_string_lossy();
        let inside = format!("/{file}");
        let files = vec![(inside.clone(), program.to_owned())];
        Self { name: name.to_owned(), entrypoint: vec![inside], files }
    }

    /// An image whose root is a folder. Symbolic links are replaced with what they lead to.
    pub fn of_root(name: &str, root: &Path, program: &str) -> Result<Self> {
        let mut files = Vec::new();
        for file in files::below(root)? {
            if file.is_dir() {
                let reason = format!("{} is a link to a folder", file.display());
                return Err(Error::BadOption(reason));
            }
            let inside = file.strip_prefix(root).unwrap_or(&file).to_string_lossy();
            files.push((format!("/{inside}"), file.clone()));
        }
        if !files.iter().any(|(inside, _)| inside == program) {
            let reason = format!("{} has no file {program}", root.display());
            return Err(Error::BadOption(reason));
        }
        Ok(Self { name: name.to_owned(), entrypoint: vec![program.to_owned()], files })
    }

    /// Writes the archive. The output is reproducible: the same files give the same archive.
    pub fn write(&self, archive: &Path) -> Result<()> {
        let writing = || Error::path("writing the image", archive);
        let folder = archive.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or_else(|| Path::new("."));
        let mut layer = tempfile::tempfile_in(folder).map_err(writing())?;
        self.write_layer(&mut layer)?;
        let draft = tempfile::NamedTempFile::new_in(folder).map_err(writing())?;
        self.write_archive(layer, draft.as_file()).map_err(writing())?;
        draft.persist(archive).map_err(|error| writing()(error.error)).map(drop)
    }

    fn write_layer(&self, layer: &mut File) -> Result<()> {
        let mut tar = tar::Builder::new(layer);
        let mut folders = std::collections::BTreeSet::new();
        for (inside, source) in &self.files {
            let adding = || Error::io(format!("adding {} to an image", source.display()));
            let (file, folder) = (tar::EntryType::file(), tar::EntryType::dir());
            let inside = Path::new(inside.trim_start_matches('/'));
            let above: Vec<_> =
                inside.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty()).collect();
            for path in above.into_iter().rev() {
                if folders.insert(path.to_owned()) {
                    append(&mut tar, folder, 0o755, path, 0, io::empty()).map_err(adding())?;
                }
            }
            let content = File::open(source).map_err(adding())?;
            let size = content.metadata().map_err(adding())?.len();
            append(&mut tar, file, 0o755, inside, size, content).map_err(adding())?;
        }
        tar.finish().map_err(Error::io("writing an image's layer"))
    }

    fn write_archive(&self, mut layer: File, archive: &File) -> io::Result<()> {
        layer.rewind()?;
        let layer_digest = digest(&layer)?;
        let layer_size = layer.metadata()?.len();
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let config = json!({
            "architecture": architecture,
            "os": "linux",
            "config": {"Entrypoint": self.entrypoint, "Env": ENVIRONMENT, "User": USER, "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
        })
        .to_string();
        let config_digest = digest(config.as_bytes())?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor("config.v1+json", &config_digest, config.len()),
            "layers": [descriptor("layer.v1.tar", &layer_digest, layer_size)],
        })
        .to_string();
        let manifest_digest = digest(manifest.as_bytes())?;
        let index = json!({
            "schemaVersion": 2,
            "manifests": [{
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "digest": manifest_digest,
                "size": manifest.len(),
                "annotations": {
                    "io.containerd.image.name": self.name,
                    "org.opencontainers.image.ref.name": self.name,
                },
            }],
        })
        .to_string();
        let mut tar = tar::Builder::new(archive);
        let file = tar::EntryType::file();
        for (name, content) in [
            ("oci-layout", r#"{"imageLayoutVersion":"1.0.0"}"#),
            ("index.json", &index),
            (&blob(&config_digest), &config),
            (&blob(&manifest_digest), &manifest),
        ] {
            let size = content.len().try_into().unwrap_or_default();
            append(&mut tar, file, 0o644, Path::new(name), size, content.as_bytes())?;
        }
        layer.rewind()?;
        append(&mut tar, file, 0o644, Path::new(&blob(&layer_digest)), layer_size, layer)?;
        tar.finish()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRef {
    /// With registry and tag.
    pub name: String,
    /// Digest of the manifest.
    pub digest: String,
}

/// Lists the images of an archive; fails if the file is not an image archive.
pub fn inspect(path: &Path) -> Result<Vec<ImageRef>> {
    let invalid = |reason: String| Error::NotAnImage { path: path.to_owned(), reason };
    let index =
        File::open(path).and_then(read_index).map_err(|error| invalid(error.to_string()))?;
    let index = index.ok_or_else(|| invalid("it is a tar archive without index.json".into()))?;
    let index: Value =
        serde_json::from_slice(&index).map_err(|error| invalid(format!("index.json: {error}")))?;
    let manifests = index.get("manifests").and_then(Value::as_array).cloned().unwrap_or_default();
    let named = |manifest: &Value| {
        let text = |path: &str| manifest.pointer(path)?.as_str().map(str::to_owned);
        let name = text("/annotations/io.containerd.image.name")
            .or_else(|| text("/annotations/org.opencontainers.image.ref.name"))?;
        Some(ImageRef { name, digest: text("/digest")? })
    };
    let found: Vec<_> = manifests.iter().filter_map(named).collect();
    if found.is_empty() {
        return Err(invalid("its index.json lists no named image".into()));
    }
    Ok(found)
}

fn read_index(file: File) -> io::Result<Option<Vec<u8>>> {
    for entry in tar::Archive::new(file).entries()? {
        let entry = entry?;
        if entry.path()? == Path::new("index.json") {
            let mut content = Vec::new();
            entry.take(MAX_INDEX_SIZE).read_to_end(&mut content)?;
            return Ok(Some(content));
        }
    }
    Ok(None)
}

/// A reference to a blob; `kind` is the last part of its media type.
fn descriptor(kind: &str, digest: &str, size: impl Into<Value>) -> Value {
    let media_type = format!("application/vnd.oci.image.{kind}");
    json!({"mediaType": media_type, "digest": digest, "size": size.into()})
}

fn blob(digest: &str) -> String {
    format!("blobs/sha256/{}", digest.trim_start_matches("sha256:"))
}

/// Appends an entry without owner and time, so that archives are reproducible.
fn append(
    tar: &mut tar::Builder<impl Write>,
    kind: tar::EntryType,
    mode: u32,
    path: &Path,
    size: u64,
    content: impl Read,
) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    tar.append_data(&mut header, path, content)
}

fn digest(content: impl Read) -> io::Result<String> {
    Ok(format!("sha256:{}", files::sha256(content)?))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn image(folder: &Path) -> Image {
        let program = folder.join("program");
        fs::write(&program, "a program").unwrap();
        Image::of_program("localhost/thing:1", &program)
    }

    #[test]
    fn inspect_lists_a_written_image() {
        let folder = tempfile::tempdir().unwrap();
        let archive = folder.path().join("thing.oci.tar");
        image(folder.path()).write(&archive).unwrap();
        let found = inspect(&archive).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].name, "localhost/thing:1");
    }

    #[test]
    fn the_root_of_an_image_is_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("usr/bin")).unwrap();
        fs::write(root.join("usr/bin/run"), "a program").unwrap();
        fs::write(root.join("main.py"), "a script").unwrap();
        std::os::unix::fs::symlink("main.py", root.join("link.py")).unwrap();
        let mut image = Image::of_root("localhost/thing:1", &root, "/usr/bin/run").unwrap();
        image.entrypoint.push("/main.py".to_owned());
        let mut layer = tempfile::tempfile().unwrap();
        image.write_layer(&mut layer).unwrap();
        layer.rewind().unwrap();
        let mut archive = tar::Archive::new(layer);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut content = String::new();
            entry.read_to_string(&mut content).unwrap();
            (entry.path().unwrap().display().to_string(), content)
        });
        let expected = [
            ("link.py", "a script"),
            ("main.py", "a script"),
            ("usr", ""),
            ("usr/bin", ""),
            ("usr/bin/run", "a program"),
        ];
        let expected = expected.map(|(path, content)| (path.to_owned(), content.to_owned()));
        assert_eq!(entries.collect::<Vec<_>>(), expected);
        let error = Image::of_root("localhost/thing:1", &root, "/bin/run").unwrap_err();
        assert!(error.to_string().contains("has no file /bin/run"), "{error}");
    }

    #[test]
    fn archives_are_reproducible() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| {
            let archive = folder.path().join(name);
            image(folder.path()).write(&archive).unwrap();
            fs::read(archive).unwrap()
        });
        assert_eq!(first, second);
    }

    #[test]
    fn rejects_files_that_are_not_image_archives() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "just text").unwrap();
        assert!(inspect(&path).unwrap_err().to_string().contains("is not an OCI image archive"));
        tar::Builder::new(File::create(&path).unwrap()).finish().unwrap();
        assert!(inspect(&path).unwrap_err().to_string().contains("without index.json"));
        assert!(
            inspect(&folder.path().join("none")).unwrap_err().to_string().contains("No such file")
        );
        assert!(inspect(folder.path()).is_err());
    }
}
