//! Unpacks an archive that lies as a file: what `docker save` writes, an OCI layout, or a root filesystem. Every digest that
//! the archive names is compared; where it is compressed, an image is decompressed into a file without a name beside it.

use super::{
    apply::{LayerOptions, apply_layer},
    decode::{Decoded, detect},
    folder::list,
};
use crate::{
    AppliedLayer, ArchiveKind, Compression, ImageLimits, UnpackImage, UnpackedImage,
    archive::{
        Counted, Section,
        read::{Entries, broke_off, wrong},
    },
    beneath::names,
    errno::{on_path, shown},
};
use atoll_oci::{Descriptor, Digest, Document, ImageConfig, Index, LARGEST_DOCUMENT, Manifest, Platform};
use atoll_types::{Error, ErrorCode, Result};
use rustix::{
    fs::{CWD, Mode, OFlags, openat, unlink},
    io::Errno,
};
use serde::Deserialize;
use std::{
    collections::{BTreeSet, HashMap},
    fs::File,
    io::{self, BufReader, Read},
    os::fd::OwnedFd,
};
use tar::EntryType;

/// Files that an archive of an image may have; a root filesystem has as many as it likes.
const MOST_FILES: usize = 20_000;
/// Folders above a file of an archive of an image.
const DEEPEST: usize = 3;
/// Links from one file of an archive to another.
const MOST_LINKS: usize = 8;
/// How deep indexes may be nested.
const MOST_INDICES: usize = 3;
/// The most tags that an answer has.
const MOST_TAGS: usize = 100;

const MANIFEST: &str = "manifest.json";
const INDEX: &str = "index.json";
const LAYOUT: &str = "oci-layout";
const BLOBS: &str = "blobs/sha256/";
/// The annotations that name an image, the whole name first.
const NAMES: [&str; 2] = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];

/// Unpacks an open archive, whose path is in the request, into an open folder.
pub fn unpack_image(file: File, root: &OwnedFd, request: &UnpackImage) -> Result<UnpackedImage> {
    if !list(root).map_err(|e| on_path(e, "target"))?.is_empty() {
        return Err(
            Error::new(ErrorCode::DirectoryNotEmpty, "the folder of a new image must be empty").at("target")
        );
    }
    let limits = request.limits;
    let mut front = [0; 6];
    let got = Section::whole(&file).take(6).read(&mut front).map_err(|e| broke_off(&e))?;
    let compression = detect(&front[..got])?;
    let (files, is_image) = scan(&file, compression, limits)?;
    if !is_image {
        let options = LayerOptions { compression, limits, needs_end: true, ..LayerOptions::default() };
        let layer = apply_layer(root, Section::whole(&file), &options)?;
        return Ok(UnpackedImage {
            kind: ArchiveKind::RootFilesystem,
            manifest_digest: None,
            config_digest: None,
            config: None,
            tags: Vec::new(),
            layers: vec![layer],
        });
    }
    let file = match compression {
        Compression::None | Compression::Detect => file,
        Compression::Gzip | Compression::Zstd => decompressed(&file, compression, request)?,
    };
    let archive = Archive { file, files };
    let image = if archive.files.contains_key(MANIFEST.as_bytes()) {
        archive.docker(request.reference.as_deref())?
    } else {
        archive.oci(request.reference.as_deref())?
    };
    let layers = archive.apply(&image, root, limits)?;
    let Image { kind, manifest_digest, config, config_digest, mut tags, .. } = image;
    tags.truncate(MOST_TAGS);
    Ok(UnpackedImage {
        kind,
        manifest_digest,
        config_digest: Some(config_digest),
        config: Some(config),
        tags,
        layers,
    })
}

/// A file of an archive, in the uncompressed bytes.
enum Item {
    File { at: u64, size: u64 },
    Link(Vec<u8>),
}

type Files = HashMap<Vec<u8>, Item>;

