//! The tile registers of Intel's processors since Sapphire Rapids.
//!
//! Rust's intrinsics for them are not stable, so they are written as assembly. Linux grants a process their use on demand: from
//! then on a signal saves 8 KiB more of a thread's state.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18 and volume 2, `TDPBF16PS`.

use super::Sums;
use super::panels::{PANEL, SIDE, Tile};
use std::arch::asm;
use std::arch::x86_64::{
    __m512i, _mm512_loadu_si512, _mm512_shuffle_i32x4, _mm512_storeu_si512, _mm512_unpackhi_epi32,
    _mm512_unpackhi_epi64, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
};
use std::sync::OnceLock;

/// Whether the processor has tile registers for `bf16`, and the system lets this process use them.
pub(crate) fn is_permitted() -> bool {
    static PERMITTED: OnceLock<bool> = OnceLock::new();
    *PERMITTED.get_or_init(|| has_tiles() && ask())
}

/// Leaf 7 of `CPUID`: bit 22 is AMX-BF16, bit 24 AMX-TILE. Vectors of 512 bits belong to it. Miri knows none of this.
pub(super) fn has_tiles() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    let both = 1 << 22 | 1 << 24;
    !cfg!(miri) && pulp::x86::V4::try_new().is_some() && __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & both == both
}

/// Asks Linux for the tile data: `arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)`.
fn ask() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const REQUEST: u64 = 0x1023;
    const TILE_DATA: u64 = 18;
    let status: i64;
    // SAFETY: the call changes nothing but what registers this process may use. An older kernel answers with an error.
    unsafe {
        asm!("syscall", inlateout("rax") ARCH_PRCTL => status, in("rdi") REQUEST, in("rsi") TILE_DATA,
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    status == 0
}

/// What `LDTILECFG` reads: palette 1, and the shape of each register.
#[repr(C, align(64))]
struct Shapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// All eight registers are 16 rows of 64 bytes.
static SHAPES: Shapes = Shapes {
    palette: 1,
    start_row: 0,
    reserved: [0; 14],
    row_bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
    rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
};

/// Runs `work` with this thread's tile registers set up, and clears them afterwards, so that the system need not save them.
///
/// # Panics
/// If they are not permitted.
pub(super) fn with_tiles(work: impl FnOnce()) {
    struct Release;
    impl Drop for Release {
        fn drop(&mut self) {
            // SAFETY: the registers are permitted, or this would not have been made.
            unsafe { asm!("tilerelease", options(nostack, nomem)) };
        }
    }
    assert!(is_permitted(), "tile registers that this processor does not have");
    // SAFETY: the registers are permitted, and the configuration is as the manual describes it.
    unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const SHAPES, options(nostack, readonly)) };
    let _release = Release;
    work();
}

/// Sums of a block, from zero.
///
/// # Safety
/// Only within [`with_tiles`].
///
/// # Panics
/// If the panels differ in length.
pub(super) unsafe fn multiply(sums: &mut Sums, left: &[[Tile; 2]], right: &[[Tile; 2]]) {
    assert!(left.len() == right.len() && !left.is_empty(), "panels of one length");
    let first = sums.0.as_mut_ptr();
    // SAFETY: each pass of the loop reads one pair of tiles of either panel, of which there are as many as passes; the four
    // stores write the four quarters of the sums. The registers are set up by `with_tiles`.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "2:",
            "tileloadd tmm4, [{left} + {row}]",
            "tileloadd tmm6, [{right} + {row}]",
            "tileloadd tmm7, [{right} + {row} + 1024]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm5, [{left} + {row} + 1024]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {left}, 2048",
            "add {right}, 2048",
            "dec {steps}",
            "jnz 2b",
            "tilestored [{upper} + {stride}], tmm0",
            "tilestored [{upper} + {stride} + 64], tmm1",
            "tilestored [{lower} + {stride}], tmm2",
            "tilestored [{lower} + {stride} + 64], tmm3",
            left = inout(reg) left.as_ptr() => _,
            right = inout(reg) right.as_ptr() => _,
            steps = inout(reg) left.len() => _,
            upper = in(reg) first,
            lower = in(reg) first.add(SIDE),
            row = in(reg) 64usize,
            stride = in(reg) 4 * PANEL,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack)
        );
    }
}

