//! A client that speaks HTTP by hand.

use std::net::SocketAddr;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::soon;

pub fn request(path: &str, tokens: u32) -> String {
    let body = json!({"inputs": "Hello", "parameters": {"max_new_tokens": tokens}}).to_string();
    format!(
        "POST {path} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

pub async fn connect(address: SocketAddr, bytes: impl AsRef<[u8]>) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes.as_ref()).await.unwrap();
    stream
}

/// Reads until `end` has come, or the connection ends.
pub async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = String::new();
    let mut piece = [0; 4096];
    while !text.contains(end) {
        let read = soon(stream.read(&mut piece)).await.unwrap();
        if read == 0 {
            break;
        }
        text.push_str(&String::from_utf8_lossy(&piece[..read]));
    }
    text
}