/// The files of an archive, and whether they are those of an image.
fn scan(file: &File, compression: Compression, limits: ImageLimits) -> Result<(Files, bool)> {
    let input = BufReader::with_capacity(128 << 10, Section::whole(file));
    // The bytes that the archive has around those of its layers.
    let room = ImageLimits { bytes: limits.bytes.saturating_add(LARGEST_DOCUMENT * 64), ..limits };
    let decoded = Decoded::new(input, compression, room).map_err(|e| broke_off(&e))?;
    let mut entries = Entries::new(Counted::new(decoded)).of_image(false);
    let (mut files, mut system, mut overfull) = (Files::new(), false, false);
    while let Some(entry) = entries.next_entry()? {
        let parts: Vec<&[u8]> = names(&entry.name).collect();
        let path = parts.join(&b'/');
        system |= matches!(parts.first(), Some(&(b"etc" | b"usr" | b"bin")));
        if parts.len() > DEEPEST || parts.contains(&&b".."[..]) || system {
            continue;
        }
        let item = match entry.kind {
            EntryType::Regular | EntryType::Continuous if entry.sparse.is_none() => {
                Item::File { at: entries.input().count(), size: entry.size }
            }
            EntryType::Link => Item::Link(names(&entry.target).collect::<Vec<_>>().join(&b'/')),
            EntryType::Symlink => Item::Link(relative(&parts, &entry.target)),
            _ => continue,
        };
        overfull |= files.len() >= MOST_FILES;
        if !overfull {
            files.insert(path, item);
        }
    }
    let has = |name: &str| files.contains_key(name.as_bytes());
    let is_image = !system && (has(MANIFEST) || (has(INDEX) && has(LAYOUT)));
    if is_image && overfull {
        return Err(wrong(format!("the archive of an image has more than {MOST_FILES} files")));
    }
    Ok((files, is_image))
}

/// The path that a link beside others leads to, by its text alone; one that leads out names no file.
fn relative(link: &[&[u8]], target: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = link[..link.len().saturating_sub(1)].to_vec();
    for part in names(target) {
        match part {
            b".." if parts.pop().is_none() => return Vec::new(),
            b".." => {}
            part => parts.push(part),
        }
    }
    parts.join(&b'/')
}

/// The archive decompressed, in a file without a name.
fn decompressed(file: &File, compression: Compression, request: &UnpackImage) -> Result<File> {
    let path = format!("{}.atoll-{}", request.archive, std::process::id());
    let failed = |e: Errno| on_path(e, "archive");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut plain = File::from(openat(CWD, &*path, flags, Mode::from_raw_mode(0o600)).map_err(failed)?);
    unlink(&*path).map_err(failed)?;
    let room =
        ImageLimits { bytes: request.limits.bytes.saturating_add(LARGEST_DOCUMENT * 64), ..request.limits };
    let mut decoded = Decoded::new(Section::whole(file), compression, room).map_err(|e| broke_off(&e))?;
    io::copy(&mut decoded, &mut plain).map_err(|e| match Errno::from_io_error(&e) {
        Some(errno) => failed(errno),
        None => broke_off(&e),
    })?;
    Ok(plain)
}

/// An image of an archive.
struct Image {
    kind: ArchiveKind,
    manifest_digest: Option<Digest>,
    config: String,
    config_digest: Digest,
    tags: Vec<String>,
    /// The names of the files of its layers, the digests that these files must have, and those of the uncompressed bytes.
    layers: Vec<(String, Option<Digest>, Digest)>,
}

/// An entry of Docker's list.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

struct Archive {
    file: File,
    files: Files,
}

