//! Plots of a report as SVG, to stand in a page of HTML. Colours are classes, so that the page's style decides on them.

use std::fmt::Write;

use super::model::VerifyCost;
use super::summary::{ALL_KINDS, Summary};

/// Classes of colours, `s0` and on; more arms than these share them.
pub const COLOURS: usize = 8;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 300.0;
/// Room for what stands beside the axes.
const LEFT: f64 = 52.0;
const BOTTOM: f64 = 44.0;
const TOP: f64 = 14.0;
const RIGHT: f64 = 12.0;
/// Room for a number below an axis.
const LABEL_ROOM: f64 = 24.0;

/// Text in HTML and SVG, also within attributes.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // Control characters are not allowed in a page, however they are written.
            steers if steers.is_control() => escaped.extend(steers.escape_debug()),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Bars of the speed-up of each arm, in groups of a kind; `None` if there is no speed-up.
pub fn speed_up(summaries: &[&Summary], arms: &[String]) -> Option<String> {
    let with_speed_up: Vec<&&Summary> = summaries.iter().filter(|it| it.speed_up.is_some()).collect();
    let mut kinds: Vec<&str> = Vec::new();
    with_speed_up.iter().for_each(|it| {
        if !kinds.contains(&it.kind.as_str()) {
            kinds.push(&it.kind)
        }
    });
    let most = with_speed_up
        .iter()
        .filter_map(|it| it.speed_up)
        .map(|it| it.interval.map_or(it.median, |interval| interval.high.max(it.median)))
        .fold(1.0, f64::max);
    if kinds.is_empty() {
        return None;
    }
    let mut plot = Plot::new("Speed-up by kind of prompt", 0.0..most * 1.05);
    plot.value_axis("times as fast");
    let group = plot.inner_width() / kinds.len() as f64;
    let bars = arms.len().saturating_sub(1).max(1) as f64;
    let bar = (group * 0.8 / bars).min(56.0);
    for (index, kind) in kinds.iter().enumerate() {
        let middle = LEFT + group * (index as f64 + 0.5);
        plot.label(middle, kind);
        for summary in with_speed_up.iter().filter(|it| it.kind == *kind) {
            let (Some(estimate), Some(arm)) =
                (summary.speed_up, arms.iter().position(|it| *it == summary.arm))
            else {
                continue;
            };
            let x = middle + ((arm as f64 - 1.0) - bars / 2.0) * bar;
            let tip = format!("{}, {kind}: {:.2}", summary.arm, estimate.median);
            plot.bar(x + 1.0, bar - 2.0, estimate.median, arm, &tip);
            if let Some(interval) = estimate.interval {
                plot.whisker(x + bar / 2.0, interval.low, interval.high);
            }
        }
    }
    plot.line_at(1.0);
    Some(plot.finish())
}

/// Lines of the acceptance of each arm by the place of a guess; `None` without guesses.
pub fn positions(summaries: &[&Summary], arms: &[String]) -> Option<String> {
    // Those of all kinds together, or of the only kind.
    let drawn: Vec<&&Summary> = {
        let all: Vec<&&Summary> = summaries.iter().filter(|it| it.kind == ALL_KINDS).collect();
        if all.is_empty() { summaries.iter().collect() } else { all }
    };
    let deepest = drawn.iter().map(|it| it.positions.len()).max().filter(|deepest| *deepest > 0)?;
    let mut plot = Plot::new("Acceptance by position", 0.0..1.0);
    plot.value_axis("accepted");
    let step = plot.inner_width() / deepest as f64;
    let x = |place: usize| LEFT + step * (place as f64 + 0.5);
    plot.place_axis("position in the draft");
    let every = (LABEL_ROOM / step).ceil().max(1.0) as usize;
    (0..deepest).step_by(every).for_each(|place| plot.label(x(place), &(place + 1).to_string()));
    for summary in drawn {
        let Some(arm) = arms.iter().position(|it| *it == summary.arm) else { continue };
        let points: Vec<Point> = summary
            .positions
            .iter()
            .enumerate()
            .filter_map(|(place, share)| {
                let share = (*share)?;
                let tip = format!("{}, position {}: {:.1} %", summary.arm, place + 1, share.rate * 100.0);
                Some(Point { x: x(place), value: share.rate, tip })
            })
            .collect();
        plot.line(&points, arm);
    }
    Some(plot.finish())
}

/// The cost of verifying by the number of rows, with a line at that of one; `None` if it was not measured.
pub fn verify_cost(costs: &[VerifyCost]) -> Option<String> {
    let costs: Vec<&VerifyCost> = costs.iter().filter(|cost| cost.ratio.is_finite()).collect();
    let most_rows = costs.iter().map(|cost| cost.rows).max().filter(|rows| *rows > 1)?;
    let most = costs.iter().map(|cost| cost.ratio).fold(1.0, f64::max);
    let mut plot = Plot::new("Cost of verifying by rows", 0.0..most * 1.05);
    plot.value_axis("times one row");
    let step = plot.inner_width() / f64::from(most_rows);
    let x = |rows: u32| LEFT + step * (f64::from(rows) - 0.5);
    plot.place_axis("rows");
    let mut free_from = 0.0;
    for cost in &costs {
        // Labels would overlap.
        if x(cost.rows) >= free_from {
            plot.label(x(cost.rows), &cost.rows.to_string());
            free_from = x(cost.rows) + LABEL_ROOM;
        }
    }
    let points: Vec<Point> = costs
        .iter()
        .map(|cost| Point {
            x: x(cost.rows),
            value: cost.ratio,
            tip: format!("{} rows: {:.2} times one row", cost.rows, cost.ratio),
        })
        .collect();
    plot.line(&points, 0);
    plot.line_at(1.0);
    Some(plot.finish())
}

