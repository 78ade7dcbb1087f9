//! An open SST: what of it stays in memory, and how its blocks are reached.
//!
//! The footer, the properties and the top-level index are read once and stay. Everything else goes through the block
//! cache, keyed by (file number, offset). Index partitions, each on the way to 64 data blocks, go straight to the cache's main
//! queue, and so do filters that were worth a read. What is asked of it stands in `lookup`, `extent`, `verify` and `iter`.
//!
//! Invariant: nothing of the file is believed before its checksum is verified.
//!
//! Rejected: the whole index in memory (at 16 KiB a block it is a thousandth of the data, at 8 twice that).

use std::path::Path;
use std::sync::Arc;

use super::block::Block;
use super::deferred::LargeRow;
use super::dictionary::{BYTES_MAX, Dictionary, OF_ALL_FILES, hash_of};
use super::filter_use::FilterUse;
use super::footer::{FOOTER_BYTES, FOOTER_BYTES_MAX, Footer};
use super::frame::{self, Handle, TRAILER_BYTES};
use super::iter::{IterMemory, ReadAhead, SstIter};
use super::large::{self, LARGE};
use super::sealed::sealed_len;
use super::{Cached, ReadHints, SstMeta};
use crate::base::codec::Reader;
use crate::base::limits::IO_ALIGN;
use crate::base::slots::Buf;
use crate::base::{Error, FileNo, Result, SeqNo};
use crate::cache::Queue;
use crate::crypt::{Cipher, Keyring, Purpose};
use crate::io::{Disk, File};
use crate::sst::BlockCache;

/// Data blocks per index partition.
pub(crate) const PARTITION_BLOCKS: usize = 64;

/// What every entry of an index partition has.
const ENTRY_BYTES: usize = 20;

/// Appends an entry of an index partition: a data block and the versions before it.
pub(crate) fn put_entry(block: Handle, entries_before: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&block.offset.to_le_bytes());
    out.extend_from_slice(&block.len.to_le_bytes());
    out.extend_from_slice(&entries_before.to_le_bytes());
}

/// Appends an entry of the top-level index: an index partition, its filter (length 0 if none), the versions before it.
pub(crate) fn put_partition(index: Handle, filter: Handle, entries_before: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&index.offset.to_le_bytes());
    out.extend_from_slice(&index.len.to_le_bytes());
    out.extend_from_slice(&filter.offset.to_le_bytes());
    out.extend_from_slice(&filter.len.to_le_bytes());
    out.extend_from_slice(&entries_before.to_le_bytes());
}

/// Where the dictionary of a file is.
#[derive(Clone, Copy)]
pub(super) struct PlacedDictionary {
    /// The first copy.
    first: Handle,
    /// What its bytes must have; under this number the cache has it.
    hash: u64,
}

impl PlacedDictionary {
    /// The place that stands behind all else in the properties; `None` if there is none such.
    fn parse(reader: &mut Reader<'_>, footer: &Footer) -> Option<PlacedDictionary> {
        let first = Handle { offset: reader.u64()?, len: reader.u32()? };
        let placed = PlacedDictionary { first, hash: reader.u64()? };
        let end = first.end().checked_add(first.len.into())?;
        let fits = first.len as usize <= sealed_len(BYTES_MAX) + TRAILER_BYTES && first.offset >= footer.data_end;
        (fits && end <= footer.file_bytes).then_some(placed)
    }

    /// Both copies.
    pub fn copies(self) -> [Handle; 2] {
        [self.first, Handle { offset: self.first.end(), ..self.first }]
    }
}

/// Whatever keeps the name of a file from being removed while the file may have to be opened again.
pub type NameKeeper = Arc<dyn std::any::Any + Send + Sync>;

/// An open SST. Shared by all threads; immutable.
pub struct Sst {
    pub(super) file: Arc<dyn File>,
    pub(super) no: FileNo,
    pub(super) cache: Arc<BlockCache>,
    pub(super) top: Arc<Block>,
    pub(super) data_end: u64,
    /// The number that all versions have instead of those in the file.
    pub(super) stamp: Option<SeqNo>,
    pub(super) meta: SstMeta,
    /// Its data key, if it is encrypted.
    pub(super) cipher: Option<Cipher>,
    /// Its dictionary, if it has one.
    pub(super) dictionary: Option<PlacedDictionary>,
    pub(super) filter_use: FilterUse,
    /// Dropped last: the file may be removed from then on.
    _life: Option<NameKeeper>,
}

