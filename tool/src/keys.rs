//! The keys of an encrypted store, from a file in the format of the server's plugin `file_key_management`.
//!
//! ```text
//! # a comment
//! 1;00112233445566778899aabbccddeeff
//! ```
//!
//! A line has the number of a key and its 16, 24 or 32 bytes in hexadecimal; what follows them on the line is not looked at, and of
//! one number the last line counts. A file that begins with `Salted__` is encrypted, as `openssl enc -aes-256-cbc -md sha1` does it:
//! eight bytes of salt, then AES-256-CBC of the lines with PKCS #7 padding. Key and start vector are the first 48 bytes of
//! `D1 D2 ...` with `D1 = SHA1(passphrase, salt)` and `Dn = SHA1(Dn-1, passphrase, salt)`. Keys have one version, 1.
//!
//! Own code is what the format is: ciphers and digests are of the project that the engine's are of (RustCrypto).

use aes::Aes256;
use anyhow::{Context, Result, bail, ensure};
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockModeDecrypt, KeyIvInit};
use sha1::{Digest, Sha1};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use strata_engine::crypt::{KeyProvider, KeyVersion};
use zeroize::Zeroizing;

const ENCRYPTED: &[u8] = b"Salted__";
const SALT_BYTES: usize = 8;
const KEY_BYTES: usize = 32;
const IV_BYTES: usize = 16;
/// The plugin knows no other.
const VERSION: u32 = 1;

/// Keys by their numbers.
pub struct KeyFile(BTreeMap<u32, Zeroizing<Vec<u8>>>);

impl KeyFile {
    /// The keys in a file; one that is encrypted needs the file that has its passphrase in its first line.
    pub fn read(path: &Path, passphrase: Option<&Path>) -> Result<KeyFile> {
        let content = Zeroizing::new(fs::read(path).with_context(|| path.display().to_string())?);
        let passphrase = passphrase
            .map(|path| {
                let content = Zeroizing::new(fs::read(path).with_context(|| path.display().to_string())?);
                let line = content.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
                anyhow::Ok(Zeroizing::new(line.to_vec()))
            })
            .transpose()?;
        let lines = match content.strip_prefix(ENCRYPTED) {
            None => content,
            Some(rest) => {
                let passphrase = passphrase.with_context(|| {
                    format!("{} is encrypted: --passphrase-file names what has its passphrase", path.display())
                })?;
                decrypted(rest, &passphrase).with_context(|| path.display().to_string())?
            }
        };
        parse(&lines).map(KeyFile).with_context(|| path.display().to_string())
    }
}

impl KeyProvider for KeyFile {
    fn latest(&self, id: u32) -> Result<u32, String> {
        self.0.contains_key(&id).then_some(VERSION).ok_or_else(|| "the file of keys does not have it".into())
    }

    fn key(&self, key: KeyVersion) -> Result<Vec<u8>, String> {
        self.latest(key.id)?;
        match key.version {
            VERSION => Ok(self.0[&key.id].to_vec()),
            _ => Err("a file of keys has version 1 of each".into()),
        }
    }
}

/// What `openssl enc` has encrypted, the eight bytes in front left out.
fn decrypted(salted: &[u8], passphrase: &[u8]) -> Result<Zeroizing<Vec<u8>>> {
    let (salt, body) = salted.split_at_checked(SALT_BYTES).context("the file ends within its salt")?;
    let mut derived = Zeroizing::new(Vec::with_capacity(KEY_BYTES + IV_BYTES + 20));
    let mut last = Zeroizing::new(Vec::new());
    while derived.len() < KEY_BYTES + IV_BYTES {
        let mut digest = Sha1::new();
        digest.update(&*last);
        digest.update(passphrase);
        digest.update(salt);
        last = Zeroizing::new(digest.finalize().to_vec());
        derived.extend_from_slice(&last);
    }
    let (key, iv) = derived[..KEY_BYTES + IV_BYTES].split_at(KEY_BYTES);
    let mut lines = Zeroizing::new(body.to_vec());
    let cipher = cbc::Decryptor::<Aes256>::new_from_slices(key, iv).context("key and start vector")?;
    let len = match cipher.decrypt_padded::<Pkcs7>(&mut lines) {
        Ok(plain) => plain.len(),
        Err(_) => bail!("cannot be decrypted: the passphrase is another one, or the file is damaged"),
    };
    lines.truncate(len);
    Ok(lines)
}

