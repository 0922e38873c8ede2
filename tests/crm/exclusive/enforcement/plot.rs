//! A plot of two runs.

use std::{fmt::Write as _, time::Duration};

use super::{BOUND, HIGH, LOW, Run};

/// The two runs above each other: latency and instances over time.
pub(super) fn plot(alone: &Run, enforced: &Run) -> String {
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 420\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"720\" height=\"420\" fill=\"white\"/>\n",
    );
    let seconds = |run: &Run| -> Vec<f64> {
        let of = |it: &Option<Duration>| it.map_or(0.0, |it| it.as_secs_f64().min(6.0));
        run.latencies.iter().map(of).collect()
    };
    let instances =
        |run: &Run| -> Vec<f64> { run.instances.iter().map(|it| f64::from(*it)).collect() };
    panel(
        &mut svg,
        30.0,
        "p95 in seconds (at most 6 are shown)",
        6.0,
        &[
            ("#c0392b", "autoscaler, 70 % CPU", seconds(alone)),
            ("#2471a3", "enforcement", seconds(enforced)),
            ("#999999", "requirement", vec![BOUND.as_secs_f64(); alone.latencies.len()]),
        ],
    );
    panel(
        &mut svg,
        230.0,
        "instances",
        10.0,
        &[
            ("#c0392b", "autoscaler, 70 % CPU", instances(alone)),
            ("#2471a3", "enforcement", instances(enforced)),
        ],
    );
    writeln!(
        svg,
        "<text x=\"60\" y=\"412\">seconds after the load rose from {LOW} to {HIGH} requests/s</text>\n</svg>"
    )
    .unwrap();
    svg
}

fn panel(svg: &mut String, top: f64, title: &str, max: f64, lines: &[(&str, &str, Vec<f64>)]) {
    let (left, width, height) = (60.0, 640.0, 150.0);
    let bottom = top + height;
    let seconds = lines.iter().map(|(_, _, values)| values.len()).max().unwrap_or_default();
    let seconds = u32::try_from(seconds).unwrap();
    writeln!(svg, "<text x=\"{left}\" y=\"{}\">{title}</text>", top - 8.0).unwrap();
    for part in 0..=2 {
        let value = max * f64::from(part) / 2.0;
        let y = bottom - height * f64::from(part) / 2.0;
        writeln!(
            svg,
            "<line x1=\"{left}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"#dddddd\"/><text x=\"30\" y=\"{}\">{value}</text>",
            left + width,
            y + 4.0
        )
        .unwrap();
    }
    for second in (0..=seconds).step_by(30) {
        let x = left + width * f64::from(second) / f64::from(seconds);
        writeln!(svg, "<text x=\"{x}\" y=\"{}\">{second}</text>", bottom + 15.0).unwrap();
    }
    for (number, (colour, name, values)) in (0_u32..).zip(lines) {
        let mut points = String::new();
        for (second, value) in (0_u32..).zip(values) {
            let x = left + width * f64::from(second) / f64::from(seconds);
            let y = bottom - height * (value / max).min(1.0);
            write!(points, "{x:.1},{y:.1} ").unwrap();
        }
        writeln!(
            svg,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/><text x=\"{}\" y=\"{}\" fill=\"{colour}\">{name}</text>",
            left + width - 180.0,
            top + 12.0 + 14.0 * f64::from(number)
        )
        .unwrap();
    }
}
