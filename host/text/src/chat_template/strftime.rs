//! Dates as `strftime` of Python writes them on Linux, in English.

use std::time::{SystemTime, UNIX_EPOCH};

const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAY_SECONDS: i64 = 86_400;
/// 9999-12-31, after which Python has no dates.
const LAST_SECOND: i64 = 253_402_300_799;
/// 0001-01-01.
const FIRST_SECOND: i64 = -62_135_596_800;

/// A moment, and how far the clock on the wall is from UTC there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalTime {
    /// Seconds since the beginning of 1970 in UTC. Taken to the years 1 to 9999.
    pub unix_seconds: i64,
    /// Seconds that the local clock is ahead of UTC.
    pub utc_offset_seconds: i32,
}

impl LocalTime {
    /// The present, with the clock in UTC: the standard library does not know the time zone.
    pub fn now_utc() -> LocalTime {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        LocalTime { unix_seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), utc_offset_seconds: 0 }
    }

    /// Writes the date with the directives of C99 and glibc, and the flags `-`, `_`, `0`, `^` and
    /// `#`. As for a Python `datetime` without a time zone, `%z` and `%Z` are empty; `%f` is zero.
    /// What is no directive is copied.
    pub fn strftime(&self, format: &str) -> String {
        let date = Date::of(*self);
        let mut text = String::with_capacity(format.len() + 16);
        let mut rest = format;
        while let Some(place) = rest.find('%') {
            text.push_str(&rest[..place]);
            let directive = Directive::read(&rest[place..]);
            match directive.and_then(|directive| Some((date.written(directive)?, directive.length))) {
                Some((written, length)) => {
                    text.push_str(&written);
                    rest = &rest[place + length..];
                }
                None => {
                    text.push('%');
                    rest = &rest[place + 1..];
                }
            }
        }
        text.push_str(rest);
        text
    }
}

/// A directive such as `%-d`.
#[derive(Clone, Copy)]
struct Directive {
    letter: char,
    /// Of `-`, `_`, `0`, the last; `None` is what the directive does by itself.
    padding: Option<char>,
    uppercase: bool,
    swap_case: bool,
    /// In the format, in bytes.
    length: usize,
}

impl Directive {
    /// Reads one at the beginning of a text that begins with `%`.
    fn read(text: &str) -> Option<Directive> {
        let mut directive =
            Directive { letter: '%', padding: None, uppercase: false, swap_case: false, length: 1 };
        for character in text[1..].chars() {
            directive.length += character.len_utf8();
            match character {
                '-' | '_' | '0' => directive.padding = Some(character),
                '^' => directive.uppercase = true,
                '#' => directive.swap_case = true,
                // Other calendars and digits of the locale, which English has not.
                'E' | 'O' => {}
                letter => {
                    directive.letter = letter;
                    return Some(directive);
                }
            }
        }
        None
    }

    fn number(self, value: i64, width: usize, padding: char) -> String {
        match self.padding.unwrap_or(padding) {
            '-' => value.to_string(),
            '_' => format!("{value:>width$}"),
            _ => format!("{value:0>width$}"),
        }
    }

    fn name(self, name: &str) -> String {
        if self.uppercase || self.swap_case { name.to_uppercase() } else { name.into() }
    }
}

/// The parts of a date.
struct Date {
    unix_seconds: i64,
    year: i64,
    /// From 0.
    month: usize,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    /// From 0 for Sunday.
    weekday: i64,
    /// From 0.
    day_of_year: i64,
}

impl Date {
    fn of(time: LocalTime) -> Date {
        let unix_seconds = time.unix_seconds.clamp(FIRST_SECOND, LAST_SECOND);
        let local = (unix_seconds + i64::from(time.utc_offset_seconds)).clamp(FIRST_SECOND, LAST_SECOND);
        let (days, seconds) = (local.div_euclid(DAY_SECONDS), local.rem_euclid(DAY_SECONDS));
        let mut year = 1970 + days.div_euclid(366);
        while days_before(year + 1) <= days {
            year += 1;
        }
        while days_before(year) > days {
            year -= 1;
        }
        let day_of_year = days - days_before(year);
        let (mut month, mut day) = (0, day_of_year);
        while day >= month_length(year, month) {
            day -= month_length(year, month);
            month += 1;
        }
        Date {
            unix_seconds,
            year,
            month,
            day: day + 1,
            hour: seconds / 3600,
            minute: seconds / 60 % 60,
            second: seconds % 60,
            // 1970 began on a Thursday.
            weekday: (days + 4).rem_euclid(7),
            day_of_year,
        }
    }

