//! What the tests of compaction share.

use crate::sst::SstMeta;

/// Sublevels of these files of level 0, as a version makes them: each file, the oldest first, above all that it overlaps.
pub fn sublevels<'m>(files: impl IntoIterator<Item = &'m SstMeta>) -> Vec<Vec<&'m SstMeta>> {
    let mut files: Vec<&SstMeta> = files.into_iter().collect();
    files.sort_by_key(|meta| meta.max_seq);
    let mut sublevels: Vec<Vec<&SstMeta>> = Vec::new();
    for file in files {
        let meets = |run: &Vec<&SstMeta>| {
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
