//! Values that the kernels for AMD are compiled with, for each chip. None of them changes a bit of what is computed.
//!
//! No AMD GPU was there to measure on: the values follow from registers and shared memory alone, which
//! `images/hip.resources.md` lists, and can be changed where the kernels are compiled at run time.

/// Values for one chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Lanes of a wave.
    pub wave: u32,
    /// Tiles of 8 rows that a group of the wide products works on at once: 1, 2, 4 or 8.
    ///
    /// A group has 256 threads and 4 KiB of shared memory for each tile, a compute unit of gfx9 64 KiB, two of newer chips
    /// together 128 KiB. Eight tiles let two groups into a compute unit of gfx9, that is two waves for each of its four
    /// units of 16 lanes, too few to hide what a load takes; four tiles let four groups in. Newer chips have eight waves
    /// of 32 lanes for each unit with eight tiles, and unpack weights half as often.
    pub wide_tiles: u32,
    /// Inputs of a channel that a convolution asks for at once: 1 to 16.
    pub conv_rows: u32,
}

impl Tuning {
    /// The values for a chip, such as `gfx1101`.
    ///
    /// Chips up to gfx9 have waves of 64 lanes alone. Products with bf16 weights are in f32 on all chips, whether they
    /// have units for bf16 or not: those would add in an order of their own.
    pub fn of(target: &str) -> Self {
        match target.strip_prefix("gfx9") {
            Some(_) => Self { wave: 64, wide_tiles: 4, conv_rows: 8 },
            None => Self { wave: 32, wide_tiles: 8, conv_rows: 8 },
        }
    }

    /// The values for a chip, changed as a text says: `wide_tiles=2 conv_rows=4`.
    ///
    /// # Errors
    /// A word that is not understood, by itself.
    pub fn read(target: &str, text: &str) -> Result<Self, String> {
        let mut tuning = Self::of(target);
        for word in text.split_whitespace() {
            let wrong = || {
                format!(
                    "`{word}` is no tuning value: there are `wide_tiles=` 1, 2, 4 or 8, and `conv_rows=` 1 to 16"
                )
            };
            let (key, value) = word.split_once('=').ok_or_else(wrong)?;
            let value: u32 = value.parse().map_err(|_| wrong())?;
            match key {
                "wide_tiles" if [1, 2, 4, 8].contains(&value) => tuning.wide_tiles = value,
                "conv_rows" if (1..=16).contains(&value) => tuning.conv_rows = value,
                _ => return Err(wrong()),
            }
        }
        Ok(tuning)
    }

    /// What tells a compiler.
    pub fn defines(&self) -> Vec<String> {
        let Self { wave, wide_tiles, conv_rows } = self;
        vec![
            format!("-DKN_WAVE={wave}"),
            format!("-DKN_WIDE_TILES={wide_tiles}u"),
            format!("-DKN_CONV_ROWS={conv_rows}u"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::Tuning;

    #[test]
    fn values_are_read_over_those_of_the_chip() {
        let own = Tuning::of("gfx906");
        assert_eq!(Tuning::read("gfx906", ""), Ok(own));
        assert_eq!(Tuning::read("gfx906", " wide_tiles=2 "), Ok(Tuning { wide_tiles: 2, ..own }));
        assert_eq!(Tuning::read("gfx1101", "conv_rows=4").map(|it| (it.wave, it.conv_rows)), Ok((32, 4)));
        for wrong in ["wide_tiles", "wide_tiles=3", "conv_rows=0", "conv_rows=17", "wave=64", "conv_rows=x"] {
            assert!(Tuning::read("gfx906", wrong).unwrap_err().contains(wrong), "{wrong}");
        }
        assert_eq!(own.defines(), ["-DKN_WAVE=64", "-DKN_WIDE_TILES=4u", "-DKN_CONV_ROWS=8u"]);
    }
}
