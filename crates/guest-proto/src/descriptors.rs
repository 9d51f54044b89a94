//! How a connection of descriptors begins and how its messages are framed (see `DescriptorRequest`).

use prost::Message;

/// Its name among the features in Hello.
pub const FEATURE_DESCRIPTORS: &str = "descriptors";

/// How such a connection begins, where a connection of calls begins with `PRI * HT`.
pub const DESCRIPTOR_MAGIC: [u8; 8] = *b"ATOLLFD1";

/// The length before each message.
pub const FRAME_HEADER: usize = 4;

/// No message of either side is larger: the longest part of each is a path or an error's text.
pub const LARGEST_FRAME: usize = 64 * 1024;

/// A message behind its length.
#[must_use]
pub fn to_frame(message: &impl Message) -> Vec<u8> {
    let body = message.encode_to_vec();
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], &body].concat()
}

/// How long the message behind this header is; none where that is too long.
#[must_use]
pub fn frame_length(header: [u8; FRAME_HEADER]) -> Option<usize> {
    usize::try_from(u32::from_be_bytes(header)).ok().filter(|length| *length <= LARGEST_FRAME)
}

/// The message of a frame; none where it is not one.
#[must_use]
pub fn from_frame<M: Message + Default>(body: &[u8]) -> Option<M> {
    M::decode(body).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{DescriptorReply, DescriptorRequest, StatRequest};

    #[test]
    fn frames_are_bounded_and_garbage_is_none() {
        let request = StatRequest { path: "a".repeat(300), follow: true };
        let frame = to_frame(&request);
        let (header, body) = frame.split_first_chunk().unwrap();
        assert_eq!(frame_length(*header), Some(body.len()));
        assert_eq!(from_frame(body), Some(request));
        assert_eq!(frame_length(65_536u32.to_be_bytes()), Some(65_536));
        assert_eq!(frame_length(65_537u32.to_be_bytes()), None);
        assert_eq!(frame_length([0xff; 4]), None);
        assert_eq!(from_frame::<DescriptorRequest>(b"\xff\xff garbage"), None);
        assert_eq!(from_frame(b""), Some(DescriptorReply::default()));
    }
}
