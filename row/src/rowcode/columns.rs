//! Sets of columns.

/// A set of column numbers of one table.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ColumnSet {
    words: Vec<u64>,
}

impl ColumnSet {
    /// The empty set with room for `columns` columns.
    pub fn new(columns: usize) -> ColumnSet {
        ColumnSet { words: vec![0; columns.div_ceil(64)] }
    }

    /// The columns `0..columns`.
    pub fn all(columns: usize) -> ColumnSet {
        let mut set = ColumnSet::new(columns);
        for column in 0..columns {
            set.insert(column);
        }
        set
    }

    /// From a bitmap: bit `i` of the first `bits` bits says whether column `i` is in the set. Missing words are zero.
    pub fn from_words(words: &[u64], bits: usize) -> ColumnSet {
        let mut words = words[..words.len().min(bits.div_ceil(64))].to_vec();
        if let Some(last) = words.get_mut(bits / 64) {
            *last &= (1 << (bits % 64)) - 1;
        }
        ColumnSet { words }
    }

    /// Adds a column.
    pub fn insert(&mut self, column: usize) {
        let word = column / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (column % 64);
    }

    /// True if the column is in the set.
    pub fn contains(&self, column: usize) -> bool {
        self.words.get(column / 64).is_some_and(|word| word >> (column % 64) & 1 != 0)
    }

    /// True if no column is.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// The greatest column number in the set.
    pub fn highest(&self) -> Option<usize> {
        let word = self.words.iter().rposition(|&word| word != 0)?;
        Some(word * 64 + 63 - self.words[word].leading_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_beyond_the_given_number_do_not_count() {
        let set = ColumnSet::from_words(&[u64::MAX, u64::MAX], 65);
        assert!(set.contains(64) && !set.contains(65));
        assert_eq!(set.highest(), Some(64));
        assert_eq!(ColumnSet::from_words(&[u64::MAX], 64), ColumnSet::all(64));
        assert_eq!(ColumnSet::from_words(&[u64::MAX], 3), ColumnSet::all(3));
    }

    #[test]
    fn a_set_grows_and_knows_its_highest() {
        let mut set = ColumnSet::new(1);
        assert!(set.is_empty() && set.highest().is_none());
        set.insert(200);
        set.insert(0);
        assert_eq!(set.highest(), Some(200));
        assert!(set.contains(200) && set.contains(0) && !set.contains(199) && !set.contains(100_000));
    }
}
