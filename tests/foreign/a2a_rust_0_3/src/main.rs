//! a2a-protocol-sdk 0.3 (a2a-rust): every operation of its client over JSON-RPC, HTTP+JSON and WebSocket.
//!
//! Its gRPC has a service of its own, with JSON in a bytes field, which is none of A2A's.

mod checks;
mod hook;

use std::collections::HashMap;

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
            let url = format!("{}/ws", http.replacen("http", "ws", 1));
            let socket = WebSocketTransport::connect(url).await?;
            ClientBuilder::new(http).with_custom_transport(socket).build()
        }
    }
}

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let short = words.iter().any(|word| word == "--short");
    let words: Vec<String> = words.into_iter().filter(|word| word != "--short").collect();
    let given: HashMap<&str, &str> = words
        .chunks(2)
        .map(|pair| (pair[0].as_str(), pair[1].as_str()))
        .collect();
    let http = given["--http"];
    let mut good = true;
    for transport in if short {
        &["JSONRPC"][..]
    } else {
        &["JSONRPC", "HTTP+JSON", "WebSocket"][..]
    } {
        match connect(transport, http).await {
            Ok(client) => {
                let caller = Caller::new(client, http, transport);
                good &= checks::run(CLIENT, &caller, short).await;
            }
            Err(error) => {
                println!("FAIL  {transport}: it connects: {error}");
                good = false;
            }
        }
    }
    println!("end");
    std::process::exit(i32::from(!good));
}
