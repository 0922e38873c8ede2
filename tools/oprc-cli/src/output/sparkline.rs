//! Sparklines: a series as one line of characters.

use super::Charset;

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ASCII: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];

/// One character for each value, or for the maximum of several if there are more than `width`. The
/// scale is from 0 to the maximum; an unknown value is a blank.
pub(crate) fn sparkline(values: &[Option<f64>], width: usize, charset: Charset) -> String {
    let levels = match charset {
        Charset::Unicode => BLOCKS,
        Charset::Ascii => ASCII,
    };
    let per_column = values.len().div_ceil(width.max(1)).max(1);
    let columns = values.chunks(per_column).map(maximum);
    let top = maximum(values).unwrap_or_default();
    let letter = |value: f64| levels.get(level(value, top)).copied();
    columns.map(|value| value.and_then(letter).unwrap_or(' ')).collect()
}

fn maximum(values: &[Option<f64>]) -> Option<f64> {
    values.iter().flatten().copied().filter(|it| it.is_finite()).reduce(f64::max)
}

fn level(value: f64, top: f64) -> usize {
    // The number is between 0 and 7.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let scaled = (value / top * 7.0).round().clamp(0.0, 7.0) as usize;
    if top > 0.0 { scaled } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_from_zero_to_the_maximum() {
        let values = [Some(0.0), Some(50.0), None, Some(100.0)];
        assert_eq!(sparkline(&values, 60, Charset::Unicode), "▁▅ █");
        assert_eq!(sparkline(&values, 60, Charset::Ascii), "_= #");
        assert_eq!(sparkline(&[Some(0.0), Some(0.0)], 60, Charset::Ascii), "__");
        assert_eq!(sparkline(&[None, Some(f64::NAN)], 60, Charset::Ascii), "  ");
        assert_eq!(sparkline(&[], 60, Charset::Ascii), "");
    }

    #[test]
    fn longer_series_keep_their_peaks() {
        let mut values = vec![Some(1.0); 100];
        values[42] = Some(8.0);
        let line = sparkline(&values, 30, Charset::Unicode);
        assert_eq!(line.chars().count(), 25);
        assert_eq!(line.chars().filter(|it| *it == '█').count(), 1);
    }
}