    fn written(&self, directive: Directive) -> Option<String> {
        let number = |value, width, padding| directive.number(value, width, padding);
        let weekday = WEEKDAYS[self.weekday as usize];
        let month = MONTHS[self.month];
        let hour_of_12 = (self.hour + 11) % 12 + 1;
        let half = if self.hour < 12 { "AM" } else { "PM" };
        let (iso_year, iso_week) = self.iso_week();
        let combined = |format: &str| {
            let text = format.chars().map(|letter| {
                let part = Directive { letter, padding: None, ..directive };
                if letter.is_ascii_alphabetic() { self.written(part) } else { Some(letter.into()) }
            });
            text.collect::<Option<String>>()
        };
        Some(match directive.letter {
            'a' => directive.name(&weekday[..3]),
            'A' => directive.name(weekday),
            'b' | 'h' => directive.name(&month[..3]),
            'B' => directive.name(month),
            'c' => combined("a b e H:M:S Y")?,
            'C' => number(self.year / 100, 2, '0'),
            'd' => number(self.day, 2, '0'),
            'D' | 'x' => combined("m/d/y")?,
            'e' => number(self.day, 2, '_'),
            'f' => "000000".into(),
            'F' => combined("Y-m-d")?,
            'g' => number(iso_year % 100, 2, '0'),
            'G' => number(iso_year, 1, '0'),
            'H' => number(self.hour, 2, '0'),
            'I' => number(hour_of_12, 2, '0'),
            'j' => number(self.day_of_year + 1, 3, '0'),
            'k' => number(self.hour, 2, '_'),
            'l' => number(hour_of_12, 2, '_'),
            'm' => number(self.month as i64 + 1, 2, '0'),
            'M' => number(self.minute, 2, '0'),
            'n' => "\n".into(),
            'p' if directive.swap_case => half.to_lowercase(),
            'p' => half.into(),
            'P' => half.to_lowercase(),
            'r' => combined("I:M:S p")?,
            'R' => combined("H:M")?,
            's' => number(self.unix_seconds, 1, '0'),
            'S' => number(self.second, 2, '0'),
            't' => "\t".into(),
            'T' | 'X' => combined("H:M:S")?,
            'u' => number((self.weekday + 6) % 7 + 1, 1, '0'),
            'U' => number((self.day_of_year + 7 - self.weekday) / 7, 2, '0'),
            'V' => number(iso_week, 2, '0'),
            'w' => number(self.weekday, 1, '0'),
            'W' => number((self.day_of_year + 7 - (self.weekday + 6) % 7) / 7, 2, '0'),
            'y' => number(self.year % 100, 2, '0'),
            'Y' => number(self.year, 1, '0'),
            'z' | 'Z' => String::new(),
            '%' => "%".into(),
            _ => return None,
        })
    }

    /// The week that has the Thursday of this day, and the year that it belongs to.
    fn iso_week(&self) -> (i64, i64) {
        let monday_based = (self.weekday + 6) % 7;
        let thursday = self.day_of_year - monday_based + 3;
        let length = days_before(self.year + 1) - days_before(self.year);
        if thursday < 0 {
            let length_before = days_before(self.year) - days_before(self.year - 1);
            (self.year - 1, (thursday + length_before) / 7 + 1)
        } else if thursday >= length {
            (self.year + 1, (thursday - length) / 7 + 1)
        } else {
            (self.year, thursday / 7 + 1)
        }
    }
}

/// Days from the beginning of 1970 to that of a year.
fn days_before(year: i64) -> i64 {
    let leap_days = |year: i64| year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969)
}

fn month_length(year: i64, month: usize) -> i64 {
    let is_leap = days_before(year + 1) - days_before(year) == 366;
    match month {
        1 => 28 + i64::from(is_leap),
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_time_and_any_format_can_be_written() {
        for unix_seconds in [i64::MIN, FIRST_SECOND, -1, 0, 951_782_400, LAST_SECOND, i64::MAX] {
            for utc_offset_seconds in [i32::MIN, 0, i32::MAX] {
                let time = LocalTime { unix_seconds, utc_offset_seconds };
                for byte in 0..128u8 {
                    let _ = time.strftime(&format!("%{0} %-{0} %_{0} é%^{0}%", char::from(byte)));
                }
            }
        }
    }

    #[test]
    fn known_dates() {
        let time = |unix_seconds| LocalTime { unix_seconds, utc_offset_seconds: 0 };
        assert_eq!(time(0).strftime("%A %d %B %Y"), "Thursday 01 January 1970");
        assert_eq!(time(951_782_400).strftime("%d %b %Y (%-j)"), "29 Feb 2000 (60)");
        assert_eq!(time(i64::MAX).strftime("%F %T"), "9999-12-31 23:59:59");
        assert_eq!(time(0).strftime("100%"), "100%");
        let west = LocalTime { unix_seconds: 0, utc_offset_seconds: -3600 };
        assert_eq!(west.strftime("%F %R"), "1969-12-31 23:00");
    }
}
