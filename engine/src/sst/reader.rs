//! An open SST: lookups, estimates, verification.
//!
//! The footer, the properties and the top-level index are read once and stay. Everything else goes through the block
//! cache, keyed by (file number, offset). A lookup asks the filter partition, then the index partition, then the data
//! block; when all are cached it allocates nothing and takes one reference (of the data block it returns a value from).
//!
//! A filter earns its memory by the keys that it denies: only then is it counted as used, and one that is not in memory is
//! read only where [`FilterLoading`] says that look-ups often find nothing. So the filters of the last level, where most keys are
//! found, leave a full cache to the data. Index partitions, each on the way to 64 data blocks, go straight to the cache's
//! main queue, and so do filters that were worth a read.

use std::cmp::Ordering;
use std::path::Path;
use std::sync::Arc;

use super::block::Block;
use super::deferred::LargeRow;
use super::filter::{Filter, key_hash};
use super::filter_loading::FilterLoading;
use super::frame::{self, Handle};
use super::iter::{AHEAD_MIN, IterMemory, ReadAhead, SstIter};
use super::large::{self, LARGE};
use super::meta::{Part, Shares};
use super::{Cached, PinnedValue, ReadHints, Residence, SstMeta};
use crate::base::codec::Reader;
use crate::base::limits::IO_ALIGN;
use crate::base::slots::Buf;
use crate::base::{Error, FileNo, IndexId, Kind, Result, SeqNo};
use crate::cache::Queue;
use crate::io::{Disk, File};
use crate::sst::BlockCache;

/// Data blocks per index partition.
pub(crate) const PARTITION_BLOCKS: usize = 64;
pub(crate) const FOOTER_BYTES: usize = 64;
const MAGIC: [u8; 8] = *b"STRATSST";
/// The version that is written of files of one index; all from the first one on are read.
const VERSION: u32 = 2;
/// The version of files of several indexes.
const VERSION_SHARED: u32 = 3;

/// The last bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Footer {
    pub no: FileNo,
    pub file_bytes: u64,
    pub data_end: u64,
    pub top: Handle,
    pub properties: Handle,
    /// The file has several indexes.
    pub shared: bool,
}

impl Footer {
    pub fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut out = [0; FOOTER_BYTES];
        out[..8].copy_from_slice(&MAGIC);
        let version = if self.shared { VERSION_SHARED } else { VERSION };
        out[8..12].copy_from_slice(&version.to_le_bytes());
        out[16..24].copy_from_slice(&self.no.0.to_le_bytes());
        out[24..32].copy_from_slice(&self.file_bytes.to_le_bytes());
        out[32..40].copy_from_slice(&self.data_end.to_le_bytes());
        out[40..48].copy_from_slice(&self.top.offset.to_le_bytes());
        out[48..56].copy_from_slice(&self.properties.offset.to_le_bytes());
        out[56..60].copy_from_slice(&self.top.len.to_le_bytes());
        out[60..64].copy_from_slice(&self.properties.len.to_le_bytes());
        let sum = Footer::checksum(&out);
        out[12..16].copy_from_slice(&sum.to_le_bytes());
        out
    }

    fn checksum(bytes: &[u8; FOOTER_BYTES]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..])
    }

    /// `len` is the size of the file and `path` names it in errors.
    fn decode(bytes: &[u8; FOOTER_BYTES], path: &Path, len: u64) -> Result<Footer> {
        let at = len - FOOTER_BYTES as u64;
        let short = || Error::corruption(path, at, "short footer");
        let mut reader = Reader::new(bytes);
        if reader.take(8) != Some(&MAGIC[..]) {
            return Err(Error::corruption(path, at, "not a table file: no magic in the footer"));
        }
        let version = reader.u32().ok_or_else(short)?;
        let sum = reader.u32().ok_or_else(short)?;
        if sum != Footer::checksum(bytes) {
            return Err(Error::corruption(path, at, format!("footer checksum, stored {sum:08x}")));
        }
        if !(1..=VERSION_SHARED).contains(&version) {
            let what = format!("table format version {version}; this version reads 1 to {VERSION_SHARED}");
            return Err(Error::Incompatible { path: path.to_owned(), what });
        }
        let mut u64 = || reader.u64().ok_or_else(short);
        let (no, file_bytes, data_end, top_offset, properties_offset) = (u64()?, u64()?, u64()?, u64()?, u64()?);
        let top = Handle { offset: top_offset, len: reader.u32().ok_or_else(short)? };
        let properties = Handle { offset: properties_offset, len: reader.u32().ok_or_else(short)? };
        let shared = version == VERSION_SHARED;
        let footer = Footer { no: FileNo(no), file_bytes, data_end, top, properties, shared };
        let inside =
            |h: Handle| h.offset >= data_end && h.offset.checked_add(h.len.into()).is_some_and(|end| end <= at);
        if file_bytes != len {
            return Err(Error::corruption(path, at, format!("file has {len} bytes, its footer says {file_bytes}")));
        }
        if !inside(top) || !inside(properties) {
            return Err(Error::corruption(path, at, "footer points outside the file"));
        }
        Ok(footer)
    }
}

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

