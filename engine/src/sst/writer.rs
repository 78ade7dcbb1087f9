//! Writes an SST in one pass, front to back, with direct I/O.
//!
//! Data blocks leave as they fill. Filter and index partitions are kept in memory and follow behind the data, about a
//! byte and a half per row, so that the data blocks stay contiguous; before them the dictionary, if
//! there is one. Blocks may be cached as they are written ([`Prepopulate`]).
//!
//! A file may have several indexes, one behind the other. Rows of two indexes share a block only where the first has little
//! in it, and both are compressed in the same way: unlike rows compress badly side by side, and a block for each of a
//! thousand indexes with three rows would be mostly headers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::block::BlockBuilder;
use super::deferred::put_large_row;
use super::dictionary::{Dictionaries, Group, hash_of};
use super::filter::{Filter, key_hash};
use super::footer::Footer;
use super::frame::{Handle, Packer};
use super::large::{self, LARGE};
use super::meta::Shares;
use super::reader::{PARTITION_BLOCKS, put_entry, put_partition};
use super::{Compression, Prepopulate, SstMeta, SstOptions, Superseded};
use crate::base::limits::{IO_ALIGN, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::base::{Error, FileNo, IndexId, Kind, Result, SeqNo};
use crate::cache::Queue;
use crate::crypt::{Cipher, KeyHeader};
use crate::io::{AlignedBuf, Disk, File, Mode};

/// Bytes gathered for one write.
pub const WRITE_BYTES: usize = 512 << 10;

/// Rows of another index go into a block that is filled up to one part in this many.
const MIXED_PART: usize = 4;
/// A block that ends because its index does is left uncompressed up to this size: so are all of an index of a few dozen rows, and
/// one of any other. Who reads a row or two there would pay for unpacking all, a hundred times what the row costs. Thousands of
/// such indexes are read by one statement on as many partitions, and written three times by a transaction that spills.
const PLAIN_EDGE: usize = 8 << 10;

/// An SST being written. Dropped before `finish` it leaves an unusable file that its owner removes.
pub struct SstWriter<'a> {
    out: Output,
    options: SstOptions,
    prepopulate: Option<Prepopulate<'a>>,
    /// Those of other files.
    dictionaries: Option<Arc<Dictionaries>>,
    packer: Packer,
    /// The header of its data key, if it is encrypted.
    key: Option<KeyHeader>,
    block: BlockBuilder,
    raw: Vec<u8>,
    // The index partition being filled and the hashes of the keys it covers.
    index: BlockBuilder,
    hashes: Vec<u64>,
    partition_entries: u64,
    partitions: Vec<Partition>,
    partition_bytes: u64,
    entries_cut: u64,
    meta: SstMeta,
    shares: Shares,
    last_seq: SeqNo,
    /// The block being filled is a row with a large value of so many bytes, which has been written.
    large: Option<(Handle, u32)>,
}

/// A finished index partition with its filter, waiting for the end of the data.
struct Partition {
    separator: Vec<u8>,
    index: Vec<u8>,
    filter: Vec<u8>,
    entries_before: u64,
}

/// The file behind its aligned buffer.
struct Output {
    file: Arc<dyn File>,
    path: PathBuf,
    buf: AlignedBuf,
    filled: usize,
    flushed: u64,
}

