//! How the examples that write stored fixtures keep a store.

use std::fs;
use std::path::Path;

/// Puts what counts of a store in the place of what is in `to`: files without the zeros at their ends, and none that mean nothing.
pub fn keep(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).expect("create");
    for entry in fs::read_dir(from).expect("list") {
        let path = entry.expect("entry").path();
        let name = path.file_name().expect("name").to_str().expect("text").to_owned();
        let is_void =
            name.starts_with("recycle-") || name == "LOCK" || name.ends_with(".spare") || name.ends_with(".tmp");
        if path.is_dir() {
            keep(&path, &to.join(name));
        } else if !is_void {
            let bytes = fs::read(&path).expect("read");
            let end = bytes.iter().rposition(|&b| b != 0).map_or(0, |at| at + 1);
            // Log and manifest are read by pages; the others are as long as they say.
            let is_paged = name.ends_with(".log") || name.starts_with("MANIFEST-");
            let end = if is_paged { end.next_multiple_of(4096).min(bytes.len()) } else { bytes.len() };
            fs::write(to.join(name), &bytes[..end]).expect("write");
        }
    }
}
