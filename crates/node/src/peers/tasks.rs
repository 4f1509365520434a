//! The tasks of one connection, which end with it.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use hyper::rt::Executor;
use tokio::task::JoinSet;

/// Locks what no panic can leave half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What hyper runs besides the connection itself. All of it is ended when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl Tasks {
    /// Where hyper starts its tasks.
    pub(crate) fn starter(&self) -> Starter {
        Starter(Arc::downgrade(&self.0))
    }

    /// Ends all, and returns when they have.
    pub(crate) async fn end(self) {
        let mut tasks = std::mem::take(&mut *lock(&self.0));
        tasks.shutdown().await;
    }
}

/// Starts tasks while the connection is there. Tasks have one themselves, so that it must not keep them.
#[derive(Clone, Debug)]
pub(crate) struct Starter(Weak<Mutex<JoinSet<()>>>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Starter {
    fn execute(&self, task: F) {
        if let Some(tasks) = self.0.upgrade() {
            let mut tasks = lock(&tasks);
            while tasks.try_join_next().is_some() {}
            tasks.spawn(task);
        }
    }
}