impl Output {
    fn position(&self) -> u64 {
        self.flushed + self.filled as u64
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let n = bytes.len().min(self.buf.len() - self.filled);
            self.buf[self.filled..self.filled + n].copy_from_slice(&bytes[..n]);
            self.filled += n;
            bytes = &bytes[n..];
            if self.filled == self.buf.len() {
                self.file.write_all_at(&self.buf, self.flushed)?;
                self.flushed += self.filled as u64;
                self.filled = 0;
            }
        }
        Ok(())
    }

    fn zeros(&mut self, mut count: usize) -> Result<()> {
        while count > 0 {
            let n = count.min(IO_ALIGN);
            self.write(&[0; IO_ALIGN][..n])?;
            count -= n;
        }
        Ok(())
    }

    /// Writes what is left (a multiple of the alignment by now) and makes all durable.
    fn finish(&mut self) -> Result<()> {
        if self.filled > 0 {
            self.file.write_all_at(&self.buf[..self.filled], self.flushed)?;
            self.flushed += self.filled as u64;
            self.filled = 0;
        }
        self.file.sync_data()
    }

    /// Writes a block; where it is, and its bytes there.
    fn framed<'p>(
        &mut self,
        packer: &'p mut Packer,
        no: FileNo,
        raw: &[u8],
        compress: bool,
    ) -> Result<(Handle, &'p [u8])> {
        let offset = self.position();
        let framed = packer.pack(raw, no, offset, compress).map_err(|e| Error::io("compress", &self.path, e))?;
        let len = u32::try_from(framed.len()).map_err(|_| Error::Internal("block longer than 4 GiB".into()))?;
        self.write(framed)?;
        Ok((Handle { offset, len }, framed))
    }
}

