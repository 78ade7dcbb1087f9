//! What the tests of compaction share.

use crate::sst::TableMeta;

/// Sublevels of these files of level 0, as a version makes them: each file, the oldest first, above all that it overlaps.
pub fn sublevels<'m>(files: impl IntoIterator<Item = &'m TableMeta>) -> Vec<Vec<&'m TableMeta>> {
    let mut files: Vec<&TableMeta> = files.into_iter().collect();
    files.sort_by_key(|meta| meta.max_seq);
    let mut sublevels: Vec<Vec<&TableMeta>> = Vec::new();
    for file in files {
        let meets = |run: &Vec<&TableMeta>| {
            run.iter().any(|other| other.smallest <= file.largest && file.smallest <= other.largest)
        };
        let at = sublevels.iter().rposition(meets).map_or(0, |at| at + 1);
        if at == sublevels.len() {
            sublevels.push(Vec::new());
        }
        sublevels[at].push(file);
    }
    for run in &mut sublevels {
        run.sort_by(|a, b| a.smallest.cmp(&b.smallest));
    }
    sublevels
}
