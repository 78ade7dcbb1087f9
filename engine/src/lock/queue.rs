//! Who holds one lock and who waits for it: the rules, without threads.
//!
//! Rules
//! - Shared is compatible with shared, nothing with exclusive.
//! - Grants are first come, first served: a new request waits behind every waiter, even if it is compatible with the
//!   holders, so a stream of shared locks cannot starve an exclusive one.
//! - A holder that asks again for what it has (or less) has it at once, whoever waits.
//! - A shared holder that wants exclusive (an upgrade) goes before all waiters that are not upgrades: they wait for it
//!   in any case. It is granted when it is the only holder.
//!
//! Invariants: while somebody waits, the first waiter conflicts with a holder; at most one holder if one is exclusive;
//! an owner waits at most once; an owner that both holds and waits is upgrading.
//!
//! The first holder is stored inline: an uncontended lock allocates nothing.
//!
//! Thousands may wait for one row. Each waiter gets a ticket, by which it is found again in a number of steps that grows with
//! the logarithm of the queue's length; what it waits for is told by the holders and the front of the queue.

use std::collections::VecDeque;

use super::LockMode::{self, Exclusive, Shared};

/// Answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    New,
    AlreadyHeld,
    Upgraded,
    MustWait,
}

/// Identity of an owner.
pub(super) type Id = u64;

/// Identity of a wait in its queue; those that came later have higher ones.
pub(super) type Ticket = u64;

struct Waiter<T> {
    id: Id,
    mode: LockMode,
    upgrade: bool,
    ticket: Ticket,
    token: T,
}

impl<T> Waiter<T> {
    /// By which the queue is sorted: upgrades stand in front.
    fn order(&self) -> (bool, Ticket) {
        #[cfg(test)]
        LOOKS.with(|looks| looks.set(looks.get() + 1));
        (!self.upgrade, self.ticket)
    }
}

struct Contended<T> {
    /// Holders besides the first; they and the first are shared.
    more: Vec<Id>,
    waiting: VecDeque<Waiter<T>>,
    next_ticket: Ticket,
}

impl<T> Contended<T> {
    /// Where a waiter stands, if it still does.
    fn find(&self, id: Id, ticket: Ticket) -> Option<usize> {
        let at = |behind: bool| self.waiting.binary_search_by_key(&(behind, ticket), Waiter::order).ok();
        at(true).or_else(|| at(false)).filter(|&at| self.waiting[at].id == id)
    }

    /// How many upgrades stand in front.
    fn upgrades(&self) -> usize {
        self.waiting.partition_point(|w| !w.order().0)
    }
}

/// One lock. `T` is what the caller needs to wake a waiter.
pub(super) struct LockQueue<T> {
    first: Option<(Id, LockMode)>,
    contended: Option<Box<Contended<T>>>,
}

impl<T> LockQueue<T> {
    pub const fn new() -> LockQueue<T> {
        LockQueue { first: None, contended: None }
    }

    /// Neither holders nor waiters.
    pub fn is_free(&self) -> bool {
        self.first.is_none() && self.contended.is_none()
    }

