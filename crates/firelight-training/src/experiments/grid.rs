//! The points of an experiment: combinations of choices, each with some seeds, and the names of their folders.

use std::collections::BTreeSet;

use firelight_storage::InputError;

use super::Axis;

/// No name is longer, in characters: file systems end at 255 bytes.
const NAME: usize = 100;

/// What the recipe as it is is called, among points that vary one axis at a time.
const BASELINE: &str = "baseline";

/// A key of the recipe with one of its values, for each axis that is varied.
pub type Choices = Vec<(String, String)>;

/// What an experiment trains.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// What is varied.
    pub axes: Vec<Axis>,
    /// Whether each axis is varied alone, around the recipe as it is.
    pub one_at_a_time: bool,
    /// Trainings of each combination.
    pub seeds: usize,
}

/// One training of an experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// The name of its folder: `n_heads=4,position=rotary,seed=1`.
    pub name: String,
    /// What is overridden in the recipe.
    pub choices: Choices,
    /// The seed of the run.
    pub seed: u64,
}

impl Grid {
    /// Checks that the axes go together.
    ///
    /// # Errors
    /// If there is no axis, a key has two of them, or one is the seed.
    pub fn new(axes: Vec<Axis>, one_at_a_time: bool, seeds: usize) -> Result<Self, InputError> {
        let twice = axes.iter().enumerate().find(|(index, axis)| axes[..*index].iter().any(|one| one.key == axis.key));
        if let Some((_, axis)) = twice {
            let key = &axis.key;
            return Err(InputError::new(format!("`{key}` is varied twice: list all of its values in one --vary")));
        }
        if axes.iter().any(|axis| axis.key == "seed") {
            return Err(InputError::new("`seed` is varied by --seeds, over which the results are averaged"));
        }
        match axes.is_empty() || seeds == 0 {
            true => Err(InputError::new(
                "an experiment needs an axis and a seed: expected --vary and --seeds of at least 1",
            )),
            false => Ok(Self { axes, one_at_a_time, seeds }),
        }
    }

    /// How many trainings there are.
    pub fn size(&self) -> usize {
        let values = self.axes.iter().map(|axis| axis.values.len());
        let combinations = match self.one_at_a_time {
            true => values.fold(1_usize, usize::saturating_add),
            false => values.fold(1_usize, usize::saturating_mul),
        };
        combinations.saturating_mul(self.seeds)
    }

    /// Every combination of choices, the last axis changing fastest. One axis at a time: the recipe as it is, then the values of each axis.
    pub fn combinations(&self) -> Vec<Choices> {
        let alone = |axis: &Axis, value: &String| vec![(axis.key.clone(), value.clone())];
        if self.one_at_a_time {
            let single = self.axes.iter().flat_map(|axis| axis.values.iter().map(move |value| alone(axis, value)));
            return [Vec::new()].into_iter().chain(single).collect();
        }
        let extended = |found: Vec<Choices>, axis: &Axis| {
            let with = |choices: &Choices, value: &String| [choices.clone(), alone(axis, value)].concat();
            found.iter().flat_map(|choices| axis.values.iter().map(move |value| with(choices, value))).collect()
        };
        self.axes.iter().fold(vec![Vec::new()], extended)
    }

    /// Every training, those of one combination side by side, with seeds from `first_seed` on.
    ///
    /// # Example
    ///
    /// ```
    /// use firelight_training::experiments::{Axis, Grid};
    ///
    /// let axes = ["model.n_heads=1,4", "model.norm=rms"].map(|text| Axis::parse(text).unwrap()).to_vec();
    /// let points = Grid::new(axes, false, 2).unwrap().points(7);
    /// assert_eq!(points.len(), 4);
    /// assert_eq!(points[3].name, "n_heads=4,norm=rms,seed=8");
    /// ```
    pub fn points(&self, first_seed: u64) -> Vec<Point> {
        let mut taken = BTreeSet::new();
        let mut points = Vec::new();
        for choices in self.combinations() {
            for seed in (first_seed..).take(self.seeds) {
                let name = free(format!("{},seed={seed}", safe(&self.label(&choices))), &mut taken);
                points.push(Point { name, choices: choices.clone(), seed });
            }
        }
        points
    }

    /// The choices in words: `n_heads=4,position=rotary`. Keys are short where only one of the axes ends so.
    pub fn label(&self, choices: &[(String, String)]) -> String {
        let label = |(key, value): &(String, String)| format!("{}={value}", self.short(key));
        match choices {
            [] => BASELINE.into(),
            _ => choices.iter().map(label).collect::<Vec<_>>().join(","),
        }
    }