impl<'a> SstWriter<'a> {
    /// Creates the file, which must not exist.
    pub fn create(disk: &Arc<dyn Disk>, path: &Path, no: FileNo, options: SstOptions) -> Result<SstWriter<'a>> {
        let file = disk.open(path, Mode::Create, true)?;
        Ok(SstWriter {
            out: Output { file, path: path.to_owned(), buf: AlignedBuf::zeroed(WRITE_BYTES), filled: 0, flushed: 0 },
            packer: Packer::new(options.compression).map_err(|e| Error::io("start compression", path, e))?,
            options,
            key: None,
            prepopulate: None,
            dictionaries: None,
            block: BlockBuilder::default(),
            raw: Vec::new(),
            index: BlockBuilder::default(),
            hashes: Vec::new(),
            partition_entries: 0,
            partitions: Vec::new(),
            partition_bytes: 0,
            entries_cut: 0,
            meta: SstMeta {
                no,
                index: IndexId(0),
                file_bytes: 0,
                smallest: Vec::new(),
                largest: Vec::new(),
                min_seq: SeqNo(u64::MAX),
                max_seq: SeqNo::ZERO,
                entries: 0,
                tombstones: 0,
                raw_bytes: 0,
                stamped: false,
                key: None,
                superseded: Superseded::default(),
                shares: Arc::default(),
            },
            shares: Shares::default(),
            last_seq: SeqNo::MAX,
            large: None,
        })
    }

    /// Encrypts the file, nothing of which was written yet, under a data key that no other file has.
    pub fn encrypt(mut self, (header, cipher): (KeyHeader, Cipher)) -> SstWriter<'a> {
        self.meta.key = Some(header.key);
        self.key = Some(header);
        self.packer.encrypt(cipher);
        self
    }

    /// From now on blocks are cached as `prepopulate` says.
    pub fn prepopulate(mut self, prepopulate: Prepopulate<'a>) -> SstWriter<'a> {
        self.prepopulate = Some(prepopulate);
        self
    }

    /// Takes up the dictionary of the files of the same index, and leaves one for the next file.
    pub fn share(mut self, dictionaries: Arc<Dictionaries>) -> SstWriter<'a> {
        self.dictionaries = Some(dictionaries);
        self
    }

    /// Says that the next version, whose key is given, is the first of its index in this file, and how the index is
    /// compressed. Optional: without it the index is compressed as the one before.
    pub fn begin_index(&mut self, key: &[u8], compression: Compression) -> Result<()> {
        let switches = compression != self.options.compression;
        if !self.block.is_empty() {
            if self.block.last_key() >= key {
                return Err(Error::Internal(format!("index of {key:02x?} begins behind one that follows it")));
            }
            if switches || self.block.size_with(key, 0, self.last_seq) > self.options.block_bytes / MIXED_PART {
                self.cut_block(Some(key), true)?;
            }
        }
        if switches {
            self.packer.switch(compression).map_err(|e| Error::io("start compression", &self.out.path, e))?;
            self.options.compression = compression;
        }
        Ok(())
    }

    /// Appends a version. `Error::Internal` if it is out of internal order, too long, a tombstone with a value, or numbered
    /// above [`SeqNo::MAX`].
    #[inline]
    pub fn add(&mut self, key: &[u8], seq: SeqNo, kind: Kind, value: &[u8]) -> Result<()> {
        if value.len() >= LARGE && kind == Kind::Put {
            return self.add_parts(key, seq, &[value]);
        }
        let new_key = self.check(key, seq, kind, value.len())?;
        self.place(new_key, key, seq, kind, value);
        Ok(())
    }

    /// Appends the put of a value that is in pieces. One of a mebibyte or more goes to the file at once.
    pub fn add_parts(&mut self, key: &[u8], seq: SeqNo, parts: &[&[u8]]) -> Result<()> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        if bytes < LARGE {
            return self.add(key, seq, Kind::Put, &parts.concat());
        }
        let new_key = self.check(key, seq, Kind::Put, bytes)?;
        let head = BlockBuilder::head_of_one(key, seq, bytes as u32);
        let (no, offset) = (self.meta.no, self.out.position());
        let compress = self.options.compression != Compression::None;
        let path = self.out.path.clone();
        let place = large::Place { path: &path, no, offset, compress, cipher: self.packer.cipher() };
        let handle = large::write(&mut |piece| self.out.write(piece), place, &head, parts)?;
        self.large = Some((handle, bytes as u32));
        self.place(new_key, key, seq, Kind::Put, &[]);
        self.shares.add_bytes(bytes as u64);
        self.meta.raw_bytes += bytes as u64;
        Ok(())
    }

    /// Refuses what may not follow, and ends the block if the version does not belong to it. True if the key is a new one.
    #[inline]
    fn check(&mut self, key: &[u8], seq: SeqNo, kind: Kind, value_bytes: usize) -> Result<bool> {
        let first = self.block.is_empty();
        let new_key = if first {
            if key.len() < IndexId::LEN {
                return Err(Error::Internal("key shorter than its index number".into()));
            }
            if self.meta.entries == 0 {
                self.meta.index = IndexId::of(key);
                self.meta.smallest = key.to_vec();
                self.offer_dictionary();
            }
            true
        } else {
            let last = self.block.last_key();
            let order = last.cmp(key);
            if order.is_gt() || (order.is_eq() && self.last_seq <= seq) {
                return Err(Error::Internal(format!("versions out of order: {last:02x?} before {key:02x?} @{seq}")));
            }
            // Keys ascend from one that is longer, but a short one may lie above it.
            if key.len() < IndexId::LEN {
                return Err(Error::Internal("key shorter than its index number".into()));
            }
            order.is_ne()
        };
        if key.len() > KEY_BYTES_MAX || value_bytes > VALUE_BYTES_MAX || seq > SeqNo::MAX {
            return Err(Error::Internal("key, value or sequence number above its limit".into()));
        }
        if kind == Kind::Delete && value_bytes > 0 {
            return Err(Error::Internal("tombstone with a value".into()));
        }
        let alone = self.large.is_some() || value_bytes >= LARGE;
        if !first && (alone || self.block.size_with(key, value_bytes, seq) > self.options.block_bytes) {
            self.cut_block(Some(key), false)?;
        }
        Ok(new_key)
    }

    /// With which other files it shares a dictionary.
    fn group(&self) -> Group {
        Group { index: self.meta.index, is_encrypted: self.key.is_some() }
    }

    #[cold]
    fn offer_dictionary(&mut self) {
        if self.options.compression == Compression::Zstd
            && let Some(stored) = self.dictionaries.as_ref().and_then(|known| known.offer(self.group()))
        {
            self.packer.offer(stored);
        }
    }

    /// Puts a version into the block.
    #[inline]
    fn place(&mut self, new_key: bool, key: &[u8], seq: SeqNo, kind: Kind, value: &[u8]) {
        if self.options.filter_bits_per_key > 0 && (new_key || self.hashes.is_empty()) {
            self.hashes.push(key_hash(key));
        }
        self.block.add(key, seq, kind, value);
        self.last_seq = seq;
        self.meta.min_seq = self.meta.min_seq.min(seq);
        self.meta.max_seq = self.meta.max_seq.max(seq);
        self.shares.count(key, kind, value.len());
        self.meta.entries += 1;
        self.meta.tombstones += u64::from(kind == Kind::Delete);
        self.meta.raw_bytes += (key.len() + value.len()) as u64;
    }

    /// Bytes the file would have by now, but for the block being filled and the tail.
    pub fn file_bytes_so_far(&self) -> u64 {
        self.out.position() + self.partition_bytes
    }

    /// Whether the file will have a dictionary, which not all programs know: nothing may point to it before the store says so. To
    /// be asked when all versions have been added.
    pub fn has_dictionary(&mut self) -> bool {
        self.packer.end_training()
    }

    /// Versions added so far.
    pub fn entries(&self) -> u64 {
        self.meta.entries
    }

    /// Ends the block before `next_key`; `edge` if an index ends there.
    fn cut_block(&mut self, next_key: Option<&[u8]>, edge: bool) -> Result<()> {
        let separator = match next_key {
            // That of a large row is its key: a cursor then knows the row without having read it.
            Some(next) if self.large.is_none() => separator(self.block.last_key(), next),
            _ => self.block.last_key(),
        }
        .to_vec();
        if next_key.is_none() {
            self.meta.largest.extend_from_slice(self.block.last_key());
        }
        let rows = self.block.rows() as u64;
        let mut entry = Vec::with_capacity(32);
        match self.large.take() {
            Some((handle, value_bytes)) => {
                self.block.clear();
                put_entry(handle, self.entries_cut, &mut entry);
                put_large_row(self.last_seq, value_bytes, &mut entry);
            }
            None => put_entry(self.write_block(edge)?, self.entries_cut, &mut entry),
        }
        self.index.add(&separator, SeqNo::ZERO, Kind::Put, &entry);
        self.entries_cut += rows;
        if self.index.rows() == PARTITION_BLOCKS || next_key.is_none() {
            self.cut_partition(separator);
        }
        Ok(())
    }

    /// Writes the rows collected.
    fn write_block(&mut self, edge: bool) -> Result<Handle> {
        let residence =
            self.prepopulate.as_ref().and_then(|prepopulate| (prepopulate.residence)(self.block.last_key()));
        self.raw.clear();
        self.block.finish(&mut self.raw);
        let compress = !edge || self.raw.len() > PLAIN_EDGE;
        let (handle, framed) = self.out.framed(&mut self.packer, self.meta.no, &self.raw, compress)?;
        if let (Some(prepopulate), Some(residence)) = (&self.prepopulate, residence) {
            prepopulate.data(self.meta.no, handle.offset, &self.raw, framed, residence);
        }
        Ok(handle)
    }

    fn cut_partition(&mut self, separator: Vec<u8>) {
        let (mut index, mut filter) = (Vec::new(), Vec::new());
        self.index.finish(&mut index);
        if self.options.filter_bits_per_key > 0 {
            Filter::build(&self.hashes, self.options.filter_bits_per_key, &mut filter);
            self.hashes.clear();
        }
        self.partition_bytes += (index.len() + filter.len()) as u64;
        self.partitions.push(Partition { separator, index, filter, entries_before: self.partition_entries });
        self.partition_entries = self.entries_cut;
    }

    /// Writes what is left and makes the file durable; its name is durable after the caller's `sync_dir`. An SST
    /// without versions is refused.
    pub fn finish(mut self) -> Result<SstMeta> {
        if self.block.is_empty() {
            return Err(Error::Internal("a table needs a version".into()));
        }
        self.packer.end_training();
        self.cut_block(None, true)?;
        let no = self.meta.no;
        let data_end = self.out.position();
        let dictionary = match self.packer.take_dictionary() {
            None => None,
            Some((stored, is_new)) => {
                let first = self.out.framed(&mut self.packer, no, &stored.bytes, false)?.0;
                self.out.framed(&mut self.packer, no, &stored.bytes, false)?;
                Some((first, stored, is_new))
            }
        };
        let mut filters = Vec::with_capacity(self.partitions.len());
        for partition in &self.partitions {
            filters.push(if partition.filter.is_empty() {
                Handle { offset: 0, len: 0 }
            } else {
                // Filters are as good as random.
                let filter = self.out.framed(&mut self.packer, no, &partition.filter, false)?.0;
                if let Some(prepopulate) = &self.prepopulate {
                    prepopulate.filter(no, filter.offset, &partition.filter);
                }
                filter
            });
        }
        let mut top = BlockBuilder::default();
        for (partition, filter) in self.partitions.iter().zip(filters) {
            let index = self.out.framed(&mut self.packer, no, &partition.index, true)?.0;
            if let Some(prepopulate) = &self.prepopulate {
                prepopulate.rows(no, index.offset, &partition.index, Queue::Main);
            }
            let mut entry = Vec::with_capacity(32);
            put_partition(index, filter, partition.entries_before, &mut entry);
            top.add(&partition.separator, SeqNo::ZERO, Kind::Put, &entry);
        }
        self.raw.clear();
        top.finish(&mut self.raw);
        let top = self.out.framed(&mut self.packer, no, &self.raw, true)?.0;
        // The size of the file is known only after the properties; readers take it from the footer.
        self.raw.clear();
        self.meta.shares = std::mem::take(&mut self.shares)
            .finish()
            .ok_or_else(|| Error::Internal("an index of this size needs a file of its own".into()))?;
        self.meta.encode(&mut self.raw);
        let shared = self.meta.is_shared();
        if shared {
            self.meta.encode_shares(&mut self.raw);
        }
        if let Some((first, stored, _)) = &dictionary {
            self.raw.extend_from_slice(&first.offset.to_le_bytes());
            self.raw.extend_from_slice(&first.len.to_le_bytes());
            self.raw.extend_from_slice(&hash_of(&stored.bytes).to_le_bytes());
        }
        let properties = self.out.framed(&mut self.packer, no, &self.raw, false)?.0;
        let footer_bytes = Footer::bytes(self.key.is_some()) as u64;
        let end = (self.out.position() + footer_bytes).next_multiple_of(IO_ALIGN as u64);
        let padding = end - footer_bytes - self.out.position();
        self.out.zeros(padding as usize)?;
        self.meta.file_bytes = end;
        let by_dictionary = dictionary.is_some();
        let footer = Footer { no, file_bytes: end, data_end, top, properties, shared, by_dictionary, key: self.key };
        self.out.write(&footer.encode())?;
        self.out.finish()?;
        if let (Some((_, stored, is_new)), Some(known), false) = (dictionary, &self.dictionaries, shared) {
            known.note(self.group(), stored, is_new);
        }
        Ok(self.meta)
    }
}

/// A short key `s` with `last <= s < next`, or `s == last` if the two are equal.
fn separator<'a>(last: &'a [u8], next: &'a [u8]) -> &'a [u8] {
    let shared = last.iter().zip(next).take_while(|(a, b)| a == b).count();
    // The prefix of `next` up to the first difference is above `last` and, unless it is all of `next`, below `next`.
    if shared + 1 < next.len() && shared + 1 < last.len() { &next[..=shared] } else { last }
}

#[cfg(test)]
mod tests {
    use super::separator;

    #[test]
    fn separators_are_short_and_in_between() {
        let cases: [(&str, &str, &str); 8] = [
            ("apple", "banana", "b"),
            ("abcdef", "abcxyz", "abcx"),
            ("abc", "abd", "abc"),
            ("abc", "abcd", "abc"),
            ("abc", "abcdefgh", "abc"),
            ("same", "same", "same"),
            ("a", "bcdef", "a"),
            ("abcdef", "b", "abcdef"),
        ];
        for (last, next, expected) in cases {
            let found = separator(last.as_bytes(), next.as_bytes());
            assert_eq!(found, expected.as_bytes(), "{last} {next}");
            assert!(last.as_bytes() <= found && (found < next.as_bytes() || last == next));
        }
    }
}
