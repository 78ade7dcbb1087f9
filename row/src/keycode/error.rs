//! What can go wrong between records and stored bytes.

/// Result of a codec call.
pub type Result<T> = std::result::Result<T, CodecError>;

/// Why a codec refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CodecError {
    /// The encoded key is longer than the engine or the table accepts.
    #[error("encoded key of {bytes} bytes is longer than the limit of {limit}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The longest one.
        limit: usize,
    },
    /// A key image given by the server does not have the form its index asks for.
    #[error("bad key image: {0}")]
    Image(String),
    /// A table definition contradicts itself.
    #[error("bad table definition: {0}")]
    Definition(String),
    /// Stored bytes are not what an encoder writes.
    #[error("corrupt entry: {0}")]
    Corrupt(String),
}
