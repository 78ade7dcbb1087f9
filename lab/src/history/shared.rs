//! What the sessions of a load share: time, numbers of keys and versions, the keys in use, and who was killed when.
//!
//! Invariant: no number is given out twice.
//!
//! Rejected: numbers that the sessions draw for themselves (a value would not tell who wrote it).

use super::{Key, KeyKind, Value, Version};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

/// A key with so many numbers makes room for a fresh one.
pub(super) const LONG: usize = 25;

/// A row with so many is out of its slot, or will be soon: a scan that finds it has it moved away. `l` holds five times as many.
pub(super) const OVERGROWN: usize = 2 * LONG;

/// Kinds of the slots; mortals begin empty.
pub(super) const SLOTS: [KeyKind; 12] = {
    use KeyKind::{List, Mortal, Register};
    [List, Register, Mortal, List, Register, Mortal, List, Register, Mortal, List, List, Mortal]
};

/// What the sessions share.
pub struct Shared {
    pub(super) began: Instant,
    /// The id in each slot; 0 for none.
    pub(super) slots: [AtomicU32; SLOTS.len()],
    /// Mortals that are in no slot, or overgrown.
    pub(super) strays: Mutex<BTreeSet<u32>>,
    /// Lists that a scan found overgrown.
    pub(super) overgrown: Mutex<BTreeSet<u32>>,
    pub(super) next_id: AtomicU32,
    pub(super) next_version: AtomicU32,
    /// Connection of each session, for the killer: the run of the server above its id, which is 0 for none.
    connections: Vec<AtomicU64>,
    /// How often the server was started again: its ids begin anew.
    server_run: AtomicU32,
    /// The killer's doings with each session.
    pub kills: Vec<Kills>,
    pub stop: AtomicBool,
    /// The server is gone on purpose: sessions wait for it to return.
    pub down: AtomicBool,
}

/// How often a session was killed: begun, and answered.
#[derive(Default)]
pub struct Kills {
    pub(super) begun: AtomicU32,
    pub(super) done: AtomicU32,
}

impl Kills {
    /// Around the statement that kills.
    pub fn during<T>(&self, kill: impl FnOnce() -> T) -> T {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let result = kill();
        self.done.fetch_add(1, Ordering::SeqCst);
        result
    }

    /// Now, for [`Kills::none_since`].
    pub(super) fn moment(&self) -> u32 {
        self.done.load(Ordering::SeqCst)
    }

    /// True if no kill ran at any time since `moment`.
    pub(super) fn none_since(&self, moment: u32) -> bool {
        self.begun.load(Ordering::SeqCst) == moment
    }
}

impl Shared {
    /// For so many sessions.
    pub fn new(sessions: u32) -> Shared {
        let shared = Shared {
            began: Instant::now(),
            slots: Default::default(),
            strays: Mutex::default(),
            overgrown: Mutex::default(),
            next_id: AtomicU32::new(1),
            next_version: AtomicU32::new(1),
            connections: (0..sessions).map(|_| AtomicU64::new(0)).collect(),
            server_run: AtomicU32::new(0),
            kills: (0..sessions).map(|_| Kills::default()).collect(),
            stop: AtomicBool::new(false),
            down: AtomicBool::new(false),
        };
        for (slot, kind) in shared.slots.iter().zip(SLOTS).filter(|(_, kind)| *kind != KeyKind::Mortal) {
            slot.store(shared.fresh(kind).0, Ordering::Relaxed);
        }
        shared
    }

    /// The server has ended: what its connections were called another one's may be called.
    pub fn server_ended(&self) {
        self.server_run.fetch_add(1, Ordering::SeqCst);
    }

    /// The run of the server, for [`Shared::connected`]; to be asked for before the session connects.
    pub(super) fn server_run(&self) -> u32 {
        self.server_run.load(Ordering::SeqCst)
    }

    /// A session has this connection now, made in this run of the server or the next; 0: none.
    pub(super) fn connected(&self, session: u32, server_run: u32, id: u32) {
        self.connections[session as usize].store(u64::from(server_run) << 32 | u64::from(id), Ordering::SeqCst);
    }

    /// The connection of a session, unless it has none, or one of a server that is gone.
    pub fn victim(&self, session: usize) -> Option<u32> {
        let connection = self.connections[session].load(Ordering::SeqCst);
        let id = connection as u32;
        (id != 0 && (connection >> 32) as u32 == self.server_run()).then_some(id)
    }

    pub(super) fn now(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }

    pub(super) fn fresh(&self, kind: KeyKind) -> Key {
        loop {
            let key = Key(self.next_id.fetch_add(1, Ordering::SeqCst));
            if key.kind() == kind {
                return key;
            }
        }
    }

    pub(super) fn version(&self) -> Version {
        self.next_version.fetch_add(1, Ordering::SeqCst)
    }

    /// Has the overgrown rows of a scan moved away.
    pub(super) fn weed(&self, seen: &[(Key, Value)]) {
        let overgrown = |value: &Value| matches!(value, Value::List(versions) if versions.len() >= OVERGROWN);
        for (key, _) in seen.iter().filter(|(_, value)| overgrown(value)) {
            let keys = if key.kind() == KeyKind::Mortal { &self.strays } else { &self.overgrown };
            if let Ok(mut keys) = keys.lock() {
                keys.insert(key.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session may still have its old connection when the server is there again, with another connection, perhaps the killer's
    /// own, under that id.
    #[test]
    fn a_connection_of_an_earlier_run_of_the_server_is_nobodys_victim() {
        let shared = Shared::new(2);
        assert_eq!(shared.victim(1), None);
        shared.connected(1, shared.server_run(), 7);
        assert_eq!((shared.victim(0), shared.victim(1)), (None, Some(7)));
        let before = shared.server_run();
        shared.server_ended();
        assert_eq!(shared.victim(1), None);
        shared.connected(1, before, 7);
        assert_eq!(shared.victim(1), None, "it was connecting when the server ended");
        shared.connected(1, shared.server_run(), 7);
        assert_eq!(shared.victim(1), Some(7));
        shared.connected(1, shared.server_run(), 0);
        assert_eq!(shared.victim(1), None);
    }

    /// A row that is in no slot any more would grow with each write to its group until it does not fit into its column.
    #[test]
    fn who_scans_has_overgrown_rows_moved_away() {
        let shared = Shared::new(1);
        let key = |kind| (1..).map(Key).find(|key| key.kind() == kind).expect("some of each kind");
        let (list, mortal, register) = (key(KeyKind::List), key(KeyKind::Mortal), key(KeyKind::Register));
        let of = |length: usize| Value::List(vec![7; length]);
        shared.weed(&[(list, of(OVERGROWN - 1)), (mortal, of(1)), (register, Value::Last(7))]);
        let taken = || {
            let take = |keys: &Mutex<BTreeSet<u32>>| keys.lock().expect("no panic").pop_first();
            (take(&shared.overgrown), take(&shared.strays))
        };
        assert_eq!(taken(), (None, None));
        shared.weed(&[(list, of(OVERGROWN)), (mortal, of(OVERGROWN + 1)), (list, of(OVERGROWN))]);
        assert_eq!(taken(), (Some(list.0), Some(mortal.0)));
        assert_eq!(taken(), (None, None));
    }
}