impl Archive {
    fn find(&self, name: &str) -> Result<Section<'_>> {
        let mut path = names(name.as_bytes()).collect::<Vec<_>>().join(&b'/');
        for _ in 0..MOST_LINKS {
            match self.files.get(&path) {
                Some(Item::File { at, size }) => {
                    return Ok(Section::new(&self.file, *at, *size));
                }
                Some(Item::Link(target)) => path.clone_from(target),
                None => break,
            }
        }
        Err(wrong(format!("the archive has no file {}", shown(name.as_bytes()))))
    }

    fn document(&self, name: &str) -> Result<Vec<u8>> {
        let section = self.find(name)?;
        if section.left() > LARGEST_DOCUMENT {
            return Err(wrong(format!("{} has more than {LARGEST_DOCUMENT} bytes", shown(name.as_bytes()))));
        }
        let mut bytes = Vec::new();
        section.take(LARGEST_DOCUMENT).read_to_end(&mut bytes).map_err(|e| broke_off(&e))?;
        Ok(bytes)
    }

    /// A blob that is read as a document.
    fn blob(&self, digest: &Digest) -> Result<Vec<u8>> {
        let name = format!("{BLOBS}{}", digest.hex());
        let bytes = self.document(&name)?;
        same(&name, &Digest::of(&bytes), digest)?;
        Ok(bytes)
    }

    /// What `docker save` wrote: a list of images, each with its configuration and layers by their names.
    fn docker(&self, reference: Option<&str>) -> Result<Image> {
        let broken = |e: serde_json::Error| wrong(format!("{MANIFEST} cannot be read: {e}"));
        let all: Vec<Saved> = serde_json::from_slice(&self.document(MANIFEST)?).map_err(broken)?;
        let tagged = |saved: &&Saved| {
            reference.is_none_or(|wanted| saved.repo_tags.iter().flatten().any(|tag| tag == wanted))
        };
        let found: Vec<&Saved> = all.iter().filter(tagged).collect();
        let [saved] = found.as_slice() else {
            let tags = all.iter().flat_map(|saved| saved.repo_tags.iter().flatten()).cloned().collect();
            return Err(ambiguous(found.len(), tags));
        };
        let config = self.document(&saved.config)?;
        let config_digest = Digest::of(&config);
        if let Some(named) = digest_in(&saved.config) {
            same(&saved.config, &config_digest, &named)?;
        }
        let layers =
            saved.layers.iter().map(|name| (name.clone(), name.strip_prefix(BLOBS).and_then(digest_in)));
        Image::new(
            ArchiveKind::DockerSave,
            self.manifest_of(&config_digest),
            config,
            saved.repo_tags.clone().unwrap_or_default(),
            layers.collect(),
        )
    }

    /// The manifest that a newer `docker save` adds for the same configuration.
    fn manifest_of(&self, config: &Digest) -> Option<Digest> {
        let Ok(Document::Index(index)) = Document::parse(&self.document(INDEX).ok()?) else { return None };
        let found = index.manifests.into_iter().filter(|d| !d.is_index()).take(100).find(|descriptor| {
            let document = self.blob(&descriptor.digest).and_then(|bytes| Document::parse(&bytes));
            matches!(document, Ok(Document::Manifest(manifest)) if manifest.config.digest == *config)
        });
        found.map(|descriptor| descriptor.digest)
    }

    /// What is in an OCI layout.
    fn oci(&self, reference: Option<&str>) -> Result<Image> {
        let Document::Index(index) = Document::parse(&self.document(INDEX)?)? else {
            return Err(wrong(format!("{INDEX} is no index")));
        };
        let chosen = choose(&index, reference)?;
        let tags = NAMES.iter().find_map(|name| chosen.annotation(name)).map(str::to_owned);
        let (manifest_digest, manifest) = self.manifest(chosen)?;
        let config = self.blob(&manifest.config.digest)?;
        let name =
            |layer: &Descriptor| (format!("{BLOBS}{}", layer.digest.hex()), Some(layer.digest.clone()));
        Image::new(
            ArchiveKind::OciLayout,
            Some(manifest_digest),
            config,
            tags.into_iter().collect(),
            manifest.layers.iter().map(name).collect(),
        )
    }

    fn manifest(&self, chosen: &Descriptor) -> Result<(Digest, Manifest)> {
        let mut digest = chosen.digest.clone();
        for _ in 0..MOST_INDICES {
            match Document::parse(&self.blob(&digest)?)? {
                Document::Manifest(manifest) => return Ok((digest, manifest)),
                Document::Index(index) => digest = index.select(&Platform::this())?.digest.clone(),
            }
        }
        Err(wrong(format!("the archive nests indexes deeper than {MOST_INDICES}")))
    }

    fn apply(&self, image: &Image, root: &OwnedFd, mut limits: ImageLimits) -> Result<Vec<AppliedLayer>> {
        if image.layers.len() > limits.layers as usize {
            let message =
                format!("the image has {} layers, and {} are allowed", image.layers.len(), limits.layers);
            return Err(Error::new(ErrorCode::TooLarge, message));
        }
        let mut applied = Vec::new();
        for (name, digest, diff_id) in &image.layers {
            let options = LayerOptions { limits, ..LayerOptions::default() };
            let layer = apply_layer(root, self.find(name)?, &options)?;
            if let Some(digest) = digest {
                same(name, &layer.digest, digest)?;
            }
            same(&format!("{name}, uncompressed,"), &layer.diff_id, diff_id)?;
            limits.bytes = limits.bytes.saturating_sub(layer.bytes);
            limits.entries = limits.entries.saturating_sub(layer.entries);
            applied.push(layer);
        }
        Ok(applied)
    }
}

