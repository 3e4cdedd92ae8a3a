//! a2a-protocol-sdk 0.3 (a2a-rust): every operation of its client over JSON-RPC, HTTP+JSON and WebSocket.
//!
//! Its gRPC has a service of its own, with JSON in a bytes field, which is none of A2A's.

#[macro_use]
mod checks;
mod bare;
mod hook;

use std::collections::HashMap;
use std::time::Duration;

use a2a_protocol_sdk::client::{resolve_agent_card, ClientBuilder, ClientResult, WebSocketTransport};
use a2a_protocol_sdk::prelude::A2aClient;
use checks::Caller;

/// As the table has it; Cargo.toml pins the version.
const CLIENT: &str = "a2a-protocol-sdk 0.3.3";

/// `connect` returns a client over a transport. The SDK does not know the card's name of HTTP+JSON.
async fn connect(transport: &str, http: &str) -> ClientResult<A2aClient> {
    let card = resolve_agent_card(http).await?;
    match transport {
        "JSONRPC" => ClientBuilder::from_card(&card)?.build(),
        "HTTP+JSON" => {
            let found = card
                .supported_interfaces
                .iter()
                .find(|one| one.protocol_binding == transport);
            let url = found.map_or(http, |one| one.url.as_str());
            ClientBuilder::new(url).with_protocol_binding("REST").build()
        }
        _ => {
            let socket = WebSocketTransport::connect(socket_url(http)).await?;
            ClientBuilder::new(http).with_custom_transport(socket).build()
        }
    }
}

/// `connect_with_version` returns a client over WebSocket that names its version. By itself the SDK names none there,
/// so that a list comes in 1.0, without the `type` of a part that it needs.
async fn connect_with_version(http: &str) -> ClientResult<A2aClient> {
    let version = HashMap::from([("A2A-Version".to_string(), "1.0.0".to_string())]);
    let socket = WebSocketTransport::connect_with_options(socket_url(http), Duration::from_secs(60), &version).await?;
    ClientBuilder::new(http).with_custom_transport(socket).build()
}

fn socket_url(http: &str) -> String {
    format!("{}/ws", http.replacen("http", "ws", 1))
}

/// `run` runs the checks of one transport, and returns whether all passed.
async fn run(transport: &str, http: &str, options: &[&str]) -> ClientResult<bool> {
    let caller = Caller::new(connect(transport, http).await?, http, transport);
    if options.contains(&"--bare") {
        return Ok(bare::run(CLIENT, &caller).await);
    }
    let short = options.contains(&"--short");
    let mut good = checks::run(CLIENT, &caller, short).await;
    if transport == "WebSocket" && !short {
        let named = Caller::new(connect_with_version(http).await?, http, transport);
        good &= checks::lists(CLIENT, &named).await;
    }
    Ok(good)
}

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (options, words): (Vec<&str>, Vec<&str>) = words
        .iter()
        .map(String::as_str)
        .partition(|word| ["--short", "--bare"].contains(word));
    let given: HashMap<&str, &str> = words.chunks(2).map(|pair| (pair[0], pair[1])).collect();
    let mut good = true;
    for transport in if options.contains(&"--short") {
        &["JSONRPC"][..]
    } else {
        &["JSONRPC", "HTTP+JSON", "WebSocket"][..]
    } {
        match run(transport, given["--http"], &options).await {
            Ok(passed) => good &= passed,
            Err(error) => {
                println!("FAIL  {transport}: it connects: {error}");
                good = false;
            }
        }
    }
    println!("end");
    std::process::exit(i32::from(!good));
}
