//! Shards: threads that fetch, each from its own hosts.
//!
//! Hosts are spread over the shards by their partition, so that a host's connections, TLS sessions and captures are all in one
//! and nothing that is hot is shared. The first shard is on the thread of the loop, the others have threads of their own; with
//! one there is no other thread. What is decided is decided in the loop, for all of them: a decision costs little beside the
//! page that it is about, and politeness, limits and the journal concern hosts of several shards.

use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::thread::JoinHandle;

use nephila_core::agent::{FetchError, FetchId, Fetched, Order};
use nephila_core::assign::partition_of;
use nephila_core::record::Failure;
use nephila_core::url::{Host, Url};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::LocalSet;

use crate::clock::Clock;
use crate::crawl::CrawlError;
use crate::fetch::{FetchConfig, Fetcher, Outcome, SetupError};

/// Breaking off fetches under way.
type UnderWay = Rc<RefCell<HashMap<FetchId, oneshot::Sender<()>>>>;

/// The requests of one shard.
struct Hands {
    fetcher: Rc<Fetcher>,
    under_way: UnderWay,
    done: Rc<dyn Fn(Order, Outcome)>,
}

impl Hands {
    fn new(config: FetchConfig, done: impl Fn(Order, Outcome) + 'static) -> Result<Hands, SetupError> {
        Ok(Hands { fetcher: Fetcher::new(config)?, under_way: UnderWay::default(), done: Rc::new(done) })
    }

    fn fetch(&self, order: Order) {
        let fetch = order.fetch;
        let (abandon, abandoned) = oneshot::channel();
        self.under_way.borrow_mut().insert(fetch, abandon);
        let (fetcher, done) = (Rc::clone(&self.fetcher), Rc::clone(&self.done));
        let under_way = Rc::clone(&self.under_way);
        // In a box, because the runtime moves what it is given, more than once.
        tokio::task::spawn_local(Box::pin(async move {
            let abandoned = async {
                if abandoned.await.is_err() {
                    std::future::pending().await
                }
            };
            let fetched = caught(pin!(fetcher.fetch(&order, abandoned))).await;
            let outcome = fetched.unwrap_or_else(|| broken(&order));
            under_way.borrow_mut().remove(&fetch);
            done(order, outcome);
        }));
    }

    fn abandon(&self, fetch: FetchId) {
        if let Some(abandon) = self.under_way.borrow_mut().remove(&fetch) {
            // It may just have ended.
            let _ = abandon.send(());
        }
    }
}

/// What a future comes to, or nothing if it panics: an answer that breaks a parser must not keep its host, and the end of the
/// crawl, waiting for ever.
async fn caught<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        match std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Some(output)),
            Err(_) => Poll::Ready(None),
        }
    })
    .await
}

/// The outcome of a fetch that panicked.
fn broken(order: &Order) -> Outcome {
    let now = Clock::now().mono;
    let error = FetchError { failure: Failure::Malformed, detail: "reading it failed: a panic".to_owned() };
    let (contacted, result) = (order.addresses.clone(), Err(error));
    let fetched = Fetched { fetch: order.fetch, started: now, ended: now, contacted, result };
    Outcome { fetched, capture: None, unkept: None }
}

enum Ask {
    Fetch(Order),
    Abandon(FetchId),
}

/// A shard on a thread of its own, which ends when this is dropped.
struct Thread {
    asks: UnboundedSender<Ask>,
    _thread: JoinHandle<()>,
}

impl Thread {
    fn start(
        config: FetchConfig,
        done: impl Fn(Order, Outcome) + Send + 'static,
    ) -> Result<Thread, CrawlError> {
        let (asks, received) = unbounded_channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CrawlError::Start)?;
        let thread = std::thread::Builder::new().name("shard".into()).spawn(move || {
            LocalSet::new().block_on(&runtime, async {
                match Hands::new(config, done) {
                    Ok(hands) => {
                        let _ = ready.send(Ok(()));
                        work(&hands, received).await;
                    }
                    Err(error) => drop(ready.send(Err(error))),
                }
            });
        });
        let thread = Thread { asks, _thread: thread.map_err(CrawlError::Start)? };
        match is_ready.recv() {
            Ok(ready) => ready.map(|()| thread).map_err(CrawlError::Fetch),
            Err(_) => Err(CrawlError::Start(std::io::Error::other("a shard's thread has ended"))),
        }
    }
}

async fn work(hands: &Hands, mut asks: UnboundedReceiver<Ask>) {
    while let Some(ask) = asks.recv().await {
        match ask {
            Ask::Fetch(order) => hands.fetch(order),
            Ask::Abandon(fetch) => hands.abandon(fetch),
        }
    }
}

/// All shards of an agent.
pub(crate) struct Shards {
    own: Hands,
    others: Vec<Thread>,
}

impl Shards {
    /// Starts them: one for each of these. What a fetch came to is passed to `done`, on the thread of its shard.
    pub(crate) fn start(
        configs: Vec<FetchConfig>,
        done: impl Fn(Order, Outcome) + Clone + Send + 'static,
    ) -> Result<Shards, CrawlError> {
        let mut configs = configs.into_iter();
        let own = Hands::new(configs.next().unwrap_or_default(), done.clone())?;
        let others = configs.map(|config| Thread::start(config, done.clone())).collect::<Result<_, _>>()?;
        Ok(Shards { own, others })
    }

    /// The thread that a URL is for, if it is another one.
    fn of(&self, url: &Url) -> Option<&Thread> {
        if self.others.is_empty() {
            return None;
        }
        let shard = usize::from(partition_of(&Host::of(url))) % (self.others.len() + 1);
        self.others.get(shard.checked_sub(1)?)
    }

    /// Makes a request.
    pub(crate) fn fetch(&self, order: Order) {
        match self.of(&order.url) {
            // A thread that has ended did so in a panic, which has been seen.
            Some(thread) => drop(thread.asks.send(Ask::Fetch(order))),
            None => self.own.fetch(order),
        }
    }

    /// Breaks off a request; it still answers.
    pub(crate) fn abandon(&self, fetch: FetchId) {
        self.own.abandon(fetch);
        for thread in &self.others {
            let _ = thread.asks.send(Ask::Abandon(fetch));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_outcome() {
        assert_eq!(caught(pin!(async { 7 })).await, Some(7));
        let breaks = |after: u32| async move {
            for _ in 0..after {
                tokio::task::yield_now().await;
            }
            assert!(after > 9, "this is meant to happen");
            after
        };
        assert_eq!(
            (caught(pin!(breaks(0))).await, caught(pin!(breaks(3))).await, caught(pin!(breaks(10))).await),
            (None, None, Some(10))
        );
    }
}
