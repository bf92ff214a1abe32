//! One rule at a time.

use super::super::PositionGrid;
use super::*;

/// A model of an encoder with a head.
fn own() -> Vec<(String, Vec<usize>)> {
    shapes(&[("encoder.embedding.weight", &[6, 4]), ("encoder.blocks.0.weight", &[4, 4]), ("head.weight", &[4, 2])])
}

fn shapes(all: &[(&str, &[usize])]) -> Vec<(String, Vec<usize>)> {
    all.iter().map(|(path, shape)| (path.to_string(), shape.to_vec())).collect()
}

const ROWS: &[(&str, usize)] = &[("*embedding.weight", 0)];

fn rules(other: Other) -> TaskRules<'static> {
    let renamed = &[("head.pooler", "pair.pooler"), ("head.pooler", "pooler")];
    TaskRules { head: &["head", "pair", "pooler"], other, renamed, rows: ROWS, regrid: None }
}

fn list(patterns: &[&str]) -> Vec<String> {
    patterns.iter().map(ToString::to_string).collect()
}

fn found(other: Other, init: &InitConfig, own: &Shapes, found: &[(&str, &[usize])]) -> Result<Matching, String> {
    matched(init, &rules(other), own, &shapes(found).into_iter().collect()).map_err(|wrong| wrong.problems().join("\n"))
}

/// The same model, but for some of its parameters.
fn source<'a>(changed: &[(&'a str, &'a [usize])]) -> Vec<(&'a str, &'a [usize])> {
    let all: [(&str, &[usize]); 3] =
        [("encoder.embedding.weight", &[6, 4]), ("encoder.blocks.0.weight", &[4, 4]), ("head.weight", &[4, 2])];
    let kept = all.into_iter().filter(|(path, _)| !changed.iter().any(|(other, _)| other == path));
    kept.chain(changed.iter().copied().filter(|(_, shape)| !shape.is_empty())).collect()
}

const ALL: [&str; 3] = ["encoder.embedding.weight", "encoder.blocks.0.weight", "head.weight"];

fn taken(matching: &Matching) -> Vec<&str> {
    matching.taken.iter().map(|found| found.path.as_str()).collect()
}

#[test]
fn all_is_taken_over_where_the_models_are_alike() {
    for other in [Other::Same, Other::Unknown] {
        let found = found(other, &InitConfig::default(), &own(), &source(&[])).unwrap();
        assert_eq!((taken(&found), found.new.len(), found.unused.len()), (ALL.to_vec(), 0, 0));
    }
}

#[test]
fn what_is_missing_must_be_allowed() {
    let lacking = source(&[("encoder.blocks.0.weight", &[])]);
    let error = found(Other::Same, &InitConfig::default(), &own(), &lacking).unwrap_err();
    assert_eq!(error, "1 missing in it (`encoder.blocks.0.weight`): name what may begin anew in init.allow_missing");
    let init = InitConfig { allow_missing: list(&["*.blocks.0"]), ..InitConfig::default() };
    let found = found(Other::Same, &init, &own(), &lacking).unwrap();
    assert_eq!((found.taken.len(), found.new), (2, list(&["encoder.blocks.0.weight"])));
}

#[test]
fn what_is_not_used_must_be_allowed() {
    let more = source(&[("encoder.blocks.1.weight", &[4, 4])]);
    let error = found(Other::Same, &InitConfig::default(), &own(), &more).unwrap_err();
    assert_eq!(
        error,
        "1 unknown to the model (`encoder.blocks.1.weight`): name what is not needed in init.allow_unused"
    );
    let init = InitConfig { allow_unused: list(&["*.blocks.1"]), ..InitConfig::default() };
    let found = found(Other::Same, &init, &own(), &more).unwrap();
    assert_eq!((found.taken.len(), found.unused), (3, list(&["encoder.blocks.1.weight"])));
}

#[test]
fn every_shape_that_does_not_fit_is_listed_in_a_line_of_its_own() {
    let other = source(&[("encoder.embedding.weight", &[6, 5]), ("head.weight", &[4, 3])]);
    let error = found(Other::Same, &InitConfig::default(), &own(), &other).unwrap_err();
    assert_eq!(
        error,
        "2 of another shape: set init.resize = true to keep the rows in common, or name them in init.exclude\n\
         `encoder.embedding.weight` is [6, 5] and must be [6, 4]\n`head.weight` is [4, 3] and must be [4, 2]"
    );
    let many = |width| -> Vec<(String, Vec<usize>)> { (0..11).map(|i| (format!("layer.{i}"), vec![width])).collect() };
    let found = matched(&InitConfig::default(), &rules(Other::Same), &many(3), &many(4).into_iter().collect());
    let problems = found.unwrap_err().problems();
    assert!(problems[0].starts_with("11 of another shape: "), "{problems:?}");
    let expected: Vec<String> = (0..11).map(|i| format!("`layer.{i}` is [4] and must be [3]")).collect();
    assert_eq!(problems[1..], expected);
}

