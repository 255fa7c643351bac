//! Dates of header fields (RFC 9110, section 5.6.7): written as IMF-fixdate, read in the two old forms too.

/// `Sun, 06 Nov 1994 08:49:37 GMT` for seconds since 1970; times before year 0 or past 9999 are clamped.
pub fn imf(seconds: i64) -> String {
    let seconds = seconds.clamp(FIRST, LAST);
    let days = seconds.div_euclid(DAY);
    let second = seconds.rem_euclid(DAY);
    let (year, month, day) = civil(days);
    let weekday = WEEKDAYS[usize::try_from((days + 4).rem_euclid(7)).unwrap_or(0)];
    let month = MONTHS[usize::try_from(month - 1).unwrap_or(0)];
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!(
        "{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{:02} GMT",
        second % 60
    )
}

/// Seconds since 1970 of an HTTP date: `Sun, 06 Nov 1994 08:49:37 GMT`, `Sunday, 06-Nov-94 08:49:37 GMT` or
/// `Sun Nov  6 08:49:37 1994`. The name of the day is not compared; `None` for all else.
///
/// Of a year in two digits that would be more than 50 years ahead of `now`, the past one is meant.
pub fn parse(text: &[u8], now: i64) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let words: Vec<&str> = text
        .split([' ', '-'])
        .filter(|word| !word.is_empty())
        .collect();
    let (day, month, year, time) = match words.as_slice() {
        [name, day, month, year, time, "GMT"] if name.ends_with(',') => (day, month, year, time),
        [_, month, day, time, year] => (day, month, year, time),
        _ => return None,
    };
    let month = MONTHS.iter().position(|name| name == month)?;
    let month = i64::try_from(month).ok()? + 1;
    let day = number(day, 1..=2).filter(|day| (1..=31).contains(day))?;
    let year = match year.len() {
        2 => full_year(number(year, 2..=2)?, now),
        _ => number(year, 4..=4)?,
    };
    let mut parts = time.split(':');
    let mut part = |most: i64| number(parts.next()?, 2..=2).filter(|part| *part <= most);
    // A leap second is the last second of its day that a clock here can show.
    let (hour, minute, second) = (part(23)?, part(59)?, part(60)?.min(59));
    if parts.next().is_some() {
        return None;
    }
    let days = days(year, month, day);
    (civil(days) == (year, month, day)).then_some(days * DAY + hour * 3600 + minute * 60 + second)
}

fn number(text: &str, lengths: std::ops::RangeInclusive<usize>) -> Option<i64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    (digits && lengths.contains(&text.len())).then(|| text.parse().ok())?
}

fn full_year(short: i64, now: i64) -> i64 {
    let (this, ..) = civil(now.clamp(FIRST, LAST).div_euclid(DAY));
    let year = this - this % 100 + short;
    if year > this + 50 { year - 100 } else { year }
}

/// The day count from 1970-01-01 of a date; the inverse of [`civil`].
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month (1 to 12) and day of a day count from 1970-01-01, in the proleptic Gregorian calendar.
///
/// Counted in eras of 400 years that start on the first of March, so that the leap day is the last of a year.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

const DAY: i64 = 86_400;
const FIRST: i64 = -62_167_219_200;
const LAST: i64 = 253_402_300_799;
const WEEKDAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates_are_written_as_the_rfc_writes_them() {
        for (seconds, text) in [
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (-1, "Wed, 31 Dec 1969 23:59:59 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (1_796_040_507, "Mon, 30 Nov 2026 12:08:27 GMT"),
            (i64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(imf(seconds), text);
        }
    }
    #[test]
    fn what_was_written_is_read() {
        for seconds in (FIRST..=LAST).step_by(86_400 * 97 + 12_345) {
            assert_eq!(parse(imf(seconds).as_bytes(), 0), Some(seconds));
        }
    }

    #[test]
    fn all_three_forms_are_read() {
        let now = 1_796_040_507;
        for (text, seconds) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(784_111_777)),
            ("Sun Nov  6 08:49:37 1994", Some(784_111_777)),
            ("Sun Nov 16 08:49:37 1994", Some(784_975_777)),
            ("Thursday, 01-Jan-76 00:00:00 GMT", Some(3_345_062_400)),
            ("Saturday, 01-Jan-77 00:00:00 GMT", Some(220_924_800)),
            ("Sat, 31 Dec 2016 23:59:60 GMT", Some(1_483_228_799)),
            ("Tue, 29 Feb 2000 00:00:00 GMT", Some(951_782_400)),
            ("Mon, 29 Feb 1900 00:00:00 GMT", None),
            ("Sun, 06 Nov 1994 08:49:37", None),
            ("Sun, 06 Nov 1994 08:49:37 CET", None),
            ("Sun, 06 Nov 1994 8:49:37 GMT", None),
            ("Sun, 06 Nov 1994 24:00:00 GMT", None),
            ("Sun, 00 Nov 1994 08:49:37 GMT", None),
            ("Sun, 06 Noy 1994 08:49:37 GMT", None),
            ("784111777", None),
            ("", None),
        ] {
            assert_eq!(parse(text.as_bytes(), now), seconds, "{text}");
        }
    }
}
