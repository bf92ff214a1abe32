//! Which parameter of the weights becomes which of the model: by paths and shapes alone, before a number is read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use firelight_storage::is_adapter_path;

use super::{InitConfig, Regrid, Resize, fit};
use crate::path::fits;

/// How many parameters a message names of each sort; those of another shape it lists all.
const LISTED: usize = 8;

/// Paths and shapes of a model's parameters, in their order.
pub(crate) type Shapes = [(String, Vec<usize>)];

/// What the weights were trained for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Other {
    /// The task of the model: the head is taken over as all else.
    Same,
    /// Another task: the head begins anew, and that of the weights is left.
    Task,
    /// Nobody knows: a head may be there or not.
    Unknown,
}

/// What a task says of its parameters.
#[derive(Debug)]
pub(crate) struct TaskRules<'a> {
    /// Those of the heads of this task and of those that share its body, as patterns.
    pub(crate) head: &'a [&'static str],
    /// What the weights were trained for.
    pub(crate) other: Other,
    /// Parts of a head that are the same under another path in another task: the model's path, and the weights'.
    pub(crate) renamed: &'a [(&'static str, &'static str)],
    /// Patterns of what has a row for each token or position, with the axis of the rows.
    pub(crate) rows: &'a [(&'static str, usize)],
    /// Positions of image patches whose grid is another one.
    pub(crate) regrid: Option<Regrid>,
}

/// A parameter that is taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Match {
    /// Its path in the model.
    pub(crate) path: String,
    /// Its path in the weights.
    pub(crate) source: String,
    /// How it changes on the way.
    pub(crate) change: Change,
}

/// How a parameter changes on its way from one model to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Not at all.
    None,
    /// The rows in common along an axis are taken over.
    Rows(usize),
    /// Its grid is interpolated.
    Grid,
}

/// What comes from where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Matching {
    pub(crate) taken: Vec<Match>,
    /// Parameters that begin anew.
    pub(crate) new: Vec<String>,
    /// Parameters of the weights that are left.
    pub(crate) unused: Vec<String>,
}

/// All that does not fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// Parameters with the shape that was found and the one that is expected.
    shapes: Vec<(String, Vec<usize>, Vec<usize>)>,
    /// Whether those of them may be resized.
    is_resizable: bool,
    missing: Vec<String>,
    unused: Vec<String>,
    /// Keys with patterns that fit nothing.
    idle: Vec<String>,
    takes_nothing: bool,
}

/// Matches the parameters of the weights with those of the model.
pub(crate) fn matched(
    init: &InitConfig,
    rules: &TaskRules,
    own: &Shapes,
    found: &BTreeMap<String, Vec<usize>>,
) -> Result<Matching, Mismatch> {
    let (mut matching, mut wrong) = (Matching::default(), Mismatch::default());
    for (path, shape) in own {
        match one(init, rules, (path, shape), found) {
            One::Taken(source, change) => matching.taken.push(Match { path: path.clone(), source, change }),
            One::New => matching.new.push(path.clone()),
            One::Missing => wrong.missing.push(path.clone()),
            One::Unlike(there) => {
                wrong.is_resizable |= rules.change(path, &there, shape).is_some();
                wrong.shapes.push((path.clone(), there, shape.clone()));
            }
        }
    }
    let used: BTreeSet<&str> = matching.taken.iter().map(|found| found.source.as_str()).collect();
    let known = |path: &String| own.iter().any(|(own, _)| own == path);
    for path in found.keys().filter(|path| !used.contains(path.as_str())) {
        let may_be_left = !init.selects(path) || fit(&init.allow_unused, path) || rules.leaves_head(path);
        match may_be_left || known(path) {
            true => matching.unused.push(path.clone()),
            false => wrong.unused.push(path.clone()),
        }
    }
    wrong.idle = idle(init, own, found);
    wrong.takes_nothing = matching.taken.is_empty();
    if wrong == Mismatch::default() { Ok(matching) } else { Err(wrong) }
}

/// What becomes of one parameter.
enum One {
    Taken(String, Change),
    New,
    Missing,
    Unlike(Vec<usize>),
}

fn one(
    init: &InitConfig,
    rules: &TaskRules,
    (path, shape): (&String, &Vec<usize>),
    found: &BTreeMap<String, Vec<usize>>,
) -> One {
    // Those of the weights are merged into them, and those of the model begin anew.
    if is_adapter_path(path) || !init.selects(path) {
        return One::New;
    }
    if rules.other == Other::Task && rules.is_head(path) {
        let source = rules.renamed(path).find(|source| found.get(source) == Some(shape));
        return source.map_or(One::New, |source| One::Taken(source, Change::None));
    }
    let Some(there) = found.get(path) else {
        let may_lack = fit(&init.allow_missing, path) || rules.leaves_head(path);
        return if may_lack { One::New } else { One::Missing };
    };
    let regrids = rules.regrid.as_ref().is_some_and(|regrid| regrid.is_of(path));
    match (there == shape && !regrids, rules.change(path, there, shape)) {
        (true, _) => One::Taken(path.clone(), Change::None),
        (false, Some(change)) if rules.resizes(&init.resize, path) => One::Taken(path.clone(), change),
        _ => One::Unlike(there.clone()),
    }
}