    /// A key as tables and names have it.
    pub fn short<'a>(&'a self, key: &'a str) -> &'a str {
        let axis = self.axes.iter().find(|axis| axis.key == key);
        let short = axis.map_or(key, Axis::short);
        let is_unique = self.axes.iter().filter(|axis| axis.short() == short).count() < 2;
        if is_unique { short } else { key }
    }
}

/// A label without what file systems and shells read as something else, and not too long.
fn safe(label: &str) -> String {
    let is_plain = |character: &char| character.is_ascii_alphanumeric() || ".,=+-_".contains(*character);
    label.chars().map(|character| if is_plain(&character) { character } else { '_' }).take(NAME).collect()
}

/// The name, with a number behind it where another point has it.
fn free(name: String, taken: &mut BTreeSet<String>) -> String {
    let numbered = (2..).map(|number| format!("{name}~{number}"));
    let found = [name.clone()].into_iter().chain(numbered).find(|name| !taken.contains(&name.to_lowercase()));
    let found = found.unwrap_or_else(|| unreachable!("numbers do not end"));
    taken.insert(found.to_lowercase()); // some file systems do not tell cases apart
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(axes: &[&str], one_at_a_time: bool, seeds: usize) -> Grid {
        Grid::new(axes.iter().map(|text| Axis::parse(text).unwrap()).collect(), one_at_a_time, seeds).unwrap()
    }

    fn names(grid: &Grid) -> Vec<String> {
        grid.points(1).into_iter().map(|point| point.name).collect()
    }

    #[test]
    fn all_combinations_are_trained_with_all_seeds() {
        let grid = grid(&["model.a=1,2", "model.b=x,y"], false, 2);
        let expected = ["a=1,b=x", "a=1,b=y", "a=2,b=x", "a=2,b=y"];
        let expected: Vec<String> =
            expected.iter().flat_map(|label| [1, 2].map(|seed| format!("{label},seed={seed}"))).collect();
        assert_eq!(names(&grid), expected);
        assert_eq!(grid.size(), 8);
        let choices = [("model.a", "2"), ("model.b", "y")].map(|(key, value)| (key.to_string(), value.to_string()));
        assert_eq!(grid.combinations()[3], choices);
    }

    #[test]
    fn one_axis_at_a_time_is_varied_around_the_recipe() {
        let grid = grid(&["model.a=1,2", "model.b=x"], true, 1);
        assert_eq!(names(&grid), ["baseline,seed=1", "a=1,seed=1", "a=2,seed=1", "b=x,seed=1"]);
        assert_eq!(grid.size(), 4);
    }

    #[test]
    fn names_tell_points_apart_and_are_fit_for_files() {
        let two = grid(&["model.dropout=0.1", "loss.dropout=0.2"], false, 1);
        assert_eq!(names(&two), ["model.dropout=0.1,loss.dropout=0.2,seed=1"]);
        let odd = grid(&["data.x=\"a/b\",\"a:b\",A,a"], false, 1);
        assert_eq!(names(&odd), ["x=_a_b_,seed=1", "x=_a_b_,seed=1~2", "x=A,seed=1", "x=a,seed=1~2"]);
        let long = format!("data.x={}", "v".repeat(500));
        assert!(names(&grid(&[long.as_str()], false, 1))[0].len() < 120);
    }

    #[test]
    fn axes_that_do_not_go_together_are_refused() {
        let axes = |texts: &[&str]| texts.iter().map(|text| Axis::parse(text).unwrap()).collect::<Vec<_>>();
        let message = |texts: &[&str], seeds| Grid::new(axes(texts), false, seeds).unwrap_err().to_string();
        assert!(message(&["a.b=1", "a.b=2"], 1).contains("`a.b` is varied twice"));
        assert!(message(&["seed=1,2"], 1).contains("--seeds"));
        assert!(message(&[], 1).contains("--vary") && message(&["a=1"], 0).contains("--seeds"));
    }

    #[test]
    fn a_size_that_no_number_holds_is_counted_too() {
        let wide = format!("x={}", (0..1000).map(|n| n.to_string()).collect::<Vec<_>>().join(","));
        let axes: Vec<Axis> = (0..8).map(|n| Axis { key: format!("a.{n}"), ..Axis::parse(&wide).unwrap() }).collect();
        assert_eq!(Grid::new(axes, false, 1).unwrap().size(), usize::MAX);
    }
}
