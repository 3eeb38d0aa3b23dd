//! Times and durations as a run's documents write them: RFC 3339 and Go's notation for durations.
//!
//! Handles only text; never waits ([`crate::stop`] does) and knows no time zone but UTC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use ureq::http::HeaderMap;

/// Go's zero time, the placeholder in status documents.
pub const ZERO: &str = "0001-01-01T00:00:00Z";

/// Now, as RFC 3339 in UTC with milliseconds.
pub fn now() -> String {
    rfc3339(SystemTime::now())
}

/// A time as RFC 3339 in UTC with milliseconds; anything before 1970 counts as 1970.
pub fn rfc3339(time: SystemTime) -> String {
    let time = OffsetDateTime::from(time.max(UNIX_EPOCH));
    let (hour, minute, second, millis) = time.to_hms_milli();
    format!(
        "{}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z",
        time.date()
    )
}

/// `YYYYMMDDHHMM` in UTC: the start of an archive's name.
pub fn stamp(time: SystemTime) -> String {
    rfc3339(time)
        .chars()
        .filter(char::is_ascii_digit)
        .take(12)
        .collect()
}

/// Parses RFC 3339 with any offset and fraction; `None` if it is anything else or before 1970.
pub fn parse_rfc3339(text: &str) -> Option<SystemTime> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    // Windows has no times before 1601, and the conversion would panic.
    (time >= OffsetDateTime::UNIX_EPOCH).then(|| time.into())
}

/// Parses a date as in HTTP: `Sat, 21 Nov 2026 02:40:49 GMT`.
pub fn parse_http_date(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(text).ok()
}

/// Whether at least `span` has passed between `since` and `now`.
pub fn passed(since: SystemTime, span: Duration, now: SystemTime) -> bool {
    now.duration_since(since)
        .is_ok_and(|elapsed| elapsed >= span)
}

/// Offset of this clock from another one, in seconds, and the margin of error. The other clock
/// reported its time, in whole seconds, between `sent` and `received`.
pub fn offset(theirs: SystemTime, sent: SystemTime, received: SystemTime) -> (f64, f64) {
    let since = |time: SystemTime| {
        time.duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs_f64()
    };
    let (theirs, sent, received) = (since(theirs) + 0.5, since(sent), since(received));
    (
        f64::midpoint(sent, received) - theirs,
        0.5 + (received - sent).abs() / 2.0,
    )
}

/// The same offset, from the date of a response that has begun, to a request that was `sent`;
/// `None` without a date.
pub fn offset_of(headers: &HeaderMap, sent: SystemTime) -> Option<(f64, f64)> {
    let received = SystemTime::now();
    let date = parse_http_date(headers.get("date")?.to_str().ok()?)?;
    Some(offset(date, sent, received))
}

/// Parses a duration in Go's notation: `5s`, `1h30m`, `1.5ms`, `0`; never negative.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut seconds = (!rest.is_empty()).then_some(0_f64)?;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let amount: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        // Longer units first: `ms` before `m`.
        let (unit, factor) = [
            ("ns", 1e-9),
            ("us", 1e-6),
            ("µs", 1e-6),
            ("μs", 1e-6),
            ("ms", 1e-3),
            ("s", 1.0),
            ("m", 60.0),
            ("h", 3_600.0),
        ]
        .into_iter()
        .find(|(unit, _)| rest.starts_with(unit))?;
        seconds += amount * factor;
        rest = &rest[unit.len()..];
    }
    Duration::try_from_secs_f64(seconds).ok()
}

/// Formats a duration as Go does: `12.345ms`, `1m30s`, `0s`.
pub fn duration(span: Duration) -> String {
    let fraction = |nanos: u128, unit: u128| {
        let text = format!(
            "{}.{:0width$}",
            nanos / unit,
            nanos % unit,
            width = unit.ilog10() as usize
        );
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match span.as_nanos() {
        0 => "0s".into(),
        nanos @ 1..1_000 => format!("{nanos}ns"),
        nanos @ 1_000..1_000_000 => format!("{}µs", fraction(nanos, 1_000)),
        nanos @ 1_000_000..1_000_000_000 => format!("{}ms", fraction(nanos, 1_000_000)),
        nanos => {
            let (minutes, seconds) = (
                span.as_secs() / 60,
                fraction(nanos % 60_000_000_000, 1_000_000_000),
            );
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{seconds}s"),
                (0, minutes) => format!("{minutes}m{seconds}s"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

/// A duration that serde reads and writes as `1h30m0s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Span(#[serde(with = "span")] pub Duration);

/// Durations as text, for serde.
pub mod span {
    use super::Duration;
    use serde::de::{Deserializer, Error, Visitor};
    use serde::ser::Serializer;

    /// Writes a duration.
    pub fn serialize<S: Serializer>(value: &Duration, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&super::duration(*value))
    }

    /// Reads a duration.
    pub fn deserialize<'de, D: Deserializer<'de>>(value: D) -> Result<Duration, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Duration;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a duration in quotes, as in \"5m\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
                let words = "is not a duration; write it as 90s, 5m or 1h30m";
                super::parse_duration(text).ok_or_else(|| E::custom(words))
            }
        }
        value.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_writing_and_parsing() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_704_067_199, "2023-12-31T23:59:59.000Z"),
            (4_107_542_399, "2100-02-28T23:59:59.000Z"),
        ] {
            let time = UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(rfc3339(time), text);
            assert_eq!(parse_rfc3339(text), Some(time));
        }
    }

    #[test]
    fn offsets_and_fractions_are_parsed_and_nonsense_rejected() {
        let base = UNIX_EPOCH + Duration::from_secs(1_704_067_200);
        assert_eq!(parse_rfc3339("2024-01-01T02:00:00+02:00"), Some(base));
        assert_eq!(
            parse_rfc3339("2023-12-31t19:00:00.5-05:00"),
            Some(base + Duration::from_millis(500))
        );
        for bad in [
            "",
            "2024-01-01",
            "2024-13-01T00:00:00Z",
            "2023-02-29T00:00:00Z",
            "2024-01-01T00:00:00",
            "2024-01-01T00:00:00.Z",
            "+024-01-01T00:00:00Z",
        ] {
            assert_eq!(parse_rfc3339(bad), None, "{bad}");
        }
    }

    #[test]
    fn durations_equal_those_of_go() {
        for (text, nanos) in [
            ("0s", 0),
            ("1ns", 1),
            ("1.5µs", 1_500),
            ("12.345ms", 12_345_000),
            ("5s", 5_000_000_000),
            ("1m30s", 90_000_000_000),
            ("1h0m0.5s", 3_600_500_000_000),
        ] {
            let span = Duration::from_nanos(nanos);
            assert_eq!(duration(span), text);
            assert_eq!(parse_duration(text), Some(span), "{text}");
        }
        for bad in ["", "5", "s", "-1s", "1x", "1..2s", "1e3s"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }
}