impl TaskRules<'_> {
    fn is_head(&self, path: &str) -> bool {
        self.head.iter().any(|pattern| fits(pattern, path))
    }

    /// Whether a parameter may be in one of the models alone because it is a head's.
    fn leaves_head(&self, path: &str) -> bool {
        self.other != Other::Same && self.is_head(path)
    }

    /// The paths that a part of a head may have in the weights.
    fn renamed(&self, path: &str) -> impl Iterator<Item = String> {
        let renamed = move |(own, other): &(&str, &str)| Some(format!("{other}{}", path.strip_prefix(own)?));
        self.renamed.iter().filter_map(renamed)
    }

    /// How one shape can become another; none if it cannot.
    fn change(&self, path: &str, from: &[usize], to: &[usize]) -> Option<Change> {
        if let Some(regrid) = self.regrid.as_ref().filter(|regrid| regrid.is_of(path)) {
            return regrid.fits(from, to).then_some(Change::Grid);
        }
        let differing: Vec<usize> = (0..to.len()).filter(|axis| from.get(*axis) != to.get(*axis)).collect();
        let known = self.rows.iter().find(|(pattern, _)| fits(pattern, path)).map(|(_, axis)| *axis);
        match differing[..] {
            [axis] if from.len() == to.len() && known.is_none_or(|known| known == axis) => Some(Change::Rows(axis)),
            _ => None,
        }
    }

    /// Whether the recipe lets a parameter have another size.
    fn resizes(&self, resize: &Resize, path: &str) -> bool {
        let is_grid = || self.regrid.as_ref().is_some_and(|regrid| regrid.is_of(path));
        match resize {
            Resize::Known(all) => *all && (is_grid() || self.rows.iter().any(|(pattern, _)| fits(pattern, path))),
            Resize::Of(patterns) => fit(patterns, path),
        }
    }
}

/// The keys of patterns that fit no parameter of either model.
fn idle(init: &InitConfig, own: &Shapes, found: &BTreeMap<String, Vec<usize>>) -> Vec<String> {
    let resize = match &init.resize {
        Resize::Of(patterns) => &patterns[..],
        Resize::Known(_) => &[],
    };
    let keys: [(&str, &[String]); 5] = [
        ("include", &init.include),
        ("exclude", &init.exclude),
        ("allow_missing", &init.allow_missing),
        ("allow_unused", &init.allow_unused),
        ("resize", resize),
    ];
    let is_idle =
        |pattern: &String| !own.iter().map(|(path, _)| path).chain(found.keys()).any(|path| fits(pattern, path));
    let of = |(key, patterns): &(&str, &[String])| {
        let idle = patterns.iter().filter(|pattern| is_idle(pattern));
        idle.map(|pattern| format!("init.{key} names \"{pattern}\"")).collect::<Vec<_>>()
    };
    keys.iter().flat_map(of).collect()
}

impl Mismatch {
    /// What does not fit in one line, and a line for each parameter of another shape.
    pub(crate) fn problems(&self) -> Vec<String> {
        let shape = |(path, found, expected): &(String, Vec<usize>, Vec<usize>)| {
            format!("`{path}` is {found:?} and must be {expected:?}")
        };
        [self.to_string()].into_iter().chain(self.shapes.iter().map(shape)).collect()
    }
}

/// Without the shapes.
impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let quoted = |path: &String| format!("`{path}`");
        let resize = if self.is_resizable { "set init.resize = true to keep the rows in common, or " } else { "" };
        let sorts = [
            (
                "missing in it",
                listed(self.missing.iter().map(quoted)),
                "name what may begin anew in init.allow_missing",
            ),
            (
                "unknown to the model",
                listed(self.unused.iter().map(quoted)),
                "name what is not needed in init.allow_unused",
            ),
            ("fitting no parameter", listed(self.idle.iter().cloned()), "mend the patterns"),
        ];
        let sorts = sorts.iter().filter_map(|(sort, listed, mend)| {
            let (count, listed) = listed.as_ref()?;
            Some(format!("{count} {sort} ({listed}): {mend}"))
        });
        let unlike = (!self.shapes.is_empty())
            .then(|| format!("{} of another shape: {resize}name them in init.exclude", self.shapes.len()));
        let nothing = self.takes_nothing.then(|| "no parameter is taken over".to_string());
        f.write_str(&unlike.into_iter().chain(sorts).chain(nothing).collect::<Vec<_>>().join("; "))
    }
}

/// How many there are, and the first ones in words; none if there are none.
fn listed(all: impl Iterator<Item = String>) -> Option<(usize, String)> {
    let all: Vec<String> = all.collect();
    let more = if all.len() > LISTED { format!(" and {} more", all.len() - LISTED) } else { String::new() };
    let shown = all.iter().take(LISTED).cloned().collect::<Vec<_>>().join(", ");
    (!all.is_empty()).then(|| (all.len(), shown + &more))
}

#[cfg(test)]
mod tests;
