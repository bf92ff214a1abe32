//! How tokens know their places: what a position scheme adds, turns or takes away, and how similar it makes two places.

use burn::tensor::{Device, Tensor};
use firelight_core::{
    Init, ParamBuilder, Position, PositionConfig, PositionScheme, PositionSizes, Positions, Rotary, ScoreBias,
};
use firelight_storage::{InputError, TaskError};

use crate::embeddings::cosines;
use crate::figure::{Figure, HeatMap, LONGEST, check_size, numbers};
use crate::stacks::ModelStack;
use crate::text_model::rows;

/// How many positions are shown where nobody says.
const LENGTH: usize = 32;

/// What distances on both sides of a query count.
const AFTER: &str = "after the query (below 0: before it) the key stands";

/// The positions of stacks. What is added to embeddings is shown as vectors with their cosines; rotary positions as the cosines of their
/// angles and the mean product by distance; biases of scores by distance. A trained table has its own length, of which the first 32 are
/// shown by default; of the places of patches all are, up to 1,024.
///
/// # Errors
/// If no stack has positions, `length` is 0, more than 1,024 or more than a trained table has, or the device fails.
///
/// ```
/// use burn::tensor::Device;
/// use firelight_core::{PositionConfig, TransformerConfig};
/// use firelight_inspect::{ModelStack, position_figure};
///
/// let stack = TransformerConfig::new(16, 2, 1).with_position(PositionConfig::Alibi).init(&Device::flex());
/// let figure = position_figure(&[ModelStack::new("model", stack)], Some(4), &Device::flex())?;
/// assert_eq!(figure.maps[0].values[0], [0.0, -0.0625, -0.125, -0.1875]); // The slope of the first of two heads is 2^-4.
/// # Ok::<(), firelight_storage::TaskError>(())
/// ```
pub fn position_figure(stacks: &[ModelStack], length: Option<usize>, device: &Device) -> Result<Figure, TaskError> {
    let mut maps = Vec::new();
    for stack in stacks {
        let name = if stacks.len() > 1 { format!("{}: ", stack.name) } else { String::new() };
        if let Some(table) = stack.patches() {
            let table = first_rows(table.clone(), length, LONGEST)?;
            maps.extend(vectors(&format!("{name}places of patches"), &table)?);
        }
        let several = stack.schemes().count() > 1;
        for (number, scheme) in stack.schemes().enumerate() {
            let name = if several { format!("{name}scheme {number}: ") } else { name.clone() };
            let shown = Shown { name, length, sees_future: !stack.transformer.is_causal(), device };
            maps.extend(shown.scheme(scheme)?);
        }
    }
    match maps.is_empty() {
        false => Ok(Figure::new("Positions", maps)),
        true => {
            let problem = "the model has no positions that could be shown";
            Err(InputError::new(problem).advise("give another one, or a scheme by its name, such as rotary").into())
        }
    }
}

/// A scheme as a new model has it, for `sizes.max_seq_len` positions: trained tables are at random. It is shown for a stack that sees no future.
///
/// # Errors
/// If the scheme has no positions, the sizes do not suit it, or there are more than 1,024 positions.
///
/// ```
/// use burn::tensor::Device;
/// use firelight_core::{PositionConfig, PositionSizes};
/// use firelight_inspect::scheme_figure;
///
/// let sizes = PositionSizes { d_model: 4, n_heads: 2, d_head: 4, max_seq_len: 3 };
/// let figure = scheme_figure(&PositionConfig::Sinusoidal, sizes, &Device::flex())?;
/// // Sine and cosine of one radian, then of a hundredth.
/// let expected = [0.8415, 0.5403, 0.0100, 0.99995];
/// let found = &figure.maps[0].values[1];
/// assert!(found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-4));
/// # Ok::<(), firelight_storage::TaskError>(())
/// ```
pub fn scheme_figure(config: &PositionConfig, sizes: PositionSizes, device: &Device) -> Result<Figure, TaskError> {
    let length = sizes.max_seq_len;
    check_size("--length", length)?;
    check_size("--width", sizes.d_model)?;
    check_size("--heads", sizes.n_heads)?;
    let fits = config.validate(sizes.d_model, sizes.d_head);
    fits.map_err(|error| InputError::new(error.problems().join("; ")).advise("give another --width"))?;
    let scheme = config.init_with(sizes, Init::default(), &ParamBuilder::new(device, 0));
    let shown = Shown { name: String::new(), length: Some(length), sees_future: false, device };
    let maps = shown.scheme(&scheme)?;
    if maps.is_empty() {
        let problem = "a model without positions has none to show";
        return Err(InputError::new(problem).advise("give a scheme such as sinusoidal or rotary").into());
    }
    Ok(Figure::new("Positions", maps))
}

