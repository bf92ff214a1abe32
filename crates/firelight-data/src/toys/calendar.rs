//! The days from 1900 to 2099 in the Gregorian calendar.

use crate::dice::Dice;

pub(super) const MONTHS: [&str; 12] = [
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

pub(super) const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

const FIRST_YEAR: usize = 1900;
const LAST_YEAR: usize = 2099;

/// A day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Day {
    pub(super) year: usize,
    /// From 1.
    pub(super) month: usize,
    /// From 1.
    pub(super) day: usize,
}

impl Day {
    /// Any day: year and month first, each as likely as the others.
    pub(super) fn choose(dice: &mut Dice) -> Self {
        let year = FIRST_YEAR + dice.below(LAST_YEAR - FIRST_YEAR + 1);
        let month = 1 + dice.below(12);
        Self { year, month, day: 1 + dice.below(days_of(year, month)) }
    }

    /// Name of the month.
    pub(super) fn month_name(&self) -> &'static str {
        MONTHS[self.month - 1]
    }

    /// Name of the day of the week. Source: Sakamoto 1993, whose table holds the days by which the months are shifted.
    pub(super) fn weekday(&self) -> &'static str {
        const SHIFT: [usize; 12] = [0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4];
        let year = if self.month < 3 { self.year - 1 } else { self.year };
        WEEKDAYS[(year + year / 4 - year / 100 + year / 400 + SHIFT[self.month - 1] + self.day) % 7]
    }
}

/// Days of a month.
fn days_of(year: usize, month: usize) -> usize {
    let is_leap_year = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 if is_leap_year => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Number of all days.
pub(super) fn days() -> usize {
    (FIRST_YEAR..=LAST_YEAR).flat_map(|year| (1..=12).map(move |month| days_of(year, month))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weekdays_follow_each_other_from_a_known_monday() {
        // 1 January 1900 was a Monday, and 200 years with 49 leap years have 73,049 days.
        let all = (FIRST_YEAR..=LAST_YEAR).flat_map(|year| {
            (1..=12).flat_map(move |month| (1..=days_of(year, month)).map(move |day| Day { year, month, day }))
        });
        let found: Vec<&str> = all.map(|day| day.weekday()).collect();
        let expected: Vec<&str> = WEEKDAYS.iter().copied().cycle().skip(1).take(found.len()).collect();
        assert_eq!((found.len(), days()), (73_049, 73_049));
        assert_eq!(found, expected);
        assert_eq!(Day { year: 2003, month: 2, day: 4 }.weekday(), "Tuesday");
    }

    #[test]
    fn leap_years_follow_the_gregorian_rule() {
        assert_eq!([1900, 1904, 2000, 2003, 2024].map(|year| days_of(year, 2)), [28, 29, 29, 28, 29]);
    }
}