impl Sst {
    /// Opens the file and checks its footer, properties and top-level index.
    pub fn open(
        disk: &Arc<dyn Disk>,
        path: &Path,
        no: FileNo,
        cache: Arc<BlockCache>,
        keys: &Keyring,
    ) -> Result<Arc<Sst>> {
        Sst::open_kept(disk, path, no, cache, keys, None, None)
    }

    /// As `open`; the versions have the number `stamp`, if one is given. Then the file has one version per key. `life` keeps
    /// the file's name as long as the SST is held.
    pub fn open_kept(
        disk: &Arc<dyn Disk>,
        path: &Path,
        no: FileNo,
        cache: Arc<BlockCache>,
        keys: &Keyring,
        stamp: Option<SeqNo>,
        life: Option<NameKeeper>,
    ) -> Result<Arc<Sst>> {
        let file = disk.open_bounded(path)?;
        let len = file.len()?;
        if len < IO_ALIGN as u64 || len % IO_ALIGN as u64 != 0 {
            return Err(Error::corruption(path, len, "table file of an impossible length"));
        }
        let footer = frame::with_bytes(&*file, len - FOOTER_BYTES_MAX as u64, FOOTER_BYTES_MAX, |bytes| {
            let bytes = bytes.first_chunk().ok_or_else(|| Error::corruption(path, len, "short footer"))?;
            Footer::decode(bytes, path, len)
        })?;
        if footer.no != no {
            let what = format!("file number {} where {no} was expected", footer.no);
            return Err(Error::corruption(path, len - FOOTER_BYTES as u64, what));
        }
        let cipher = footer.key.map(|key| keys.open(&key, Purpose::Sst, path)).transpose()?;
        let cipher_of = cipher.as_ref();
        let properties = frame::read(&*file, no, footer.properties, cipher_of)?;
        let bad = |what: &str| Error::corruption(path, footer.properties.offset, what);
        let mut reader = Reader::new(&properties);
        let meta = SstMeta::decode(&mut reader);
        let meta = if footer.shared { meta.and_then(|meta| meta.decode_shares(&mut reader)) } else { meta };
        let mut meta = meta.ok_or_else(|| bad("malformed properties"))?;
        let dictionary = match footer.by_dictionary {
            false => None,
            true => {
                let placed = PlacedDictionary::parse(&mut reader, &footer);
                Some(placed.ok_or_else(|| bad("malformed place of the dictionary"))?)
            }
        };
        meta.file_bytes = len;
        meta.key = footer.key.map(|header| header.key);
        if meta.no != no || meta.smallest > meta.largest {
            return Err(bad("properties contradict each other"));
        }
        let top = frame::read(&*file, no, footer.top, cipher_of)?;
        let top = Block::parse(top).map_err(|what| Error::corruption(path, footer.top.offset, what))?;
        let sst = Sst {
            file,
            no,
            cache,
            top: Arc::new(top),
            data_end: footer.data_end,
            stamp,
            meta,
            cipher,
            dictionary,
            filter_use: FilterUse::default(),
            _life: life,
        };
        Ok(Arc::new(sst))
    }

    /// Its description, from the file itself.
    pub fn meta(&self) -> &SstMeta {
        &self.meta
    }