/// The same of panels in parts: two tiles of high parts and two of low ones for every 32 terms.
///
/// # Safety
/// Only within [`with_tiles`].
///
/// # Panics
/// If the panels differ in length, or lack a part.
pub(super) unsafe fn multiply_parts(sums: &mut Sums, left: &[[Tile; 2]], right: &[[Tile; 2]]) {
    let is_whole = left.len() == right.len() && !left.is_empty() && left.len().is_multiple_of(2);
    assert!(is_whole, "panels of one length, with both parts of each");
    let first = sums.0.as_mut_ptr();
    // SAFETY: each pass of the loop reads two pairs of tiles of either panel, of which there are twice as many as passes; the four
    // stores write the four quarters of the sums. The registers are set up by `with_tiles`.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "2:",
            // High with high.
            "tileloadd tmm4, [{left} + {row}]",
            "tileloadd tmm6, [{right} + {row}]",
            "tileloadd tmm7, [{right} + {row} + 1024]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm5, [{left} + {row} + 1024]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            // High with low.
            "tileloadd tmm6, [{right} + {row} + 2048]",
            "tileloadd tmm7, [{right} + {row} + 3072]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            // Low with high.
            "tileloadd tmm4, [{left} + {row} + 2048]",
            "tileloadd tmm6, [{right} + {row}]",
            "tileloadd tmm7, [{right} + {row} + 1024]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm5, [{left} + {row} + 3072]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {left}, 4096",
            "add {right}, 4096",
            "dec {steps}",
            "jnz 2b",
            "tilestored [{upper} + {stride}], tmm0",
            "tilestored [{upper} + {stride} + 64], tmm1",
            "tilestored [{lower} + {stride}], tmm2",
            "tilestored [{lower} + {stride} + 64], tmm3",
            left = inout(reg) left.as_ptr() => _,
            right = inout(reg) right.as_ptr() => _,
            steps = inout(reg) left.len() / 2 => _,
            upper = in(reg) first,
            lower = in(reg) first.add(SIDE),
            row = in(reg) 64usize,
            stride = in(reg) 4 * PANEL,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack)
        );
    }
}

/// The same of a left panel in parts and a right one of `bf16`: each pair of right tiles meets two of left ones, high and low.
///
/// # Safety
/// Only within [`with_tiles`].
///
/// # Panics
/// If the left panel is not twice as long as the right one.
pub(super) unsafe fn multiply_left_parts(sums: &mut Sums, left: &[[Tile; 2]], right: &[[Tile; 2]]) {
    assert!(left.len() == 2 * right.len() && !right.is_empty(), "panels of one length, the left one with both parts");
    let first = sums.0.as_mut_ptr();
    // SAFETY: each pass of the loop reads one pair of tiles of the right panel and two of the left one, which has twice as many; the
    // four stores write the four quarters of the sums. The registers are set up by `with_tiles`.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "2:",
            "tileloadd tmm6, [{right} + {row}]",
            "tileloadd tmm7, [{right} + {row} + 1024]",
            // High parts.
            "tileloadd tmm4, [{left} + {row}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm5, [{left} + {row} + 1024]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            // Low ones.
            "tileloadd tmm4, [{left} + {row} + 2048]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm5, [{left} + {row} + 3072]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {left}, 4096",
            "add {right}, 2048",
            "dec {steps}",
            "jnz 2b",
            "tilestored [{upper} + {stride}], tmm0",
            "tilestored [{upper} + {stride} + 64], tmm1",
            "tilestored [{lower} + {stride}], tmm2",
            "tilestored [{lower} + {stride} + 64], tmm3",
            left = inout(reg) left.as_ptr() => _,
            right = inout(reg) right.as_ptr() => _,
            steps = inout(reg) right.len() => _,
            upper = in(reg) first,
            lower = in(reg) first.add(SIDE),
            row = in(reg) 64usize,
            stride = in(reg) 4 * PANEL,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack)
        );
    }
}

/// Exchanges rows and columns of pairs.
pub(super) fn transpose(tile: &mut Tile) {
    assert!(is_permitted(), "vector units that this processor does not have");
    // SAFETY: where tile registers are permitted there are vectors of 512 bits, see `is_permitted`.
    unsafe { transpose_by_vectors(tile) };
}

#[target_feature(enable = "avx512f")]
fn transpose_by_vectors(tile: &mut Tile) {
    let first = tile.0.as_mut_ptr();
    // SAFETY: a row of a tile is 64 bytes, and there are 16.
    let rows: [__m512i; SIDE] = std::array::from_fn(|i| unsafe { _mm512_loadu_si512(first.add(i).cast()) });
    let mut pairs = rows;
    for i in (0..SIDE).step_by(2) {
        pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    let mut fours = pairs; // Lane `l` of row `4 g + j` holds column `4 l + j` of rows `4 g` to `4 g + 3`.
    for i in (0..SIDE).step_by(4) {
        fours[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
        fours[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
        fours[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
        fours[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
    }
    for j in 0..4 {
        let [upper, lower] = [0, 8].map(|i| _mm512_shuffle_i32x4::<0x88>(fours[i + j], fours[i + j + 4]));
        let [upper_odd, lower_odd] = [0, 8].map(|i| _mm512_shuffle_i32x4::<0xdd>(fours[i + j], fours[i + j + 4]));
        let columns = [
            _mm512_shuffle_i32x4::<0x88>(upper, lower),
            _mm512_shuffle_i32x4::<0x88>(upper_odd, lower_odd),
            _mm512_shuffle_i32x4::<0xdd>(upper, lower),
            _mm512_shuffle_i32x4::<0xdd>(upper_odd, lower_odd),
        ];
        for (lane, column) in columns.into_iter().enumerate() {
            // SAFETY: as above.
            unsafe { _mm512_storeu_si512(first.add(4 * lane + j).cast(), column) };
        }
    }
}
