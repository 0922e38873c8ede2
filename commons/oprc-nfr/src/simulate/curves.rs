//! Generated loads. The same curve and seed always give the same values.

use std::f64::consts::TAU;

use fastrand::Rng;
use serde::Serialize;

use crate::convert::count;

const DAY: usize = 86_400;

/// A kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Curve {
    /// Constant, with little noise.
    Steady,
    /// Bursts to two to four times the load within half a minute, for one to five minutes.
    Burst,
    /// One day: a wave with a weaker one of a third of its length.
    Daily,
    /// Straight lines between random loads, each 5 to 20 minutes long.
    Ramp,
    /// Constant with correlated noise: a standard deviation of 20 %, a correlation time of 20 s.
    Noise,
}

impl Curve {
    pub const ALL: [Self; 5] = [Self::Steady, Self::Burst, Self::Daily, Self::Ramp, Self::Noise];

    /// Two hours, or a day for [`Self::Daily`], of loads up to about `scale`.
    pub fn generate(self, seed: u64, scale: f64) -> Vec<f64> {
        let mut random = Rng::with_seed(seed);
        let seconds = if self == Self::Daily { DAY } else { 7200 };
        let shape = self.shape(&mut random, seconds);
        let (deviation, correlation) = if self == Self::Noise { (0.2, 20.0) } else { (0.04, 30.0) };
        let keep = (-1.0_f64 / correlation).exp();
        let mut noise = 0.0;
        shape
            .into_iter()
            .map(|value| {
                noise = keep * noise + (1.0 - keep * keep).sqrt() * normal(&mut random);
                (value * (1.0 + deviation * noise)).max(0.0) * scale
            })
            .collect()
    }

    /// The load without noise, as a fraction of the scale.
    fn shape(self, random: &mut Rng, seconds: usize) -> Vec<f64> {
        match self {
            Self::Steady | Self::Noise => vec![between(random, 0.4, 0.8); seconds],
            Self::Burst => bursts(random, seconds),
            Self::Daily => {
                let (phase, second) = (between(random, 0.0, TAU), between(random, 0.0, 0.2));
                let angle = |at: usize| TAU * count(at) / count(DAY);
                let wave = |at| 0.4 * (angle(at) + phase).sin() + second * (3.0 * angle(at)).sin();
                (0..seconds).map(|at| 0.55 + wave(at)).collect()
            }
            Self::Ramp => ramps(random, seconds),
        }
    }
}

fn bursts(random: &mut Rng, seconds: usize) -> Vec<f64> {
    const BASE: f64 = 0.25;
    const FALL: f64 = 60.0;
    let mut shape = vec![BASE; seconds];
    let mut start = between(random, 100.0, 600.0);
    while start < count(seconds) {
        let [rise, hold] = [between(random, 5.0, 30.0), between(random, 60.0, 300.0)];
        let height = between(random, 1.0, 3.0) * BASE;
        for (at, value) in shape.iter_mut().enumerate() {
            let passed = count(at) - start;
            let part = (passed / rise).min((rise + hold + FALL - passed) / FALL).clamp(0.0, 1.0);
            *value += height * part;
        }
        start += between(random, 240.0, 1200.0);
    }
    shape
}

fn ramps(random: &mut Rng, seconds: usize) -> Vec<f64> {
    let mut shape = Vec::with_capacity(seconds);
    let mut from = between(random, 0.1, 0.5);
    while shape.len() < seconds {
        let (length, to) = (random.usize(300..1200), between(random, 0.1, 1.0));
        shape.extend((0..length).map(|at| from + (to - from) * count(at) / count(length)));
        from = to;
    }
    shape.truncate(seconds);
    shape
}

fn between(random: &mut Rng, low: f64, high: f64) -> f64 {
    low + (high - low) * random.f64()
}

/// Approximately normally distributed: a sum of twelve uniform numbers has a variance of 1.
fn normal(random: &mut Rng) -> f64 {
    (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
}
