//! A receiver of push notifications that takes everything.

use std::io::{Error, ErrorKind};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver};

/// One notification: the lines of its head, in lower case, and its body.
pub struct Delivery {
    pub head: String,
    pub body: Vec<u8>,
}

/// `receiver` returns the URL of a new receiver, and what it gets.
pub async fn receiver() -> Result<(String, UnboundedReceiver<Delivery>), Error> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/hook", listener.local_addr()?);
    let (sender, deliveries) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let sender = sender.clone();
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                while let Ok(one) = receive(&mut stream).await {
                    let _ = sender.send(one);
                }
            });
        }
    });
    Ok((url, deliveries))
}

async fn receive(stream: &mut BufReader<TcpStream>) -> Result<Delivery, Error> {
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().map_err(|_| Error::from(ErrorKind::InvalidData))?;
        }
        head.push_str(&line.to_lowercase());
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    stream
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        .await?;
    Ok(Delivery { head, body })
}
