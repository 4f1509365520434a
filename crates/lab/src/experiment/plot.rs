//! Charts of what experiments found, as SVG.

use std::path::Path;

use anyhow::{Context as _, anyhow, ensure};
use plotters::coord::Shift;
use plotters::prelude::*;

const WIDTH: u32 = 760;
const BAR_HEIGHT: u32 = 26;
const PANEL_HEIGHT: u32 = 260;
const BLUE: RGBColor = RGBColor(0x48, 0x78, 0xa8);

/// A figure that changes with another.
pub(super) struct Line {
    /// What it is, with its unit.
    pub(super) name: String,
    /// In the order of the first.
    pub(super) points: Vec<(f64, f64)>,
}

/// Writes a chart of named figures, a bar each, the first one at the top.
pub(super) fn bars(path: &Path, title: &str, figures: &[(String, f64)]) -> anyhow::Result<()> {
    ensure!(!figures.is_empty(), "there is nothing to draw");
    let count = figures.len();
    let root = SVGBackend::new(path, (WIDTH, BAR_HEIGHT * (count as u32 + 4))).into_drawing_area();
    let largest = figures.iter().map(|(_, figure)| *figure).fold(1e-9, f64::max);
    let label = |place: &i32| {
        let name = usize::try_from(*place).ok().and_then(|place| figures.get(count.checked_sub(place + 1)?));
        name.map(|(name, figure)| format!("{name}: {figure:.0}")).unwrap_or_default()
    };
    let drawn = || -> Result<(), DrawingError<SVGBackend<'_>>> {
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(title, ("sans-serif", 16))
            .margin(8)
            .x_label_area_size(24)
            .y_label_area_size(300)
            .build_cartesian_2d(0.0..largest * 1.02, (0..(count as i32 - 1).max(1)).into_segmented())?;
        let rows = |place: &SegmentValue<i32>| match place {
            SegmentValue::CenterOf(place) => label(place),
            SegmentValue::Exact(_) | SegmentValue::Last => String::new(),
        };
        chart.configure_mesh().disable_y_mesh().y_labels(count).y_label_formatter(&rows).draw()?;
        chart.draw_series(figures.iter().rev().zip(0..).map(|((_, figure), place)| {
            let mut bar = Rectangle::new(
                [(0.0, SegmentValue::Exact(place)), (*figure, SegmentValue::Exact(place + 1))],
                BLUE.filled(),
            );
            bar.set_margin(4, 4, 0, 0);
            bar
        }))?;
        root.present()
    };
    drawn().map_err(|error| anyhow!("{error}")).with_context(|| format!("cannot draw {}", path.display()))
}

/// Writes a chart with a panel for each figure, all over the same range, which is drawn by its powers.
pub(super) fn lines(path: &Path, title: &str, over: &str, lines: &[Line]) -> anyhow::Result<()> {
    let root = SVGBackend::new(path, (WIDTH, PANEL_HEIGHT * lines.len() as u32 + 30)).into_drawing_area();
    let drawn = || -> Result<(), DrawingError<SVGBackend<'_>>> {
        root.fill(&WHITE)?;
        let inner = root.titled(title, ("sans-serif", 18))?;
        for (panel, line) in inner.split_evenly((lines.len(), 1)).iter().zip(lines) {
            draw_line(panel, over, line)?;
        }
        root.present()
    };
    drawn().map_err(|error| anyhow!("{error}")).with_context(|| format!("cannot draw {}", path.display()))
}

/// Writes one chart with all lines in it, over the same range.
pub(super) fn together(path: &Path, title: &str, over: &str, lines: &[Line]) -> anyhow::Result<()> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let (right, top) = points().fold((1e-9, 1e-9), |(x, y), point| (point.0.max(x), point.1.max(y)));
    let root = SVGBackend::new(path, (WIDTH, 2 * PANEL_HEIGHT)).into_drawing_area();
    let drawn = || -> Result<(), DrawingError<SVGBackend<'_>>> {
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(title, ("sans-serif", 16))
            .margin(10)
            .x_label_area_size(30)
            .y_label_area_size(50)
            .build_cartesian_2d(0.0..right, 0.0..top)?;
        chart.configure_mesh().x_desc(over).max_light_lines(0).draw()?;
        for (number, line) in lines.iter().enumerate() {
            let colour = Palette99::pick(number).stroke_width(2);
            let drawn = chart.draw_series(LineSeries::new(line.points.iter().copied(), colour))?;
            drawn.label(&line.name).legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
        }
        let legend = SeriesLabelPosition::LowerRight;
        chart.configure_series_labels().position(legend).background_style(WHITE.mix(0.8)).draw()?;
        root.present()
    };
    drawn().map_err(|error| anyhow!("{error}")).with_context(|| format!("cannot draw {}", path.display()))
}

type DrawingError<Backend> = DrawingAreaErrorKind<<Backend as DrawingBackend>::ErrorType>;

fn draw_line<'a>(
    panel: &DrawingArea<SVGBackend<'a>, Shift>,
    over: &str,
    line: &Line,
) -> Result<(), DrawingError<SVGBackend<'a>>> {
    let first = line.points.first().map_or(1.0, |point| point.0).max(1.0);
    let last = line.points.last().map_or(10.0, |point| point.0).max(first * 1.01);
    let highest = line.points.iter().map(|point| point.1).fold(1e-9, f64::max);
    let mut chart = ChartBuilder::on(panel)
        .caption(&line.name, ("sans-serif", 14))
        .margin(10)
        .margin_right(50)
        .x_label_area_size(30)
        .y_label_area_size(60)
        .build_cartesian_2d((first..last).log_scale(), 0.0..highest * 1.05)?;
    chart
        .configure_mesh()
        .x_desc(over)
        .max_light_lines(0)
        .x_label_formatter(&|at| format!("{at:.0}"))
        .draw()?;
    chart.draw_series(LineSeries::new(line.points.iter().copied(), BLUE.stroke_width(2)))?;
    chart.draw_series(line.points.iter().map(|point| Circle::new(*point, 3, BLUE.filled())))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_say_what_they_show() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("chart.svg");
        bars(&path, "a < b", &[("one".to_owned(), 5_000.0), ("two & more".to_owned(), 10_000.0)]).unwrap();
        let drawn = std::fs::read_to_string(&path).unwrap();
        for part in ["a &lt; b", "two &amp; more: 10000", "one: 5000"] {
            assert!(drawn.contains(part), "{part} is not in {drawn}");
        }
        let points = vec![(1e6, 3.0), (1e7, 4.0), (1e8, 5.0)];
        lines(&path, "growth", "URLs", &[Line { name: "us a URL".to_owned(), points }]).unwrap();
        let drawn = std::fs::read_to_string(&path).unwrap();
        for part in ["growth", "us a URL", "URLs"] {
            assert!(drawn.contains(part), "{part} is not in {drawn}");
        }
        assert_eq!(drawn.matches("<circle").count(), 3);
        let line = |name: &str| Line { name: name.to_owned(), points: vec![(0.1, 0.5), (1.0, 1.0)] };
        together(&path, "quality", "part", &[line("this"), line("that")]).unwrap();
        let drawn = std::fs::read_to_string(&path).unwrap();
        assert!(["quality", "part", "this", "that"].iter().all(|part| drawn.contains(part)), "{drawn}");
        assert!(bars(&path, "", &[]).is_err());
        assert!(bars(&dir.path().join("no/such"), "", &[("one".to_owned(), 1.0)]).is_err());
    }
}
