//! What the system tells a run to do.

use nephila_core::agent::StopReason;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Ctrl-C and SIGTERM. The second one of either ends the process at once; the next run finds everything in order.
pub(super) struct Signals {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    heard: bool,
}

impl Signals {
    pub(super) fn listen() -> Signals {
        let listen = |kind| signal(kind).ok();
        Signals {
            interrupt: listen(SignalKind::interrupt()),
            terminate: listen(SignalKind::terminate()),
            heard: false,
        }
    }

    pub(super) async fn next(&mut self) -> StopReason {
        async fn heard(signal: &mut Option<Signal>) {
            match signal {
                Some(signal) => {
                    signal.recv().await;
                }
                None => std::future::pending().await,
            }
        }
        let reason = tokio::select! {
            () = heard(&mut self.interrupt) => StopReason::Interrupted,
            () = heard(&mut self.terminate) => StopReason::Terminated,
        };
        if std::mem::replace(&mut self.heard, true) {
            std::process::exit(i32::from(reason.exit_code()));
        }
        reason
    }
}
