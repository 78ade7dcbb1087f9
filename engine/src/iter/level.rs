//! A sorted run of files seen as one source.
//!
//! The files of a run do not overlap and all versions of a user key are in one file, so at most one file is open at a
//! time; it is opened when the cursor first needs it. Bounds given at creation narrow the run to the files that can
//! hold keys within them: files outside are never opened. The bounds do not clip within a file; the reader of the
//! merged stream checks them once for all sources.

use super::VersionIter;
use crate::base::value::{DeferredValue, LargeValue};
use crate::base::{Kind, Result, SeqNo};

/// A sorted run: files with their fences, smallest first. Implemented for whatever holds the file list, so that a
/// cursor copies no keys.
pub trait SortedRun: Send {
    /// Cursor over one file.
    type Iter: VersionIter;
    /// Number of files.
    fn len(&self) -> usize;
    /// True if the run has no files.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Smallest user key of file `i`.
    fn smallest(&self, i: usize) -> &[u8];
    /// Largest user key of file `i`.
    fn largest(&self, i: usize) -> &[u8];
    /// Opens a cursor over file `i`; `former` is the one that was open before, whose memory it may use.
    fn open(&mut self, i: usize, former: Option<Self::Iter>) -> Result<Self::Iter>;
}

/// A cursor over a [`SortedRun`].
pub struct LevelIter<R: SortedRun> {
    run: R,
    /// The files within the bounds.
    from: usize,
    to: usize,
    /// The open file; not positioned if the cursor stands nowhere.
    open: Option<(usize, R::Iter)>,
}

impl<R: SortedRun> LevelIter<R> {
    /// A cursor over the files of `run` that may hold keys in `[lower, upper)`; no bound where `None`.
    pub fn new(run: R, lower: Option<&[u8]>, upper: Option<&[u8]>) -> LevelIter<R> {
        let mut iter = LevelIter { from: 0, to: run.len(), run, open: None };
        if let Some(upper) = upper {
            iter.to = iter.first_file(|iter, i| iter.run.smallest(i) >= upper);
        }
        if let Some(lower) = lower {
            iter.from = iter.first_file(|iter, i| iter.run.largest(i) >= lower);
        }
        iter
    }

    /// True if no file is within the bounds: the source can be left out of a merge.
    pub fn is_empty(&self) -> bool {
        self.from >= self.to
    }