    /// Bytes of memory that the open SST holds beside the cache: its top-level index and its description.
    pub fn resident_bytes(&self) -> usize {
        size_of::<Sst>()
            + self.top.charge()
            + self.meta.smallest.len()
            + self.meta.largest.len()
            + size_of_val(&*self.meta.shares)
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    pub(super) fn bad(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corruption(self.file.path(), offset, what)
    }

    /// The data block of a row of an index partition, and the versions before it.
    pub(super) fn entry(&self, index: &Block, row: u32) -> Result<(Handle, u64)> {
        let mut reader = Reader::new(index.value(row));
        let mut read = || {
            let handle = Handle { offset: reader.u64()?, len: reader.u32()? };
            let before = reader.u64()?;
            (handle.offset.checked_add(handle.len.into())? <= self.data_end).then_some((handle, before))
        };
        read().ok_or_else(|| self.bad(self.data_end, "index entry points outside the data"))
    }

    /// The large row that the data block at `handle`, of this row of an index partition, consists of; `None` if it is another
    /// block or the file does not say.
    pub(super) fn large_row(&self, index: &Block, row: u32, handle: Handle) -> Result<Option<LargeRow>> {
        match index.value(row).get(ENTRY_BYTES..) {
            None | Some([]) => Ok(None),
            Some(rest) => match LargeRow::parse(handle, rest) {
                Some(row) => Ok(Some(row)),
                None => Err(self.bad(self.data_end, "index entry of a large row cut short")),
            },
        }
    }

    /// Index partition, filter partition and the versions before, of a row of the top-level index.
    pub(super) fn partition(&self, row: u32) -> Result<(Handle, Option<Handle>, u64)> {
        let mut reader = Reader::new(self.top.value(row));
        let mut read = || {
            let index = Handle { offset: reader.u64()?, len: reader.u32()? };
            let filter = Handle { offset: reader.u64()?, len: reader.u32()? };
            let before = reader.u64()?;
            let inside = |h: Handle| {
                h.offset >= self.data_end
                    && h.offset.checked_add(h.len.into()).is_some_and(|end| end <= self.meta.file_bytes)
            };
            let filter = (filter.len > 0).then_some(filter);
            (inside(index) && filter.is_none_or(inside)).then_some((index, filter, before))
        };
        read().ok_or_else(|| self.bad(self.data_end, "top-level index points outside the file"))
    }

    pub(super) fn parse(&self, handle: Handle, bytes: Buf) -> Result<Arc<Block>> {
        Block::parse(bytes).map(Arc::new).map_err(|what| self.bad(handle.offset, what))
    }

    /// Caches a block, unless it holds one large value: that would cost the places of hundreds of others, and is copied to
    /// the network anyway.
    pub(super) fn cache_rows(&self, handle: Handle, block: &Arc<Block>, queue: Option<Queue>) {
        if block.bytes().len() >= LARGE {
            return;
        }
        self.cache.insert_at(self.no, handle.offset, Cached::Rows(block.clone()), block.charge(), queue);
    }

    /// Unpacks a data block.
    pub(super) fn unpack(&self, handle: Handle, framed: &[u8]) -> Result<Buf> {
        let cipher = self.cipher.as_ref();
        frame::unpack_by(self.path(), self.no, handle.offset, framed, cipher, &|| self.dictionary(handle))
    }

    /// The dictionary, by which the block at `by` was packed, through the cache.
    fn dictionary(&self, by: Handle) -> Result<Arc<Dictionary>> {
        let Some(placed) = self.dictionary else {
            return Err(self.bad(by.offset, "packed by a dictionary, and the file has none"));
        };
        match self.cache.get(OF_ALL_FILES, placed.hash) {
            Some(Cached::Dictionary(dictionary)) => Ok(dictionary),
            Some(_) => Err(self.bad(placed.first.offset, "no dictionary where a dictionary was expected")),
            None => self.load_dictionary(placed),
        }
    }

    /// Reads the dictionary, from its second copy if the first is damaged.
    #[cold]
    fn load_dictionary(&self, placed: PlacedDictionary) -> Result<Arc<Dictionary>> {
        let [first, second] = placed.copies();
        let read = self.read_dictionary(first, placed.hash);
        let read = read.or_else(|error| self.read_dictionary(second, placed.hash).map_err(|_| error));
        let dictionary = Arc::new(read?);
        let (cached, charge) = (Cached::Dictionary(dictionary.clone()), dictionary.charge());
        self.cache.insert_at(OF_ALL_FILES, placed.hash, cached, charge, Some(Queue::Main));
        Ok(dictionary)
    }

    /// A copy of the dictionary, past the cache.
    fn read_dictionary(&self, at: Handle, hash: u64) -> Result<Dictionary> {
        let bytes = frame::read_apart(&*self.file, self.no, at, self.cipher.as_ref())?;
        if hash_of(&bytes) != hash {
            return Err(self.bad(at.offset, "another dictionary than the properties say"));
        }
        Dictionary::parse(&bytes).map_err(|what| self.bad(at.offset, what))
    }

    /// Reads both copies of the dictionary, if there is one.
    pub(super) fn verify_dictionary(&self) -> Result<()> {
        self.dictionary.iter().try_for_each(|placed| {
            placed.copies().into_iter().try_for_each(|copy| self.read_dictionary(copy, placed.hash).map(drop))
        })
    }

    /// A data block that is large in the file, past the cache.
    #[cold]
    pub(super) fn read_large(&self, handle: Handle) -> Result<Arc<Block>> {
        self.parse(handle, large::read(&*self.file, self.no, handle, self.cipher.as_ref())?)
    }

    /// Reads an index partition from the file and caches it.
    #[cold]
    pub(super) fn load_index(&self, handle: Handle) -> Result<Arc<Block>> {
        let block = self.parse(handle, frame::read(&*self.file, self.no, handle, self.cipher.as_ref())?)?;
        self.cache_rows(handle, &block, Some(Queue::Main));
        Ok(block)
    }

    /// Runs `f` on a block as it lies in the file, read with what lies ahead of it if asked to.
    pub(super) fn with_framed<R>(
        &self,
        handle: Handle,
        ahead: Option<&mut ReadAhead>,
        forward: bool,
        f: impl FnOnce(&[u8]) -> Result<R>,
    ) -> Result<R> {
        match ahead {
            Some(ahead) => f(ahead.fetch(&*self.file, handle, self.data_end, forward)?),
            None => frame::with_bytes(&*self.file, handle.offset, handle.len as usize, f),
        }
    }

    /// A block of rows if it is in the cache.
    #[inline]
    pub(super) fn cached_rows(&self, handle: Handle) -> Result<Option<Arc<Block>>> {
        match self.cache.get(self.no, handle.offset) {
            Some(Cached::Rows(block)) => Ok(Some(block)),
            Some(_) => Err(self.bad(handle.offset, "no rows where rows were expected")),
            None => Ok(None),
        }
    }

    /// An index partition through the cache.
    pub(super) fn index(&self, partition: u32) -> Result<Arc<Block>> {
        let handle = self.partition(partition)?.0;
        match self.cached_rows(handle)? {
            Some(block) => Ok(block),
            None => self.load_index(handle),
        }
    }

    /// The first row of an index partition whose separator is at or above the key, with what it points to.
    #[inline]
    pub(super) fn find(&self, index: &Block, at: Handle, key: &[u8]) -> Result<(u32, Handle, u64)> {
        let row = index.lower_bound(key).0;
        if row == index.rows() {
            return Err(self.bad(at.offset, "index partition ends below its separator"));
        }
        let (handle, before) = self.entry(index, row as u32)?;
        Ok((row as u32, handle, before))
    }

    /// Looks into an index partition, without taking a reference of it when it is cached.
    #[inline]
    pub(super) fn look_into<R>(&self, at: Handle, look: impl Fn(&Block) -> Result<R>) -> Result<R> {
        let found = self.cache.with(self.no, at.offset, |cached| match cached {
            Cached::Rows(index) => look(index),
            _ => Err(self.bad(at.offset, "no rows where rows were expected")),
        });
        match found {
            Some(found) => found,
            None => look(&*self.load_index(at)?),
        }
    }

    #[inline]
    pub(super) fn locate(&self, at: Handle, key: &[u8]) -> Result<(u32, Handle, u64)> {
        self.look_into(at, |index| self.find(index, at, key))
    }

    /// A cursor over all versions; not positioned yet.
    pub fn iter(self: &Arc<Self>, hints: ReadHints) -> SstIter {
        self.iter_in(IterMemory::default(), hints)
    }

    /// The same, in the memory of another cursor.
    pub fn iter_in(self: &Arc<Self>, memory: IterMemory, hints: ReadHints) -> SstIter {
        SstIter::new(self.clone(), hints, memory)
    }
}

impl std::fmt::Debug for Sst {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("path", &self.file.path()).field("meta", &self.meta).finish_non_exhaustive()
    }
}
