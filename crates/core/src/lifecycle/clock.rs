//! How old things are, by a wall clock that nobody trusts. Records carry times of the wall clock; whoever
//! sets it ahead by a year must not make everything a year older. So it is compared with the monotonic
//! clock at each pass, and what it jumped ahead is taken off the age of whatever was written before.
//!
//! Every doubt makes a thing younger: it lives longer, and nothing is lost.

use atoll_store::Millis;
use std::time::Duration;

/// What the two clocks may differ by from one look to the next: corrections are smaller, jumps are not.
const TOLERANCE_MS: i64 = 10_000;
/// Jumps that are told apart.
const MOST: usize = 32;

/// The wall clock, as seen from the other.
#[derive(Debug, Default)]
pub struct Clock {
    /// The last look: since when this server runs, and milliseconds since 1970.
    seen: Option<(Duration, Millis)>,
    /// Where a jump ahead led to, and how far it was; the oldest first.
    jumps: Vec<(Millis, i64)>,
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl Clock {
    /// Looks at both clocks. Returns by how much the wall clock jumped since the last look, if it did.
    pub fn look(&mut self, running: Duration, wall: Millis) -> Option<i64> {
        let (before, then) = self.seen.replace((running, wall))?;
        let passed = millis(running.saturating_sub(before));
        let jumped = wall.saturating_sub(then).saturating_sub(passed);
        if jumped.saturating_abs() < TOLERANCE_MS {
            return None;
        }
        // One that leads back makes all things younger by itself.
        if jumped > 0 {
            self.jumps.push((wall, jumped));
        }
        if self.jumps.len() > MOST {
            // Two as one: what was written between them loses more than it should.
            let (_, size) = self.jumps.remove(0);
            self.jumps[0].1 = self.jumps[0].1.saturating_add(size);
        }
        Some(jumped)
    }

    /// How long this server has run, as of the last look.
    #[must_use]
    pub fn running(&self) -> Duration {
        self.seen.map_or(Duration::ZERO, |(running, _)| running)
    }

    /// The latest time whose bearers are at least this old, as of the last look.
    #[must_use]
    pub fn before(&self, age: Duration) -> Millis {
        let Some((_, wall)) = self.seen else { return Millis::MIN };
        let jumped = self.jumps.iter().fold(0_i64, |sum, (_, size)| sum.saturating_add(*size));
        wall.saturating_sub(millis(age)).saturating_sub(jumped)
    }

    /// How old it is what carries this time, as of the last look.
    #[must_use]
    pub fn age(&self, stamp: Millis) -> Duration {
        let Some((_, wall)) = self.seen else { return Duration::ZERO };
        let jumped = self.jumps.iter().filter(|(to, _)| stamp < *to);
        let jumped = jumped.fold(0_i64, |sum, (_, size)| sum.saturating_add(*size));
        let age = wall.saturating_sub(stamp).saturating_sub(jumped);
        Duration::from_millis(u64::try_from(age).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEAR: i64 = 365 * 24 * 3600 * 1000;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn a_year_ahead_makes_nothing_older() {
        let mut clock = Clock::default();
        assert_eq!(clock.age(0), Duration::ZERO, "before the first look nothing is old");
        assert_eq!(clock.look(seconds(0), 100_000), None);
        assert_eq!(clock.look(seconds(10), 110_500), None, "a correction is no jump");
        assert_eq!(clock.age(50_500), seconds(60));
        assert_eq!(clock.look(seconds(20), 120_500 + YEAR), Some(YEAR));
        assert_eq!(clock.age(50_500), seconds(70), "the jump does not count");
        assert_eq!(clock.before(seconds(70)), 50_500);
        assert_eq!(clock.look(seconds(30), 130_500 + YEAR), None);
        assert_eq!(clock.age(120_500 + YEAR), seconds(10), "what was written since has its own age");
        // And back again.
        assert_eq!(clock.look(seconds(40), 140_500), Some(-YEAR));
        assert_eq!(clock.age(130_500 + YEAR), Duration::ZERO);
        assert_eq!(clock.age(50_500), Duration::ZERO, "doubt makes younger");
        assert_eq!(clock.running(), seconds(40));
    }

    #[test]
    fn what_is_kept_of_jumps_is_bounded_and_forgets_none() {
        let mut clock = Clock::default();
        clock.look(Duration::ZERO, 0);
        for n in 1..=1000 {
            assert_eq!(clock.look(seconds(n), n as i64 * (1000 + YEAR)), Some(YEAR));
        }
        assert_eq!(clock.jumps.len(), MOST);
        assert_eq!(clock.age(0), seconds(1000));
        clock.look(seconds(1001), i64::MAX);
        assert_eq!(clock.age(i64::MIN), clock.age(i64::MIN), "nothing overflows");
    }
}
