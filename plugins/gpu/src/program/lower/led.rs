//! From items to steps: which launches run beside each other, and which products make their rows themselves.

use super::{Item, Lowering};
use crate::program::{KernelStep, Leads, Step};
use paceline_kernels::layout::WeightKind;
use paceline_kernels::params::Parameters;
use paceline_kernels::params::experts::ExpertsNorm;
use paceline_kernels::params::led::{LedLinear, Maker};
use paceline_kernels::params::linear::{Linear, ORDER_BESIDE, ORDER_FIRST};

fn step_of(maker: &Maker) -> KernelStep {
    match maker {
        Maker::Norm(p) => KernelStep::new(p),
        Maker::ItemsNorm(p) => KernelStep::new(p),
        Maker::Join(p) => KernelStep::new(p),
        Maker::Glu(p) => KernelStep::new(p),
    }
}

impl Lowering<'_> {
    /// What makes quantised rows.
    pub(super) fn push_maker(&mut self, maker: Maker) {
        self.check_launch(&step_of(&maker).launch);
        self.items.push(Item::Maker(maker));
    }

    /// Lets neighbours that read the same quantised activations run beside each other, where launches overlap.
    pub(super) fn pair_products(&mut self) {
        let is_quantized =
            |p: &Linear| WeightKind::from_gguf_id(p.segment0.kind).is_some_and(WeightKind::is_quantized);
        for at in 1..self.items.len() {
            let [Item::Product(first), Item::Product(second)] = &mut self.items[at - 1..=at] else {
                continue;
            };
            if first.x == second.x && first.live == second.live && is_quantized(first) && is_quantized(second)
            {
                first.order |= ORDER_FIRST;
                second.order |= ORDER_BESIDE;
            }
        }
    }

    /// The items as launches. Where the target has kernels for it, a product of few rows has another form that makes its
    /// rows itself; which one runs is decided when the program is loaded.
    pub(super) fn steps(&mut self) -> Vec<Step> {
        let items = std::mem::take(&mut self.items);
        let mut steps = Vec::with_capacity(items.len());
        // The last product that makes its rows, and the kind of its makers.
        let mut first: Option<(LedLinear, Leads)> = None;
        let mut items = items.into_iter().peekable();
        while let Some(item) = items.next() {
            let before = first.take();
            match item {
                Item::Step(step) => steps.push(step),
                Item::Combine(combine) => {
                    let with_norm = match items.peek() {
                        Some(&Item::Maker(Maker::Norm(norm))) => Some(ExpertsNorm { combine, norm }),
                        _ => None,
                    };
                    steps.push(Step::Kernel(match with_norm.filter(|both| self.fits_norm(both)) {
                        Some(both) => {
                            items.next();
                            KernelStep::new(&both)
                        }
                        None => KernelStep::new(&combine),
                    }));
                }
                Item::Maker(maker) => {
                    let apart = step_of(&maker);
                    let found = match items.peek() {
                        Some(Item::Product(product)) => self.led(maker, *product),
                        _ => None,
                    };
                    let (Some(led), Some(Item::Product(product))) = (found, found.and_then(|_| items.next()))
                    else {
                        steps.push(Step::Kernel(apart));
                        continue;
                    };
                    let leads = Leads::of(&maker);
                    first = Some((led, leads));
                    let apart = vec![apart, KernelStep::new(&product)];
                    steps.push(Step::Led { leads, apart, together: KernelStep::new(&led) });
                }
                Item::Product(product) => {
                    let apart = KernelStep::new(&product);
                    let Some((led, leads)) = before.filter(|_| product.order & ORDER_BESIDE != 0) else {
                        steps.push(Step::Kernel(apart));
                        continue;
                    };
                    // It runs beside one that makes its rows, so it has to know when they are there.
                    first = before;
                    let together = KernelStep::new(&LedLinear::beside(&led, product));
                    steps.push(Step::Led { leads, apart: vec![apart], together });
                }
            }
        }
        steps
    }

    /// The product with what makes its rows, if there is such a kernel.
    fn led(&mut self, maker: Maker, product: Linear) -> Option<LedLinear> {
        if product.x != maker.quantized() || !maker.fits() || !LedLinear::fits(&product) {
            return None;
        }
        let led = LedLinear::new(product, maker, 0);
        self.is_there(&led).then(|| LedLinear { ready: self.new_counter().address(), ..led })
    }

    fn is_there(&self, led: &LedLinear) -> bool {
        (self.has_kernel)(led.launch().entry)
    }
}
