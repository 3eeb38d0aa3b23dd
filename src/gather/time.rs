//! The date and time in the node's time zone, as in Ansible, and the time service.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::time::{Date, Duration as Span, Month, OffsetDateTime};
use regex::Regex;
use serde_json::Value;

use super::{Facts, NodeFiles};
use base::json::json;

const NAME: &str = "(<[^>]+>|[A-Za-z]+)";
const TIME: &str = r"([-+]?\d{1,3}(?::\d\d){0,2})";
/// Month, week and weekday.
const DAY: &str = r"M(\d{1,2})\.([1-5])\.([0-6])";

/// Files that exist while a time service keeps the clock.
const TIME_SERVICES: &[(&str, &str)] = &[
    ("/run/systemd/timesync/synchronized", "systemd-timesyncd"),
    ("/run/chrony/chronyd.pid", "chrony"),
    ("/run/chronyd.pid", "chrony"),
    ("/run/chrony/chronyd.sock", "chrony"),
    ("/run/ntpd.pid", "ntpd"),
    ("/run/ptp4l", "ptp4l"),
];

pub(super) fn gather(node: &NodeFiles, facts: &mut Facts) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let file = node.bytes("/etc/localtime").unwrap_or_default();
    let rule = file.rsplit(|byte| *byte == b'\n').nth(1).and_then(|rule| std::str::from_utf8(rule).ok());
    facts.set("date_time", date_time(since, rule.unwrap_or("UTC0")));
    let zone = || Some(node.link("/etc/localtime")?.to_str()?.split_once("zoneinfo/")?.1.to_owned());
    let service = TIME_SERVICES.iter().find(|(path, _)| node.exists(path));
    facts.set_own(
        "clock",
        json!({
            "source": node.text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            "zone": node.some("/etc/timezone").or_else(zone),
            "synchronised_by": service.map(|(_, name)| *name),
        }),
    );
}

/// Offset from UTC in seconds and name of a zone at a time, and its name in summer, by the last line of a zone file
/// (RFC 9636), the rule for the present: `CET-1CEST,M3.5.0,M10.5.0/3`.
fn offset(rule: &str, epoch: i64) -> Option<(i64, String, String)> {
    let turn = format!("{DAY}(?:/{TIME})?");
    let form = Regex::new(&format!("^{NAME}{TIME}(?:{NAME}{TIME}?,{turn},{turn})?$")).ok()?;
    let found = form.captures(rule)?;
    let text = |index| found.get(index).map(|part| part.as_str());
    let name = |index| Some(text(index)?.trim_matches(['<', '>']).to_owned());
    let (winter, winter_name) = (-seconds(text(2)?), name(1)?);
    let Some(summer_name) = name(3) else { return Some((winter, winter_name.clone(), winter_name)) };
    let summer = text(4).map_or(winter + 3_600, |west| -seconds(west));
    let year = OffsetDateTime::from_unix_timestamp(epoch + winter).ok()?.year();
    // The clock changes at a local time of the n-th such weekday of a month; the fifth is the last.
    let turn = |at: usize, offset: i64| {
        let number = |index| text(index)?.parse::<u8>().ok();
        let (month, week, weekday) = (number(at)?, number(at + 1)?, number(at + 2)?);
        let start = Date::from_calendar_date(year, Month::try_from(month).ok()?, 1).ok()?;
        let ahead = (7 + weekday - start.weekday().number_days_from_sunday()) % 7;
        let mut day = start + Span::days(ahead.into()) + Span::weeks(i64::from(week) - 1);
        if day.month() != start.month() {
            day -= Span::WEEK;
        }
        Some(day.midnight().assume_utc().unix_timestamp() + seconds(text(at + 3).unwrap_or("2")) - offset)
    };
    let (begin, end) = (turn(5, winter)?, turn(9, summer)?);
    // South of the equator, summer spans the new year.
    let is_summer = if begin < end { (begin..end).contains(&epoch) } else { !(end..begin).contains(&epoch) };
    Some(match is_summer {
        true => (summer, summer_name.clone(), summer_name),
        false => (winter, winter_name, summer_name),
    })
}

/// Parses `-1`, `5:45`, `2:00:30`.
fn seconds(text: &str) -> i64 {
    let parts = text.trim_start_matches(['-', '+']).split(':').zip([3_600, 60, 1]);
    let seconds: i64 = parts.map(|(part, unit)| part.parse::<i64>().unwrap_or(0) * unit).sum();
    if text.starts_with('-') { -seconds } else { seconds }
}

