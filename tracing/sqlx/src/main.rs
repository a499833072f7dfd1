//! An HTTP server of axum, tower-http and sqlx, whose requests are spans with queries in them.
//!
//! Each query has the id of its request in its text, so that a test can tell whether it is in the
//! right span. Serves until standard input ends. Prints the port.

use std::io::Read as _;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::Request;
use axum::routing::get;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Row as _};
use tower_http::trace::TraceLayer;
use tracing::{Span, info_span};
use tracing_subscriber::prelude::*;

/// Connections to the database.
const CONNECTIONS: u32 = 4;

fn main() {
    let subscriber = tracing_subscriber::registry().with(usertrace_tracing::Layer::new());
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap();
    let database = std::env::args_os().nth(1).expect("the path of the database");
    runtime.spawn(async move { serve(std::path::Path::new(&database)).await });
    // The clients are done.
    let _ = std::io::stdin().read(&mut [0]);
}

async fn serve(database: &std::path::Path) {
    let options = SqliteConnectOptions::new()
        .filename(database)
        .create_if_missing(true)
        .log_statements("info".parse().unwrap());
    let pool = SqlitePoolOptions::new().max_connections(CONNECTIONS);
    let pool = pool.connect_with(options).await.unwrap();
    sqlx::query("create table items (id integer primary key, owner integer)")
        .execute(&pool)
        .await
        .unwrap();
    sqlx::query(
        "with recursive n(id) as (select 1 union all select id + 1 from n where id < 1000) \
         insert into items select id, id % 7 from n",
    )
    .execute(&pool)
    .await
    .unwrap();
    let layer = TraceLayer::new_for_http().make_span_with(|request: &Request<_>| {
        let id = request.headers().get("x-id").map(|id| id.to_str().unwrap());
        let id: u64 = id.unwrap().parse().unwrap();
        info_span!("request", id, items = tracing::field::Empty)
    });
    let routes = Router::new()
        .route("/items/{id}", get(items))
        .layer(layer)
        .with_state(pool);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    axum::serve(listener, routes).await.unwrap();
}

/// Counts items, and fetches some, all in queries of this request.
async fn items(Path(id): Path<u64>, State(pool): State<SqlitePool>) -> String {
    let owner = id % 7;
    let count = format!("select count(*), {id} from items where owner = {owner}");
    let count = sqlx::query(AssertSqlSafe(count)).fetch_one(&pool).await;
    let count: i64 = count.unwrap().get(0);
    Span::current().record("items", count);
    let limit = id % 5 + 1;
    let some = format!("select id, {id} from items where owner = {owner} limit {limit}");
    let some = sqlx::query(AssertSqlSafe(some)).fetch_all(&pool).await;
    format!("{count} {}", some.unwrap().len())
}
