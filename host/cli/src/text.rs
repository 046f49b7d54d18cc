//! Text that comes from files, made fit to be shown; numbers made fit to be read.

use std::borrow::Cow;
use std::time::Duration;

/// Control characters in visible form, except line breaks and tabs.
pub fn without_control(text: &str) -> Cow<'_, str> {
    let steers = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        if steers(c) {
            shown.extend(c.escape_debug());
        } else {
            shown.push(c);
        }
        shown
    }))
}

/// A name on one line: all control characters in visible form.
pub fn name(text: &str) -> Cow<'_, str> {
    if text.contains(char::is_control) {
        Cow::Owned(text.escape_debug().to_string())
    } else {
        Cow::Borrowed(text)
    }
}

/// The beginning of a text, with a mark if something was left out.
pub fn shortened(text: &str, characters: usize) -> Cow<'_, str> {
    match text.char_indices().nth(characters) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// A number of bytes with a unit of 1,024s.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    // Compared after rounding, so that 1,048,575 bytes are not "1024.0 KiB".
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A count with commas between thousands.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut shown = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// "1 tensor", "2 tensors", "3 launches".
pub fn counted(value: u64, noun: &str) -> String {
    let plural = match value {
        1 => "",
        _ if noun.ends_with(['s', 'h']) => "es",
        _ => "s",
    };
    format!("{} {noun}{plural}", count(value))
}

/// A span of time.
pub fn duration(time: Duration) -> String {
    if time.as_secs_f64() < 0.9995 {
        format!("{:.0} ms", time.as_secs_f64() * 1e3)
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}

/// A rate per second.
pub fn rate(per_second: f64, noun: &str) -> String {
    let decimals = if per_second < 99.95 { 1 } else { 0 };
    format!("{per_second:.decimals$} {noun}/s")
}

/// The number with the fewest decimals that stands for this f32, as JSON has f64 only.
pub fn decimal(value: f32) -> f64 {
    value.to_string().parse().unwrap_or_else(|_| f64::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_counts() {
        let sizes = [0, 1023, 1024, 1536, 1_048_575, 1 << 30, u64::MAX].map(bytes);
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "1.0 GiB", "16.0 EiB"]);
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([1, 2].map(|value| counted(value, "file")), ["1 file", "2 files"]);
        assert_eq!(counted(0, "guess"), "0 guesses");
    }

    #[test]
    fn times_rates_and_decimals() {
        let times = [0, 12, 999, 1000, 61_250].map(|ms| duration(Duration::from_millis(ms)));
        assert_eq!(times, ["0 ms", "12 ms", "999 ms", "1.0 s", "61.2 s"]);
        assert_eq!(duration(Duration::from_micros(999_600)), "1.0 s");
        assert_eq!(
            [3.25, 99.96, 1234.5].map(|it| rate(it, "tokens")),
            ["3.2 tokens/s", "100 tokens/s", "1234 tokens/s"]
        );
        assert_eq!(decimal(0.7), 0.7);
        assert!(decimal(f32::NEG_INFINITY).is_infinite());
    }

    #[test]
    fn control_characters_cannot_reach_a_terminal() {
        assert_eq!(without_control("a\n\tb\x1b[2J\r"), "a\n\tb\\u{1b}[2J\\r");
        assert_eq!(name("a\nb\x1b"), "a\\nb\\u{1b}");
    }

    #[test]
    fn shortening_counts_characters() {
        assert_eq!(shortened("äöü", 3), "äöü");
        assert_eq!(shortened("äöü", 2), "äö…");
    }
}
