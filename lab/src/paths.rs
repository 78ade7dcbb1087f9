//! Where things are: the checkout, the lab's folder in it, the server's programs.

use anyhow::{Context, Result, bail};
use std::env;
use std::path::{Path, PathBuf};

/// The checkout: the folder above this crate, or, for a binary that was moved,
/// the nearest folder above the current one that has `lab/Cargo.toml`.
pub fn checkout() -> Result<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf);
    let here = env::current_dir().context("there is no current folder")?;
    built
        .into_iter()
        .chain(here.ancestors().map(Path::to_path_buf))
        .find(|dir| dir.join("lab/Cargo.toml").is_file())
        .context("run this inside the checkout")
}

/// The Strata plugin: `$STRATA_PLUGIN`, else the one that `make plugin` leaves.
pub fn plugin(checkout: &Path) -> PathBuf {
    match env::var_os("STRATA_PLUGIN") {
        Some(path) if !path.is_empty() && path != "none" => PathBuf::from(path),
        _ => checkout.join("target/plugin/ha_strata.so"),
    }
}

/// The server's own plugins.
pub fn server_plugins() -> PathBuf {
    env::var_os("MARIADB_PLUGIN_DIR").map_or_else(|| PathBuf::from("/usr/lib/mysql/plugin"), PathBuf::from)
}

/// The server program: `$MARIADBD`, else the packaged one.
pub fn mariadbd() -> PathBuf {
    env::var_os("MARIADBD").map_or_else(|| PathBuf::from("/usr/sbin/mariadbd"), PathBuf::from)
}

/// Fails with what to do about it when a program is not on the `PATH`.
pub fn need_program(name: &str) -> Result<()> {
    let path = env::var_os("PATH").unwrap_or_default();
    if env::split_paths(&path).any(|dir| dir.join(name).is_file()) {
        return Ok(());
    }
    bail!("{name} is not installed; 'make setup' installs it")
}

/// Whether a program is on the `PATH`.
pub fn have_program(name: &str) -> bool {
    need_program(name).is_ok()
}