/// What is asked of a scheme.
struct Shown<'a> {
    /// What stands in front of every title.
    name: String,
    length: Option<usize>,
    sees_future: bool,
    device: &'a Device,
}

impl Shown<'_> {
    /// The maps of a scheme; none where there are no positions.
    fn scheme(&self, scheme: &Position) -> Result<Vec<HeatMap>, TaskError> {
        let (name, length) = (&self.name, self.length.unwrap_or(LENGTH));
        check_size("--length", length)?;
        let places = Positions::contiguous(0, length);
        match scheme {
            Position::None(_) => Ok(Vec::new()),
            Position::Learned(learned) => {
                let table = first_rows(learned.weight.val(), self.length, LENGTH)?;
                vectors(&format!("{name}learned positions"), &table)
            }
            Position::Sinusoidal(waves) => {
                let table = rows(waves.table(&places, self.device))?;
                vectors(&format!("{name}sinusoidal positions"), &table)
            }
            Position::Rotary(rotary) => Ok(turned(name, rotary, length)),
            Position::Alibi(_) | Position::T5(_) => self.biases(scheme.bias(&places, &places, self.device), length),
            Position::Shaw(shaw) => distances(&format!("{name}vectors by distance"), shaw.weight.val()),
        }
    }

    /// What is added to scores, `[H, 2 N - 1]`, by distance.
    fn biases(&self, bias: Option<ScoreBias>, length: usize) -> Result<Vec<HeatMap>, TaskError> {
        let Some(ScoreBias::ByDistance(bias)) = bias else { return Ok(Vec::new()) };
        let (biases, last) = (rows(bias)?, length - 1);
        let heads = (0..biases.len()).map(|head| format!("head {head}")).collect();
        let name = &self.name;
        if self.sees_future {
            let title = format!("{name}bias of scores: a column says how many tokens {AFTER}");
            let columns = (0..2 * length - 1).map(|column| (column as i64 - last as i64).to_string()).collect();
            return Ok(vec![HeatMap::new(title, heads, columns, biases)]);
        }
        let title = format!("{name}bias of scores: a column says how many tokens before the query the key stands");
        let past = biases.into_iter().map(|row| row[..length].iter().rev().copied().collect()).collect();
        Ok(vec![HeatMap::new(title, heads, numbers(length), past)])
    }
}

/// Vectors of positions, and the cosine of every two of them.
fn vectors(title: &str, table: &[Vec<f64>]) -> Result<Vec<HeatMap>, TaskError> {
    let width = table.first().map_or(0, Vec::len);
    let names = numbers(table.len());
    let caption = format!("{title}: a row is a position, a column a channel");
    let similar = cosines(format!("{title}: cosine of two of them"), [names.clone(), names.clone()], table);
    Ok(vec![HeatMap::new(caption, names, numbers(width), table.to_vec()), similar])
}

/// Vectors of distances, the farthest past first, and their cosines.
fn distances(title: &str, table: Tensor<2>) -> Result<Vec<HeatMap>, TaskError> {
    let [count, width] = table.dims();
    check_size("the number of distances", count)?;
    let (table, farthest) = (rows(table)?, (count / 2) as i64);
    let names: Vec<String> = (-farthest..=farthest).map(|distance| distance.to_string()).collect();
    let caption = format!("{title}: a row says how many tokens {AFTER}, a column is a channel");
    let similar = cosines(format!("{title}: cosine of two of them"), [names.clone(), names.clone()], &table);
    Ok(vec![HeatMap::new(caption, names, numbers(width), table), similar])
}

