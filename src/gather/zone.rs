//! Time zones from files as in /usr/share/zoneinfo (RFC 9636): the offset from UTC at a given time.
//!
//! Knows nothing about dates; an invalid file yields no zone.

/// The offsets of one zone over time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Zone {
    /// The times of changes, with the offset from then on; sorted.
    changes: Vec<(i64, Offset)>,
    /// The offset before the first change.
    first: Offset,
    /// The rule for summer and winter after the last change.
    rule: Option<Rule>,
}

/// An offset from UTC and its short name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Offset {
    /// Seconds east of Greenwich.
    pub seconds: i64,
    /// Abbreviation such as `CET`; `+03` for zones without one.
    pub name: String,
    summer: bool,
}

impl Default for Offset {
    fn default() -> Self {
        Self { seconds: 0, name: "UTC".into(), summer: false }
    }
}

/// The end of a file: `CET-1CEST,M3.5.0,M10.5.0/3`.
#[derive(Clone, Debug)]
struct Rule {
    winter: Offset,
    summer: Option<(Offset, Turn, Turn)>,
}

/// When the clock changes: a day of the year and a second of that day in local time.
#[derive(Clone, Copy, Debug)]
struct Turn {
    day: Day,
    second: i64,
}

#[derive(Clone, Copy, Debug)]
enum Day {
    /// Month, week (5 is the last), weekday from Sunday.
    Week(u64, u64, u64),
    /// Days from 1, excluding the 29th of February.
    Julian(u64),
    /// Days from 0, including it.
    Count(u64),
}

impl Zone {
    /// Parses a file of version 2 or later.
    pub(crate) fn read(file: &[u8]) -> Option<Self> {
        let old = Header::read(file)?;
        let rest = file.get(old.length(4)?..)?;
        let header = Header::read(rest)?;
        let (times, rest) = split(rest.get(44..)?, header.times * 8)?;
        let (kinds, rest) = split(rest, header.times)?;
        let (types, rest) = split(rest, header.types * 6)?;
        let (names, _) = split(rest, header.names)?;
        let offset = |kind: usize| -> Option<Offset> {
            let bytes = types.get(kind * 6..kind * 6 + 6)?;
            let seconds = i32::from_be_bytes(bytes[..4].try_into().ok()?);
            let name = names.get(usize::from(bytes[5])..)?.split(|byte| *byte == 0).next()?;
            let name = String::from_utf8_lossy(name).into_owned();
            Some(Offset { seconds: seconds.into(), name, summer: bytes[4] != 0 })
        };
        let moments =
            times.chunks_exact(8).filter_map(|bytes| Some(i64::from_be_bytes(bytes.try_into().ok()?)));
        let changes: Option<Vec<_>> =
            moments.zip(kinds).map(|(moment, kind)| Some((moment, offset(usize::from(*kind))?))).collect();
        let rule = rest_of(file, old.length(4)? + header.length(8)?).and_then(Rule::read);
        Some(Self { changes: changes?, first: offset(0)?, rule })
    }

    /// The offset at a time, in seconds since 1970.
    pub(crate) fn at(&self, epoch: u64) -> Offset {
        let moment = i64::try_from(epoch).unwrap_or(i64::MAX);
        let after = self.changes.partition_point(|(from, _)| *from <= moment);
        match (&self.rule, self.changes.get(after.wrapping_sub(1))) {
            (Some(rule), _) if after == self.changes.len() => rule.at(moment),
            (_, Some((_, offset))) => offset.clone(),
            _ => self.first.clone(),
        }
    }

    /// The zone's name in summer, or its only name.
    pub(crate) fn summer_name(&self) -> String {
        if let Some(Rule { summer: Some((offset, ..)), .. }) = &self.rule {
            return offset.name.clone();
        }
        let summer =
            self.changes.iter().rev().find(|(_, offset)| offset.summer).map(|(_, offset)| &offset.name);
        match (&self.rule, summer) {
            (_, Some(name)) => name.clone(),
            (Some(rule), None) => rule.winter.name.clone(),
            _ => self.first.name.clone(),
        }
    }
}

