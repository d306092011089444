//! What callers ask of the driver.

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::generation::{GenerationError, GenerationRequest};
use crate::stream::Generation;

/// Commands that may wait for the driver. More than it handles between two steps under any load that makes sense; a
/// caller beyond it waits.
pub(crate) const MAX_WAITING_COMMANDS: usize = 256;

pub(crate) enum Command {
    Generate(Box<Submission>),
    /// Answered at once by a driver that lives.
    Ping(oneshot::Sender<()>),
    /// End: whatever still runs is cut off. Answered with how many that were.
    Close(oneshot::Sender<usize>),
}

/// Requests that are taken together, or none of them.
pub(crate) struct Submission {
    pub requests: Vec<GenerationRequest>,
    pub submitted: Instant,
    /// If the caller is gone, the generations come back and their drop cancels them.
    pub reply: oneshot::Sender<Result<Vec<Generation>, GenerationError>>,
}
