//! Numbers and names as people read them, in progress lines and reports.

use std::time::Duration;

/// A number with its thousands apart: `1,234,567`.
pub fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let group = |(place, digit): (usize, char)| {
        let is_first_of_three = place > 0 && (digits.len() - place).is_multiple_of(3);
        is_first_of_three.then_some(',').into_iter().chain([digit])
    };
    digits.chars().enumerate().flat_map(group).collect()
}

/// A number of bytes in the largest unit of which there is one.
///
/// ```
/// assert_eq!(firelight_training::size_in_words(3 << 19), "1.5 MiB");
/// ```
pub fn size_in_words(bytes: usize) -> String {
    size(bytes, |number| number)
}

/// The same rounded up, of what is needed.
pub(crate) fn size_needed(bytes: usize) -> String {
    size(bytes, |number| (10.0 * number).ceil() / 10.0)
}

/// The same rounded down, of what there is.
pub(crate) fn size_available(bytes: usize) -> String {
    size(bytes, |number| (10.0 * number).floor() / 10.0)
}

fn size(bytes: usize, rounded: impl Fn(f64) -> f64) -> String {
    let unit = |shift: u32| format!("{:.1}", rounded(bytes as f64 / (1_u64 << shift) as f64));
    match bytes {
        ..0x400 => format!("{bytes} B"),
        0x400..0x10_0000 => unit(10) + " KiB",
        0x10_0000..0x4000_0000 => unit(20) + " MiB",
        _ => unit(30) + " GiB",
    }
}

/// A time in its two largest units: `1 h 12 min`.
pub(crate) fn lasting(time: Duration) -> String {
    let seconds = time.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600, seconds / 60);
    match seconds {
        0 => format!("{:.1} s", time.as_secs_f64()),
        1..60 => format!("{seconds} s"),
        60..3600 => format!("{minutes} min {} s", seconds % 60),
        3600..86_400 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// The name of a metric in words: `macro F1` of `macro_f1`.
pub fn metric_in_words(name: &str) -> String {
    let word = |word: &str| match word {
        "f1" => "F1".into(),
        "auroc" => "AUROC".into(),
        "bleu" => "BLEU".into(),
        "chrf" => "chrF".into(),
        "rouge1" => "ROUGE-1".into(),
        "rouge2" => "ROUGE-2".into(),
        "rougeL" => "ROUGE-L".into(),
        "matthews" => "Matthews".into(),
        "pearson" => "Pearson".into(),
        "spearman" => "Spearman".into(),
        other => other.to_string(),
    };
    name.split('_').map(word).collect::<Vec<_>>().join(" ")
}

/// `text` in lines of at most `width` characters, broken between words; the lines after the first are indented. A word that is
/// longer has a line of its own.
///
/// ```
/// assert_eq!(firelight_training::wrapped("a remark of some length", 12), "a remark of\n  some\n  length");
/// ```
pub fn wrapped(text: &str, width: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let is_first = lines.len() == 1;
        let line = lines.last_mut().unwrap_or_else(|| unreachable!("there is a first line"));
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() + if is_first { 0 } else { INDENT.len() } <= width {
            line.extend([" ", word]);
        } else {
            lines.push(word.to_string());
        }
    }
    lines.join(&format!("\n{INDENT}"))
}

/// What a continued line begins with.
const INDENT: &str = "  ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        assert_eq!([0, 999, 1000, 29_655_433].map(grouped), ["0", "999", "1,000", "29,655,433"]);
    }

    #[test]
    fn sizes_are_in_the_largest_unit_of_which_there_is_one() {
        let found = [0, 1023, 1024, 1536 << 10, 5 << 30].map(size_in_words);
        assert_eq!(found, ["0 B", "1023 B", "1.0 KiB", "1.5 MiB", "5.0 GiB"]);
    }

    #[test]
    fn what_is_needed_is_never_said_to_be_what_there_is() {
        for bytes in [1023, 1024, 8031, (1 << 20) - 1, 1 << 20, 8_000_000_000_000] {
            assert_ne!(size_needed(bytes + 1), size_available(bytes), "{bytes}");
        }
        assert_eq!((size_needed(7936), size_available(7936)), ("7.8 KiB".into(), "7.7 KiB".into())); // 7.75 KiB
        assert_eq!((size_needed(3 << 19), size_available(3 << 19)), ("1.5 MiB".into(), "1.5 MiB".into()));
    }

    #[test]
    fn times_have_two_units_at_most() {
        let times = [250, 59_900, 61_000, 4_320_000, 180_000_000].map(|time| lasting(Duration::from_millis(time)));
        assert_eq!(times, ["0.2 s", "59 s", "1 min 1 s", "1 h 12 min", "2 d 2 h"]);
    }

    #[test]
    fn metrics_are_named_as_people_name_them() {
        let names = ["token_accuracy", "macro_f1", "bleu", "auroc", "pearson"].map(metric_in_words);
        assert_eq!(names, ["token accuracy", "macro F1", "BLEU", "AUROC", "Pearson"]);
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrapped("one two three four", 9), "one two\n  three\n  four");
        assert_eq!(wrapped("one two three four", 13), "one two three\n  four");
        assert_eq!(wrapped("aa bb cc dd", 5), "aa bb\n  cc\n  dd", "the indent counts");
        assert_eq!(wrapped("unbreakably long", 5), "unbreakably\n  long");
        assert_eq!(wrapped("short", 80), "short");
        assert_eq!(wrapped("it fits", 7), "it fits");
        assert_eq!(wrapped("", 9), "");
    }
}
