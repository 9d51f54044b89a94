//! Times on the wire: RFC 3339 in UTC, to the millisecond.

/// Milliseconds since 1970 as a date. Civil-from-days after Howard Hinnant's public algorithm.
pub(crate) fn rfc3339(millis: i64) -> String {
    let (seconds, millis) = (millis.div_euclid(1000), millis.rem_euclid(1000));
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Milliseconds since 1970 of an RFC 3339 time, or of just such a number.
pub(crate) fn millis(text: &str) -> Option<i64> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().ok();
    }
    let text = text.to_ascii_uppercase();
    let (date, rest) = text.split_once('T')?;
    let at = rest.find(['Z', '+', '-'])?;
    let (time, zone) = rest.split_at(at);
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let valid = (1..=12).contains(&month)
        && (1..=days_of(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !valid || fraction.is_empty() || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let fraction: i64 = format!("{fraction:0<3.3}").parse().ok()?;
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset(zone)?;
    Some(seconds * 1000 + fraction)
}

/// Three numbers of so many digits each.
fn numbers(text: &str, by: char, digits: [usize; 3]) -> Option<[i64; 3]> {
    let mut parts = text.split(by);
    let mut found = [0; 3];
    for (number, digits) in found.iter_mut().zip(digits) {
        let part = parts.next().filter(|p| p.len() == digits && p.bytes().all(|b| b.is_ascii_digit()))?;
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(found)
}

/// Seconds that a zone is ahead of UTC.
fn offset(zone: &str) -> Option<i64> {
    let (sign, zone) = match zone.split_at_checked(1)? {
        ("Z", "") => return Some(0),
        ("+", zone) => (1, zone),
        ("-", zone) => (-1, zone),
        _ => return None,
    };
    let [hours, minutes, _] = numbers(&format!("{zone}:00"), ':', [2, 2, 2])?;
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970. Days-from-civil after the same.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::{millis, rfc3339};

    #[test]
    fn both_ways() {
        for at in [0, 951_782_400_000, 1_775_485_391_123, -1, 4_102_444_799_999, -62_167_219_200_000] {
            assert_eq!(millis(&rfc3339(at)), Some(at));
        }
        assert_eq!(millis("1775485391123"), Some(1_775_485_391_123));
        assert_eq!(millis("2026-04-06t16:23:11.1239+02:00"), Some(1_775_485_391_123));
        assert_eq!(millis("2026-04-06T10:53:11-03:30"), Some(1_775_485_391_000));
        for wrong in [
            "",
            "now",
            "-5",
            "99999999999999999999",
            "2026-04-06",
            "2026-02-30T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-04-06T24:00:00Z",
            "2026-04-06T00:00:00",
            "2026-04-06T00:00:00.Z",
            "2026-04-06T00:00:00Zulu",
            "2026-04-06T00:00:00+0200",
            "2026-04-06T00:00:00+",
            "2026-04-06T00:00:00+é:00",
            "+026-04-06T00:00:00Z",
        ] {
            assert_eq!(millis(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn known_dates() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(rfc3339(1_775_485_391_123), "2026-04-06T14:23:11.123Z");
        assert_eq!(rfc3339(-1), "1969-12-31T23:59:59.999Z");
    }
}
