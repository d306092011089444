//! Why a chat has no prompt.

/// One line each. The first words of [`NotFound`](Self::NotFound) and [`MissingVariable`](Self::MissingVariable) are
/// Text Generation Inference's, spelling included: clients compare them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("Template error: template not found")]
    NotFound,
    /// The file has no such template.
    #[error("Template error: there is no template named {name:?}; there are {known}")]
    Unknown { name: String, known: String },
    /// It is not Jinja.
    #[error("Template error: {reason}")]
    Syntax { reason: String },
    /// The template's own refusal, through `raise_exception`.
    #[error("Template error: {message}")]
    Raised { message: String },
    /// It stopped at a value that is not as it expects.
    #[error("Template error: {reason}")]
    Failed { reason: String },
    #[error("Missing template vatiable: {names}; give it in `chat_template_kwargs` ({reason})")]
    MissingVariable { names: String, reason: String },
    #[error("Template error: rendering took more than {limit} steps; send fewer or shorter messages")]
    TooSlow { limit: u64 },
    #[error("Template error: the prompt has more than {limit} bytes; send fewer or shorter messages")]
    TooLong { limit: usize },
    /// The chat asks for two things at once, or for one that it does not have.
    #[error("Template error: {reason}")]
    Chat { reason: &'static str },
}
