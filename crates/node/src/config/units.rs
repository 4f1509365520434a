//! Durations and sizes as people write them: `500ms`, `1.5h`, `64MiB`; a bare number means seconds or bytes.
//!
//! What the `show` functions write, the `read` functions read back as the same value.

use std::time::Duration;

use nephila_core::limits::WAIT_MAX;

/// Units of time, longest first, in nanoseconds. The first spelling of each is the one that is written.
const SPANS: &[(&[&str], u64)] = &[
    (&["d", "day", "days"], 86_400_000_000_000),
    (&["h", "hour", "hours"], 3_600_000_000_000),
    (&["m", "min", "minute", "minutes"], 60_000_000_000),
    (&["s", "sec", "second", "seconds"], 1_000_000_000),
    (&["ms"], 1_000_000),
    (&["us"], 1_000),
    (&["ns"], 1),
];

/// Units of size, in bytes; read without regard to case.
const SIZES: &[(&str, u64)] = &[
    ("B", 1),
    ("KB", 1_000),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
    ("TB", 1_000_000_000_000),
    ("TiB", 1 << 40),
];

/// The largest size: what TOML can hold as a number.
const SIZE_BYTES_MAX: u64 = i64::MAX as u64;

/// Reads a duration.
pub fn read_span(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration: write 500ms, 2s, 10m, 1.5h or 3d");
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let nanos = match unit {
        "" => 1_000_000_000,
        _ => SPANS.iter().find(|(names, _)| names.contains(&unit)).ok_or_else(wrong)?.1,
    };
    let nanos = times(number, nanos).ok_or_else(wrong)?;
    if nanos > WAIT_MAX.as_nanos() {
        return Err(format!("{text:?} is too long: at most {} days", WAIT_MAX.as_secs() / 86_400));
    }
    u64::try_from(nanos).map(Duration::from_nanos).map_err(|_| wrong())
}

/// Writes a duration in the longest unit that holds it as a whole number.
pub(super) fn show_span(span: Duration) -> String {
    let nanos = span.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    let fits = |(_, unit): &&(&[&str], u64)| nanos.is_multiple_of(u128::from(*unit));
    let (names, unit) = SPANS.iter().find(fits).copied().unwrap_or((&["ns"], 1));
    format!("{}{}", nanos / u128::from(unit), names[0])
}

/// Reads a size.
pub(super) fn read_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a size: write 65536, 64KiB, 16MiB, 256MB or 10GB");
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let bytes = match unit {
        "" => 1,
        _ => SIZES.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(wrong)?.1,
    };
    let bytes = times(number, bytes).ok_or_else(wrong)?;
    u64::try_from(bytes)
        .ok()
        .filter(|bytes| *bytes <= SIZE_BYTES_MAX)
        .ok_or_else(|| format!("{text:?} is too large: at most {SIZE_BYTES_MAX} bytes"))
}

/// Writes a size in the largest unit that holds it as a whole number.
pub(super) fn show_size(bytes: u64) -> String {
    let fits = |(_, unit): &&(&str, u64)| bytes >= *unit && bytes.is_multiple_of(*unit);
    match SIZES.iter().rev().find(fits) {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None => format!("{bytes}B"),
    }
}

/// The number at the beginning and the unit behind it.
fn split(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    if number.is_empty() { None } else { Some((number, unit.trim_start())) }
}

/// A decimal number times a unit, exactly; what is less than one is dropped.
fn times(number: &str, unit: u64) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digit = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // 18 digits times the largest unit fit into 128 bits with room to spare.
    if !digit(whole) || !digit(fraction) || whole.len() > 18 {
        return None;
    }
    let fraction = &fraction[..fraction.len().min(18)];
    let scale = 10u128.pow(u32::try_from(fraction.len()).ok()?);
    let whole = whole.parse::<u128>().ok()?.checked_mul(u128::from(unit))?;
    let part = fraction.parse::<u128>().ok()?.checked_mul(u128::from(unit))? / scale;
    whole.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans() {
        for (text, millis) in [
            ("0", 0),
            ("2", 2_000),
            ("0.5", 500),
            ("500ms", 500),
            ("2s", 2_000),
            ("1.5h", 5_400_000),
            ("3d", 259_200_000),
            (" 10 min ", 600_000),
            ("0.001s", 1),
        ] {
            assert_eq!(read_span(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "-1s", "1.s", ".5s", "1,5s", "1e3", "1 year", "5M", "99999999d", "1s2"] {
            assert!(read_span(text).is_err(), "{text}");
        }
        for (span, text) in [
            (Duration::ZERO, "0s"),
            (Duration::from_millis(250), "250ms"),
            (Duration::from_millis(1_500), "1500ms"),
            (Duration::from_secs(90), "90s"),
            (Duration::from_secs(86_400), "1d"),
            (Duration::from_nanos(1_001), "1001ns"),
        ] {
            assert_eq!(show_span(span), text);
            assert_eq!(read_span(text), Ok(span));
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("65536", 65_536),
            ("64KiB", 65_536),
            ("64kib", 65_536),
            ("16 MiB", 16 << 20),
            ("1.5KB", 1_500),
            ("10GB", 10_000_000_000),
            ("2B", 2),
        ] {
            assert_eq!(read_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "-1", "10G", "1 XB", "MB", "99999999TB", "1.2.3KB"] {
            assert!(read_size(text).is_err(), "{text}");
        }
        for (bytes, text) in [
            (0, "0B"),
            (999, "999B"),
            (1_000, "1KB"),
            (1_024, "1KiB"),
            (256_000_000, "256MB"),
            (16 << 20, "16MiB"),
            (1_000_000_000, "1GB"),
        ] {
            assert_eq!(show_size(bytes), text);
            assert_eq!(read_size(text), Ok(bytes));
        }
    }
}
