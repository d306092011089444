//! One connection to the server, kept alive between requests.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::time::Instant;
use tokio::net::TcpStream;

use crate::answer::{Answer, AskError, sentence, shorten};
use crate::events::Events;
use crate::progress::Progress;
use crate::target::Target;

pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
}

impl Connection {
    pub async fn open(target: &Target) -> Result<Self, AskError> {
        let failed = |reason: String| AskError::Connect(reason);
        let stream = TcpStream::connect(target.address()).await.map_err(|error| failed(error.to_string()))?;
        stream.set_nodelay(true).map_err(|error| failed(error.to_string()))?;
        let (sender, driver) = handshake(TokioIo::new(stream)).await.map_err(|error| failed(error.to_string()))?;
        // Ends when the sender is gone; what breaks it, the sender learns too.
        tokio::spawn(async { drop(driver.await) });
        Ok(Self { sender })
    }

    /// Can take another request.
    pub async fn is_ready(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    pub async fn status(&mut self, request: Request<Full<Bytes>>) -> Result<StatusCode, AskError> {
        Ok(self.send(request).await?.status())
    }

    /// Sends a request and waits for the head of its answer.
    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, AskError> {
        self.sender.send_request(request).await.map_err(broken)
    }
}

/// Follows an answer to the end of its stream. Says in how many reads its tokens came; `progress` learns of each.
pub(crate) async fn follow(
    response: Response<Incoming>,
    answer: &mut Answer<'_>,
    progress: &Progress,
) -> Result<u64, AskError> {
    if response.status() != StatusCode::OK {
        return Err(refusal(response).await);
    }
    let mut body = response.into_body();
    let mut events = Events::default();
    let mut reads = 0;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
        let at = Instant::now();
        let mut seen = 0;
        let pushed = events.push(&data, |event| {
            seen += 1;
            answer.event(event, at);
        });
        pushed.map_err(|_| AskError::TooLong)?;
        progress.events(seen);
        reads += u64::from(seen > 0);
    }
    Ok(reads)
}

/// An answer that is no stream: its status, and its `error` or else the beginning of its body.
async fn refusal(response: Response<Incoming>) -> AskError {
    let status = response.status().as_u16();
    let body = match response.into_body().collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return broken(error),
    };
    let said = serde_json::from_slice::<Value>(&body).ok().and_then(|json| json.get("error").map(sentence));
    AskError::Status { status, body: shorten(&said.unwrap_or_else(|| String::from_utf8_lossy(&body).into_owned())) }
}

fn broken(error: hyper::Error) -> AskError {
    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
    AskError::Broken(format!("{error}{cause}"))
}