/// The cosines of the angles by which pairs of channels turn, and the mean product of two vectors of equal channels by their distance.
fn turned(name: &str, rotary: &Rotary, length: usize) -> Vec<HeatMap> {
    let frequencies = rotary.frequencies(length);
    let factor = rotary.attention_factor().powi(2);
    let cosine = |place: usize, frequency: &f64| (place as f64 * frequency).cos();
    let angles: Vec<Vec<f64>> =
        (0..length).map(|place| frequencies.iter().map(|frequency| cosine(place, frequency)).collect()).collect();
    let mean = |row: &Vec<f64>| factor * row.iter().sum::<f64>() / row.len().max(1) as f64;
    let products = angles.iter().map(mean).collect();
    // Frequencies say nothing of which coordinate turns a pair.
    let together = match rotary.n_axes() {
        1 => String::new(),
        axes => format!(" (all {axes} coordinates advance together)"),
    };
    let title = format!(
        "{name}rotary positions, cosine of the angle: a row is a position{together}, a column a pair of channels"
    );
    let similar = format!("{name}mean product of the pairs that turn: a column is a distance");
    vec![
        HeatMap::new(title, numbers(length), numbers(frequencies.len()), angles),
        HeatMap::new(similar, vec!["product".into()], numbers(length), vec![products]),
    ]
}

