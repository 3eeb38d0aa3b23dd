//! Formats numbers and sizes for all views.

/// `1 test`, `2,000 tests`.
pub(crate) fn count(count: impl TryInto<u64>, one: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    format!("{} {one}{}", number(count), if count == 1 { "" } else { "s" })
}

/// 12,345.
pub(crate) fn number(count: impl TryInto<u64>) -> String {
    let digits = count.try_into().unwrap_or(u64::MAX).to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// 12 KiB.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}
