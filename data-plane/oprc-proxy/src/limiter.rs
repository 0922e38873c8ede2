//! Limits the number of calls in the function. Other calls wait in a bounded FIFO queue.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::{Notify, Semaphore};

#[derive(Debug)]
pub(crate) struct Limiter {
    /// Without a limit there is no semaphore. A permit is forgotten when a slot is taken and added
    /// again when it is released.
    permits: Option<Semaphore>,
    queue_length: usize,
    in_flight: AtomicUsize,
    queued: AtomicUsize,
    idle: Notify,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct QueueFull;

impl Limiter {
    pub(crate) fn new(max_concurrency: Option<usize>, queue_length: usize) -> Self {
        Self {
            permits: max_concurrency.map(Semaphore::new),
            queue_length,
            in_flight: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
            idle: Notify::new(),
        }
    }

    /// A slot, if one is free and no call waits for it.
    pub(crate) fn try_acquire(self: &Arc<Self>) -> Option<Slot> {
        if let Some(permits) = &self.permits {
            // The semaphore hands permits to waiting calls first, so that none is overtaken here.
            permits.try_acquire().ok()?.forget();
        }
        Some(Slot::new(self))
    }

    /// Waits for a slot. Calls get slots in the order in which their futures are first polled. A
    /// dropped future leaves the queue.
    pub(crate) async fn acquire(self: &Arc<Self>) -> Result<Slot, QueueFull> {
        if let Some(slot) = self.try_acquire() {
            return Ok(slot);
        }
        let Some(permits) = &self.permits else { return Ok(Slot::new(self)) };
        if self.queued() >= self.queue_length {
            return Err(QueueFull);
        }
        let ticket = QueueTicket::new(self);
        // The semaphore is never closed.
        let permit = permits.acquire().await.map_err(|_| QueueFull)?;
        permit.forget();
        let slot = Slot::new(self);
        drop(ticket);
        Ok(slot)
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(crate) fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    /// Returns as soon as no call is in flight or queued.
    pub(crate) async fn wait_until_idle(&self) {
        loop {
            let mut idle = std::pin::pin!(self.idle.notified());
            // Registers before the check, so that no notification is missed.
            idle.as_mut().enable();
            if self.is_idle() {
                return;
            }
            idle.await;
        }
    }

    fn is_idle(&self) -> bool {
        self.in_flight() == 0 && self.queued() == 0
    }

    fn notify_if_idle(&self) {
        if self.is_idle() {
            self.idle.notify_waiters();
        }
    }
}

/// The right to call the function, until it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    limiter: Arc<Limiter>,
}

impl Slot {
    fn new(limiter: &Arc<Limiter>) -> Self {
        limiter.in_flight.fetch_add(1, Ordering::Relaxed);
        Self { limiter: Arc::clone(limiter) }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.limiter.in_flight.fetch_sub(1, Ordering::Relaxed);
        if let Some(permits) = &self.limiter.permits {
            permits.add_permits(1);
        }
        self.limiter.notify_if_idle();
    }
}

struct QueueTicket<'a> {
    limiter: &'a Limiter,
}

impl<'a> QueueTicket<'a> {
    fn new(limiter: &'a Limiter) -> Self {
        limiter.queued.fetch_add(1, Ordering::Relaxed);
        Self { limiter }
    }
}

