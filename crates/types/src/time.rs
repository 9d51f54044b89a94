//! Wall-clock time: milliseconds since 1970 inside, RFC 3339 in UTC to the millisecond on the wire.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Milliseconds since 1970. Never negative: a clock that is set to a time before 1970 counts as 1970.
pub fn now_ms() -> i64 {
    i64::try_from(since_1970().as_millis()).unwrap_or(i64::MAX)
}

/// Whole seconds since 1970.
pub fn now_s() -> u64 {
    since_1970().as_secs()
}

/// Milliseconds since 1970 as a date in the years 1 to 9999, which are all that RFC 3339 can write.
/// Civil-from-days after Howard Hinnant's public algorithm.
pub fn rfc3339(millis: i64) -> String {
    let millis = millis.clamp(-62_135_596_800_000, 253_402_300_799_999);
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

/// The day of a number of days since 1970.
pub fn day(days: i64) -> String {
    rfc3339(days.saturating_mul(86_400_000)).chars().take(10).collect()
}

/// Milliseconds since 1970 of a time that a person typed: RFC 3339, or those milliseconds themselves.
pub fn moment(text: &str) -> Option<i64> {
    if text.len() <= 16 && text.strip_prefix('-').unwrap_or(text).bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().ok();
    }
    parse_rfc3339(text)
}

/// Milliseconds since 1970 of an RFC 3339 time with any offset; digits beyond the milliseconds are dropped.
pub fn parse_rfc3339(text: &str) -> Option<i64> {
    let (date, time) = text.split_once(['T', 't'])?;
    let (time, offset) = match time.strip_suffix(['Z', 'z']) {
        Some(time) => (time, 0),
        None => {
            let at = time.rfind(['+', '-'])?;
            let [hours, minutes] = numbers(&time[at + 1..], ':', [2, 2])?;
            let minutes = (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)?;
            (&time[..at], if time[at..].starts_with('-') { -minutes } else { minutes })
        }
    };
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    if fraction.is_empty() || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let millis: i64 = format!("{fraction:0<3}")[..3].parse().ok()?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let days = days_from_civil(year, month, day)?;
    // A leap second is the first of the next minute.
    (hour < 24 && minute < 60 && second <= 60).then_some(())?;
    Some((days * 86_400 + hour * 3600 + (minute - offset) * 60 + second) * 1000 + millis)
}

/// Numbers with exactly so many digits each.
fn numbers<const N: usize>(text: &str, by: char, digits: [usize; N]) -> Option<[i64; N]> {
    let parts: Vec<&str> = text.split(by).collect();
    let fits =
        |(part, digits): (&&str, usize)| part.len() == digits && part.bytes().all(|b| b.is_ascii_digit());
    (parts.len() == N && parts.iter().zip(digits).all(fits)).then_some(())?;
    parts.iter().map(|part| part.parse().ok()).collect::<Option<Vec<i64>>>()?.try_into().ok()
}

fn days_from_civil(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let longest = match month {
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        1..=12 => 31,
        _ => return None,
    };
    (1..=longest).contains(&day).then_some(())?;
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Some(era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468)
}

#[cfg(test)]
mod tests {
    use super::{day, moment, parse_rfc3339, rfc3339};

    #[test]
    fn typed_times() {
        for millis in [0, 951_782_400_000, 1_775_485_391_123, -1, 1_709_164_800_000] {
            assert_eq!(moment(&rfc3339(millis)), Some(millis));
            assert_eq!(moment(&millis.to_string()), Some(millis));
        }
        assert_eq!(moment("2026-04-06t16:23:11.1239+02:00"), Some(1_775_485_391_123));
        assert_eq!(moment("2026-04-06T10:53:11.1-03:30"), Some(1_775_485_391_100));
        assert_eq!(parse_rfc3339("0"), None, "a number is a moment, but no date");
        assert_eq!(day(0), "1970-01-01");
        for bad in [
            "",
            "-",
            "2026-04-06",
            "2026-04-06T14:23Z",
            "2026-04-06T14:23:11",
            "2026-13-06T14:23:11Z",
            "2026-02-29T00:00:00Z",
            "2026-04-06T24:00:00Z",
            "2026-4-6T14:23:11Z",
            "2026-04-06T14:23:11.Z",
            "2026-04-06T14:23:11 02:00",
            "2026-04-06T14:23:11+é:00",
            "99999999999999999",
            "+1",
            "1.5",
        ] {
            assert_eq!(moment(bad), None, "{bad}");
        }
    }

    #[test]
    fn known_dates() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(rfc3339(1_775_485_391_123), "2026-04-06T14:23:11.123Z");
        assert_eq!(rfc3339(-1), "1969-12-31T23:59:59.999Z");
        assert_eq!(rfc3339(i64::MIN), "0001-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(i64::MAX), "9999-12-31T23:59:59.999Z");
        assert_eq!([day(i64::MIN), day(i64::MAX)], ["0001-01-01", "9999-12-31"]);
    }
}
