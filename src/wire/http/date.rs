//! Dates of header fields: the IMF-fixdate of RFC 9110, section 5.6.7.

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
}
