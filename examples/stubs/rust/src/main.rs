//! Sends a message to an agent over gRPC, then over REST: `cargo run -- http://127.0.0.1:50051 http://127.0.0.1:8080 hello`

use a2a::a2a_service_client::A2aServiceClient;
use a2a::{Message, Part, Role, SendMessageRequest, SendMessageResponse};
use a2a::{part::Content, send_message_response::Payload as Answer, stream_response::Payload};

mod a2a {
    include!(concat!(env!("OUT_DIR"), "/lf.a2a.v1.rs"));
    include!(concat!(env!("OUT_DIR"), "/lf.a2a.v1.serde.rs"));
}

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn request(id: &str, text: &str) -> SendMessageRequest {
    let part = Part { content: Some(Content::Text(text.into())), ..Default::default() };
    let message = Message { message_id: id.into(), role: Role::User as i32, parts: vec![part], ..Default::default() };
    SendMessageRequest { message: Some(message), ..Default::default() }
}

/// The texts of parts, each after a space.
fn texts(parts: &[Part]) -> String {
    let text = |part: &Part| match &part.content {
        Some(Content::Text(text)) => format!(" {text}"),
        _ => String::new(),
    };
    parts.iter().map(text).collect()
}

async fn stream_over_grpc(server: String, text: &str) -> Result<()> {
    let mut client = A2aServiceClient::connect(server).await?;
    let mut events = client.send_streaming_message(request("m-grpc", text)).await?.into_inner();
    while let Some(event) = events.message().await? {
        match event.payload {
            Some(Payload::Task(_)) => println!("task"),
            Some(Payload::StatusUpdate(_)) => println!("status_update"),
            Some(Payload::ArtifactUpdate(update)) => {
                println!("artifact_update{}", texts(&update.artifact.unwrap_or_default().parts));
            }
            Some(Payload::Message(message)) => println!("message{}", texts(&message.parts)),
            None => {}
        }
    }
    Ok(())
}

/// The same message as JSON, by pbjson. A2A-Version chooses the form of the answer.
fn send_over_rest(server: &str, text: &str) -> Result<()> {
    let call = ureq::post(format!("{server}/message:send")).header("A2A-Version", "1.0");
    let answer: SendMessageResponse = call.send_json(request("m-rest", text))?.body_mut().read_json()?;
    if let Some(Answer::Task(task)) = answer.payload {
        let parts: Vec<Part> = task.artifacts.into_iter().flat_map(|artifact| artifact.parts).collect();
        println!("{}{}", task.status.unwrap_or_default().state().as_str_name(), texts(&parts));
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().collect();
    let text = words[3..].join(" ");
    stream_over_grpc(words[1].clone(), &text).await?;
    send_over_rest(&words[2], &text)
}
