//! Sizes, shares and times as people type them.

use std::time::Duration;

fn split(text: &str) -> (&str, String) {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..at], text[at..].trim().to_ascii_lowercase())
}

fn number(text: &str, whole: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(n) if n.is_finite() && n >= 0.0 => Ok(n),
        _ => Err(format!("{whole:?} is not a number with a unit")),
    }
}

/// Bytes: `512m`, `2g`, `1.5GiB`, or a plain number of bytes.
pub fn bytes(text: &str) -> Result<u64, String> {
    let (digits, unit) = split(text);
    let factor: u64 = match unit.trim_end_matches("ib").trim_end_matches('b') {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        "t" => 1 << 40,
        _ => return Err(format!("unknown unit in {text:?}; use k, m, g or t")),
    };
    let value = number(digits, text)? * factor as f64;
    if value > 1e18 { Err(format!("{text:?} is too large")) } else { Ok(value as u64) }
}

/// Thousandths of a core: `0.5` is 500.
pub fn cores(text: &str) -> Result<u32, String> {
    let millis = number(text, text)? * 1000.0;
    if (1.0..=1_024_000.0).contains(&millis) {
        Ok(millis as u32)
    } else {
        Err("expected 0.001 to 1024 cores".into())
    }
}

/// A time: `500ms`, `30s`, `5m`, `2h`, `7d`, or a plain number of seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (digits, unit) = split(text);
    let factor = match unit.as_str() {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(format!("unknown unit in {text:?}; use ms, s, m, h or d")),
    };
    let seconds = number(digits, text)? * factor;
    if seconds > 0.0 && seconds < 1e9 {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("must be above zero".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_type_many_things() {
        assert_eq!(bytes("512m"), Ok(512 << 20));
        assert_eq!(bytes("1.5GiB"), Ok(3 << 29));
        assert_eq!(bytes("2T"), Ok(2 << 40));
        assert_eq!(bytes("100"), Ok(100));
        assert_eq!(cores("0.5"), Ok(500));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("100d"), Ok(Duration::from_secs(8_640_000)));
        for bad in ["", "m", "-1m", "1x", "1e400", "9999999999t", "NaN"] {
            assert!(bytes(bad).is_err(), "{bad:?}");
        }
        assert!(cores("0").is_err() && duration("0s").is_err() && duration("1w").is_err());
    }
}