fn parse(lines: &[u8]) -> Result<BTreeMap<u32, Zeroizing<Vec<u8>>>> {
    let mut keys = BTreeMap::new();
    for (number, line) in lines.split(|&byte| byte == b'\n').enumerate() {
        let line = line.trim_ascii_start();
        if line.is_empty() || line[0] == b'#' {
            continue;
        }
        // No message shows a part of the line: it may be a key.
        let (id, key) = parse_line(line).with_context(|| format!("line {}", number + 1))?;
        keys.insert(id, key);
    }
    ensure!(!keys.is_empty(), "there is no key in it; a wrong passphrase can be the cause");
    Ok(keys)
}

fn parse_line(line: &[u8]) -> Result<(u32, Zeroizing<Vec<u8>>)> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (id, rest) = line.split_at(digits);
    let id = std::str::from_utf8(id)?.parse::<u32>().ok().filter(|&id| id > 0).context("no number of a key")?;
    let rest = rest.strip_prefix(b";").context("no semicolon behind the number of the key")?;
    let hex = rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    ensure!(matches!(hex, 32 | 48 | 64), "a key has 16, 24 or 32 bytes, in twice as many hexadecimal digits");
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap_or(0) as u8;
    let key = rest[..hex].chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect();
    Ok((id, Zeroizing::new(key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
    }

    fn shown(keys: &KeyFile) -> String {
        let hex = |key: &[u8]| key.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        keys.0.iter().map(|(id, key)| format!("{id};{}\n", hex(key))).collect()
    }

    fn error(result: Result<KeyFile>) -> String {
        let Err(error) = result else { panic!("it is read") };
        format!("{error:#}")
    }

    const KEYS: &str = "1;00112233445566778899aabbccddeeff\n\
         7;000102030405060708090a0b0c0d0e0f1011121314151617\n\
         42;000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";

    #[test]
    fn a_plain_file_and_an_encrypted_one_have_the_same_keys() {
        assert_eq!(shown(&KeyFile::read(&file("keys.txt"), None).unwrap()), KEYS);
        // Made by `openssl enc -aes-256-cbc -md sha1 -k 'correct horse' -in keys.txt -out keys.enc`.
        let encrypted = KeyFile::read(&file("keys.enc"), Some(&file("passphrase.txt"))).unwrap();
        assert_eq!(shown(&encrypted), KEYS);
        // A passphrase for a file that needs none does no harm.
        assert_eq!(shown(&KeyFile::read(&file("keys.txt"), Some(&file("passphrase.txt"))).unwrap()), KEYS);
    }

    #[test]
    fn a_wrong_passphrase_and_damage_are_errors() {
        assert!(error(KeyFile::read(&file("keys.enc"), None)).contains("--passphrase-file"));
        assert!(error(KeyFile::read(&file("keys.enc"), Some(&file("keys.txt")))).contains("cannot be decrypted"));
        let whole = fs::read(file("keys.enc")).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let cut = dir.path().join("cut");
        for len in [ENCRYPTED.len(), ENCRYPTED.len() + 3, ENCRYPTED.len() + SALT_BYTES, whole.len() - 1] {
            fs::write(&cut, &whole[..len]).unwrap();
            KeyFile::read(&cut, Some(&file("passphrase.txt"))).map(|_| ()).unwrap_err();
        }
    }

    /// A line, and what is wrong with it.
    const LINES: &str = "
        x;00112233445566778899aabbccddeeff   no number of a key
        0;00112233445566778899aabbccddeeff   no number of a key
        4294967296;00112233445566778899aabb  no number of a key
        1:00112233445566778899aabbccddeeff   no semicolon
        1;00112233445566778899aabbccddee     16, 24 or 32 bytes
        1;00112233445566778899aabbccddeeffa  16, 24 or 32 bytes
        1;0011223344556677889 aabbccddeeff   16, 24 or 32 bytes";

    #[test]
    fn what_is_no_key_is_told_by_its_line_and_never_shown() {
        for line in LINES.lines().filter(|line| !line.trim().is_empty()) {
            let (key, what) = line.trim().split_once("  ").unwrap();
            let told = format!("{:#}", parse(format!("# keys\n{key}\n").as_bytes()).unwrap_err());
            assert!(told.starts_with("line 2") && told.contains(what.trim()), "{line}: {told}");
            assert!(!told.contains("0011"), "{told}");
        }
        assert!(format!("{:#}", parse(b"\n# none\n").unwrap_err()).contains("no key"));
    }

    #[test]
    fn a_provider_tells_what_it_lacks() {
        let keys = KeyFile::read(&file("keys.txt"), None).unwrap();
        assert_eq!(keys.latest(42), Ok(1));
        assert!(keys.latest(2).unwrap_err().contains("does not have it"));
        assert_eq!(keys.key(KeyVersion { id: 1, version: 1 }).unwrap().len(), 16);
        assert!(keys.key(KeyVersion { id: 1, version: 2 }).is_err());
    }
}