/// The first rows of a trained table: so many as are asked for, or by default.
fn first_rows(table: Tensor<2>, length: Option<usize>, usual: usize) -> Result<Vec<Vec<f64>>, TaskError> {
    let [has, _] = table.dims();
    let length = length.unwrap_or(usual.min(has));
    check_size("--length", length)?;
    if length > has {
        let problem = format!("--length = {length} is more than the {has} positions that the model has learned");
        return Err(InputError::new(problem).advise(format!("give at most {has}")).into());
    }
    rows(table.narrow(0, 0, length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::module::Param;
    use burn::tensor::Int;
    use firelight_core::{RotaryAxes, RotaryLayout, TransformerConfig};

    fn scheme(config: &PositionConfig, length: usize) -> Result<Figure, TaskError> {
        let sizes = PositionSizes { d_model: 4, n_heads: 2, d_head: 4, max_seq_len: length };
        scheme_figure(config, sizes, &Device::default())
    }

    fn near(found: &[f64], expected: &[f64]) -> bool {
        found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-4)
    }

    #[test]
    fn sines_and_cosines_by_hand() {
        let figure = scheme(&PositionConfig::Sinusoidal, 3).unwrap();
        let [table, similar] = &figure.maps[..] else { panic!("a table and its cosines") };
        assert!(near(&table.values[0], &[0.0, 1.0, 0.0, 1.0]));
        // Angles of two radians, and of two hundredths.
        assert!(near(&table.values[2], &[0.9093, -0.4161, 0.0200, 0.9998]), "{:?}", table.values[2]);
        // (cos d + cos d / 100) / 2 for distances of 0, 1 and 2.
        assert!(near(&similar.values[0], &[1.0, 0.7701, 0.2918]), "{:?}", similar.values[0]);
        assert!(near(&similar.values[1], &[0.7701, 1.0, 0.7701]));
    }

    #[test]
    fn rotary_products_depend_on_the_distance_alone() {
        let figure = scheme(&PositionConfig::rotary(), 3).unwrap();
        // The frequencies are 1 and 1/100, as those of the sinusoidal positions of four channels.
        assert!(near(&figure.maps[0].values[2], &[-0.4161, 0.9998]));
        assert!(near(&figure.maps[1].values[0], &[1.0, 0.7701, 0.2918]));
    }

    #[test]
    fn biases_are_those_of_the_past_alone_where_the_future_is_hidden() {
        let past = &scheme(&PositionConfig::Alibi, 3).unwrap().maps[0];
        assert_eq!((past.rows.len(), &past.values[1][..]), (2, &[0.0, -0.00390625, -0.0078125][..])); // 2^-8
        let stack = TransformerConfig::encoder(8, 2, 1).with_position(PositionConfig::Alibi).init(&Device::default());
        let both = &position_figure(&[ModelStack::new("m", stack)], Some(2), &Device::default()).unwrap().maps[0];
        assert_eq!(
            (&both.columns[..], &both.values[0][..]),
            (&["-1", "0", "1"].map(String::from)[..], &[-0.0625, 0.0, -0.0625][..])
        );
    }

    /// The weight of bucket `b` and head `h` is `2 b + h`. Of 32 buckets for both sides the first 16 are of the past.
    #[test]
    fn a_bias_that_differs_between_past_and_future_has_the_past_below_0() {
        let device = Device::default();
        let position = PositionConfig::t5(true);
        let mut stack = TransformerConfig::encoder(8, 2, 1).with_position(position).init(&device);
        let Position::T5(t5) = &mut stack.position else { panic!("buckets of distances") };
        t5.weight = Param::from_tensor(Tensor::<1, Int>::arange(0..64, &device).float().reshape([32, 2]));
        let map = &position_figure(&[ModelStack::new("m", stack)], Some(2), &device).unwrap().maps[0];
        assert_eq!(map.columns, ["-1", "0", "1"]);
        // Buckets 1, 0 and 16 + 1.
        assert_eq!(map.values, [[2.0, 0.0, 34.0], [3.0, 1.0, 35.0]]);
        assert!(map.title.ends_with("tokens after the query (below 0: before it) the key stands"), "{}", map.title);
    }

    #[test]
    fn rotary_positions_of_several_axes_say_that_their_coordinates_advance_together() {
        let titles = [RotaryAxes::One, RotaryAxes::axial()].map(|axes| {
            let rotary = Rotary::new(4, 10_000.0, RotaryLayout::Interleaved).with_axes(axes);
            turned("", &rotary, 3)[0].title.clone()
        });
        assert_eq!(
            titles.each_ref().map(|title| title.contains("(all 2 coordinates advance together)")),
            [false, true]
        );
    }

    #[test]
    fn a_long_table_is_cut_where_nobody_asks_for_more() {
        let table = || Tensor::<2>::zeros([1370, 2], &Device::default());
        assert_eq!(first_rows(table(), None, LONGEST).unwrap().len(), 1024);
        assert_eq!(first_rows(table(), None, LENGTH).unwrap().len(), 32);
        assert!(first_rows(table(), Some(1370), LONGEST).unwrap_err().to_string().contains("--length = 1370"));
    }

    #[test]
    fn trained_tables_have_a_map_of_each_scheme() {
        let maps = |config| scheme(&config, 5).unwrap().maps;
        assert_eq!(maps(PositionConfig::Learned)[1].values[4].len(), 5);
        assert_eq!(maps(PositionConfig::t5(false)).len(), 1);
        assert_eq!(maps(PositionConfig::shaw())[0].rows.len(), 33);
    }

    #[test]
    fn what_cannot_be_shown_is_told() {
        let fails = |config, length| scheme(&config, length).unwrap_err().to_string();
        assert!(fails(PositionConfig::None, 3).contains("none to show"));
        assert!(fails(PositionConfig::Alibi, 2000).contains("--length = 2000"));
        let odd = PositionSizes { d_model: 5, n_heads: 1, d_head: 5, max_seq_len: 3 };
        let odd = scheme_figure(&PositionConfig::rotary(), odd, &Device::default()).unwrap_err().to_string();
        assert!(odd.contains("must be even"), "{odd}");
        let of = |position: PositionConfig, length| {
            let stack = TransformerConfig::new(8, 2, 1).with_max_seq_len(4).with_position(position);
            position_figure(&[ModelStack::new("model", stack.init(&Device::default()))], length, &Device::default())
        };
        assert!(of(PositionConfig::None, None).unwrap_err().to_string().contains("no positions that could be shown"));
        let long = of(PositionConfig::Learned, Some(5)).unwrap_err().to_string();
        assert!(long.contains("--length = 5 is more than the 4 positions"), "{long}");
        assert_eq!(of(PositionConfig::Learned, None).unwrap().maps[0].rows.len(), 4);
    }
}
