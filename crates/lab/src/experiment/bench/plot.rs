//! A bar chart as SVG: a bar a line, its figure behind it.

use std::fmt::Write as _;

const LINE: usize = 26;
const LABELS: usize = 240;
const BARS: f64 = 420.0;

/// A chart of named figures, in their order.
pub(super) fn bars(title: &str, figures: &[(String, f64)]) -> String {
    let largest = figures.iter().map(|(_, figure)| *figure).fold(1e-9, f64::max);
    let (width, height) = (LABELS + BARS as usize + 90, LINE * (figures.len() + 2));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"8\" y=\"{}\" \
         font-weight=\"bold\">{}</text>\n",
        LINE - 8,
        escape(title)
    );
    for (place, (label, figure)) in (1..).zip(figures) {
        let (top, length) = (LINE * place + 6, BARS * figure / largest);
        let (text, end) = (top + 14, LABELS as f64 + length + 6.0);
        // Writing to a String cannot fail.
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{text}\" text-anchor=\"end\">{}</text><rect x=\"{LABELS}\" y=\"{top}\" \
             width=\"{length:.1}\" height=\"{}\" fill=\"#4878a8\"/><text x=\"{end:.1}\" y=\"{text}\">{figure:.0}</text>",
            LABELS - 8,
            escape(label),
            LINE - 8
        );
    }
    svg + "</svg>\n"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_has_the_longest_bar() {
        let svg = bars("a < b", &[("one".to_owned(), 5_000.0), ("two & more".to_owned(), 10_000.0)]);
        for part in ["a &lt; b", "two &amp; more", "width=\"210.0\"", "width=\"420.0\"", ">10000</text>"] {
            assert!(svg.contains(part), "{part} is not in {svg}");
        }
    }
}
