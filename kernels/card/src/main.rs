//! Checks the kernels of a CUDA card against the host's, bit by bit, and times them.
//!
//!     paceline-kernels-card IMAGE... [--check] [--time KINDS] [--rows ROWS] [--shapes NxK,...] [--variants IMAGE...]
//!     paceline-kernels-card IMAGE... --base
//!     paceline-kernels-card IMAGE... --sequences
//!     paceline-kernels-card IMAGE... --layers [--rows ROWS] [--parts]
//!
//! Images are compiled kernels (cubin or PTX); an entry is taken from the first that has it. `--time` takes names of
//! kinds with commas (Q4_K,Q6_K,Q8_0,F16), `--rows` numbers of rows. Each image after `--variants` is timed as well, for the
//! entries it has. `--base` checks and times everything but products, `--sequences` times attention, convolution and the delta
//! rule alone.

mod base_checks;
mod base_times;
mod bf16_checks;
mod checks;
mod driver;
mod layers;
mod samples;
mod times;

fn main() {
    let (mut images, mut variants, mut kinds, mut check, mut base, mut sequences) =
        (Vec::new(), Vec::new(), None, false, false, false);
    let (mut layers, mut parts) = (false, false);
    let mut arguments = std::env::args().skip(1);
    let mut rows = times::ROWS.to_vec();
    let mut shapes = times::SHAPES.to_vec();
    let mut to_variants = false;
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--check" => check = true,
            "--base" => base = true,
            "--sequences" => sequences = true,
            "--layers" => layers = true,
            "--parts" => parts = true,
            "--time" => kinds = arguments.next(),
            "--rows" => {
                let list = arguments.next().unwrap_or_default();
                rows = list
                    .split(',')
                    .filter_map(|count| count.parse().ok())
                    .filter(|&count| count <= times::MOST_ROWS)
                    .collect();
            }
            "--shapes" => {
                let list = arguments.next().unwrap_or_default();
                let shape =
                    |text: &str| text.split_once('x').map(|(n, k)| Some((n.parse().ok()?, k.parse().ok()?)));
                shapes = list.split(',').filter_map(|text| shape(text).flatten()).collect();
            }
            "--variants" => to_variants = true,
            _ if to_variants => variants.push(argument),
            _ => images.push(argument),
        }
    }
    if images.is_empty() {
        eprintln!(
            "usage: paceline-kernels-card IMAGE... [--base | --sequences] [--check] [--time KINDS] [--rows ROWS] \
             [--variants IMAGE...]"
        );
        std::process::exit(2);
    }
    let all: Vec<String> = images.iter().chain(&variants).cloned().collect();
    let mut card = driver::Card::open(&all);
    if layers {
        let rows: Vec<u32> = rows.iter().filter(|&&count| count <= 16).map(|&count| count as u32).collect();
        layers::run(&mut card, &rows, parts);
        return;
    }
    if sequences {
        base_times::sequences(&mut card);
        return;
    }
    if base {
        let is_right = base_checks::run_all(&card);
        base_times::run(&mut card);
        std::process::exit(i32::from(!is_right));
    }
    if check && !checks::run_all(&card) {
        std::process::exit(1);
    }
    if let Some(kinds) = kinds {
        times::run(&mut card, &kinds, &rows, &shapes, &variants);
    }
}