/// A point of a line.
struct Point {
    x: f64,
    value: f64,
    tip: String,
}

/// A plot under construction, with a value axis at the left.
struct Plot {
    svg: String,
    range: std::ops::Range<f64>,
}

impl Plot {
    fn new(title: &str, range: std::ops::Range<f64>) -> Self {
        let mut plot = Self { svg: String::new(), range };
        plot.add(format_args!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
            escaped(title)
        ));
        plot
    }

    fn inner_width(&self) -> f64 {
        WIDTH - LEFT - RIGHT
    }

    fn y(&self, value: f64) -> f64 {
        let share = (value - self.range.start) / (self.range.end - self.range.start);
        HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - BOTTOM - TOP)
    }

    /// Writing to a string does not fail.
    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.svg, "{element}");
    }

    fn value_axis(&mut self, name: &str) {
        let step = step(self.range.end - self.range.start);
        let ticks = ((self.range.end - self.range.start) / step + 1e-9) as u32;
        for tick in 0..=ticks {
            let value = self.range.start + f64::from(tick) * step;
            let y = self.y(value);
            let decimals = if step < 0.1 { 2 } else { usize::from(step < 1.0) };
            self.add(format_args!(
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>",
                WIDTH - RIGHT
            ));
            self.add(format_args!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value:.decimals$}</text>",
                LEFT - 6.0,
                y + 4.0
            ));
        }
        let middle = (HEIGHT - BOTTOM + TOP) / 2.0;
        self.add(format_args!(
            "<text x=\"12\" y=\"{middle:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 12 {middle:.1})\">{}</text>",
            escaped(name)
        ));
    }

    fn place_axis(&mut self, name: &str) {
        let (middle, y) = (LEFT + self.inner_width() / 2.0, HEIGHT - 6.0);
        self.add(format_args!(
            "<text x=\"{middle:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>",
            escaped(name)
        ));
    }

    fn label(&mut self, x: f64, text: &str) {
        self.add(format_args!(
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            HEIGHT - BOTTOM + 18.0,
            escaped(text)
        ));
    }

    fn bar(&mut self, x: f64, width: f64, value: f64, colour: usize, tip: &str) {
        let (y, bottom) = (self.y(value), self.y(self.range.start));
        self.add(format_args!(
            "<rect class=\"s{}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\"><title>{}</title></rect>",
            colour % COLOURS,
            bottom - y,
            escaped(tip)
        ));
    }

    fn whisker(&mut self, x: f64, low: f64, high: f64) {
        let (low, high) = (self.y(low), self.y(high));
        self.add(format_args!(
            "<path class=\"whisker\" d=\"M{x:.1} {low:.1}V{high:.1}M{:.1} {high:.1}h8M{:.1} {low:.1}h8\"/>",
            x - 4.0,
            x - 4.0
        ));
    }

    fn line_at(&mut self, value: f64) {
        let y = self.y(value);
        self.add(format_args!(
            "<line class=\"one\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>",
            WIDTH - RIGHT
        ));
    }

    fn line(&mut self, points: &[Point], colour: usize) {
        let colour = colour % COLOURS;
        let path: Vec<String> =
            points.iter().map(|point| format!("{:.1},{:.1}", point.x, self.y(point.value))).collect();
        if path.is_empty() {
            return;
        }
        self.add(format_args!("<polyline class=\"l{colour}\" points=\"{}\"/>", path.join(" ")));
        for point in points {
            let y = self.y(point.value);
            self.add(format_args!(
                "<circle class=\"s{colour}\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{}</title></circle>",
                point.x,
                escaped(&point.tip)
            ));
        }
    }

    fn finish(mut self) -> String {
        self.svg.push_str("</svg>\n");
        self.svg
    }
}

/// A step of 1, 2 or 5 times a power of ten, of which about five make the span.
fn step(span: f64) -> f64 {
    let rough = span / 5.0;
    let power = 10_f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= rough * 0.999);
    factor.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::super::summary::summaries;
    use super::*;

    #[test]
    fn steps_are_round() {
        let steps = [1.0, 2.1, 3.0, 12.0, 0.4].map(|span| (step(span) * 100.0).round());
        assert_eq!(steps, [20.0, 50.0, 100.0, 500.0, 10.0]);
    }

    #[test]
    fn nothing_measured_is_nothing_drawn() {
        let mut report = super::super::example::report();
        report.runs.retain(|run| run.arm == "none");
        let summaries = summaries(&report);
        let summaries: Vec<&Summary> = summaries.iter().collect();
        assert_eq!(speed_up(&summaries, &report.arms), None);
        assert_eq!(positions(&summaries, &report.arms), None);
        assert_eq!(verify_cost(&[]), None);
        assert_eq!(verify_cost(&VerifyCost::table(&[(1, 1.0)])), None);
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(escaped("<a href=\"x\">&'\u{1b}"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;\\u{1b}");
    }
}