struct Header {
    times: usize,
    types: usize,
    names: usize,
    leaps: usize,
    walls: usize,
    utcs: usize,
}

impl Header {
    fn read(bytes: &[u8]) -> Option<Self> {
        let head = bytes.get(..44).filter(|head| head.starts_with(b"TZif") && head[4] >= b'2')?;
        let number = |index: usize| -> Option<usize> {
            let at = 20 + index * 4;
            // Real zones have at most a few hundred changes.
            usize::try_from(u32::from_be_bytes(head[at..at + 4].try_into().ok()?))
                .ok()
                .filter(|count| *count < 1 << 16)
        };
        Some(Self {
            utcs: number(0)?,
            walls: number(1)?,
            leaps: number(2)?,
            times: number(3)?,
            types: number(4)?,
            names: number(5)?,
        })
    }

    /// Bytes of header and data, with times of `width` bytes.
    fn length(&self, width: usize) -> Option<usize> {
        let data = self.times * (width + 1)
            + self.types * 6
            + self.names
            + self.leaps * (width + 4)
            + self.walls
            + self.utcs;
        Some(44 + data)
    }
}

fn split(bytes: &[u8], at: usize) -> Option<(&[u8], &[u8])> {
    (at <= bytes.len()).then(|| bytes.split_at(at))
}

fn rest_of(file: &[u8], from: usize) -> Option<&str> {
    std::str::from_utf8(file.get(from..)?).ok().map(str::trim)
}

impl Rule {
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.split(',');
        let (name, rest) = name(parts.next()?)?;
        let (west, rest) = clock_time(rest)?;
        let winter = Offset { seconds: -west, name, summer: false };
        if rest.is_empty() {
            return Some(Self { winter, summer: None });
        }
        let (summer_name, rest) = self::name(rest)?;
        let seconds = if rest.is_empty() { winter.seconds + 3_600 } else { -clock_time(rest)?.0 };
        let summer = Offset { seconds, name: summer_name, summer: true };
        let (start, end) = (Turn::read(parts.next()?)?, Turn::read(parts.next()?)?);
        Some(Self { winter, summer: Some((summer, start, end)) })
    }

    fn at(&self, moment: i64) -> Offset {
        let Some((summer, start, end)) = &self.summer else { return self.winter.clone() };
        let local = u64::try_from(moment + self.winter.seconds).unwrap_or(0);
        let year = base::clock::civil(local)[0];
        let from = start.in_year(year) - self.winter.seconds;
        let to = end.in_year(year) - summer.seconds;
        // South of the equator, summer spans the new year.
        let holds = if from < to { (from..to).contains(&moment) } else { !(to..from).contains(&moment) };
        if holds { summer.clone() } else { self.winter.clone() }
    }
}

impl Turn {
    fn read(text: &str) -> Option<Self> {
        let (day, time) = text.split_once('/').unwrap_or((text, "2"));
        let day = if let Some(parts) = day.strip_prefix('M') {
            let numbers: Vec<u64> = parts.split('.').filter_map(|part| part.parse().ok()).collect();
            let [month @ 1..=12, week @ 1..=5, weekday @ 0..=6] = numbers[..] else { return None };
            Day::Week(month, week, weekday)
        } else if let Some(day) = day.strip_prefix('J') {
            Day::Julian(day.parse().ok()?)
        } else {
            Day::Count(day.parse().ok()?)
        };
        Some(Self { day, second: clock_time(time)?.0 })
    }

