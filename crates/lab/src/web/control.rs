//! What the web says about itself, at the name `lab.test` and at bare addresses: the verdict and the way to start anew.

use super::{kinds, reply::Reply, server::Server};

/// Answers `/.lab/...`.
pub(super) fn answer(server: &Server, target: &str) -> Reply {
    let Some(what) = target.strip_prefix("/.lab/") else {
        return Reply::new(404, "text/plain", b"this is the lab's web; see /.lab/verdict\n");
    };
    match what {
        "verdict" => json(&server.verdict()),
        "reset" => {
            server.reset();
            json(&serde_json::json!({ "reset": true }))
        }
        "config" => json(&server.plan.config),
        "kinds" => {
            let about = kinds::all().iter().map(|kind| (kind.name.to_owned(), kind.about.into()));
            json(&about.collect::<serde_json::Map<String, serde_json::Value>>())
        }
        "repeats" => json(&server.judge().repeats),
        "seeds" => Reply::new(200, "text/plain", format!("{}\n", server.plan.seeds().join("\n")).as_bytes()),
        "ca.pem" => Reply::new(200, "application/x-pem-file", server.tls.root_pem().as_bytes()),
        _ => match what.strip_prefix("digest/").and_then(|url| server.digest(url)) {
            Some(digest) => Reply::new(200, "text/plain", format!("{digest:016x}\n").as_bytes()),
            None => Reply::new(404, "text/plain", b"unknown\n"),
        },
    }
}

fn json(value: &impl serde::Serialize) -> Reply {
    match serde_json::to_vec_pretty(value) {
        Ok(mut body) => {
            body.push(b'\n');
            Reply::new(200, "application/json", &body)
        }
        Err(error) => Reply::new(500, "text/plain", error.to_string().as_bytes()),
    }
}
