//! Connections as they come, and the tasks of each, which end with it.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use hyper::rt::Executor;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The next connection to a listener, and where it is from. Meanwhile the tasks of earlier ones that have ended are let go.
pub(crate) async fn accept(listener: &TcpListener, tasks: &mut JoinSet<()>) -> (TcpStream, SocketAddr) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = tasks.join_next() => continue,
        };
        match accepted {
            Ok(accepted) => return accepted,
            // No descriptors, most likely: try again when some are free.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

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