    pub fn holders(&self) -> impl Iterator<Item = (Id, LockMode)> + '_ {
        let more = self.contended.iter().flat_map(|c| c.more.iter().map(|&id| (id, Shared)));
        self.first.into_iter().chain(more)
    }

    pub fn waiters(&self) -> impl Iterator<Item = (Id, LockMode)> + '_ {
        self.contended.iter().flat_map(|c| c.waiting.iter().map(|w| (w.id, w.mode)))
    }

    pub fn held(&self, id: Id) -> Option<LockMode> {
        self.holders().find(|h| h.0 == id).map(|h| h.1)
    }

    fn has_waiters(&self) -> bool {
        self.contended.as_ref().is_some_and(|c| !c.waiting.is_empty())
    }

    fn is_only_holder(&self, id: Id) -> bool {
        let mut holders = self.holders();
        holders.next().is_some_and(|h| h.0 == id) && holders.next().is_none()
    }

    /// Grants at once if the rules allow; changes nothing on `MustWait`.
    pub fn request(&mut self, id: Id, mode: LockMode) -> Answer {
        let Some((first, first_mode)) = self.first else {
            // Without a holder there is no waiter either.
            self.first = Some((id, mode));
            return Answer::New;
        };
        match if first == id { Some(first_mode) } else { self.held(id) } {
            Some(has) if has == Exclusive || mode == Shared => Answer::AlreadyHeld,
            Some(_) if self.is_only_holder(id) => {
                self.first = Some((id, Exclusive));
                Answer::Upgraded
            }
            Some(_) => Answer::MustWait,
            None if mode == Shared && first_mode == Shared && !self.has_waiters() => {
                self.contended().more.push(id);
                Answer::New
            }
            None => Answer::MustWait,
        }
    }

    /// Queues a request that was answered `MustWait`. Returns its ticket and the number of waiters now.
    pub fn enqueue(&mut self, id: Id, mode: LockMode, token: T) -> (Ticket, usize) {
        let upgrade = self.held(id).is_some();
        let c = self.contended();
        debug_assert!(c.waiting.iter().all(|w| w.id != id), "an owner waits once");
        let at = if upgrade { c.upgrades() } else { c.waiting.len() };
        let ticket = c.next_ticket;
        c.next_ticket += 1;
        c.waiting.insert(at, Waiter { id, mode, upgrade, ticket, token });
        (ticket, c.waiting.len())
    }

    /// Gives up what `id` holds (a pending upgrade is dropped too). `granted` is told of those whose wait ends.
    pub fn release(&mut self, id: Id, granted: impl FnMut(Id, &T)) {
        if self.first.is_some_and(|f| f.0 == id) {
            self.first = None;
            if let Some(c) = &mut self.contended {
                self.first = c.more.pop().map(|id| (id, Shared));
            }
        } else if let Some(c) = &mut self.contended {
            c.more.retain(|&h| h != id);
        }
        if let Some(c) = &mut self.contended {
            if let Some(at) = (0..c.upgrades()).find(|&at| c.waiting[at].id == id) {
                c.waiting.remove(at);
            }
            self.grant(granted);
        }
    }

    /// Takes `id` out of the queue; what it holds stays. Returns false if it was not waiting.
    pub fn cancel(&mut self, id: Id, ticket: Ticket, granted: impl FnMut(Id, &T)) -> bool {
        let Some(c) = &mut self.contended else {
            return false;
        };
        let Some(at) = c.find(id, ticket) else {
            return false;
        };
        c.waiting.remove(at);
        self.grant(granted);
        true
    }

    /// What the waiting `id` needs to end; empty if it does not wait. A request behind an exclusive waiter depends on
    /// that one; everything else depends on holders, through whom all other dependencies pass.
    pub fn blockers(&self, id: Id, ticket: Ticket) -> Vec<Id> {
        let Some(c) = &self.contended else {
            return Vec::new();
        };
        let Some(at) = c.find(id, ticket) else {
            return Vec::new();
        };
        let mode = c.waiting[at].mode;
        let conflicting = |h: &(Id, LockMode)| h.0 != id && (mode == Exclusive || h.1 == Exclusive);
        let holders: Vec<Id> = self.holders().filter(conflicting).map(|h| h.0).collect();
        if !holders.is_empty() {
            return holders;
        }
        // The front conflicts with a holder, which this one does not.
        debug_assert!(at == 0 || c.waiting[0].mode == Exclusive);
        c.waiting.iter().take(at).find(|w| w.mode == Exclusive).map(|w| w.id).into_iter().collect()
    }

    /// Everybody who can get or keep the lock before the waiting `id` and excludes it: the conflicting holders and those
    /// who wait in front. Unlike `blockers` this stays true while the queue moves on.
    pub fn ahead(&self, id: Id, ticket: Ticket) -> Vec<Id> {
        let Some(c) = &self.contended else { return Vec::new() };
        let Some(at) = c.find(id, ticket) else { return Vec::new() };
        let mode = c.waiting[at].mode;
        let before = self.waiters().take(at);
        let excludes = |other: &(Id, LockMode)| other.0 != id && (mode == Exclusive || other.1 == Exclusive);
        self.holders().chain(before).filter(excludes).map(|other| other.0).collect()
    }

    /// Mode in which `id` waits.
    pub fn waits_as(&self, id: Id, ticket: Ticket) -> Option<LockMode> {
        let c = self.contended.as_ref()?;
        c.find(id, ticket).map(|at| c.waiting[at].mode)
    }

    fn contended(&mut self) -> &mut Contended<T> {
        let empty = || Box::new(Contended { more: Vec::new(), waiting: VecDeque::new(), next_ticket: 0 });
        self.contended.get_or_insert_with(empty)
    }

    /// Grants from the front as long as the rules allow.
    fn grant(&mut self, mut granted: impl FnMut(Id, &T)) {
        loop {
            let first = self.first;
            let Some(c) = &mut self.contended else { return };
            let Some(front) = c.waiting.front() else {
                if c.more.is_empty() {
                    self.contended = None;
                }
                return;
            };
            match first {
                None => self.first = Some((front.id, front.mode)),
                Some((only, _)) if front.upgrade && only == front.id && c.more.is_empty() => {
                    self.first = Some((only, Exclusive));
                }
                Some((_, Shared)) if front.mode == Shared => c.more.push(front.id),
                Some(_) => return,
            }
            if let Some(front) = c.waiting.pop_front() {
                granted(front.id, &front.token);
            }
        }
    }
}

