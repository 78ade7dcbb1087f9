//! The content of a file: what programs see, what a power cut would leave for certain, and in which sectors the two differ.
//!
//! A crash image is the durable part plus sectors chosen at random from those written since the last sync, singly or by pages,
//! as a drive with a volatile cache may leave them.
//!
//! Invariants: a synced sector is in every image; a sector whose sync failed may be missing in an image whatever is synced later.
//!
//! Rejected: recording a trace of writes and replaying prefixes. It cannot show writes reordered inside one sync window.

use std::collections::BTreeSet;

pub(super) const SECTOR: usize = 512;

#[derive(Default)]
pub(super) struct Node {
    pub data: Vec<u8>,
    pub durable: Vec<u8>,
    /// Sectors in which `data` may differ from `durable`.
    dirty: BTreeSet<usize>,
    /// Sectors whose sync failed: they may or may not be on the medium, and no later sync settles it.
    doubtful: BTreeSet<usize>,
}

impl Node {
    /// A file with nothing unsynced.
    pub fn synced(data: Vec<u8>) -> Node {
        Node { durable: data.clone(), data, ..Node::default() }
    }

    fn mark_dirty(&mut self, from: usize, to: usize) {
        for sector in from / SECTOR..to.div_ceil(SECTOR) {
            self.dirty.insert(sector);
            self.doubtful.remove(&sector);
        }
    }

    pub fn resize(&mut self, len: usize) {
        let old = self.data.len();
        self.data.resize(len, 0);
        self.mark_dirty(old.min(len), old.max(len));
    }

    pub fn write(&mut self, buf: &[u8], offset: usize) {
        let end = offset + buf.len();
        if end > self.data.len() {
            self.resize(end);
        }
        self.data[offset..end].copy_from_slice(buf);
        self.mark_dirty(offset, end);
    }

    fn copy_sector(from: &[u8], to: &mut Vec<u8>, sector: usize) {
        let start = sector * SECTOR;
        let end = (start + SECTOR).min(from.len());
        if start < end {
            if to.len() < end {
                to.resize(end, 0);
            }
            to[start..end].copy_from_slice(&from[start..end]);
        }
    }

    pub fn sync(&mut self) {
        let Node { data, durable, dirty, .. } = self;
        durable.resize(data.len(), 0);
        for &sector in dirty.iter() {
            Self::copy_sector(data, durable, sector);
        }
        dirty.clear();
    }

    pub fn sync_failed(&mut self) {
        let dirty = std::mem::take(&mut self.dirty);
        self.doubtful.extend(dirty);
    }

    pub fn crash(&self, rng: &mut XorShift, survive_percent: u64, sectors_per_page: usize) -> Node {
        let mut data = self.durable.clone();
        if rng.chance(survive_percent) {
            data.resize(self.data.len(), 0);
        }
        let mut page = None;
        let mut survives = false;
        for &sector in self.dirty.union(&self.doubtful) {
            if page != Some(sector / sectors_per_page) {
                page = Some(sector / sectors_per_page);
                survives = rng.chance(survive_percent);
            }
            if survives {
                Self::copy_sector(&self.data, &mut data, sector);
            }
        }
        Node::synced(data)
    }
}

/// The generator behind crash images: small, seeded, the same everywhere.
pub(super) struct XorShift(u64);

impl XorShift {
    pub fn new(seed: u64) -> XorShift {
        let mut rng = XorShift(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        // Neighbouring seeds differ in few bits; some rounds spread them.
        for _ in 0..8 {
            rng.next();
        }
        rng
    }
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    /// True with `percent` in 100.
    pub fn chance(&mut self, percent: u64) -> bool {
        (self.next() >> 20) % 100 < percent
    }
}
