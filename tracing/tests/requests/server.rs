//! An HTTP server of axum and tower-http, whose requests are spans.
//!
//! A request carries the id that its client chose, and so do all spans below it, so that a test can
//! tell whether each is in the right tree.

use std::io::Read as _;
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::http::Request;
use axum::routing::get;
use tower_http::trace::TraceLayer;
use tracing::{Instrument as _, Span, info, info_span};
use tracing_subscriber::prelude::*;

/// Serves until standard input ends. Prints the port.
pub(crate) fn run() {
    let subscriber = tracing_subscriber::registry().with(usertrace_tracing::Layer::new());
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap();
    runtime.spawn(serve());
    // The client is done.
    let _ = std::io::stdin().read(&mut [0]);
}

async fn serve() {
    let layer = TraceLayer::new_for_http().make_span_with(|request: &Request<_>| {
        let id = request.headers().get("x-id").map(|id| id.to_str().unwrap());
        let id: u64 = id.unwrap().parse().unwrap();
        info_span!(
            "request",
            id,
            path = request.uri().path(),
            kind = tracing::field::Empty
        )
    });
    let routes = Router::new()
        .route("/one/{id}", get(one))
        .route("/both/{id}", get(both))
        .route("/task/{id}", get(task))
        .layer(layer);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    axum::serve(listener, routes).await.unwrap();
}

/// Waits, as for an answer of a database.
async fn query(id: u64, table: &'static str) {
    let wait = async {
        tokio::time::sleep(Duration::from_micros(200 + id % 7 * 100)).await;
        info!(id, table, "rows");
    };
    wait.instrument(info_span!("query", id, table)).await;
}

/// A query after the other one.
async fn one(Path(id): Path<u64>) -> String {
    Span::current().record("kind", "one");
    query(id, "users").await;
    query(id, "items").await;
    id.to_string()
}

/// Two queries at once.
async fn both(Path(id): Path<u64>) -> String {
    Span::current().record("kind", "both");
    tokio::join!(query(id, "users"), query(id, "items"));
    id.to_string()
}

/// A query in a task, within another span, and a span that follows from the request.
async fn task(Path(id): Path<u64>) -> String {
    let request = Span::current();
    request.record("kind", "task");
    let work = info_span!("work", id);
    let later = info_span!(parent: None, "later", id);
    later.follows_from(&request);
    tokio::spawn(async move { query(id, "users").await }.instrument(work))
        .await
        .unwrap();
    tokio::spawn(query(id, "late").instrument(later));
    id.to_string()
}
