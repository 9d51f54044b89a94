//! Times as people type and read them.

use atoll_types::time::{now_s, parse_rfc3339};

fn distance(seconds: i64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn now() -> i64 {
    now_s().cast_signed()
}

fn relative(text: &str, now: i64) -> String {
    match parse_rfc3339(text).map(|millis| millis.div_euclid(1000)) {
        Some(at) if at > now + 5 => format!("in {}", distance(at - now)),
        // Two clocks are never quite the same.
        Some(at) => format!("{} ago", distance((now - at).max(0))),
        None => text.to_owned(),
    }
}

/// How long ago, or in how long; what is no time stays as it is.
pub(crate) fn since(text: &str) -> String {
    relative(text, now())
}

/// A time for the server: `2h` is two hours ago (s, m, h, d), and any other text is sent as it is.
pub(crate) fn moment(text: &str) -> Result<String, String> {
    let count = text.strip_suffix(['s', 'm', 'h', 'd']).and_then(|digits| digits.parse::<u32>().ok());
    let Some(count) = count else {
        let typed = text.contains('T') || text.parse::<i64>().is_ok();
        return if typed { Ok(text.to_owned()) } else { Err("expected 2h, or 2026-11-15T12:00:00Z".into()) };
    };
    let unit = match text.as_bytes().last() {
        Some(b's') => 1,
        Some(b'm') => 60,
        Some(b'h') => 3600,
        _ => 86_400,
    };
    Ok((now() - i64::from(count) * unit).saturating_mul(1000).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_for_the_server() {
        let ago = |text: &str| now() - moment(text).unwrap().parse::<i64>().unwrap() / 1000;
        assert!((7200..7300).contains(&ago("2h")) && (172_800..172_900).contains(&ago("2d")));
        for same in ["2026-04-06T14:23:11Z", "2026-04-06T14:23:11+02:00", "1775485391123"] {
            assert_eq!(moment(same).as_deref(), Ok(same));
        }
        for bad in ["", "h", "2 h", "-2h", "yesterday", "2026-04-06", "99999999999d"] {
            assert!(moment(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn people_think_in_distances() {
        let at = |now: i64| relative("2000-02-29T00:00:00Z", 951_782_400 + now);
        let said = [at(-90), at(-2), at(59), at(61), at(7200), at(86_400 * 3)];
        assert_eq!(said, ["in 1m", "0s ago", "59s ago", "1m ago", "2h ago", "3d ago"]);
        assert_eq!(relative("soon", 0), "soon");
    }
}
