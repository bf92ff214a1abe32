//! Maps as an image of pixels, without their tokens, and the patches of an image that a model looks at.

use firelight_data::{Image, ImageShape};
use firelight_storage::palette::Theme;

use crate::maps::{AttentionMaps, Map, Picture};
use crate::svg::pixels;

/// Pixels of the longer side of a single map, and of one among others.
const LARGE: usize = 512;
const SMALL: usize = 96;

/// Pixels between two maps.
const GAP: usize = 6;

/// Pixels of the longer side of an image.
const SIDE: usize = 224;

/// The maps as pixels, for a PNG file, where tokens cannot be written: one large map, or small ones, a row for each layer.
///
/// Of a model of images, what it looks at: the image; what the trained token in front of the patches, or else the mean patch, reads in the
/// last layer, in the mean of its heads; and attention rollout (Abnar and Zuidema 2020, <https://arxiv.org/abs/2005.00928>). Of a
/// captioning model, the image as each token saw it.
///
/// ```
/// use firelight_inspect::{AttentionKind, AttentionMaps, Map, picture};
///
/// let token = || vec!["a".to_string()];
/// let map = Map::new(0, 0, [1, 1], vec![1.0]);
/// let maps = AttentionMaps::new(AttentionKind::SelfAttention, token(), token(), vec![vec![map]]);
/// assert_eq!(picture(&[maps]).shape().size(), [524, 524]); // 512 and the gaps
/// ```
pub fn picture(maps: &[AttentionMaps]) -> Image {
    let last = maps.iter().rev().find_map(|maps| Some((maps.picture.as_ref()?, maps.summary()?.1)));
    match last {
        Some((image, map)) => looked_at(image, &map),
        None => grid(&maps.iter().flat_map(|maps| maps.layers.iter()).map(Vec::as_slice).collect::<Vec<_>>()),
    }
}

/// The image, what was looked at in it, and rollout where it is known.
fn looked_at(picture: &Picture, map: &Map) -> Image {
    let image = picture.image.clone().with_channels(3).scaled_to(SIDE);
    let over = |weights: &[f64]| image.highlighted(picture.grid, weights);
    let rows: Vec<Vec<f64>> = readers(picture, map).iter().map(|row| over_patches(picture, row)).collect();
    let tiles = rows.iter().map(Vec::as_slice).chain(picture.rollout.as_deref()).map(over);
    let tiles: Vec<Image> = std::iter::once(image.clone()).chain(tiles).collect();
    Image::tiled(&tiles, 6)
}

fn over_patches(picture: &Picture, row: &[f32]) -> Vec<f64> {
    picture.patches(row).iter().map(|weight| f64::from(*weight)).collect()
}

/// The rows that are shown: each token of a caption; of an image the class token, or the mean where there is none.
fn readers(picture: &Picture, map: &Map) -> Vec<Vec<f32>> {
    let [queries, keys] = map.shape();
    match (picture.rollout.is_some(), picture.first) {
        (false, _) => (0..queries).map(|query| map.row(query).to_vec()).collect(),
        (true, 0) => {
            let share = |key: usize| (0..queries).map(|query| map.at(query, key)).sum::<f32>() / queries.max(1) as f32;
            vec![(0..keys).map(share).collect()]
        }
        (true, _) => vec![map.row(0).to_vec()],
    }
}

/// Maps side by side, a row for each layer that has some, on white.
fn grid(layers: &[&[Map]]) -> Image {
    let layers: Vec<&[Map]> = layers.iter().copied().filter(|heads| !heads.is_empty()).collect();
    let is_single = layers.len() == 1 && layers[0].len() == 1;
    let longest = if is_single { LARGE } else { SMALL };
    let tiles: Vec<Vec<Image>> =
        layers.iter().map(|heads| heads.iter().map(|map| large(map, longest)).collect()).collect();
    let place = longest + GAP;
    let columns = layers.iter().map(|heads| heads.len()).max().unwrap_or(0);
    let whole = ImageShape::new(3, [GAP + layers.len() * place, GAP + columns * place]);
    Image::from_fn(whole, |channel, row, column| {
        let at = |pixel: usize| pixel.checked_sub(GAP).map(|pixel| (pixel / place, pixel % place));
        let (Some((layer, y)), Some((head, x))) = (at(row), at(column)) else { return 255 };
        let tile = tiles.get(layer).and_then(|heads| heads.get(head));
        let inside = tile.filter(|tile| y < tile.shape().height && x < tile.shape().width);
        inside.map_or(255, |tile| tile.at(channel, y, x))
    })
}

/// A map of about so many pixels on its longer side, a whole number for each weight where there is room.
fn large(map: &Map, longest: usize) -> Image {
    let pixels = pixels(map, Theme::Light);
    let [height, width] = map.shape();
    let most = height.max(width).max(1);
    if most > longest {
        return pixels.scaled_to(longest);
    }
    let scale = longest / most;
    let shape = ImageShape::new(3, [height * scale, width * scale]);
    Image::from_fn(shape, |channel, row, column| pixels.at(channel, row / scale, column / scale))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::AttentionKind;
    use crate::scale::LIGHT;

    fn tokens(count: usize) -> Vec<String> {
        vec!["t".to_string(); count]
    }

    #[test]
    fn a_weight_is_a_square_of_its_colour() {
        let map = Map::new(0, 0, [2, 2], vec![1.0, 0.0, 0.0, 1.0]);
        let found = picture(&[AttentionMaps::new(AttentionKind::SelfAttention, tokens(2), tokens(2), vec![vec![map]])]);
        assert_eq!(found.shape(), ImageShape::new(3, [524, 524]));
        let at = |row, column| [0, 1, 2].map(|channel| found.at(channel, row, column));
        assert_eq!([at(6, 6), at(6, 6 + 255), at(6, 6 + 256), at(517, 517)], [LIGHT[8], LIGHT[8], LIGHT[0], LIGHT[8]]);
        assert_eq!([at(5, 5), at(518, 6)], [[255; 3]; 2]);
    }

    #[test]
    fn layers_are_rows_and_heads_columns() {
        let heads = |layer| (0..3).map(|head| Map::new(layer, head, [1, 2], vec![0.5, 0.5])).collect();
        let layers = vec![heads(0), Vec::new(), heads(2)];
        let found = picture(&[AttentionMaps::new(AttentionKind::SelfAttention, tokens(1), tokens(2), layers)]);
        assert_eq!(found.shape().size(), [6 + 2 * 102, 6 + 3 * 102]);
    }

    #[test]
    fn a_model_of_images_shows_the_image_its_class_token_and_rollout() {
        let image = Image::new(ImageShape::new(1, [2, 4]), vec![200; 8]);
        let of = Picture { image, grid: [1, 2], first: 1, rollout: Some(vec![0.2, 0.4]) };
        let map = Map::new(0, 0, [3, 3], vec![0.0, 1.0, 0.0, 0.5, 0.5, 0.0, 0.5, 0.0, 0.5]);
        let maps = AttentionMaps::new(AttentionKind::SelfAttention, of.labels(), of.labels(), vec![vec![map]]);
        let found = picture(&[maps.with_picture(of)]);
        assert_eq!(found.shape().size(), [112, 3 * 224]);
        // The class token looks at the left patch, rollout more at the right one.
        let red = |column| found.at(0, 50, column);
        assert!(red(224 + 20) > red(448 - 20) && red(448 + 20) < red(672 - 20));
    }
}