    /// The first file in the bounds for which `test` holds (it holds for all after it too), or the end.
    fn first_file(&self, test: impl Fn(&Self, usize) -> bool) -> usize {
        let (mut low, mut high) = (self.from, self.to);
        while low < high {
            let middle = low + (high - low) / 2;
            if test(self, middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    fn file(&mut self, i: usize) -> Result<&mut R::Iter> {
        if self.open.as_ref().is_none_or(|(at, _)| *at != i) {
            let former = self.open.take().map(|(_, iter)| iter);
            self.open = Some((i, self.run.open(i, former)?));
        }
        Ok(&mut self.open.as_mut().expect("just opened").1)
    }

    /// Ends the cursor: its files, and the cursor over the one that is open.
    pub fn into_parts(self) -> (R, Option<R::Iter>) {
        (self.run, self.open.map(|(_, iter)| iter))
    }

    fn iter(&self) -> &R::Iter {
        &self.open.as_ref().expect("iterator is positioned").1
    }

    /// Moves forward in the open file, and out of it at its end.
    #[inline]
    fn go_on(&mut self, movement: impl FnOnce(&mut R::Iter) -> Result<()>) -> Result<()> {
        let (at, iter) = self.open.as_mut().expect("iterator is positioned");
        movement(iter)?;
        if iter.valid() {
            return Ok(());
        }
        let at = *at;
        self.forward(at)
    }

    /// On to the first version of the following files, if the open one is exhausted.
    fn forward(&mut self, mut i: usize) -> Result<()> {
        while !self.valid() {
            i += 1;
            if i >= self.to {
                return Ok(());
            }
            self.file(i)?.seek_first()?;
        }
        Ok(())
    }

    fn backward(&mut self, mut i: usize) -> Result<()> {
        while !self.valid() {
            if i <= self.from {
                return Ok(());
            }
            i -= 1;
            self.file(i)?.seek_last()?;
        }
        Ok(())
    }
}

impl<R: SortedRun> VersionIter for LevelIter<R> {
    #[inline]
    fn valid(&self) -> bool {
        self.open.as_ref().is_some_and(|(_, iter)| iter.valid())
    }
    #[inline]
    fn key(&self) -> &[u8] {
        self.iter().key()
    }
    #[inline]
    fn seq(&self) -> SeqNo {
        self.iter().seq()
    }
    #[inline]
    fn kind(&self) -> Kind {
        self.iter().kind()
    }
    #[inline]
    fn value(&self) -> &[u8] {
        self.iter().value()
    }
    #[inline]
    fn large_value(&self) -> Option<LargeValue> {
        self.iter().large_value()
    }
    #[inline]
    fn is_deferred(&self) -> bool {
        self.iter().is_deferred()
    }
    fn load(&mut self) -> Result<()> {
        self.open.as_mut().map_or(Ok(()), |(_, iter)| iter.load())
    }
    fn deferred(&self) -> Option<DeferredValue> {
        self.iter().deferred()
    }
    #[inline]
    fn value_len(&self) -> usize {
        self.iter().value_len()
    }
    fn seek_ge(&mut self, key: &[u8]) -> Result<()> {
        let i = self.first_file(|iter, i| iter.run.largest(i) >= key);
        if i >= self.to {
            self.open = None;
            return Ok(());
        }
        self.file(i)?.seek_ge(key)?;
        self.forward(i)
    }
    fn seek_lt(&mut self, key: &[u8]) -> Result<()> {
        let i = self.first_file(|iter, i| iter.run.smallest(i) >= key);
        if i <= self.from {
            self.open = None;
            return Ok(());
        }
        self.file(i - 1)?.seek_lt(key)?;
        self.backward(i - 1)
    }
    fn seek_first(&mut self) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let i = self.from;
        self.file(i)?.seek_first()?;
        self.forward(i)
    }
    fn seek_last(&mut self) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let i = self.to - 1;
        self.file(i)?.seek_last()?;
        self.backward(i)
    }
    #[inline]
    fn next(&mut self) -> Result<()> {
        self.go_on(R::Iter::next)
    }
    #[inline]
    fn next_key(&mut self) -> Result<()> {
        self.go_on(R::Iter::next_key)
    }
    #[inline]
    fn prev(&mut self) -> Result<()> {
        let (at, iter) = self.open.as_mut().expect("iterator is positioned");
        iter.prev()?;
        if iter.valid() {
            return Ok(());
        }
        let at = *at;
        self.backward(at)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::super::testing::{Entry, VecIter};
    use super::*;
    use proptest::prelude::*;

    struct Run {
        files: Vec<Vec<Entry>>,
        opened: Arc<Mutex<Vec<usize>>>,
    }

    impl SortedRun for Run {
        type Iter = VecIter;
        fn len(&self) -> usize {
            self.files.len()
        }
        fn smallest(&self, i: usize) -> &[u8] {
            &self.files[i][0].0
        }
        fn largest(&self, i: usize) -> &[u8] {
            &self.files[i][self.files[i].len() - 1].0
        }
        fn open(&mut self, i: usize, _: Option<VecIter>) -> Result<VecIter> {
            self.opened.lock().unwrap().push(i);
            Ok(VecIter::new(self.files[i].clone()))
        }
    }

    fn run_of(keys: &[&[u8]]) -> (Run, Arc<Mutex<Vec<usize>>>) {
        let opened = Arc::new(Mutex::new(Vec::new()));
        let files =
            keys.iter().map(|file| file.iter().map(|k| (vec![*k], SeqNo(1), Kind::Put, vec![*k])).collect()).collect();
        (Run { files, opened: opened.clone() }, opened)
    }

    #[test]
    fn files_out_of_bounds_are_never_opened() {
        let (run, opened) = run_of(&[b"ac", b"eg", b"ik", b"mo"]);
        let mut iter = LevelIter::new(run, Some(b"d"), Some(b"i"));
        assert!(!iter.is_empty());
        for seek in 0..4 {
            match seek {
                0 => iter.seek_first().unwrap(),
                1 => iter.seek_last().unwrap(),
                2 => iter.seek_ge(b"a").unwrap(),
                _ => iter.seek_lt(b"z").unwrap(),
            }
            assert!(matches!(iter.key(), b"e" | b"g"));
            while iter.valid() {
                iter.next().unwrap();
            }
        }
        assert!(opened.lock().unwrap().iter().all(|i| *i == 1));
        let (run, _) = run_of(&[b"ac", b"eg"]);
        assert!(LevelIter::new(run, Some(b"d"), Some(b"e")).is_empty());
        let (run, _) = run_of(&[b"ac", b"eg"]);
        assert!(LevelIter::new(run, Some(b"h"), None).is_empty());
    }

    #[test]
    fn a_seek_opens_one_file() {
        let (run, opened) = run_of(&[b"ac", b"eg", b"ik"]);
        let mut iter = LevelIter::new(run, None, None);
        iter.seek_ge(b"d").unwrap();
        assert_eq!(iter.key(), b"e");
        iter.seek_ge(b"f").unwrap();
        assert_eq!(iter.key(), b"g");
        assert_eq!(*opened.lock().unwrap(), [1]);
        iter.seek_ge(b"l").unwrap();
        assert!(!iter.valid());
    }

    proptest! {
        #[test]
        fn walks_like_one_sorted_vector(
            sizes in prop::collection::vec(1usize..4, 0..6),
            ops in prop::collection::vec((0u8..6, 0u8..40), 1..60),
        ) {
            let mut next = 1u8;
            let mut files = Vec::new();
            for size in sizes {
                files.push((0..size).map(|_| { next += 2; next }).collect::<Vec<u8>>());
            }
            let slices: Vec<&[u8]> = files.iter().map(|f| f.as_slice()).collect();
            let (run, _) = run_of(&slices);
            let mut model = VecIter::new(run.files.concat());
            let mut iter = LevelIter::new(run, None, None);
            for (op, key) in ops {
                match op {
                    0 if model.valid() => { iter.next().unwrap(); model.next().unwrap(); }
                    1 if model.valid() => { iter.prev().unwrap(); model.prev().unwrap(); }
                    2 => { iter.seek_ge(&[key]).unwrap(); model.seek_ge(&[key]).unwrap(); }
                    3 => { iter.seek_lt(&[key]).unwrap(); model.seek_lt(&[key]).unwrap(); }
                    4 => { iter.seek_first().unwrap(); model.seek_first().unwrap(); }
                    5 => { iter.seek_last().unwrap(); model.seek_last().unwrap(); }
                    _ => {}
                }
                prop_assert_eq!(iter.valid(), model.valid());
                if model.valid() {
                    prop_assert_eq!(iter.key(), model.key());
                }
            }
        }
    }
}
