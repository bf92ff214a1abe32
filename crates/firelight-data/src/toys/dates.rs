//! Days as people write them, and as ISO 8601 does. No form of one day is a form of another.

use super::calendar::{Day, days};
use crate::Pair;
use crate::dice::Dice;

/// The forms in which a day is written.
const FORMS: &[fn(&Day) -> String] = &[
    |day| format!("{} {} {}", day.day, day.month_name(), day.year),
    |day| format!("{} of {} {}", ordinal(day.day), day.month_name(), day.year),
    |day| format!("the {} day of {}, {}", ordinal(day.day), day.month_name(), day.year),
    |day| format!("{} {}, {}", day.month_name(), day.day, day.year),
    |day| format!("{} {}, {}", day.month_name(), ordinal(day.day), day.year),
    |day| format!("{} {} {}", short(day.month_name()), day.day, day.year),
    |day| format!("{}-{}-{}", day.day, short(day.month_name()), day.year),
    |day| format!("{}, {} {} {}", short(day.weekday()), day.day, short(day.month_name()), day.year),
    |day| format!("{}, {} {} {}", day.weekday(), day.day, day.month_name(), day.year),
    |day| format!("{}, {} {}, {}", day.weekday(), day.month_name(), ordinal(day.day), day.year),
    |day| format!("{} {} {}", day.day, day.month_name().to_uppercase(), day.year),
    |day| format!("{}.{}.{}", day.day, day.month, day.year),
    |day| format!("{:02}.{:02}.{}", day.day, day.month, day.year),
    |day| format!("{}. {} {}", day.day, day.month_name(), day.year),
    |day| format!("{}/{:02}/{:02}", day.year, day.month, day.day),
    |day| format!("{}{:02}{:02}", day.year, day.month, day.day),
];

pub(super) fn pair(dice: &mut Dice) -> Pair {
    let day = Day::choose(dice);
    Pair::new(dice.pick(FORMS)(&day), iso(&day))
}

/// At least so many: some forms of a day, such as `12.11.1985`, are one.
pub(super) fn sources() -> u128 {
    (days() * (FORMS.len() - 2)) as u128
}

fn iso(day: &Day) -> String {
    format!("{}-{:02}-{:02}", day.year, day.month, day.day)
}

/// The first three letters of a month or weekday.
fn short(name: &str) -> &str {
    &name[..3]
}

/// `1st`, `2nd`, `3rd`, `4th`; `11th` to `13th`.
fn ordinal(day: usize) -> String {
    let end = match day {
        1 | 21 | 31 => "st",
        2 | 22 => "nd",
        3 | 23 => "rd",
        _ => "th",
    };
    format!("{day}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn a_day_is_written_in_every_form() {
        let day = Day { year: 1997, month: 3, day: 3 };
        let forms: Vec<String> = FORMS.iter().map(|form| form(&day)).collect();
        assert_eq!(
            forms.join("; "),
            "3 March 1997; 3rd of March 1997; the 3rd day of March, 1997; March 3, 1997; March 3rd, 1997; Mar 3 1997; \
             3-Mar-1997; Mon, 3 Mar 1997; Monday, 3 March 1997; Monday, March 3rd, 1997; 3 MARCH 1997; 3.3.1997; 03.03.1997; \
             3. March 1997; 1997/03/03; 19970303"
        );
        assert_eq!(iso(&day), "1997-03-03");
        assert_eq!([1, 2, 11, 12, 13, 20, 21, 22, 23, 30, 31].map(ordinal).join(" "), ORDINALS);
    }

    const ORDINALS: &str = "1st 2nd 11th 12th 13th 20th 21st 22nd 23rd 30th 31st";

    #[test]
    fn a_source_means_one_day() {
        let mut dice = Dice::new(0);
        let mut meanings = HashMap::new();
        for pair in std::iter::repeat_with(|| pair(&mut dice)).take(100_000) {
            assert_eq!(*meanings.entry(pair.source).or_insert(pair.target.clone()), pair.target);
        }
    }
}
