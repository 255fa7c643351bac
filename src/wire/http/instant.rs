//! Points in time as people and programs write them: seconds since 1970, RFC 3339, dates of header fields.

use super::date::{civil, days, parse as http_date};
use crate::wire::tar::Moment;

/// Reads `1796040507.25`, `2026-11-30T12:08:27.25Z`, `2026-11-30T13:08:27+01:00` or a date of RFC 9110; `now` is for
/// years in two digits. Fractions are cut at nanoseconds. A space may stand for the `T`, and for the `+` that became
/// one in a query.
pub fn parse(text: &str, now: i64) -> Option<Moment> {
    let text = text.trim();
    seconds(text).or_else(|| rfc3339(text)).or_else(|| {
        let secs = http_date(text.as_bytes(), now)?;
        Some(Moment { secs, nanos: 0 })
    })
}

fn seconds(text: &str) -> Option<Moment> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let secs = i64::try_from(digits(whole)?).ok()?;
    let nanos = nanos(part)?;
    Some(match (negative, nanos) {
        (false, _) => Moment { secs, nanos },
        (true, 0) => Moment { secs: -secs, nanos },
        (true, _) => Moment {
            secs: -secs - 1,
            nanos: 1_000_000_000 - nanos,
        },
    })
}

fn rfc3339(text: &str) -> Option<Moment> {
    let (date, clock) = (text.get(..10)?, text.get(11..)?);
    if !matches!(text.as_bytes()[10], b'T' | b't' | b' ') {
        return None;
    }
    let mut parts = date.split('-');
    let mut part = |length| field(parts.next()?, length);
    let (year, month, day) = (part(4)?, part(2)?, part(2)?);
    let count = days(year, month, day);
    if parts.next().is_some() || !(1..=12).contains(&month) || civil(count) != (year, month, day) {
        return None;
    }
    let (time, offset) = clock.split_at(clock.find(['Z', 'z', '+', '-', ' '])?);
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut parts = time.split(':');
    let mut part = |most| field(parts.next()?, 2).filter(|part| *part <= most);
    // A leap second is the last second of its day that a clock here can show.
    let (hour, minute, second) = (part(23)?, part(59)?, part(60)?.min(59));
    if parts.next().is_some() {
        return None;
    }
    let local = count * 86_400 + hour * 3600 + minute * 60 + second;
    Some(Moment {
        secs: local - offset_seconds(offset)?,
        nanos: nanos(fraction)?,
    })
}

fn offset_seconds(text: &str) -> Option<i64> {
    let (sign, clock) = text.split_at(1);
    let sign = match sign {
        "Z" | "z" => return clock.is_empty().then_some(0),
        "-" => -1,
        _ => 1,
    };
    let (hours, minutes) = clock.split_once(':')?;
    let hours = field(hours, 2).filter(|hours| *hours < 24)?;
    let minutes = field(minutes, 2).filter(|minutes| *minutes < 60)?;
    Some(sign * (hours * 3600 + minutes * 60))
}

fn nanos(fraction: &str) -> Option<u32> {
    if fraction.is_empty() {
        return None;
    }
    let mut nanos = 0;
    let mut letters = fraction.bytes();
    for _ in 0..9 {
        let digit = letters.next().unwrap_or(b'0');
        nanos = nanos * 10 + u32::from(digit.checked_sub(b'0').filter(|digit| *digit < 10)?);
    }
    letters
        .all(|letter| letter.is_ascii_digit())
        .then_some(nanos)
}

fn field(text: &str, length: usize) -> Option<i64> {
    let value = digits(text).filter(|_| text.len() == length)?;
    i64::try_from(value).ok()
}

fn digits(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_moment_is_read() {
        for (text, expected) in [
            ("0", Some((0, 0))),
            ("1796040507", Some((1_796_040_507, 0))),
            ("1796040507.25", Some((1_796_040_507, 250_000_000))),
            ("-1.5", Some((-2, 500_000_000))),
            ("1.1234567899", Some((1, 123_456_789))),
            ("2026-11-30T12:08:27Z", Some((1_796_040_507, 0))),
            ("2026-11-30T12:08:27.5Z", Some((1_796_040_507, 500_000_000))),
            ("2026-11-30t13:08:27+01:00", Some((1_796_040_507, 0))),
            ("2026-11-30T13:08:27 01:00", Some((1_796_040_507, 0))),
            ("2026-11-30 09:38:27-02:30", Some((1_796_040_507, 0))),
            ("2016-12-31T23:59:60Z", Some((1_483_228_799, 0))),
            ("Mon, 30 Nov 2026 12:08:27 GMT", Some((1_796_040_507, 0))),
            ("", None),
            ("yesterday", None),
            ("1.", None),
            ("1.x", None),
            ("1.1234567891x", None),
            ("99999999999999999999", None),
            ("2026-11-30", None),
            ("2026-11-30T12:08:27", None),
            ("2026-02-30T12:08:27Z", None),
            ("2026-13-30T12:08:27Z", None),
            ("2026-11-30T24:08:27Z", None),
            ("2026-11-30T12:08Z", None),
            ("2026-11-30T12:08:27+1", None),
            ("2026-11-30T12:08:27Zx", None),
            ("2026-11-30\u{fc}12:08:27Z", None),
        ] {
            let expected = expected.map(|(secs, nanos)| Moment { secs, nanos });
            assert_eq!(parse(text, 0), expected, "{text}");
        }
    }
}