/// What of an SST lies before a key, or between two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Bytes of the file.
    pub bytes: u64,
    /// Versions.
    pub entries: u64,
    /// `entries` is not rounded to blocks.
    pub exact: bool,
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
    meta: SstMeta,
    filter_loading: FilterLoading,
    /// Dropped last: the file may be removed from then on.
    _life: Option<NameKeeper>,
}

impl Sst {
    /// Opens the file and checks its footer, properties and top-level index.
    pub fn open(disk: &Arc<dyn Disk>, path: &Path, no: FileNo, cache: Arc<BlockCache>) -> Result<Arc<Sst>> {
        Sst::open_kept(disk, path, no, cache, None, None)
    }

    /// As `open`; the versions have the number `stamp`, if one is given. Then the file has one version per key. `life` keeps
    /// the file's name as long as the SST is held.
    pub fn open_kept(
        disk: &Arc<dyn Disk>,
        path: &Path,
        no: FileNo,
        cache: Arc<BlockCache>,
        stamp: Option<SeqNo>,
        life: Option<NameKeeper>,
    ) -> Result<Arc<Sst>> {
        let file = disk.open_bounded(path)?;
        let len = file.len()?;
        if len < IO_ALIGN as u64 || len % IO_ALIGN as u64 != 0 {
            return Err(Error::corruption(path, len, "table file of an impossible length"));
        }
        let footer = frame::with_bytes(&*file, len - FOOTER_BYTES as u64, FOOTER_BYTES, |bytes| {
            let bytes = bytes.first_chunk().ok_or_else(|| Error::corruption(path, len, "short footer"))?;
            Footer::decode(bytes, path, len)
        })?;
        if footer.no != no {
            let what = format!("file number {} where {no} was expected", footer.no);
            return Err(Error::corruption(path, len - FOOTER_BYTES as u64, what));
        }
        let properties = frame::read(&*file, no, footer.properties)?;
        let bad = |what: &str| Error::corruption(path, footer.properties.offset, what);
        let mut reader = Reader::new(&properties);
        let meta = SstMeta::decode(&mut reader);
        let meta = if footer.shared { meta.and_then(|meta| meta.decode_shares(&mut reader)) } else { meta };
        let mut meta = meta.ok_or_else(|| bad("malformed properties"))?;
        meta.file_bytes = len;
        if meta.no != no || meta.smallest > meta.largest {
            return Err(bad("properties contradict each other"));
        }
        let top = frame::read(&*file, no, footer.top)?;
        let top = Block::parse(top).map_err(|what| Error::corruption(path, footer.top.offset, what))?;
        let sst = Sst {
            file,
            no,
            cache,
            top: Arc::new(top),
            data_end: footer.data_end,
            stamp,
            meta,
            filter_loading: FilterLoading::default(),
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

    /// A data block that is large in the file, past the cache.
    #[cold]
    pub(super) fn read_large(&self, handle: Handle) -> Result<Arc<Block>> {
        self.parse(handle, large::read(&*self.file, self.no, handle)?)
    }

    /// Reads an index partition from the file and caches it.
    #[cold]
    fn load_index(&self, handle: Handle) -> Result<Arc<Block>> {
        let block = self.parse(handle, frame::read(&*self.file, self.no, handle)?)?;
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

    #[cold]
    fn load_filter(&self, handle: Handle) -> Result<Arc<Filter>> {
        self.cache.count_miss(self.no, handle.offset);
        let bytes = frame::read(&*self.file, self.no, handle)?;
        let filter = Filter::parse(&bytes).map_err(|what| self.bad(handle.offset, what))?;
        let filter = Arc::new(filter);
        let (cached, charge) = (Cached::Filter(filter.clone()), filter.charge());
        self.cache.insert_at(self.no, handle.offset, cached, charge, Some(Queue::Main));
        Ok(filter)
    }

    /// What the filter at `handle` says, if it is in memory.
    #[inline]
    fn ask_cached(&self, handle: Handle, hash: u64) -> Result<Option<bool>> {
        let seen = self.cache.with_if(self.no, handle.offset, |cached| match cached {
            Cached::Filter(filter) => {
                let admits = filter.may_contain(hash);
                (Some(admits), !admits)
            }
            _ => (None, false),
        });
        match seen {
            Some(None) => Err(self.bad(handle.offset, "no filter where a filter was expected")),
            Some(answer) => Ok(answer),
            None => Ok(None),
        }
    }

    /// What the filter of a partition says, if it is worth asking.
    #[inline]
    fn ask_filter(&self, filter: Option<Handle>, hash: u64) -> Result<Option<bool>> {
        let Some(handle) = filter else {
            return Ok(Some(true));
        };
        let told = self.ask_cached(handle, hash)?;
        if told.is_some() || !self.filter_loading.pays() {
            return Ok(told);
        }
        let admits = self.load_filter(handle)?.may_contain(hash);
        self.filter_loading.learn(admits);
        Ok(Some(admits))
    }

    /// What the filter of a partition says.
    #[inline]
    fn filter_admits(&self, filter: Option<Handle>, hash: u64) -> Result<bool> {
        let Some(handle) = filter else {
            return Ok(true);
        };
        match self.ask_cached(handle, hash)? {
            Some(answer) => Ok(answer),
            None => Ok(self.load_filter(handle)?.may_contain(hash)),
        }
    }

    /// The first row of an index partition whose separator is at or above the key, with what it points to.
    #[inline]
    fn find(&self, index: &Block, at: Handle, key: &[u8]) -> Result<(u32, Handle, u64)> {
        let row = index.lower_bound(key).0;
        if row == index.rows() {
            return Err(self.bad(at.offset, "index partition ends below its separator"));
        }
        let (handle, before) = self.entry(index, row as u32)?;
        Ok((row as u32, handle, before))
    }

    /// Looks into an index partition, without taking a reference of it when it is cached.
    #[inline]
    fn look_into<R>(&self, at: Handle, look: impl Fn(&Block) -> Result<R>) -> Result<R> {
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
    fn locate(&self, at: Handle, key: &[u8]) -> Result<(u32, Handle, u64)> {
        self.look_into(at, |index| self.find(index, at, key))
    }

    /// True if the filter knows that the SST has no version of the key with this [`key_hash`]. Reads a filter that is
    /// not in memory only if `may_read`, asked once, says so.
    pub fn excludes(&self, key: &[u8], hash: u64, may_read: impl FnOnce() -> bool) -> Result<bool> {
        let partition = self.top.lower_bound(key).0;
        if partition == self.top.rows() {
            return Ok(true);
        }
        let (_, filter, _) = self.partition(partition as u32)?;
        let known = filter.is_some_and(|handle| self.cache.peek_with(self.no, handle.offset, |_| ()).is_some());
        Ok((known || may_read()) && !self.filter_admits(filter, hash)?)
    }

    /// The newest version of `key` with a number `<= read`: its number, kind and value (empty for a tombstone).
    pub fn get(&self, key: &[u8], read: SeqNo) -> Result<Option<(SeqNo, Kind, PinnedValue)>> {
        self.get_hashed(key, key_hash(key), read)
    }

    /// [`Sst::get`] with `hash = key_hash(key)` at hand, for lookups in several SSTs.
    pub fn get_hashed(&self, key: &[u8], hash: u64, read: SeqNo) -> Result<Option<(SeqNo, Kind, PinnedValue)>> {
        // The caller chose the SST by its key range, so that is not compared again: a key above it ends in the
        // top-level index, one below it in the filter or the first block.
        if read < self.stamp.unwrap_or(self.meta.min_seq) {
            return Ok(None);
        }
        if let Some(stamp) = self.stamp {
            let found = self.find_version(key, hash, SeqNo::MAX)?;
            return Ok(found.map(|(_, kind, value)| (stamp, kind, value)));
        }
        self.find_version(key, hash, read)
    }

    /// `get_hashed` by the numbers in the file.
    #[inline]
    fn find_version(&self, key: &[u8], hash: u64, read: SeqNo) -> Result<Option<(SeqNo, Kind, PinnedValue)>> {
        let partition = self.top.lower_bound(key).0;
        if partition == self.top.rows() {
            return Ok(None);
        }
        let (index, filter, _) = self.partition(partition as u32)?;
        let told = self.ask_filter(filter, hash)?;
        if told == Some(false) {
            return Ok(None);
        }
        let (row, handle, _) = self.locate(index, key)?;
        let block = match self.cached_rows(handle)? {
            Some(block) => block,
            None => match self.load_for(key, read, partition as u32, row, handle)? {
                Some(block) => block,
                None => return self.get_further(key, read, partition as u32, row),
            },
        };
        let (first, exact) = block.lower_bound(key);
        if !exact {
            if told.is_none() {
                self.filter_loading.learn(false);
            }
            // The separator lies below the next block's first key, so the key is not there either.
            return Ok(None);
        }
        let seen = block.first_visible(first, key, read);
        if seen == block.rows() {
            // It may be a large one.
            drop(block);
            return self.get_further(key, read, partition as u32, row);
        }
        Ok(Sst::answer(&block, seen as u32, key, seen != first))
    }

    /// The block that the search for `key` has come to; of a large row that is not the answer its head. `None` if that is a
    /// version of the key which is too new.
    #[cold]
    fn load_for(
        &self,
        key: &[u8],
        read: SeqNo,
        partition: u32,
        row: u32,
        handle: Handle,
    ) -> Result<Option<Arc<Block>>> {
        let index = self.index(partition)?;
        match self.large_row(&index, row, handle)? {
            Some(large) if !index.key_is(row, key) => {
                let mut other = Vec::new();
                index.append_key(row, &mut other);
                large.head(self, &other).map(Some)
            }
            Some(large) if large.seq > read => Ok(None),
            _ => self.load_data(handle, None, true).map(Some),
        }
    }

    /// The row's version if it is one of `key`, which need not be checked if that is known.
    #[inline]
    fn answer(block: &Arc<Block>, row: u32, key: &[u8], check: bool) -> Option<(SeqNo, Kind, PinnedValue)> {
        if check && !block.key_is(row, key) {
            return None;
        }
        Some((block.seq(row), block.kind(row), PinnedValue::new(block.clone(), row)))
    }

    /// Continues a lookup behind block `row` of `partition`, all of whose versions of the key are too new.
    #[cold]
    fn get_further(
        &self,
        key: &[u8],
        read: SeqNo,
        mut partition: u32,
        mut row: u32,
    ) -> Result<Option<(SeqNo, Kind, PinnedValue)>> {
        let mut index = self.index(partition)?;
        loop {
            row += 1;
            if row as usize >= index.rows() {
                partition += 1;
                if partition as usize >= self.top.rows() {
                    return Ok(None);
                }
                index = self.index(partition)?;
                row = 0;
            }
            let handle = self.entry(&index, row)?.0;
            let block = match self.cached_rows(handle)? {
                Some(block) => block,
                None => match self.load_for(key, read, partition, row, handle)? {
                    Some(block) => block,
                    None => continue,
                },
            };
            if !block.key_is(0, key) {
                return Ok(None);
            }
            let seen = block.first_visible(0, key, read);
            if seen < block.rows() {
                return Ok(Sst::answer(&block, seen as u32, key, true));
            }
        }
    }

    /// False if the SST certainly has no version of `key`; asks the key range and the filter only.
    pub fn may_contain(&self, key: &[u8]) -> Result<bool> {
        if key < &self.meta.smallest[..] {
            return Ok(false);
        }
        let partition = self.top.lower_bound(key).0;
        if partition == self.top.rows() {
            return Ok(false);
        }
        self.filter_admits(self.partition(partition as u32)?.1, key_hash(key))
    }

    /// A cursor over all versions; not positioned yet.
    pub fn iter(self: &Arc<Self>, hints: ReadHints) -> SstIter {
        self.iter_in(IterMemory::default(), hints)
    }

    /// The same, in the memory of another cursor.
    pub fn iter_in(self: &Arc<Self>, memory: IterMemory, hints: ReadHints) -> SstIter {
        SstIter::new(self.clone(), hints, memory)
    }

    /// About how much of the file has smaller keys. Bytes: the offset of the block where the key is or would be.
    /// Versions: exact if that block is cached, else rounded down to its start.
    pub fn before(&self, key: &[u8]) -> Result<Extent> {
        let partition = self.top.lower_bound(key).0;
        if partition == self.top.rows() {
            return Ok(Extent { bytes: self.data_end, entries: self.meta.entries, exact: true });
        }
        let (index, _, _) = self.partition(partition as u32)?;
        let (_, handle, before) = self.locate(index, key)?;
        let inside = self.peek_rows(handle, |block| block.lower_bound(key).0);
        Ok(Extent { bytes: handle.offset, entries: before + inside.unwrap_or(0) as u64, exact: inside.is_some() })
    }

    /// About how much of the file has keys in `[lower, upper)`: the difference of what is before the two. One way down the
    /// index if both keys belong to the same block, as those of a short range mostly do.
    pub fn between(&self, lower: &[u8], upper: &[u8]) -> Result<Extent> {
        let partition = self.top.lower_bound(lower).0;
        if partition == self.top.rows() {
            return Ok(Extent { bytes: 0, entries: 0, exact: true });
        }
        let (index, _, _) = self.partition(partition as u32)?;
        let (handle, before, same_block) = self.look_into(index, |block| {
            let (row, handle, before) = self.find(block, index, lower)?;
            Ok((handle, before, block.reaches(row, upper)))
        })?;
        if same_block {
            let inside =
                self.peek_rows(handle, |block| block.lower_bound(upper).0.saturating_sub(block.lower_bound(lower).0));
            return Ok(Extent { bytes: 0, entries: inside.unwrap_or(0) as u64, exact: inside.is_some() });
        }
        let inside = self.peek_rows(handle, |block| block.lower_bound(lower).0);
        let from = before + inside.unwrap_or(0) as u64;
        let to = self.before(upper)?;
        Ok(Extent {
            bytes: to.bytes.saturating_sub(handle.offset),
            entries: to.entries.saturating_sub(from),
            exact: to.exact && inside.is_some(),
        })
    }

    /// How the cache holds the data block in which a key is or would be, leaving no trace there; `None` if it does not, or if
    /// that cannot be told without reading.
    pub fn residence_of(&self, key: &[u8]) -> Option<Residence> {
        let partition = self.top.lower_bound(key).0;
        let (index, ..) = self.partition(u32::try_from(partition).ok()?).ok()?;
        let handle = self.peek_rows(index, |rows| self.find(rows, index, key).ok().map(|(_, handle, _)| handle))??;
        self.residence(handle)
    }

    /// Looks at a data block if it is cached, leaving no trace in the cache.
    fn peek_rows<R>(&self, handle: Handle, look: impl FnOnce(&Block) -> R) -> Option<R> {
        let seen = self.cache.peek_with(self.no, handle.offset, |cached| match cached {
            Cached::Rows(block) => Some(look(block)),
            _ => None,
        });
        seen.flatten()
    }

    /// Reads the whole file past the cache and checks everything that can be checked: checksums, structure, order,
    /// separators, counts, filters, properties.
    pub fn verify(&self) -> Result<()> {
        self.verify_with(&|| Ok(()))
    }

    /// As `verify`; `tick` is called for each partition of the index, and its error ends the work.
    pub fn verify_with(&self, tick: &dyn Fn() -> Result<()>) -> Result<()> {
        let mut ahead = ReadAhead::new(1 << 20, 1 << 20);
        let mut seen = SstMeta {
            min_seq: SeqNo(u64::MAX),
            max_seq: SeqNo::ZERO,
            entries: 0,
            tombstones: 0,
            raw_bytes: 0,
            ..self.meta.clone()
        };
        let mut walked = Walked::default();
        let mut shares = Shares::default();
        let mut expected_offset = 0;
        for partition in 0..self.top.rows() as u32 {
            tick()?;
            let (at, filter, before) = self.partition(partition)?;
            if before != seen.entries {
                return Err(self.bad(at.offset, "wrong count in the top-level index"));
            }
            let (index, filter) = self.read_partition(at, filter)?;
            for entry in 0..index.rows() as u32 {
                let (handle, before) = self.entry(&index, entry)?;
                if before != seen.entries || handle.offset != expected_offset {
                    return Err(self.bad(at.offset, "index entry does not follow the one before"));
                }
                expected_offset = handle.end();
                let block = self.read_block(handle, &mut ahead)?;
                self.check_large_row(&index, entry, handle, &block)?;
                let is_first = seen.entries == 0;
                walked.block(self, handle, &block, &filter, &mut |key, seq, kind, value_bytes| {
                    seen.min_seq = seen.min_seq.min(seq);
                    seen.max_seq = seen.max_seq.max(seq);
                    seen.tombstones += u64::from(kind == Kind::Delete);
                    shares.count(key, kind, value_bytes);
                    seen.raw_bytes += (key.len() + value_bytes) as u64;
                    seen.entries += 1;
                })?;
                if is_first && walked.first_key != self.meta.smallest {
                    return Err(self.bad(handle.offset, "first key is not the smallest of the properties"));
                }
                walked.separator(self, at, &index, entry)?;
            }
            let mut key = Vec::new();
            self.top.append_key(partition, &mut key);
            if key != walked.separator {
                return Err(self.bad(at.offset, "top-level separator is not the last of its partition"));
            }
        }
        seen.largest = walked.last_key;
        seen.shares = shares.finish().ok_or_else(|| self.bad(self.data_end, "share of an index above its limit"))?;
        if seen != self.meta || expected_offset != self.data_end {
            return Err(self.bad(self.data_end, "properties contradict the data"));
        }
        Ok(())
    }

    /// As `verify_with`, for one index of a file that several share: reads the blocks that have keys of it and what leads to
    /// them, and compares its share in the properties.
    pub fn verify_part(&self, id: IndexId, tick: &dyn Fn() -> Result<()>) -> Result<()> {
        let Some(expected) = self.meta.part_of(id) else { return Ok(()) };
        let (lower, upper) = (id.prefix(), id.0.checked_add(1).map(|next| IndexId(next).prefix()));
        let is_behind = |key: &[u8]| upper.is_some_and(|upper| key >= upper.as_slice());
        let mut ahead = ReadAhead::new(AHEAD_MIN, 1 << 20);
        let mut walked = Walked::default();
        let mut found = Part::default();
        let mut separator = Vec::new();
        'file: for partition in 0..self.top.rows() as u32 {
            separator.clear();
            self.top.append_key(partition, &mut separator);
            if separator.as_slice() < lower.as_slice() {
                continue;
            }
            tick()?;
            let (at, filter, _) = self.partition(partition)?;
            let (index, filter) = self.read_partition(at, filter)?;
            for entry in 0..index.rows() as u32 {
                separator.clear();
                index.append_key(entry, &mut separator);
                if separator.as_slice() < lower.as_slice() {
                    continue;
                }
                let handle = self.entry(&index, entry)?.0;
                let block = self.read_block(handle, &mut ahead)?;
                self.check_large_row(&index, entry, handle, &block)?;
                walked.block(self, handle, &block, &filter, &mut |key, _, kind, value_bytes| {
                    if IndexId::of(key) == id {
                        found.entries += 1;
                        found.tombstones += u64::from(kind == Kind::Delete);
                        found.raw_bytes += (key.len() + value_bytes) as u64;
                    }
                })?;
                walked.separator(self, at, &index, entry)?;
                if is_behind(&walked.last_key) {
                    break 'file;
                }
            }
        }
        match found == expected {
            true => Ok(()),
            false => Err(self.bad(self.data_end, format!("share of index {id} contradicts the data"))),
        }
    }

    /// Compares a block with what its entry in the index says.
    fn check_large_row(&self, index: &Block, entry: u32, handle: Handle, block: &Block) -> Result<()> {
        let Some(row) = self.large_row(index, entry, handle)? else { return Ok(()) };
        let mut key = Vec::new();
        index.append_key(entry, &mut key);
        row.check(self, &key, block)
    }

    /// An index partition and its filter, past the cache.
    fn read_partition(&self, at: Handle, filter: Option<Handle>) -> Result<(Arc<Block>, PlacedFilter)> {
        let index = self.parse(at, frame::read(&*self.file, self.no, at)?)?;
        let Some(handle) = filter else { return Ok((index, None)) };
        let bytes = frame::read(&*self.file, self.no, handle)?;
        Ok((index, Some((handle, Filter::parse(&bytes).map_err(|what| self.bad(handle.offset, what))?))))
    }

    /// A data block, past the cache.
    fn read_block(&self, handle: Handle, ahead: &mut ReadAhead) -> Result<Arc<Block>> {
        if handle.len as usize >= LARGE {
            return self.read_large(handle);
        }
        let framed = ahead.fetch(&*self.file, handle, self.data_end, true)?;
        self.parse(handle, frame::unpack(self.file.path(), self.no, handle.offset, framed)?)
    }
}

/// A filter, if there is one, and where it lies.
type PlacedFilter = Option<(Handle, Filter)>;
/// Is told key, number, kind, and length of the value of each row.
type EachRow<'a> = &'a mut dyn FnMut(&[u8], SeqNo, Kind, usize);

/// Where a verification stands: the rows of consecutive blocks follow each other.
#[derive(Default)]
struct Walked {
    rows: u64,
    key: Vec<u8>,
    first_key: Vec<u8>,
    last_key: Vec<u8>,
    last_seq: SeqNo,
    separator: Vec<u8>,
}

impl Walked {
    /// Checks the rows of the next block.
    fn block(
        &mut self,
        sst: &Sst,
        handle: Handle,
        block: &Block,
        filter: &PlacedFilter,
        each: EachRow<'_>,
    ) -> Result<()> {
        let (mut newest, mut tombstones) = (SeqNo::ZERO, false);
        for row in 0..block.rows() as u32 {
            self.key.clear();
            block.append_key(row, &mut self.key);
            let (seq, kind) = (block.seq(row), block.kind(row));
            let order = if self.rows == 0 { Ordering::Less } else { self.last_key.cmp(&self.key) };
            if order.is_gt() || (order.is_eq() && self.last_seq <= seq) {
                return Err(sst.bad(handle.offset, format!("row {row} out of order")));
            }
            if self.rows > 0 && row == 0 && self.key < self.separator {
                return Err(sst.bad(handle.offset, "block begins below the separator before it"));
            }
            if let Some((at, filter)) = filter {
                if !filter.may_contain(key_hash(&self.key)) {
                    return Err(sst.bad(at.offset, format!("filter denies key {:02x?}", self.key)));
                }
            }
            if self.rows == 0 {
                self.first_key.clone_from(&self.key);
            }
            newest = newest.max(seq);
            tombstones |= kind == Kind::Delete;
            each(&self.key, seq, kind, block.value(row).len());
            self.rows += 1;
            std::mem::swap(&mut self.key, &mut self.last_key);
            self.last_seq = seq;
        }
        match block.newest() != newest || block.has_tombstones() != tombstones {
            true => Err(sst.bad(handle.offset, "block flags contradict its rows")),
            false => Ok(()),
        }
    }

    /// Checks what the index says of the block's end.
    fn separator(&mut self, sst: &Sst, at: Handle, index: &Block, entry: u32) -> Result<()> {
        self.separator.clear();
        index.append_key(entry, &mut self.separator);
        match self.separator < self.last_key {
            true => Err(sst.bad(at.offset, "separator below the last key of its block")),
            false => Ok(()),
        }
    }
}

impl std::fmt::Debug for Sst {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("path", &self.file.path()).field("meta", &self.meta).finish_non_exhaustive()
    }
}
