//! Injected faults: which operation fails, and how it looks to the caller.
//!
//! A fault strikes at the n-th operation that it concerns, once or from then on. A full device concerns what needs space, a
//! process without descriptors what opens something, any other failure all that changes or settles something.
//!
//! Invariant: the operations before the n-th pass, so that a test which raises n meets every one.
//!
//! Rejected: faults by path (a test would have to know which file an operation touches).

use std::io;

/// How an injected fault looks to the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// The device is full.
    StorageFull,
    /// Any other failure of the device.
    Other,
    /// The process has no file descriptor left: only what needs one fails, reading included.
    TooManyFiles,
}

impl FaultKind {
    pub(super) fn error(self) -> io::Error {
        match self {
            FaultKind::StorageFull => io::Error::from(io::ErrorKind::StorageFull),
            FaultKind::Other => io::Error::other("injected fault"),
            FaultKind::TooManyFiles => io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error()),
        }
    }
}

pub(super) struct Fault {
    /// Operations left until it strikes, counting down to 1.
    pub left: u64,
    pub kind: FaultKind,
    pub lasting: bool,
    /// The first operation that failed.
    pub struck: Option<&'static str>,
}

/// What an operation needs, so what makes it fail.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    /// More space, and a descriptor.
    SpaceAndDescriptor,
    Space,
    Descriptor,
    /// A descriptor; it changes or settles something.
    MutationAndDescriptor,
    Mutation,
}

impl Fault {
    /// The error if this operation is one to fail.
    pub fn pass(&mut self, op: &'static str, needs: Needs) -> io::Result<()> {
        let concerned = match (self.kind, needs) {
            (FaultKind::TooManyFiles, Needs::Space | Needs::Mutation) => false,
            (FaultKind::TooManyFiles, _) => true,
            (FaultKind::StorageFull, _) if self.lasting => matches!(needs, Needs::Space | Needs::SpaceAndDescriptor),
            _ => needs != Needs::Descriptor,
        };
        if !concerned || (self.struck.is_some() && !self.lasting) {
            return Ok(());
        }
        self.left = self.left.saturating_sub(1);
        if self.left > 0 {
            return Ok(());
        }
        self.struck.get_or_insert(op);
        Err(self.kind.error())
    }
}
