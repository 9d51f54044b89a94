//! A frame is a big-endian length of four bytes and that many bytes of JSON.

use serde::{Serialize, de::DeserializeOwned};

/// Bytes of the length in front of a frame.
pub const HEADER: usize = 4;
/// The longest request.
pub const MAX_REQUEST: usize = 64 * 1024;
/// The longest answer; a list of every container that a machine can hold fits.
pub const MAX_ANSWER: usize = 8 * 1024 * 1024;

/// Why a frame cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameError {
    /// The length is zero or larger than allowed.
    Length(usize),
    /// The content is not a message.
    Content(String),
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Length(n) => write!(f, "a frame of {n} bytes is not allowed"),
            Self::Content(why) => write!(f, "the frame is not a message: {why}"),
        }
    }
}

impl std::error::Error for FrameError {}

/// The length that a header announces, if it is within `max`.
pub fn frame_length(header: [u8; HEADER], max: usize) -> Result<usize, FrameError> {
    let length = u32::from_be_bytes(header) as usize;
    if length == 0 || length > max { Err(FrameError::Length(length)) } else { Ok(length) }
}

/// The message in the body of a frame.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, FrameError> {
    serde_json::from_slice(body).map_err(|e| FrameError::Content(e.to_string()))
}

/// The whole frame of a message.
pub fn encode<T: Serialize>(message: &T, max: usize) -> Result<Vec<u8>, FrameError> {
    let mut frame = vec![0; HEADER];
    serde_json::to_writer(&mut frame, message).map_err(|e| FrameError::Content(e.to_string()))?;
    let length = frame.len() - HEADER;
    if length > max {
        return Err(FrameError::Length(length));
    }
    let header = u32::try_from(length).map_err(|_| FrameError::Length(length))?;
    frame[..HEADER].copy_from_slice(&header.to_be_bytes());
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        CreateRequest, Envelope, LauncherAnswer, LauncherReply, MAX_PROTOCOL, MAX_USAGES, Request,
        SealRequest, SnapshotRequest,
    };
    use atoll_types::{ContainerId, ImageId, ImageName, Limits, Profile, SnapshotId, Usage, VolumeId};
    use proptest::prelude::*;

    fn sample() -> Envelope {
        Envelope {
            protocol: MAX_PROTOCOL,
            request: Request::Create(Box::new(CreateRequest {
                container: ContainerId::random(),
                profile: Profile::builtin("default").unwrap(),
                limits: Limits::default(),
                volume: Some(VolumeId::random()),
                environment: [("A".to_string(), "b".to_string())].into(),
                held: false,
            })),
        }
    }

    #[test]
    fn round_trip() {
        let frame = encode(&sample(), MAX_REQUEST).unwrap();
        let length = frame_length(frame[..HEADER].try_into().unwrap(), MAX_REQUEST).unwrap();
        assert_eq!(length, frame.len() - HEADER);
        let back: Envelope = decode(&frame[HEADER..]).unwrap();
        assert_eq!(encode(&back, MAX_REQUEST).unwrap(), frame);
    }

    #[test]
    fn a_request_with_a_path_or_an_unknown_field_is_refused() {
        let good = String::from_utf8(encode(&sample(), MAX_REQUEST).unwrap()[HEADER..].to_vec()).unwrap();
        let spoiled = [
            good.replace("\"host\"", "\"../../etc\""),
            good.replace("\"host\"", "\"/etc\""),
            good.replacen("\"container\":\"", "\"container\":\"../", 1),
            good.replace("\"volume\":\"", "\"bundle\":\"/tmp\",\"volume\":\""),
        ];
        for text in spoiled {
            assert_ne!(text, good);
            assert!(decode::<Envelope>(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_request_about_an_image_carries_ids_and_nothing_else() {
        let asked = SealRequest { volume: VolumeId::random(), image: ImageId::random() };
        let envelope = Envelope { protocol: MAX_PROTOCOL, request: Request::SealImage(asked) };
        let good = String::from_utf8(encode(&envelope, MAX_REQUEST).unwrap()[HEADER..].to_vec()).unwrap();
        assert!(decode::<Envelope>(good.as_bytes()).is_ok());
        for (from, to) in [
            ("\"image\":\"", "\"image\":\"../"),
            ("\"image\":\"", "\"image\":\"img-"),
            ("\"volume\":\"", "\"path\":\"/etc\",\"volume\":\""),
        ] {
            let spoiled = good.replacen(from, to, 1);
            assert_ne!(spoiled, good);
            assert!(decode::<Envelope>(spoiled.as_bytes()).is_err(), "{spoiled}");
        }
    }

    #[test]
    fn a_snapshot_request_carries_ids_and_nothing_else() {
        let asked = SnapshotRequest { volume: VolumeId::random(), snapshot: SnapshotId::random() };
        let envelope = Envelope { protocol: MAX_PROTOCOL, request: Request::Rollback(asked) };
        let good = String::from_utf8(encode(&envelope, MAX_REQUEST).unwrap()[HEADER..].to_vec()).unwrap();
        assert!(decode::<Envelope>(good.as_bytes()).is_ok());
        for (from, to) in [
            ("\"snapshot\":\"", "\"snapshot\":\"../"),
            ("\"volume\":\"", "\"volume\":\"/"),
            ("\"volume\":\"", "\"path\":\"/etc\",\"volume\":\""),
        ] {
            let spoiled = good.replacen(from, to, 1);
            assert_ne!(spoiled, good);
            assert!(decode::<Envelope>(spoiled.as_bytes()).is_err(), "{spoiled}");
        }
    }

    #[test]
    fn a_request_says_the_first_protocol_that_has_all_of_it() {
        let Request::Create(mut create) = sample().request else { unreachable!() };
        assert_eq!(Request::Create(create.clone()).protocol(), 1);
        create.profile.paths.blocked.push("/opt".into());
        assert_eq!(Request::Create(create.clone()).protocol(), 2);
        create.profile.image = ImageName::of(ImageId::random());
        assert_eq!(Request::Create(create).protocol(), 3);
        assert_eq!(Request::ListImages.protocol(), 3);
        let volume = VolumeId::random();
        assert_eq!(Request::PutVolume(volume, 1).protocol(), 2);
        assert_eq!(Request::InspectVolume(volume).protocol(), 2);
        assert_eq!(Request::RemoveVolume(volume).protocol(), 1);
    }

    #[test]
    fn the_longest_answer_about_use_fits() {
        let most = Some(u64::MAX);
        let usage = Usage {
            age_usec: u64::MAX,
            cpu_usec: most,
            throttled_usec: most,
            memory_bytes: most,
            memory_peak_bytes: most,
            memory_limit_bytes: most,
            oom_kills: most,
            socket_kills: most,
            processes: most,
            processes_limit: most,
            disk_bytes: most,
            disk_limit_bytes: most,
        };
        let all = (0..MAX_USAGES).map(|_| (ContainerId::random(), usage)).collect();
        assert!(encode(&LauncherAnswer::Ok(LauncherReply::Usages(all)), MAX_ANSWER).is_ok());
    }

    proptest! {
        /// The parser never panics, and whatever it accepts is as strict as what it would print.
        #[test]
        fn hostile_bytes(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
            let _ = decode::<Envelope>(&bytes);
        }

        /// Damage to a good request is refused or gives a request that is still well formed.
        #[test]
        fn damaged_requests(at in 0usize..400, byte in any::<u8>()) {
            let mut frame = encode(&sample(), MAX_REQUEST).unwrap();
            let at = HEADER + at % (frame.len() - HEADER);
            frame[at] = byte;
            if let Ok(Envelope { request: Request::Create(create), .. }) = decode::<Envelope>(&frame[HEADER..]) {
                prop_assert!(!create.profile.image.as_str().contains('/'));
                prop_assert_eq!(create.container.to_string().len(), 32);
            }
        }

        #[test]
        fn lengths_are_bounded(header in any::<[u8; 4]>()) {
            if let Ok(n) = frame_length(header, MAX_REQUEST) {
                prop_assert!((1..=MAX_REQUEST).contains(&n));
            }
        }
    }
}
