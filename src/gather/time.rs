//! The date and time in the node's time zone, as in Ansible, and the time service.

use std::time::{SystemTime, UNIX_EPOCH};

use super::zone::Zone;
use super::{Facts, Node, Source};
use base::clock;
use base::json::json;

pub(crate) struct Time;

const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

impl Source for Time {
    fn gather(&self, node: &Node, facts: &mut Facts) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let zone = node.bytes("/etc/localtime").and_then(|file| Zone::read(&file)).unwrap_or_default();
        facts.set("date_time", date_time(since.as_secs(), since.subsec_micros(), &zone));
        let clocks = "/sys/devices/system/clocksource/clocksource0";
        facts.set_own(
            "clock",
            json!({
                "source": node.text(&format!("{clocks}/current_clocksource")),
                "zone": node.some("/etc/timezone").or_else(|| zone_name(node)),
                "synchronised_by": time_keeper(node),
            }),
        );
    }
}

fn date_time(epoch: u64, micros: u32, zone: &Zone) -> serde_json::Value {
    let offset = zone.at(epoch);
    let local = epoch.saturating_add_signed(offset.seconds);
    let [year, month, day, hour, minute, second] = clock::civil(local);
    let [utc_year, utc_month, utc_day, utc_hour, utc_minute, utc_second] = clock::civil(epoch);
    let weekday = (local / 86_400 + 4) % 7;
    let utc =
        format!("{utc_year:04}-{utc_month:02}-{utc_day:02}T{utc_hour:02}:{utc_minute:02}:{utc_second:02}");
    let basic = format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}");
    let day_of_year = (0..local / 86_400 + 1)
        .rev()
        .take(366)
        .take_while(|day| clock::civil(day * 86_400)[0] == year)
        .count() as u64;
    // Weeks start on Monday; the days before the first Monday are week 0.
    let week = (day_of_year + 6 - (weekday + 6) % 7) / 7;
    let (sign, minutes) = (if offset.seconds < 0 { '-' } else { '+' }, offset.seconds.unsigned_abs() / 60);
    json!({
        "year": format!("{year:04}"), "month": format!("{month:02}"), "day": format!("{day:02}"),
        "hour": format!("{hour:02}"), "minute": format!("{minute:02}"), "second": format!("{second:02}"),
        "date": format!("{year:04}-{month:02}-{day:02}"), "time": format!("{hour:02}:{minute:02}:{second:02}"),
        "weekday": WEEKDAYS[usize::try_from(weekday).unwrap_or(0)], "weekday_number": weekday.to_string(),
        "weeknumber": format!("{week:02}"),
        "epoch": epoch.to_string(), "epoch_int": epoch.to_string(),
        "iso8601": format!("{utc}Z"), "iso8601_micro": format!("{utc}.{micros:06}Z"),
        "iso8601_basic": format!("{basic}{micros:06}"), "iso8601_basic_short": basic,
        "tz": offset.name, "tz_dst": zone.summer_name(), "tz_offset": format!("{sign}{:02}{:02}", minutes / 60, minutes % 60),
    })
}

/// `Europe/Paris`, from the link `/etc/localtime`.
fn zone_name(node: &Node) -> Option<String> {
    let target = node.link("/etc/localtime")?;
    Some(target.to_str()?.split_once("zoneinfo/")?.1.to_owned())
}

fn time_keeper(node: &Node) -> Option<&'static str> {
    let places = [
        ("/run/systemd/timesync/synchronized", "systemd-timesyncd"),
        ("/run/chrony/chronyd.pid", "chrony"),
        ("/run/chronyd.pid", "chrony"),
        ("/run/chrony/chronyd.sock", "chrony"),
        ("/run/ntpd.pid", "ntpd"),
        ("/run/ptp4l", "ptp4l"),
    ];
    places.iter().find(|(path, _)| node.exists(path)).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(epoch: u64, expected: [&str; 4]) {
        let found = date_time(epoch, 42, &Zone::default());
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
}
