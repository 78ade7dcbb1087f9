//! The engine's files as a vandal sees them: where a table file keeps what, where the log's units lie, and the ways
//! to spoil either. The layouts are those of `docs/develop/format`.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const PAGE: u64 = 4096;
const UNIT_MAGIC: &[u8] = b"SLG1";
const UNIT_HEADER: usize = 48;
const FOOTER: u64 = 64;

/// The files of one store.
#[derive(Clone, Debug)]
pub struct Files(pub PathBuf);

/// A unit of the log that has a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    pub file: PathBuf,
    pub offset: u64,
    /// Header and payload.
    pub bytes: u64,
}

/// Parts of a table file.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub data_end: u64,
    pub top_index: u64,
    pub properties: u64,
    pub footer: u64,
}

impl Files {
    /// The table file with the most bytes.
    pub fn largest_table(&self) -> Result<PathBuf> {
        let tables = named(&self.0, |name| name.ends_with(".sst"))?;
        let size = |path: &PathBuf| path.metadata().map_or(0, |meta| meta.len());
        tables.into_iter().max_by_key(size).context("the store has no table file")
    }

    /// The log's segments, in order.
    pub fn segments(&self) -> Result<Vec<PathBuf>> {
        named(&self.0.join("log"), |name| name.starts_with(|c: char| c.is_ascii_digit()))
    }

    /// The manifest in force.
    pub fn manifest(&self) -> Result<PathBuf> {
        Ok(self.0.join(fs::read_to_string(self.current())?.trim_end()))
    }

    /// The file that names the manifest.
    pub fn current(&self) -> PathBuf {
        self.0.join("CURRENT")
    }

    /// The units of the log's newest epoch that have a payload, in order.
    pub fn units(&self) -> Result<Vec<Unit>> {
        let mut units = Vec::new();
        let mut newest = None;
        for file in self.segments()? {
            let content = fs::read(&file)?;
            let number: u64 = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or("").parse()?;
            let start = number * content.len() as u64;
            let mut at = 0;
            while let Some(header) = content.get(at..at + UNIT_HEADER) {
                let word = |i: usize| u64::from_le_bytes(header[i..i + 8].try_into().unwrap_or_default());
                let payload = u64::from(u32::from_le_bytes(header[12..16].try_into().unwrap_or_default()));
                // A unit that states another place is a remnant of what the file was before.
                if &header[4..8] != UNIT_MAGIC || word(24) != start + at as u64 {
                    at += PAGE as usize;
                    continue;
                }
                if header[10] & 1 == 1 {
                    newest = Some(word(16));
                    units.clear();
                }
                let bytes = UNIT_HEADER as u64 + payload;
                if payload > 0 && newest.is_none_or(|epoch| epoch == word(16)) {
                    units.push(Unit { file: file.clone(), offset: at as u64, bytes });
                }
                at += bytes.next_multiple_of(PAGE) as usize;
            }
        }
        Ok(units)
    }

    /// Replaces everything by a copy of `from`.
    pub fn replace_by(&self, from: &Files) -> Result<()> {
        if self.0.exists() {
            for entry in fs::read_dir(&self.0)? {
                let path = entry?.path();
                if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
            }
        }
        fs::create_dir_all(&self.0)?;
        let status = Command::new("cp").arg("-a").arg(from.0.join(".")).arg(&self.0).status()?;
        ensure!(status.success(), "{} cannot be copied to {}", from.0.display(), self.0.display());
        Ok(())
    }
}

/// Turns the bits of one byte; doing it twice puts it right.
pub fn flip(path: &Path, offset: u64) -> Result<()> {
    let file = fs::File::options().read(true).write(true).open(path)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).with_context(|| format!("{} has no byte {offset}", path.display()))?;
    file.write_all_at(&[!byte[0]], offset)?;
    Ok(())
}

/// Cuts a file in half.
pub fn halve(path: &Path) -> Result<()> {
    let file = fs::File::options().write(true).open(path)?;
    file.set_len(file.metadata()?.len() / 2)?;
    Ok(())
}

/// True if there is a unit without payload behind this one, which states that it was synced.
pub fn is_witnessed(last: &Unit) -> Result<bool> {
    let mut header = [0; UNIT_HEADER];
    let file = fs::File::open(&last.file)?;
    let at = last.offset + last.bytes.next_multiple_of(PAGE);
    if at >= file.metadata()?.len() {
        return Ok(false);
    }
    let mut own = header;
    file.read_exact_at(&mut own, last.offset)?;
    file.read_exact_at(&mut header, at)?;
    let word = |header: &[u8], i: usize| u64::from_le_bytes(header[i..i + 8].try_into().unwrap_or_default());
    Ok(&header[4..8] == UNIT_MAGIC && word(&header, 24) == word(&own, 24) + at - last.offset)
}

/// Writes what a crash may leave of a unit right behind the last one: its beginning, and garbage.
pub fn tear(last: &Unit) -> Result<u64> {
    let file = fs::File::options().read(true).write(true).open(&last.file)?;
    let at = last.offset + last.bytes.next_multiple_of(PAGE);
    let mut bytes = vec![0; 2 * PAGE as usize];
    file.read_exact_at(&mut bytes[..UNIT_HEADER], last.offset)?;
    let lsn = u64::from_le_bytes(bytes[24..32].try_into()?) + at - last.offset;
    bytes[24..32].copy_from_slice(&lsn.to_le_bytes());
    for (i, byte) in bytes.iter_mut().enumerate().skip(UNIT_HEADER) {
        *byte = (i * 31 % 251) as u8;
    }
    file.write_all_at(&bytes, at)?;
    Ok(at)
}

/// Reads a table file's footer.
pub fn layout(table: &Path) -> Result<Layout> {
    let file = fs::File::open(table)?;
    let footer = file.metadata()?.len() - FOOTER;
    let mut bytes = [0; FOOTER as usize];
    file.read_exact_at(&mut bytes, footer)?;
    ensure!(bytes.starts_with(b"STRATSST"), "{} is not a table file", table.display());
    let word = |i: usize| u64::from_le_bytes(bytes[i..i + 8].try_into().unwrap_or_default());
    Ok(Layout { data_end: word(32), top_index: word(40), properties: word(48), footer })
}

fn named(dir: &Path, keep: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.file_name().and_then(|name| name.to_str()).is_some_and(&keep) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}
