//! The order in which a step adds its batches up. Sums of floats depend on it, so it stands here once: one process follows it batch by
//! batch, several follow it within their shares and then over their ranks.

/// How often a group is halved at most, so that few sums are kept however large it is.
const MOST_HALVINGS: u32 = 3;

/// How often a group is halved.
fn halvings(group: usize) -> u32 {
    group.max(1).trailing_zeros().min(MOST_HALVINGS)
}

/// Adds items up in an order that depends on nothing but their number: it halves a group while it is even, three times at most, and adds what
/// is left of it from left to right. Six items make `((0 + 1) + 2) + ((3 + 4) + 5)`, four `(0 + 1) + (2 + 3)`.
///
/// Halves of halves can be added up by themselves. That is how 2, 4 or 8 ranks that share a group get, to the bit, the sum of one process.
/// At most four parts are in memory at a time. A group that ends early is the same sum without the
/// items that are missing.
///
/// ```
/// use firelight_training::OrderedSum;
///
/// let plus = |one: String, other: String| format!("({one} + {other})");
/// let mut sum = OrderedSum::of(4);
/// (0..4).for_each(|item| sum.add(item.to_string(), plus));
/// assert_eq!(sum.finish(plus).unwrap(), "((0 + 1) + (2 + 3))");
/// ```
#[derive(Clone, Debug)]
pub struct OrderedSum<T> {
    /// Items that are added from left to right: an eighth of the group, or what is left of it when it can no longer be halved.
    run: usize,
    added: usize,
    /// Sums of what came so far, each of at least as many items as the next one.
    parts: Vec<T>,
}

impl<T> OrderedSum<T> {
    /// Begins the sum of a group of so many items.
    pub fn of(group: usize) -> Self {
        Self { run: group.max(1) >> halvings(group), added: 0, parts: Vec::new() }
    }

    /// Adds the next item. `plus` is given what stands on the left first.
    pub fn add(&mut self, item: T, plus: impl Fn(T, T) -> T) {
        let begins_a_run = self.added.is_multiple_of(self.run);
        self.parts.push(item);
        self.added += 1;
        if !begins_a_run {
            self.join(&plus);
        }
        if self.added.is_multiple_of(self.run) {
            let runs = self.added / self.run;
            (0..runs.trailing_zeros()).for_each(|_| self.join(&plus));
        }
    }

    /// The sum; none without an item.
    pub fn finish(mut self, plus: impl Fn(T, T) -> T) -> Option<T> {
        while self.parts.len() > 1 {
            self.join(&plus);
        }
        self.parts.pop()
    }

    fn join(&mut self, plus: &impl Fn(T, T) -> T) {
        let Some(right) = self.parts.pop() else { return };
        let joined = match self.parts.pop() {
            Some(left) => plus(left, right),
            None => right,
        };
        self.parts.push(joined);
    }
}

/// How many sums are kept while the last item of a group is computed.
pub(crate) fn sums_kept(group: usize) -> usize {
    let halvings = halvings(group);
    halvings as usize + usize::from(group >> halvings > 1)
}

/// How many items of a group each of `world` ranks takes, if their shares are parts of its sum: where the group is halved into as many, or
/// has one item for each rank.
pub(crate) fn share_of(group: usize, world: usize) -> Option<usize> {
    let is_halved = world.is_power_of_two() && world <= 1 << halvings(group);
    let is_shared = group == world || is_halved;
    (is_shared && group > 0).then(|| group / world)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plus(one: Option<String>, other: Option<String>) -> Option<String> {
        match (one, other) {
            (Some(one), Some(other)) => Some(format!("({one}+{other})")),
            (one, other) => one.or(other),
        }
    }

    /// The sum of `there` items of a group.
    fn sum(group: usize, items: impl IntoIterator<Item = Option<String>>) -> Option<String> {
        let mut sum = OrderedSum::of(group);
        items.into_iter().for_each(|item| sum.add(item, plus));
        sum.finish(plus).flatten()
    }

    fn items(from: usize, to: usize) -> impl Iterator<Item = Option<String>> {
        (from..to).map(|item| Some(item.to_string()))
    }

    #[test]
    fn groups_are_halved_and_odd_ones_added_from_left_to_right() {
        for (group, expected) in [
            (1, "0"),
            (2, "(0+1)"),
            (3, "((0+1)+2)"),
            (4, "((0+1)+(2+3))"),
            (5, "((((0+1)+2)+3)+4)"),
            (6, "(((0+1)+2)+((3+4)+5))"),
            (8, "(((0+1)+(2+3))+((4+5)+(6+7)))"),
        ] {
            assert_eq!(sum(group, items(0, group)).as_deref(), Some(expected));
        }
        assert_eq!(sum(4, items(0, 0)), None);
    }

    #[test]
    fn ranks_add_up_as_one_process_does_also_where_a_group_ends_early() {
        let mut shared = 0;
        for group in 1..=40 {
            for (world, share) in (1..=group).filter_map(|world| Some((world, share_of(group, world)?))) {
                for there in 1..=group {
                    let rank = |rank: usize| {
                        sum(
                            group,
                            items(rank * share, ((rank + 1) * share).clamp(rank * share, there.max(rank * share))),
                        )
                    };
                    assert_eq!(
                        sum(world, (0..world).map(rank)),
                        sum(group, items(0, there)),
                        "{there} of {group} on {world}"
                    );
                }
                shared += 1;
            }
        }
        assert!(shared > 70, "{shared}");
    }

    #[test]
    fn shares_are_equal_and_whole() {
        assert_eq!([1, 2, 4, 8].map(|world| share_of(8, world)), [Some(8), Some(4), Some(2), Some(1)]);
        assert_eq!([1, 2, 3, 6].map(|world| share_of(6, world)), [Some(6), Some(3), None, Some(1)]);
        assert_eq!([share_of(1, 2), share_of(6, 4), share_of(0, 1)], [None, None, None]);
    }

    #[test]
    fn few_sums_are_kept() {
        for group in 1..=64 {
            let mut sum = OrderedSum::of(group);
            let mut most = 0;
            for item in 0..group {
                most = most.max(sum.parts.len());
                sum.add(item, |one, other| one + other);
            }
            assert_eq!(most, sums_kept(group), "{group}");
            assert_eq!(sum.finish(|one, other| one + other), Some(group * (group - 1) / 2));
        }
        assert_eq!([1, 2, 3, 8, 12, 16, 64].map(sums_kept), [0, 1, 1, 3, 3, 4, 4]);
    }
}