impl Drop for QueueTicket<'_> {
    fn drop(&mut self) {
        self.limiter.queued.fetch_sub(1, Ordering::Relaxed);
        self.limiter.notify_if_idle();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::VecDeque,
        pin::Pin,
        task::{Context, Poll, Waker},
    };

    use proptest::prelude::*;

    use super::*;

    type Acquiring = Pin<Box<dyn Future<Output = Result<Slot, QueueFull>>>>;

    fn acquire(limiter: &Arc<Limiter>) -> Acquiring {
        let limiter = Arc::clone(limiter);
        Box::pin(async move { limiter.acquire().await })
    }

    fn poll(acquiring: &mut Acquiring) -> Poll<Result<Slot, QueueFull>> {
        acquiring.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn without_a_limit_every_call_gets_a_slot() {
        let limiter = Arc::new(Limiter::new(None, 0));
        let slots: Vec<_> = (0..1000).map(|_| limiter.try_acquire().unwrap()).collect();
        assert_eq!(limiter.in_flight(), 1000);
        drop(slots);
        assert_eq!(limiter.in_flight(), 0);
    }

    #[test]
    fn rejects_calls_when_the_queue_is_full() {
        let limiter = Arc::new(Limiter::new(Some(1), 1));
        let slot = limiter.try_acquire().unwrap();
        let mut queued = acquire(&limiter);
        assert!(poll(&mut queued).is_pending());
        assert!(matches!(poll(&mut acquire(&limiter)), Poll::Ready(Err(QueueFull))));
        drop(slot);
        assert!(matches!(poll(&mut queued), Poll::Ready(Ok(_))));
    }

    #[tokio::test]
    async fn is_idle_when_all_slots_are_released_and_nothing_is_queued() {
        let limiter = Arc::new(Limiter::new(Some(1), 1));
        limiter.wait_until_idle().await;
        let slot = limiter.try_acquire().unwrap();
        let mut queued = acquire(&limiter);
        assert!(poll(&mut queued).is_pending());
        let mut idle = Box::pin(limiter.wait_until_idle());
        let mut context = Context::from_waker(Waker::noop());
        assert!(idle.as_mut().poll(&mut context).is_pending());
        drop(slot);
        assert!(idle.as_mut().poll(&mut context).is_pending());
        drop(queued);
        assert!(idle.as_mut().poll(&mut context).is_ready());
    }

    #[derive(Debug, Clone)]
    enum Step {
        Arrive,
        Cancel(prop::sample::Index),
        Finish(prop::sample::Index),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => Just(Step::Arrive),
            1 => any::<prop::sample::Index>().prop_map(Step::Cancel),
            2 => any::<prop::sample::Index>().prop_map(Step::Finish),
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        /// Never more slots than allowed, FIFO, bounded queue, and no slot is lost when a queued
        /// call is canceled, before or after it was given a slot.
        #[test]
        fn slots_are_conserved(
            max in 1..5_usize,
            queue_length in 0..10_usize,
            poll_at_once in any::<bool>(),
            steps in steps(),
        ) {
            let limiter = Arc::new(Limiter::new(Some(max), queue_length));
            let mut running = Vec::new();
            let mut queued: VecDeque<Acquiring> = VecDeque::new();
            for step in steps {
                match step {
                    Step::Arrive => {
                        let mut arriving = acquire(&limiter);
                        match poll(&mut arriving) {
                            Poll::Ready(Ok(slot)) => running.push(slot),
                            Poll::Ready(Err(QueueFull)) => prop_assert_eq!(queued.len(), queue_length),
                            Poll::Pending => queued.push_back(arriving),
                        }
                    }
                    Step::Cancel(index) if !queued.is_empty() => {
                        queued.remove(index.index(queued.len()));
                    }
                    Step::Finish(index) if !running.is_empty() => {
                        running.swap_remove(index.index(running.len()));
                    }
                    Step::Cancel(_) | Step::Finish(_) => {}
                }
                if poll_at_once {
                    let free = max - running.len();
                    let expected = free.min(queued.len());
                    for (position, acquiring) in queued.iter_mut().enumerate() {
                        let ready = poll(acquiring);
                        // The first calls of the queue get the free slots.
                        prop_assert_eq!(ready.is_ready(), position < expected);
                        if let Poll::Ready(slot) = ready {
                            running.push(slot.unwrap());
                        }
                    }
                    queued.drain(..expected);
                    prop_assert!(running.len() == max || queued.is_empty());
                }
                prop_assert!(running.len() <= max);
                prop_assert_eq!(limiter.in_flight(), running.len());
                prop_assert_eq!(limiter.queued(), queued.len());
            }
            queued.clear();
            running.clear();
            let all: Vec<_> = std::iter::from_fn(|| limiter.try_acquire()).take(max + 1).collect();
            prop_assert_eq!(all.len(), max);
        }
    }
}
