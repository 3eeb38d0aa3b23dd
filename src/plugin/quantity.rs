//! Kubernetes quantities, such as `500m` or `1Gi`, in the canonical form of Kubernetes.

/// Base of a suffix.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// `k`, `M`, ... and no suffix.
    Thousands,
    /// `Ki`, `Mi`, ...
    Binary,
    /// `e3`, `E6`, ...
    Exponent,
}

const THOUSANDS: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// Precision; finer values are rounded.
const NANO: i128 = 1_000_000_000;
/// The maximum of quantities with a binary suffix.
const MAX_BINARY: i128 = i64::MAX as i128 * NANO;

/// Canonical form of a quantity, `0.5` as `500m`; `None` for other text.
pub(super) fn canonical(text: &str) -> Option<String> {
    let text = text.trim();
    let negative = text.starts_with('-');
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let (form, base, power) = meaning(suffix)?;
    if is_final(whole.trim_start_matches('0'), fraction, form, power) {
        return Some(text.to_owned());
    }
    // Numbers too large for any machine are kept unchanged.
    Some(nanos(whole, fraction, base, power).map_or_else(
        || text.to_owned(),
        |nanos| {
            let text = write(if form == Form::Binary { nanos.min(MAX_BINARY) } else { nanos }, form);
            if negative && nanos != 0 { format!("-{text}") } else { text }
        },
    ))
}

/// Whether Kubernetes keeps the text unchanged as canonical: a decimal form with a power of 1000 whose digits do not end
/// in a thousand, or a binary form that is not a multiple of 8 times a power of 1024.
fn is_final(whole: &str, fraction: &str, form: Form, power: i32) -> bool {
    let count = |text: &str| i32::try_from(text.len()).unwrap_or(i32::MAX);
    if form == Form::Binary {
        return fraction.is_empty()
            && count(whole) + 3 * power < 15
            && whole.parse::<u64>().is_ok_and(|value| value % 8 != 0);
    }
    let digits = [whole, fraction].concat();
    let scale = power.saturating_sub(count(fraction));
    !whole.is_empty() && digits.len() <= 18 && scale % 3 == 0 && scale >= -9 && !digits.ends_with("000")
}

fn meaning(suffix: &str) -> Option<(Form, i128, i32)> {
    if let Some(at) = THOUSANDS.iter().position(|s| *s == suffix) {
        return Some((Form::Thousands, 10, i32::try_from(at).ok()? * 3 - 9));
    }
    if let Some(at) = BINARY.iter().position(|s| *s == suffix) {
        return Some((Form::Binary, 1024, i32::try_from(at).ok()?));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    Some((Form::Exponent, 10, exponent.parse().ok()?))
}

/// The number in billionths, rounded up; `None` on overflow.
fn nanos(whole: &str, fraction: &str, base: i128, power: i32) -> Option<i128> {
    let digits = format!("{whole}{}", fraction.trim_end_matches('0'));
    let digits = digits.trim_start_matches('0');
    let shift = i32::try_from(fraction.trim_end_matches('0').len()).ok()?;
    let mantissa: i128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    let factor = |base: i128, power: i32| base.checked_pow(power.unsigned_abs());
    let (mut above, mut below) = (mantissa.checked_mul(NANO)?, factor(10, shift)?);
    if power < 0 {
        below = below.checked_mul(factor(base, power)?)?;
    } else {
        above = above.checked_mul(factor(base, power)?)?;
    }
    Some(above / below + i128::from(above % below != 0))
}

fn write(nanos: i128, form: Form) -> String {
    if form == Form::Binary && nanos % NANO == 0 && nanos >= 1024 * NANO {
        let (number, times) = reduced(nanos / NANO, 1024, BINARY.len() - 1);
        return format!("{number}{}", BINARY[times]);
    }
    let max = if form == Form::Exponent { usize::MAX } else { THOUSANDS.len() - 1 };
    let (number, times) = reduced(nanos, 1000, max);
    match (form, times) {
        _ if number == 0 => "0".into(),
        (Form::Exponent, 3) => number.to_string(),
        (Form::Exponent, _) => format!("{number}e{}", i32::try_from(times).unwrap_or(0) * 3 - 9),
        _ => format!("{number}{}", THOUSANDS[times]),
    }
}

/// Divides the number by `factor` up to `max` times, while divisible; also returns the number of divisions.
fn reduced(mut number: i128, factor: i128, max: usize) -> (i128, usize) {
    let mut times = 0;
    while times < max && number != 0 && number % factor == 0 {
        number /= factor;
        times += 1;
    }
    (number, times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_formatted_like_kubernetes() {
        for (text, expected) in [
            ("1", "1"),
            ("0.5", "500m"),
            ("500m", "500m"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("2.0", "2"),
            ("1.", "1."),
            ("1.500", "1.500"),
            ("39.653", "39.653"),
            ("1.5000", "1500m"),
            ("0.123", "123m"),
            (" 1 ", "1"),
            ("+77m", "+77m"),
            ("+0.5", "500m"),
            ("10e0", "10e0"),
            ("4e25", "40e24"),
            ("8Gi", "8Gi"),
            ("9Ei", "9223372036854775807"),
            (".5", "500m"),
            ("+1", "+1"),
            ("-1500", "-1500"),
            ("-0", "0"),
            ("0Gi", "0"),
            ("1024", "1024"),
            ("1000", "1k"),
            ("128974848", "128974848"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("1.5Ki", "1536"),
            ("1.0001Ki", "1024102400u"),
            ("1048576Ki", "1Gi"),
            ("100M", "100M"),
            ("1E", "1E"),
            ("1e3", "1e3"),
            ("1E4", "10e3"),
            ("12e6", "12e6"),
            ("1e-3", "1e-3"),
            ("5n", "5n"),
            ("0.1n", "1n"),
            ("0.0001", "100u"),
        ] {
            assert_eq!(canonical(text).as_deref(), Some(expected), "{text}");
        }
        let huge = format!("1{}", "0".repeat(60));
        assert_eq!(canonical(&huge), Some(huge.clone()));
        for text in ["", ".", "1.2.3", "a", "1x", "1 Gi", "1gi", "--1", "1e", "1e1.5", "Ki", "1Kib", "ä"] {
            assert_eq!(canonical(text), None, "{text}");
        }
    }
}
