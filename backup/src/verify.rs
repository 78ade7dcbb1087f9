//! `verify`: every file of a backup is there, with the bytes that were written, and there is no other.

use crate::files::{Pace, Throttle, checksum, walk};
use crate::manifest::{Manifest, NAME};
use anyhow::{Result, ensure};
use std::path::PathBuf;

/// Its options.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The backup
    #[arg(long)]
    pub target_dir: PathBuf,
    /// Most MiB per second that are read; 0 is no limit
    #[arg(long, default_value_t = 0, value_name = "MIB")]
    pub throttle: u32,
}

/// See the module. Tells all that is wrong.
pub fn run(args: &Args) -> Result<()> {
    let dir = &args.target_dir;
    let manifest = Manifest::load(dir)?;
    let mut throttle = Throttle::new(Pace::of(args.throttle));
    let (mut wrong, mut bytes) = (0, 0);
    let mut tell = |what: String| {
        eprintln!("strata-backup: {what}");
        wrong += 1;
    };
    for (path, entry) in manifest.files.iter().filter(|(_, entry)| !entry.in_base) {
        match checksum(&dir.join(path), &mut throttle) {
            Ok(found) if found == (entry.bytes, entry.sha256.clone()) => bytes += entry.bytes,
            Ok((found, _)) if found != entry.bytes => tell(format!("{path} has {found} bytes, not {}", entry.bytes)),
            Ok(_) => tell(format!("{path} has other content than was written")),
            Err(error) => tell(format!("{error:#}")),
        }
    }
    for path in walk(dir)? {
        let is_known = path.to_str().is_some_and(|name| name == NAME || manifest.files.contains_key(name));
        if !is_known {
            tell(format!("{} does not belong to the backup", path.display()));
        }
    }
    ensure!(wrong == 0, "{wrong} files of {} are not as they were written", dir.display());
    eprintln!("strata-backup: {} is as it was written: {} files, {bytes} bytes", dir.display(), manifest.files.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::Sink;
    use std::fs;

    #[test]
    fn damage_and_strangers_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let (backup, source) = (dir.path().join("backup"), dir.path().join("source"));
        fs::create_dir(&backup).unwrap();
        fs::write(&source, b"content").unwrap();
        let mut manifest = Manifest::new("1-1".into(), String::new());
        let mut sink = Sink::Dir(backup.clone());
        for path in ["strata/1.sst", "server/ibdata1"] {
            manifest.files.insert(path.into(), sink.add(path, &source, &mut Throttle::new(Pace::Full)).unwrap());
        }
        sink.finish(&manifest).unwrap();
        let args = Args { target_dir: backup.clone(), throttle: 0 };
        run(&args).unwrap();
        fs::write(backup.join("stranger"), b"").unwrap();
        assert!(run(&args).is_err());
        fs::remove_file(backup.join("stranger")).unwrap();
        fs::write(backup.join("strata/1.sst"), b"Content").unwrap();
        assert!(run(&args).is_err());
        fs::write(backup.join("strata/1.sst"), b"content").unwrap();
        run(&args).unwrap();
        fs::remove_file(backup.join("server/ibdata1")).unwrap();
        assert!(run(&args).is_err());
        fs::remove_file(backup.join(NAME)).unwrap();
        assert!(run(&args).unwrap_err().to_string().contains("no complete backup"));
    }
}
