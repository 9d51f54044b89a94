//! Cores and memory as texts: `"0.5"` and `"512m"`.

const MIB: f64 = (1 << 20) as f64;
/// The longest figure.
const LONGEST: usize = 20;

/// A decimal figure without a sign or an exponent.
pub(super) fn figure(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let digit = |b: Option<&u8>| b.is_some_and(u8::is_ascii_digit);
    let ends = digit(text.as_bytes().first()) && digit(text.as_bytes().last());
    (plain && ends && text.len() <= LONGEST).then(|| text.parse().ok()).flatten()
}

/// MiB of a size with a unit as Docker writes it, rounded up; bytes where it has none.
pub(super) fn megabytes(text: &str) -> Option<u64> {
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let bytes = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kb" | "ki" | "kib" => 1024.0,
        "m" | "mb" | "mi" | "mib" => MIB,
        "g" | "gb" | "gi" | "gib" => 1024.0 * MIB,
        _ => return None,
    };
    // At most 10^20 GiB, which a u64 of MiB clamps and the core then refuses.
    Some((figure(number)? * bytes / MIB).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_docker_reads_them() {
        for (text, mb) in [
            ("512m", 512),
            ("512M", 512),
            ("512MiB", 512),
            ("1g", 1024),
            ("1.5g", 1536),
            ("262144k", 256),
            ("268435456", 256),
            ("268435457b", 257),
            ("0m", 0),
        ] {
            assert_eq!(megabytes(text), Some(mb), "{text}");
        }
        for text in [
            "", "m", "-1m", "+1m", "1e3m", "1..5g", ".5g", "5.", "512 m", "512q", "nan", "inf", "१m", "0x10m",
        ] {
            assert_eq!(megabytes(text), None, "{text}");
        }
        assert_eq!(megabytes("99999999999999999999g"), Some(u64::MAX));
    }

    #[test]
    fn cores_are_decimal_figures() {
        assert_eq!((figure("0.5"), figure("2"), figure("0.25")), (Some(0.5), Some(2.0), Some(0.25)));
        for text in ["", ".", "1.", "-1", "1e3", "NaN", "inf", "1_0", "0.5 ", &"1".repeat(21)] {
            assert_eq!(figure(text), None, "{text}");
        }
    }
}