#[test]
fn include_and_exclude_say_what_is_taken() {
    let cases: [(&[&str], &[&str], &[&str]); 3] = [
        (&["encoder"], &[], &ALL[..2]),
        (&[], &["encoder.embedding"], &ALL[1..]),
        (&["encoder"], &["*.blocks.0"], &ALL[..1]),
    ];
    for (include, exclude, expected) in cases {
        let init = InitConfig { include: list(include), exclude: list(exclude), ..InitConfig::default() };
        let other: [(&str, &[usize]); 1] = [("head.weight", &[9, 9])]; // what is not taken over may have any shape
        let changed = usize::from(!expected.contains(&"head.weight"));
        let found = found(Other::Same, &init, &own(), &source(&other[..changed])).unwrap();
        assert_eq!(taken(&found), expected);
        assert_eq!((found.new.len(), found.unused.len()), (3 - expected.len(), 3 - expected.len()));
    }
    let init = InitConfig { exclude: list(&["encoder", "head"]), ..InitConfig::default() };
    assert_eq!(found(Other::Same, &init, &own(), &source(&[])).unwrap_err(), "no parameter is taken over");
    let init = InitConfig { exclude: list(&["haed"]), ..InitConfig::default() };
    let error = found(Other::Same, &init, &own(), &source(&[])).unwrap_err();
    assert_eq!(error, "1 fitting no parameter (init.exclude names \"haed\"): mend the patterns");
}

#[test]
fn the_head_of_another_task_is_left_and_the_own_one_begins_anew() {
    let other = source(&[("head.weight", &[4, 6]), ("pair.weight", &[4, 2])]);
    let found = found(Other::Task, &InitConfig::default(), &own(), &other).unwrap();
    assert_eq!((taken(&found), &found.new), (ALL[..2].to_vec(), &list(&["head.weight"])));
    assert_eq!(found.unused, list(&["head.weight", "pair.weight"]));
    let alike = super::matched(
        &InitConfig::default(),
        &rules(Other::Task),
        &own(),
        &shapes(&source(&[])).into_iter().collect(),
    );
    assert_eq!(alike.unwrap().new, list(&["head.weight"]), "a head of the same shape says something else");
}

#[test]
fn a_head_may_lack_in_weights_of_which_nobody_knows_the_task() {
    let lacking = source(&[("head.weight", &[]), ("pair.weight", &[2])]);
    let found = |other| found(other, &InitConfig::default(), &own(), &lacking);
    assert_eq!(found(Other::Unknown).unwrap().new, list(&["head.weight"]));
    let error = found(Other::Same).unwrap_err();
    assert!(error.contains("missing in it (`head.weight`)") && error.contains("the model (`pair.weight`)"), "{error}");
}

#[test]
fn a_part_of_a_head_is_found_under_its_other_path_where_it_is_alike() {
    let pooler = |shape: &[usize]| [own(), shapes(&[("head.pooler.weight", shape)])].concat();
    for path in ["pooler.weight", "pair.pooler.weight"] {
        let other = source(&[(path, &[4, 4])]);
        let alike = found(Other::Task, &InitConfig::default(), &pooler(&[4, 4]), &other).unwrap();
        let expected = Match { path: "head.pooler.weight".into(), source: path.into(), change: Change::None };
        assert_eq!(alike.taken.last(), Some(&expected));
        let left = found(Other::Task, &InitConfig::default(), &own(), &other).unwrap();
        assert_eq!(left.unused.last().map(String::as_str), Some(path), "a pooler that no head has is left");
    }
    let other = source(&[("pair.pooler.weight", &[4, 4])]);
    let unlike = found(Other::Task, &InitConfig::default(), &pooler(&[4, 3]), &other).unwrap();
    assert_eq!(unlike.new, list(&["head.weight", "head.pooler.weight"]));
}

#[test]
fn a_vocabulary_is_resized_where_the_recipe_says_so_and_nothing_else() {
    let init = |resize| InitConfig { resize, ..InitConfig::default() };
    let larger = source(&[("encoder.embedding.weight", &[9, 4])]);
    for resize in [Resize::Known(true), Resize::Of(list(&["encoder.embedding"]))] {
        let found = found(Other::Same, &init(resize), &own(), &larger).unwrap();
        assert_eq!((found.taken[0].change, found.taken[1].change), (Change::Rows(0), Change::None));
    }
    assert!(found(Other::Same, &init(Resize::Of(list(&["head"]))), &own(), &larger).is_err());
    let wider = source(&[("encoder.embedding.weight", &[6, 9])]);
    assert!(found(Other::Same, &init(Resize::Known(true)), &own(), &wider).is_err(), "columns are no rows");
    let layer = source(&[("encoder.blocks.0.weight", &[5, 4])]);
    assert!(found(Other::Same, &init(Resize::Known(true)), &own(), &layer).is_err(), "a layer has no rows in common");
}

#[test]
fn a_grid_changes_where_the_recipe_says_so_even_between_equal_shapes() {
    let grid = |grid| PositionGrid { parameter: "position", before: 1, grid, resize: |table, _, _| table };
    let own = shapes(&[("position", &[9, 4])]);
    let there: BTreeMap<_, _> = own.iter().cloned().collect();
    let rules = TaskRules { regrid: Regrid::new(grid([2, 4]), Some(grid([4, 2])), None), ..rules(Other::Same) };
    let error = matched(&InitConfig::default(), &rules, &own, &there).unwrap_err().to_string();
    assert!(error.contains("set init.resize = true"), "{error}");
    let init = InitConfig { resize: Resize::Known(true), ..InitConfig::default() };
    assert_eq!(matched(&init, &rules, &own, &there).unwrap().taken[0].change, Change::Grid);
}

#[test]
fn adapters_begin_anew() {
    let own = [own(), shapes(&[("encoder.blocks.0.adapter.up", &[2, 4])])].concat();
    let found = found(Other::Same, &InitConfig::default(), &own, &source(&[])).unwrap();
    assert_eq!(found.new, list(&["encoder.blocks.0.adapter.up"]));
}
