//! Where a backup goes: a directory, or a stream of a tar archive that is compressed with zstd.

use crate::files::{self, Hashing, Throttle};
use crate::manifest::{Entry, Manifest, NAME};
use anyhow::{Context, Result};
use std::io::{self, Stdout};
use std::path::{Path, PathBuf};

/// See the module.
pub enum Sink {
    /// A directory.
    Dir(PathBuf),
    /// The standard output.
    Stream(Box<tar::Builder<zstd::Encoder<'static, Stdout>>>),
}

impl Sink {
    /// The standard output.
    pub fn stream(level: i32) -> Result<Sink> {
        Ok(Sink::Stream(Box::new(tar::Builder::new(zstd::Encoder::new(io::stdout(), level)?))))
    }

    /// Adds a file under a path of the backup. A file that is there already, in the backup's directory, is read only.
    pub fn add(&mut self, path: &str, from: &Path, throttle: &mut Throttle) -> Result<Entry> {
        let (bytes, sha256) = match self {
            Sink::Dir(dir) if dir.join(path) == from => files::checksum(from, throttle)?,
            Sink::Dir(dir) => files::copy(from, &dir.join(path), throttle)?,
            Sink::Stream(archive) => {
                let mut source = Hashing::open(from, throttle)?;
                let mut header = tar::Header::new_gnu();
                header.set_size(source.len()?);
                header.set_mode(0o600);
                archive.append_data(&mut header, path, &mut source).with_context(|| format!("streaming {path}"))?;
                source.finish()
            }
        };
        Ok(Entry { bytes, sha256, identity: None, in_base: false })
    }

    /// Ends the backup: from now on it is one.
    pub fn finish(self, manifest: &Manifest) -> Result<()> {
        match self {
            Sink::Dir(dir) => {
                files::sync_names(&dir)?;
                manifest.store(&dir)
            }
            Sink::Stream(mut archive) => {
                let text = manifest.text()?;
                let mut header = tar::Header::new_gnu();
                header.set_size(text.len() as u64);
                header.set_mode(0o600);
                archive.append_data(&mut header, NAME, text.as_slice())?;
                archive.into_inner()?.finish()?;
                Ok(())
            }
        }
    }
}
