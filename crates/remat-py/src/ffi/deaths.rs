//! Addresses of storages that died, told from any thread without a lock: a process may fork while a thread tells one,
//! and in the child nobody would unlock it.

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

struct Node {
    storage: usize,
    next: *mut Node,
}

/// A queue, and its place in the list of all. Queues are never freed, but used again.
struct Queue {
    latest: AtomicPtr<Node>,
    open: AtomicBool,
    next: AtomicPtr<Queue>,
}

static QUEUES: AtomicPtr<Queue> = AtomicPtr::new(std::ptr::null_mut());

/// All queues, open or not.
fn queues() -> impl Iterator<Item = &'static Queue> {
    let mut at = QUEUES.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: null, or a queue that `Subscription::new` leaked.
        let queue = unsafe { at.as_ref() }?;
        at = queue.next.load(Ordering::Acquire);
        Some(queue)
    })
}

/// Tells all who subscribed that the storage at this address died.
pub fn tell(storage: usize) {
    for queue in queues().filter(|queue| queue.open.load(Ordering::Acquire)) {
        let mut next = queue.latest.load(Ordering::Relaxed);
        let node = Box::into_raw(Box::new(Node { storage, next }));
        let (done, failed) = (Ordering::Release, Ordering::Relaxed);
        while let Err(other) = queue.latest.compare_exchange_weak(next, node, done, failed) {
            next = other;
            // SAFETY: the node is nobody else's before it is linked.
            unsafe { (*node).next = next };
        }
    }
}

/// A subscription to deaths. Some may be told that came before it, or twice.
pub struct Subscription {
    queue: &'static Queue,
    /// Addresses taken from the queue, the first that died last.
    taken: Vec<usize>,
}

impl Subscription {
    /// Subscribes.
    pub fn new() -> Subscription {
        let (done, failed) = (Ordering::AcqRel, Ordering::Relaxed);
        let closed = queues().find(|queue| {
            let opened = queue.open.compare_exchange(false, true, done, failed);
            opened.is_ok()
        });
        let queue = closed.unwrap_or_else(|| {
            let queue: &'static Queue = Box::leak(Box::new(Queue {
                latest: AtomicPtr::default(),
                open: AtomicBool::new(true),
                next: AtomicPtr::default(),
            }));
            let address = std::ptr::from_ref(queue).cast_mut(); // nobody writes but to its atomics
            let mut next = QUEUES.load(Ordering::Acquire);
            loop {
                queue.next.store(next, Ordering::Release);
                match QUEUES.compare_exchange_weak(next, address, done, failed) {
                    Ok(_) => return queue,
                    Err(other) => next = other,
                }
            }
        });
        Subscription {
            queue,
            taken: Vec::new(),
        }
    }

    /// Whether nobody was told to have died since.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.taken.is_empty() && self.queue.latest.load(Ordering::Relaxed).is_null()
    }

    /// The next address.
    pub fn pop(&mut self) -> Option<usize> {
        if self.taken.is_empty() {
            let none = std::ptr::null_mut();
            let mut node = self.queue.latest.swap(none, Ordering::Acquire);
            while !node.is_null() {
                // SAFETY: `tell` leaked it, and the swap took it from the queue for this thread alone.
                let Node { storage, next } = *unsafe { Box::from_raw(node) };
                self.taken.push(storage);
                node = next;
            }
        }
        self.taken.pop()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.queue.open.store(false, Ordering::Release);
        while self.pop().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_subscription_is_told_of_each_death_from_any_thread() {
        let mut subscriptions = [Subscription::new(), Subscription::new()];
        std::thread::scope(|scope| {
            for thread in 1..5 {
                scope.spawn(move || (0..1000).for_each(|at| tell(thread << 20 | at)));
            }
        });
        for subscription in &mut subscriptions {
            let mut told: Vec<usize> = std::iter::from_fn(|| subscription.pop()).collect();
            // Those of one thread in the order in which it told them.
            told.sort_by_key(|address| address >> 20);
            let all = (1..5).flat_map(|thread| (0..1000).map(move |at| thread << 20 | at));
            assert!(told.into_iter().eq(all) && subscription.is_empty());
        }
    }
}