    /// Seconds since 1970 in local time.
    fn in_year(self, year: u64) -> i64 {
        let first = |month: u64| {
            let text = format!("{year:04}-{month:02}-01T00:00:00Z");
            let time = base::clock::parse_rfc3339(&text);
            time.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok())
                .map_or(0, |since| since.as_secs() / 86_400)
        };
        let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        let day = match self.day {
            Day::Julian(day) => first(1) + day.saturating_sub(1) + u64::from(leap && day >= 60),
            Day::Count(day) => first(1) + day,
            Day::Week(month, week, weekday) => {
                let start = first(month);
                let end = if month == 12 { start + 31 } else { first(month + 1) };
                // The 1st of January 1970 was a Thursday.
                let day = start + (weekday + 7 - (start + 4) % 7) % 7 + (week - 1) * 7;
                if day >= end { day - 7 } else { day }
            }
        };
        i64::try_from(day * 86_400).unwrap_or(0) + self.second
    }
}

/// Parses `CET` or `<+03>`; returns the rest, too.
fn name(text: &str) -> Option<(String, &str)> {
    if let Some(rest) = text.strip_prefix('<') {
        let (name, rest) = rest.split_once('>')?;
        return Some((name.into(), rest));
    }
    let end = text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len());
    (end >= 3).then(|| (text[..end].into(), &text[end..]))
}

/// Parses `-1`, `5:45`, `2:00:30` as seconds; returns the rest, too.
fn clock_time(text: &str) -> Option<(i64, &str)> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = digits.find(|c: char| !c.is_ascii_digit() && c != ':').unwrap_or(digits.len());
    let parts: Option<Vec<i64>> = digits[..end].split(':').map(|part| part.parse().ok()).collect();
    let seconds = match parts?[..] {
        [hours] => hours * 3_600,
        [hours, minutes] => hours * 3_600 + minutes * 60,
        [hours, minutes, seconds] => hours * 3_600 + minutes * 60 + seconds,
        _ => return None,
    };
    (seconds.abs() <= 168 * 3_600).then(|| (sign * seconds, &digits[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rule: &str, epoch: u64, expected: (i64, &str)) {
        let zone = Zone { rule: Rule::read(rule), ..Zone::default() };
        let found = zone.at(epoch);
        assert_eq!((found.seconds, found.name.as_str()), expected, "{rule} at {epoch}");
    }

    #[test]
    fn rules_turn_the_clock_on_both_hemispheres() {
        let paris = "CET-1CEST,M3.5.0,M10.5.0/3";
        check(paris, 1_711_846_799, (3_600, "CET"));
        check(paris, 1_711_846_800, (7_200, "CEST"));
        check(paris, 1_729_990_799, (7_200, "CEST"));
        check(paris, 1_729_990_800, (3_600, "CET"));
        let sydney = "AEST-10AEDT,M10.1.0,M4.1.0/3";
        check(sydney, 1_704_067_200, (39_600, "AEDT"));
        check(sydney, 1_719_792_000, (36_000, "AEST"));
        check("<+0545>-5:45", 1_719_792_000, (20_700, "+0545"));
        check("EST5EDT,M3.2.0,M11.1.0", 1_719_792_000, (-14_400, "EDT"));
        check("UTC0", 0, (0, "UTC"));
    }

    #[test]
    fn a_file_is_read_and_a_broken_one_refused() {
        let mut file = b"TZif2".to_vec();
        file.resize(20, 0);
        let counts = |times: u32, types: u32, names: u32| {
            [0, 0, 0, times, types, names].map(u32::to_be_bytes).concat()
        };
        file.extend(counts(0, 1, 4));
        file.extend([0; 6 + 4]);
        let head = file[..20].to_vec();
        file.extend(head);
        file.extend(counts(1, 2, 8));
        file.extend(1_000_i64.to_be_bytes());
        file.push(1);
        file.extend([0, 0, 0, 0, 0, 0]);
        file.extend(3_600_i32.to_be_bytes());
        file.extend([1, 4]);
        file.extend(b"AAA\0BBB\0");
        let zone = Zone::read(&file).unwrap();
        assert_eq!((zone.at(999).name.as_str(), zone.at(1_000).name.as_str()), ("AAA", "BBB"));
        assert_eq!(zone.summer_name(), "BBB");
        for length in 0..file.len() {
            assert!(Zone::read(&file[..length]).is_none(), "{length} bytes");
        }
        assert!(Zone::read(&[0xff; 200]).is_none());
    }
}
