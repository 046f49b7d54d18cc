//! What the rows of a parameter hold.

use crate::block::ParameterBlock;
use crate::random::Random;
use paceline_plugin_api::graph::Graph;
use paceline_plugin_api::graph::noise::Noise;

/// Content of a parameter, row by row.
#[derive(Clone, Copy, Debug)]
pub enum Content {
    /// Bell-shaped numbers of this deviation.
    Bell(f32),
    /// Numbers of one range.
    Between(f32, f32),
    /// Bell-shaped numbers whose size changes from row to row by powers of ten; some rows are zero.
    Magnitudes,
    /// Few different numbers, so that many are equal.
    Ties,
    /// As [`Content::Ties`], with a NaN in some rows and infinities in others.
    TiesAndNan,
    /// An index below a bound.
    Index(u32),
    /// An index below a bound, or out of range in some rows.
    IndexOrFault(u32),
    /// What a row of logits is drawn with: some take the largest, some have a low floor.
    Noise,
    /// A position from 0 up to below a bound: the row's own in even rows, any in odd ones.
    Position(u32),
}

impl Content {
    /// Fills row `row` of the parameter `name`. `number` is what makes the row different from others: its index, or its
    /// position in a sequence.
    pub fn fill_row(
        self,
        block: &mut ParameterBlock<'_>,
        graph: &Graph,
        name: &str,
        row: u32,
        number: u64,
        random: &mut Random,
    ) {
        let id = graph.parameter(name).expect("contents name parameters of the graph");
        let elements = graph.value(id).shape.row_elements() as usize;
        let at = row as usize * elements;
        let index = |value: i32, block: &mut ParameterBlock<'_>| {
            block.set_integers_at(name, at, &vec![value; elements]);
        };
        match self {
            Self::Index(bound) => index(random.below(bound) as i32, block),
            Self::IndexOrFault(bound) => {
                let faults = [-1, bound as i32, i32::MAX, i32::MIN];
                let id = match number % 4 {
                    2 => faults[(number / 4 % 4) as usize],
                    _ => random.below(bound) as i32,
                };
                index(id, block);
            }
            Self::Position(bound) => {
                let any = random.below(bound);
                index(if number.is_multiple_of(2) { number as i32 } else { any as i32 }, block);
            }
            Self::Noise => {
                let key = u64::from(random.below(u32::MAX)) << 32 | u64::from(random.below(u32::MAX));
                let factor = [1.0, 1.0 / 0.7, 0.5, 0.0, 3.0, f32::INFINITY][number as usize % 6];
                let floor = [16.0, 2.0, 0.0][number as usize / 6 % 3];
                block.set_integers_at(name, at, &Noise { key, factor, floor }.to_row());
            }
            _ => {
                block.set_floats(name, at, &self.floats(elements, number, random));
            }
        }
    }

    fn floats(self, elements: usize, number: u64, random: &mut Random) -> Vec<f32> {
        match self {
            Self::Bell(deviation) => random.floats(elements, deviation),
            Self::Between(low, high) => (0..elements).map(|_| random.between(low, high)).collect(),
            Self::Magnitudes if number % 7 == 6 => vec![0.0; elements],
            Self::Magnitudes => random.floats(elements, 10f32.powi((number % 5) as i32 - 2)),
            Self::Ties | Self::TiesAndNan => {
                let mut row: Vec<f32> = (0..elements).map(|_| random.below(9) as f32 - 6.0).collect();
                let place = random.below(elements as u32) as usize;
                match (self, number % 4) {
                    (Self::TiesAndNan, 1) => row[place] = f32::NAN,
                    (Self::TiesAndNan, 2) => row[place] = f32::INFINITY,
                    (Self::TiesAndNan, 3) => row.fill(f32::NEG_INFINITY),
                    _ => {}
                }
                row
            }
            _ => vec![0.0; elements],
        }
    }
}
