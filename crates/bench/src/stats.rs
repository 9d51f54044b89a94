//! Measurements and their statistics.

use serde::Serialize;

/// Measurements of one thing, in the order they were taken.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether there are any, and all of them are valid.
    pub(crate) fn sound(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(|v| v.is_finite())
    }

    /// The value below which this part of them lies, between two neighbours where it falls there.
    pub(crate) fn quantile(&self, part: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
        let place = part.clamp(0.0, 1.0) * last as f64;
        let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
        below + (above - below) * place.fract()
    }

    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Each value changed.
    pub(crate) fn map(&self, change: impl Fn(f64) -> f64) -> Self {
        Self(self.0.iter().map(|v| change(*v)).collect())
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Samples {
        values.iter().copied().collect()
    }

    #[test]
    fn quantiles_need_no_order_and_fall_between_neighbours() {
        let samples = of(&[4.0, 1.0, 3.0, 2.0]);
        assert_eq!((samples.median(), samples.quantile(0.0), samples.quantile(1.0)), (2.5, 1.0, 4.0));
        assert_eq!(of(&[7.0]).quantile(0.95), 7.0);
        assert_eq!(of(&[1.0, 2.0, 3.0]).median(), 2.0);
        let many: Samples = (0..=100).map(f64::from).collect();
        assert!((many.quantile(0.95) - 95.0).abs() < 1e-9);
    }

    #[test]
    fn a_part_beyond_the_ends_is_an_end() {
        let samples = of(&[1.0, 2.0]);
        assert_eq!((samples.quantile(-1.0), samples.quantile(2.0)), (1.0, 2.0));
    }

    #[test]
    fn nothing_and_nonsense_are_not_sound() {
        assert!(of(&[]).median().is_nan());
        assert!(!of(&[]).sound());
        assert!(!of(&[1.0, f64::NAN]).sound());
        assert!(!of(&[f64::INFINITY]).sound());
        assert!(of(&[0.0, -1.0]).sound());
    }

    #[test]
    fn a_change_reaches_every_value() {
        assert_eq!(of(&[1.0, 4.0]).map(|v| 8.0 / v), of(&[8.0, 2.0]));
    }
}
