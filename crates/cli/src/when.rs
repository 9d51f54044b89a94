//! Times as people say them.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970 of an RFC 3339 time in UTC. Days-from-civil after Howard Hinnant's algorithm.
fn seconds(text: &str) -> Option<i64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let numbers = |text: &str, by: char| -> Option<[i64; 3]> {
        let parts: Vec<i64> = text.split(by).map(|p| p.parse().ok()).collect::<Option<_>>()?;
        parts.try_into().ok()
    };
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time.split('.').next()?, ':')?;
    if !((0..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day)) {
        return None;
    }
    if !((0..24).contains(&hour) && (0..60).contains(&minute) && (0..=60).contains(&second)) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some((era * 146_097 + day_of_era - 719_468) * 86_400 + hour * 3600 + minute * 60 + second)
}

fn distance(seconds: i64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn relative(text: &str, now: i64) -> String {
    match seconds(text) {
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

/// A time for the server: `2h` is two hours ago (s, m, h, d), and anything else goes as it is.
pub(crate) fn moment(text: &str) -> Result<String, String> {
    let count = text.strip_suffix(['s', 'm', 'h', 'd']).and_then(|digits| digits.parse::<u32>().ok());
    let Some(count) = count else {
        let typed = seconds(text).is_some() || text.contains('T') || text.parse::<i64>().is_ok();
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
    fn known_times() {
        assert_eq!(seconds("1970-01-01T00:00:00.000Z"), Some(0));
        assert_eq!(seconds("2000-02-29T00:00:00Z"), Some(951_782_400));
        assert_eq!(seconds("2026-04-06T14:23:11.123Z"), Some(1_775_485_391));
        for bad in ["", "Z", "2026-04-06", "2026-04-06T14:23Z", "2026-13-06T14:23:11Z", "x-y-zTa:b:cZ"] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }

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