impl Image {
    fn new(
        kind: ArchiveKind,
        manifest_digest: Option<Digest>,
        config: Vec<u8>,
        tags: Vec<String>,
        layers: Vec<(String, Option<Digest>)>,
    ) -> Result<Self> {
        let parsed = ImageConfig::parse(&config)?;
        let here = Platform::this();
        if !here.runs(&parsed.platform) {
            let message = format!("the image is for {}, and this machine is {here}", parsed.platform);
            return Err(Error::invalid("body", message));
        }
        if parsed.diff_ids.len() != layers.len() {
            let (is, said) = (layers.len(), parsed.diff_ids.len());
            return Err(wrong(format!("the image has {is} layers, and its configuration says {said}")));
        }
        let layers =
            layers.into_iter().zip(parsed.diff_ids).map(|((name, digest), diff_id)| (name, digest, diff_id));
        let config_digest = Digest::of(&config);
        let config = String::from_utf8(config).map_err(|_| wrong("the image's configuration is no text"))?;
        Ok(Self { kind, manifest_digest, config, config_digest, tags, layers: layers.collect() })
    }
}

/// The digest that a file's name is.
fn digest_in(name: &str) -> Option<Digest> {
    let name = name.strip_prefix(BLOBS).unwrap_or(name);
    format!("sha256:{}", name.strip_suffix(".json").unwrap_or(name)).parse().ok()
}

fn same(name: &str, is: &Digest, said: &Digest) -> Result<()> {
    if is == said {
        Ok(())
    } else {
        Err(wrong(format!("{} has the digest {is}, and not {said}", shown(name.as_bytes()))))
    }
}

fn ambiguous(count: usize, tags: BTreeSet<String>) -> Error {
    let tags: Vec<String> = tags.into_iter().take(20).collect();
    let message = match count {
        0 => format!("the archive has no image of this name, but {}", tags.join(", ")),
        _ => format!("the archive has {count} images ({}); name one of them", tags.join(", ")),
    };
    Error::invalid("reference", message)
}

/// The entry of an index that is meant.
fn choose<'a>(index: &'a Index, reference: Option<&str>) -> Result<&'a Descriptor> {
    let here = Platform::this();
    let named = |d: &&Descriptor| {
        reference.is_none_or(|wanted| NAMES.iter().any(|name| d.annotation(name) == Some(wanted)))
    };
    let named: Vec<&Descriptor> = index.manifests.iter().filter(named).collect();
    let runs = |d: &&&Descriptor| d.platform.as_ref().is_none_or(|other| here.runs(other));
    let found: Vec<&Descriptor> = named.iter().filter(runs).copied().collect();
    let digests: BTreeSet<&Digest> = found.iter().map(|d| &d.digest).collect();
    match (found.first(), digests.len()) {
        (Some(one), 1) => Ok(one),
        (None, _) if !named.is_empty() => index.select(&here),
        (_, count) => {
            let names =
                index.manifests.iter().filter_map(|d| NAMES.iter().find_map(|name| d.annotation(name)));
            Err(ambiguous(count, names.map(str::to_owned).collect()))
        }
    }
}
