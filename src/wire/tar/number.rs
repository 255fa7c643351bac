//! The numbers of a header: octal text, or two's complement when the first bit says so.

/// The value of a numeric field; blank is 0, `None` is no number or one beyond 63 bits.
pub(super) fn decode(field: &[u8]) -> Option<i64> {
    match field.first() {
        Some(first) if first & 0x80 != 0 => binary(field),
        _ => octal(field),
    }
}

/// As [`decode`], for what cannot be negative.
pub(super) fn unsigned(field: &[u8]) -> Option<u64> {
    decode(field).and_then(|value| u64::try_from(value).ok())
}

/// Writes `value` into a field: octal where it fits, else two's complement as GNU tar does.
pub(super) fn encode(field: &mut [u8], value: i64) {
    let digits = field.len() - 1;
    let fits = u32::try_from(3 * digits).is_ok_and(|bits| bits >= 63 || value >> bits == 0);
    if value >= 0 && fits {
        let mut rest = value;
        for digit in field[..digits].iter_mut().rev() {
            // Three bits make a digit.
            *digit = b'0' + (rest & 7).to_le_bytes()[0];
            rest >>= 3;
        }
        field[digits] = 0;
        return;
    }
    let fill = if value < 0 { 0xff } else { 0 };
    let split = field.len() - 8;
    field[..split].fill(fill);
    field[split..].copy_from_slice(&value.to_be_bytes());
    field[0] |= 0x80;
}

fn octal(field: &[u8]) -> Option<i64> {
    let end = field.iter().position(|byte| *byte == 0);
    let text = field[..end.unwrap_or(field.len())].trim_ascii();
    let mut value = 0i64;
    for digit in text {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 8)?;
        value = value.checked_mul(8)?.checked_add(i64::from(digit))?;
    }
    Some(value)
}

/// The top bit marks the form, the next one is the sign.
fn binary(field: &[u8]) -> Option<i64> {
    let negative = field[0] & 0x40 != 0;
    let first = if negative { field[0] } else { field[0] & 0x7f };
    let mut value: i128 = if negative { -1 } else { 0 };
    for (index, byte) in field.iter().enumerate() {
        let byte = if index == 0 { first } else { *byte };
        value = (value << 8) | i128::from(byte);
    }
    i64::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octal_has_blanks_around_it() {
        assert_eq!(decode(b"0000644\0"), Some(0o644));
        assert_eq!(decode(b"   644 \0"), Some(0o644));
        assert_eq!(decode(b"\0\0\0\0\0\0\0\0"), Some(0));
        assert_eq!(decode(b"        "), Some(0));
        assert_eq!(decode(b"00009\0\0\0"), None);
        assert_eq!(decode(b"-1\0\0\0\0\0\0"), None);
    }

    #[test]
    fn what_is_written_is_read() {
        for value in [
            0,
            1,
            0o777_7777,
            0o1000_0000,
            i64::from(u32::MAX),
            1 << 33,
            (1 << 33) - 1,
            i64::MAX,
            -1,
            i64::MIN,
        ] {
            let mut field = [0; 12];
            encode(&mut field, value);
            assert_eq!(decode(&field), Some(value), "{value}");
        }
        for value in [0, 0o777_7777, 0o1000_0000, i64::from(u32::MAX)] {
            let mut field = [0; 8];
            encode(&mut field, value);
            assert_eq!(decode(&field), Some(value), "{value}");
        }
    }

    #[test]
    fn a_number_beyond_63_bits_is_none() {
        let mut field = [0xff; 12];
        field[0] = 0x80;
        assert_eq!(decode(&field), None);
    }
}
