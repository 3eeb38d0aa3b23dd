//! The date and time in the node's time zone, as in Ansible, and the time service.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use regex::Regex;

use super::{Facts, Node};
use base::clock;
use base::json::json;

const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

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

pub(super) fn gather(node: &Node, facts: &mut Facts) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let file = node.bytes("/etc/localtime").unwrap_or_default();
    let rule = file.rsplit(|byte| *byte == b'\n').nth(1).and_then(|rule| std::str::from_utf8(rule).ok());
    facts.set("date_time", date_time(since, rule.unwrap_or("UTC0")));
    let linked = node.link("/etc/localtime");
    let zone = || Some(linked.as_ref()?.to_str()?.split_once("zoneinfo/")?.1.to_owned());
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
fn offset(rule: &str, epoch: u64) -> Option<(i64, String, String)> {
    let turn = format!("{DAY}(?:/{TIME})?");
    let form = Regex::new(&format!("^{NAME}{TIME}(?:{NAME}{TIME}?,{turn},{turn})?$")).ok()?;
    let found = form.captures(rule)?;
    let text = |index| found.get(index).map(|part| part.as_str());
    let name = |index| Some(text(index)?.trim_matches(['<', '>']).to_owned());
    let (winter, winter_name) = (-seconds(text(2)?), name(1)?);
    let Some(summer_name) = name(3) else { return Some((winter, winter_name.clone(), winter_name)) };
    let summer = text(4).map_or(winter + 3_600, |west| -seconds(west));
    let now = i64::try_from(epoch).ok()?;
    let year = clock::civil(epoch.saturating_add_signed(winter))[0];
    // The clock changes at a local time of the n-th such weekday of a month; the fifth is the last.
    let turn = |at: usize, offset: i64| {
        let number = |index| text(index)?.parse::<u64>().ok();
        let (month, week, weekday) = (number(at)?, number(at + 1)?, number(at + 2)?);
        let start = first_day(year, month);
        // The 1st of January 1970 was a Thursday.
        let mut day = start + (weekday + 7 - (start + 4) % 7) % 7 + (week - 1) * 7;
        if clock::civil(day * 86_400)[1] != month {
            day -= 7;
        }
        Some(i64::try_from(day * 86_400).ok()? + seconds(text(at + 3).unwrap_or("2")) - offset)
    };
    let (begin, end) = (turn(5, winter)?, turn(9, summer)?);
    // South of the equator, summer spans the new year.
    let is_summer = if begin < end { (begin..end).contains(&now) } else { !(end..begin).contains(&now) };
    Some(if is_summer {
        (summer, summer_name.clone(), summer_name)
    } else {
        (winter, winter_name, summer_name)
    })
}

/// Parses `-1`, `5:45`, `2:00:30`.
fn seconds(text: &str) -> i64 {
    let parts = text.trim_start_matches(['-', '+']).split(':').zip([3_600, 60, 1]);
    let seconds: i64 = parts.map(|(part, unit)| part.parse::<i64>().unwrap_or(0) * unit).sum();
    if text.starts_with('-') { -seconds } else { seconds }
}

/// The first day of a month, counted from 1970.
fn first_day(year: u64, month: u64) -> u64 {
    let time = clock::parse_rfc3339(&format!("{year:04}-{month:02}-01T00:00:00Z"));
    time.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).map_or(0, |since| since.as_secs() / 86_400)
}

fn date_time(since: Duration, rule: &str) -> serde_json::Value {
    let (epoch, micros) = (since.as_secs(), since.subsec_micros());
    let (offset, name, summer_name) = offset(rule, epoch).unwrap_or_else(|| (0, "UTC".into(), "UTC".into()));
    let local = epoch.saturating_add_signed(offset);
    let today = local / 86_400;
    let weekday = (today + 4) % 7;
    // Weeks start on Monday; the days before the first Monday are week 0.
    let week = (today - first_day(clock::civil(local)[0], 1) + 7 - (weekday + 6) % 7) / 7;
    let utc = clock::rfc3339(UNIX_EPOCH + Duration::from_secs(epoch));
    let utc = utc.split('.').next().unwrap_or_default();
    let [year, month, day, hour, minute, second] = clock::civil(local).map(|part| format!("{part:02}"));
    let basic = format!("{year}{month}{day}T{hour}{minute}{second}");
    let (sign, minutes) = (if offset < 0 { '-' } else { '+' }, offset.unsigned_abs() / 60);
    json!({
        "date": format!("{year}-{month}-{day}"), "time": format!("{hour}:{minute}:{second}"),
        "year": year, "month": month, "day": day, "hour": hour, "minute": minute, "second": second,
        "weekday": WEEKDAYS[usize::try_from(weekday).unwrap_or(0)], "weekday_number": weekday.to_string(),
        "weeknumber": format!("{week:02}"),
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
    fn rules_turn_the_clock_on_both_hemispheres() {
        let check = |rule: &str, epoch: u64, expected: (i64, &str, &str)| {
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