fn date_time(since: Duration, rule: &str) -> Value {
    let (epoch, micros) = (since.as_secs(), since.subsec_micros());
    let now = i64::try_from(epoch).unwrap_or(i64::MAX);
    let (offset, name, summer_name) = offset(rule, now).unwrap_or_else(|| (0, "UTC".into(), "UTC".into()));
    let local = OffsetDateTime::from_unix_timestamp(now + offset).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let utc = base::clock::rfc3339(UNIX_EPOCH + Duration::from_secs(epoch));
    let utc = utc.split('.').next().unwrap_or_default();
    let (year, (hour, minute, second)) = (local.year(), local.to_hms());
    let [month, day, hour, minute, second] =
        [local.month().into(), local.day(), hour, minute, second].map(|part| format!("{part:02}"));
    let basic = format!("{year}{month}{day}T{hour}{minute}{second}");
    let (sign, minutes) = (if offset < 0 { '-' } else { '+' }, offset.unsigned_abs() / 60);
    json!({
        "date": format!("{year}-{month}-{day}"), "time": format!("{hour}:{minute}:{second}"),
        "year": year.to_string(), "month": month, "day": day, "hour": hour, "minute": minute, "second": second,
        "weekday": local.weekday().to_string(),
        "weekday_number": local.weekday().number_days_from_sunday().to_string(),
        "weeknumber": format!("{:02}", local.monday_based_week()),
        "epoch": epoch.to_string(), "epoch_int": epoch.to_string(),
        "iso8601": format!("{utc}Z"), "iso8601_micro": format!("{utc}.{micros:06}Z"),
        "iso8601_basic": format!("{basic}{micros:06}"), "iso8601_basic_short": basic,
        "tz": name, "tz_dst": summer_name, "tz_offset": format!("{sign}{:02}{:02}", minutes / 60, minutes % 60),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(epoch: u64, expected: [&str; 4]) {
        let found = date_time(Duration::new(epoch, 42_000), "UTC0");
        let keys = ["date", "weekday", "weeknumber", "iso8601_micro"];
        assert_eq!(keys.map(|key| found[key].as_str().unwrap().to_owned()), expected, "{epoch}");
    }

    #[test]
    fn weeks_begin_on_monday() {
        check(1_795_228_849, ["2026-11-21", "Saturday", "46", "2026-11-21T02:40:49.000042Z"]);
        check(1_704_067_200, ["2024-01-01", "Monday", "01", "2024-01-01T00:00:00.000042Z"]);
        check(1_672_531_200, ["2023-01-01", "Sunday", "00", "2023-01-01T00:00:00.000042Z"]);
        check(1_735_603_200, ["2024-12-31", "Tuesday", "53", "2024-12-31T00:00:00.000042Z"]);
    }

    #[test]
    fn daylight_saving_rules_work_on_both_hemispheres() {
        let check = |rule: &str, epoch: i64, expected: (i64, &str, &str)| {
            let expected = (expected.0, expected.1.to_owned(), expected.2.to_owned());
            assert_eq!(offset(rule, epoch), Some(expected), "{rule} at {epoch}");
        };
        let paris = "CET-1CEST,M3.5.0,M10.5.0/3";
        check(paris, 1_711_846_799, (3_600, "CET", "CEST"));
        check(paris, 1_711_846_800, (7_200, "CEST", "CEST"));
        check(paris, 1_729_990_799, (7_200, "CEST", "CEST"));
        check(paris, 1_729_990_800, (3_600, "CET", "CEST"));
        let sydney = "AEST-10AEDT,M10.1.0,M4.1.0/3";
        check(sydney, 1_704_067_200, (39_600, "AEDT", "AEDT"));
        check(sydney, 1_719_792_000, (36_000, "AEST", "AEDT"));
        check("<+0545>-5:45", 1_719_792_000, (20_700, "+0545", "+0545"));
        check("EST5EDT,M3.2.0,M11.1.0", 1_719_792_000, (-14_400, "EDT", "EDT"));
        check("UTC0", 0, (0, "UTC", "UTC"));
        for broken in ["", "TZif2\0", "CET", "CET-1CEST,J60,M10.5.0", "CET-9999999999"] {
            assert_eq!(offset(broken, 0), None, "{broken}");
        }
    }
}
