//! What may be written, by a transaction and by a write of its own: both refuse the same.

use crate::common::open;
use strata_engine::io::MemDisk;
use strata_engine::layer::limits::KEY_BYTES_MAX;

#[test]
fn a_key_that_is_too_short_or_too_long_is_refused_by_every_way_to_write() {
    let engine = open(&MemDisk::new()).unwrap();
    for (length, allowed) in [(3, false), (4, true), (KEY_BYTES_MAX, true), (KEY_BYTES_MAX + 1, false)] {
        let key = vec![9; length];
        let mut txn = engine.begin();
        assert_eq!(txn.put(&key, b"x").is_ok(), allowed, "put, {length} bytes");
        assert_eq!(txn.delete(&key).is_ok(), allowed, "delete, {length} bytes");
        txn.rollback().unwrap();
        assert_eq!(
            engine.write(&[(key.clone(), Some(b"x".to_vec()))], false).is_ok(),
            allowed,
            "write, {length} bytes"
        );
        assert_eq!(engine.write(&[(key, None)], false).is_ok(), allowed, "write of a delete, {length} bytes");
    }
}