#[cfg(test)]
std::thread_local! {
    /// Waiters looked at in search of one, by this thread.
    pub(super) static LOOKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ticket of a waiter, or one that nobody has.
    fn ticket(queue: &LockQueue<()>, id: Id) -> Ticket {
        let mut waiting = queue.contended.iter().flat_map(|c| &c.waiting);
        waiting.find(|w| w.id == id).map_or(Ticket::MAX, |w| w.ticket)
    }

    fn apply(queue: &mut LockQueue<()>, command: &str) -> String {
        let words: Vec<&str> = command.split_whitespace().collect();
        let id: Id = words.get(1).map_or(0, |w| w.parse().expect("owner number"));
        let mut woken = Vec::new();
        let mut answer = match words[0] {
            "lock" | "try" => {
                let mode = if words[2] == "X" { Exclusive } else { Shared };
                let answer = queue.request(id, mode);
                if answer == Answer::MustWait && words[0] == "lock" {
                    queue.enqueue(id, mode, ());
                }
                match answer {
                    Answer::New => "granted".to_owned(),
                    Answer::AlreadyHeld => "has it".to_owned(),
                    Answer::Upgraded => "upgraded".to_owned(),
                    Answer::MustWait if words[0] == "try" => "busy".to_owned(),
                    Answer::MustWait => format!("waits for {:?}", queue.blockers(id, ticket(queue, id))),
                }
            }
            "release" => {
                queue.release(id, |id, ()| woken.push(id));
                "ok".to_owned()
            }
            "cancel" => {
                if queue.cancel(id, ticket(queue, id), |id, ()| woken.push(id)) {
                    "ok".to_owned()
                } else {
                    "not waiting".to_owned()
                }
            }
            "blockers" => format!("{:?}", queue.blockers(id, ticket(queue, id))),
            "show" => {
                let mode = |m| if m == Shared { "S" } else { "X" };
                let list = |l: Vec<(Id, LockMode)>| {
                    l.iter().map(|(id, m)| format!("{id}{}", mode(*m))).collect::<Vec<_>>().join(" ")
                };
                let (held, waiting) = (list(queue.holders().collect()), list(queue.waiters().collect()));
                if queue.is_free() { "free".to_owned() } else { format!("held {held}; waiting {waiting}") }
            }
            other => panic!("unknown command {other}"),
        };
        for id in woken {
            answer += &format!(", wakes {id}");
        }
        answer.trim_end().to_owned()
    }

    #[test]
    fn scenarios() {
        let text = include_str!("../../testdata/lock_queue.txt");
        let mut queue = LockQueue::new();
        let mut checked = 0;
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.starts_with('#') || line.is_empty() {
                queue = LockQueue::new();
                continue;
            }
            let (command, want) = line.split_once("->").expect("command -> answer");
            assert_eq!(apply(&mut queue, command), want.trim(), "line {}: {command}", number + 1);
            checked += 1;
        }
        assert!(checked > 40);
    }

    /// Ten thousand waiters: each looks for its blockers a few times, some give up, the others get the lock in turn.
    #[test]
    fn a_long_queue_is_not_searched_from_its_front() {
        const WAITERS: u64 = 10_000;
        let mut queue: LockQueue<()> = LockQueue::new();
        assert_eq!(queue.request(0, Exclusive), Answer::New);
        let tickets: Vec<(Id, Ticket)> = (1..=WAITERS)
            .map(|id| {
                let mode = if id % 3 == 0 { Shared } else { Exclusive };
                assert_eq!(queue.request(id, mode), Answer::MustWait);
                (id, queue.enqueue(id, mode, ()).0)
            })
            .collect();
        LOOKS.with(|looks| looks.set(0));
        for _ in 0..3 {
            for &(id, ticket) in &tickets {
                assert_eq!(queue.blockers(id, ticket), [0]);
            }
        }
        for &(id, ticket) in tickets.iter().filter(|(id, _)| id % 5 == 0) {
            assert!(queue.cancel(id, ticket, |_, ()| ()));
        }
        let mut holding = vec![0];
        let mut served = 0;
        while let Some(id) = holding.pop() {
            queue.release(id, |id, ()| holding.push(id));
            served += 1;
        }
        assert!(queue.is_free());
        assert_eq!(served, 1 + WAITERS - WAITERS / 5);
        let looks = LOOKS.with(std::cell::Cell::get);
        // Two searches of fourteen steps for each question, and one for each release.
        assert!(looks < WAITERS * 6 * 30, "{looks} waiters looked at");
    }

    proptest::proptest! {
        #[test]
        fn rules_hold_for_any_sequence(steps in proptest::collection::vec((0u8..4, 1u64..6, proptest::bool::ANY), 1..80)) {
            let mut queue: LockQueue<()> = LockQueue::new();
            for (action, id, exclusive) in steps {
                let mode = if exclusive { Exclusive } else { Shared };
                let waits = queue.waiters().any(|w| w.0 == id);
                match action {
                    0 | 1 if !waits => {
                        let answer = queue.request(id, mode);
                        if answer == Answer::MustWait {
                            queue.enqueue(id, mode, ());
                        }
                    }
                    2 => queue.release(id, |_, ()| ()),
                    3 => {
                        queue.cancel(id, ticket(&queue, id), |_, ()| ());
                    }
                    _ => {}
                }
                let holders: Vec<_> = queue.holders().collect();
                let exclusive = holders.iter().filter(|h| h.1 == Exclusive).count();
                proptest::prop_assert!(exclusive == 0 || holders.len() == 1);
                let mut ids: Vec<_> = holders.iter().map(|h| h.0).collect();
                ids.sort_unstable();
                ids.dedup();
                proptest::prop_assert_eq!(ids.len(), holders.len());
                for (id, mode) in queue.waiters() {
                    let ticket = ticket(&queue, id);
                    proptest::prop_assert_eq!(queue.waits_as(id, ticket), Some(mode));
                    proptest::prop_assert!(!queue.blockers(id, ticket).is_empty(), "a waiter nobody blocks");
                }
                if let Some((id, mode)) = queue.waiters().next() {
                    let conflict = holders.iter().any(|h| h.0 != id && (mode == Exclusive || h.1 == Exclusive));
                    proptest::prop_assert!(conflict, "the first waiter could have been granted");
                }
            }
        }
    }
}
