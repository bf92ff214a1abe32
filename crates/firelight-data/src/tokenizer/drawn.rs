//! Hard strings that tests and the scripts in `tests/fixtures` put together alike, so that hashes stand for what is made of them.

/// The upper halves of a linear congruential generator's numbers (Knuth's MMIX).
fn draws(seed: usize) -> impl Iterator<Item = usize> {
    let mut state = seed as u64;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    })
}

/// One to five pieces, each with a joint behind it.
pub(super) fn string(number: usize, pieces: &[String], joints: &[String]) -> String {
    let mut numbers = draws(number);
    let mut next = |below: usize| numbers.next().expect("no end") % below;
    let parts = next(5) + 1;
    let part = |_| [&*pieces[next(pieces.len())], &*joints[next(joints.len())]].concat();
    (0..parts).map(part).collect()
}

/// FNV-1a.
pub(super) fn digest(bytes: &[u8]) -> u32 {
    bytes.iter().fold(2_166_136_261, |found, &byte| (found ^ u32::from(byte)).wrapping_mul(16_777_619))
}
