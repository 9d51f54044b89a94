//! Ages, by a wall clock that may jump. Records carry wall-clock times; setting the clock ahead by a year
//! must not make everything a year older, and setting it back again must not make everything young for a
//! year. So each pass compares it with the monotonic clock; the time between two jumps is one stretch, and a
//! timestamp's age is computed within the stretch in which it was written.
//!
//! Where an age is uncertain the younger one counts: the thing lives longer, and nothing is lost.

use atoll_store::Millis;
use std::time::Duration;

/// How far the two clocks may drift apart between two passes: corrections are smaller, jumps are not.
const TOLERANCE_MS: i64 = 10_000;
/// Stretches that are kept.
const MOST: usize = 32;

/// The wall clock between two jumps. Milliseconds, since 1970 and since this server started.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    start: i128,
    /// As of the last pass.
    wall: i128,
    running: i128,
    /// Where the next jump was seen; none in the present stretch.
    end: Option<i128>,
}

impl Stretch {
    /// How long this server had run when the wall clock showed this.
    fn running(&self, stamp: i128) -> i128 {
        self.running - (self.wall - stamp)
    }

    fn holds(&self, stamp: i128) -> bool {
        (self.start..=self.end.unwrap_or(self.wall)).contains(&stamp)
    }
}

/// The wall clock, compared with the monotonic one.
#[derive(Debug, Default)]
pub struct Clock {
    /// The oldest first; the last is the present one.
    stretches: Vec<Stretch>,
}

fn millis(duration: Duration) -> i128 {
    i128::try_from(duration.as_millis()).unwrap_or(i128::MAX / 4)
}

impl Clock {
    /// Reads both clocks. Returns by how much the wall clock jumped since the last pass, if it did.
    pub fn look(&mut self, running: Duration, wall: Millis) -> Option<i64> {
        let (running, wall) = (millis(running), i128::from(wall));
        let fresh = Stretch { start: wall, wall, running, end: None };
        let Some(present) = self.stretches.last_mut() else {
            self.stretches.push(fresh);
            return None;
        };
        let passed = running - present.running;
        let jumped = wall - present.wall - passed;
        if jumped.abs() < TOLERANCE_MS.into() {
            (present.wall, present.running) = (wall, running);
            return None;
        }
        present.end = Some(present.wall + passed);
        self.stretches.push(fresh);
        if self.stretches.len() > MOST {
            // What was written in it has no known age from now on.
            self.stretches.remove(1);
        }
        Some(i64::try_from(jumped).unwrap_or(if jumped > 0 { i64::MAX } else { i64::MIN }))
    }

    /// How long this server has run, as of the last pass.
    #[must_use]
    pub fn running(&self) -> Duration {
        let running = self.stretches.last().map_or(0, |present| present.running);
        Duration::from_millis(u64::try_from(running).unwrap_or(0))
    }

    /// Whether a timestamp was written while this server ran, by a clock of which it knows all jumps.
    #[must_use]
    pub fn knows(&self, stamp: Millis) -> bool {
        self.stretches.iter().any(|stretch| stretch.holds(stamp.into()))
    }

    /// The latest timestamp that is at least this old, as of the last pass.
    #[must_use]
    pub fn before(&self, age: Duration) -> Millis {
        let Some(present) = self.stretches.last() else { return Millis::MIN };
        let then = present.running - millis(age);
        let all = self.stretches.iter().map(|stretch| stretch.wall - (stretch.running - then));
        all.min().map_or(Millis::MIN, |at| at.clamp(Millis::MIN.into(), Millis::MAX.into()) as Millis)
    }

    /// The age of a timestamp, as of the last pass.
    #[must_use]
    pub fn age(&self, stamp: Millis) -> Duration {
        let (Some(first), Some(present)) = (self.stretches.first(), self.stretches.last()) else {
            return Duration::ZERO;
        };
        let stamp = i128::from(stamp);
        // What was written before this server started was written by a clock of which nothing is known.
        let may = |stretch: &&Stretch| stretch.holds(stamp) || (stamp < first.start && stamp < stretch.start);
        let written = self.stretches.iter().filter(may).map(|stretch| stretch.running(stamp)).max();
        let age = written.map_or(0, |written| present.running - written);
        Duration::from_millis(u64::try_from(age).unwrap_or(if age > 0 { u64::MAX } else { 0 }))
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
        assert_eq!(clock.age(115_500), seconds(15), "and so has what was written just before");
        assert!(clock.knows(115_500) && clock.knows(125_500 + YEAR));
        assert!(!clock.knows(50_500), "it was written before this server ran");
    }

    #[test]
    fn a_clock_that_is_set_right_again_goes_on_as_if_nothing_had_been() {
        let mut clock = Clock::default();
        clock.look(seconds(0), 100_000);
        clock.look(seconds(20), 120_000 + YEAR);
        clock.look(seconds(30), 130_000 + YEAR);
        assert_eq!(clock.look(seconds(40), 140_000), Some(-YEAR));
        assert_eq!(clock.age(50_000), seconds(90));
        assert_eq!(clock.age(130_000 + YEAR), seconds(10), "what was written meanwhile is no younger for it");
        assert_eq!(clock.age(140_000), Duration::ZERO);
        clock.look(seconds(60), 160_000);
        assert_eq!(clock.age(140_000), seconds(20), "and what is written now grows old");
        assert_eq!(clock.before(seconds(20)), 140_000);
        assert_eq!(clock.age(161_000), Duration::ZERO, "its time is not known");
        assert_eq!(clock.running(), seconds(60));
    }

    #[test]
    fn a_clock_that_was_ahead_when_the_server_began_makes_nothing_older_when_it_is_set_right() {
        let mut clock = Clock::default();
        clock.look(seconds(0), 100_000 + YEAR);
        clock.look(seconds(20), 120_000);
        assert_eq!(clock.age(90_000), seconds(30));
        assert!(clock.before(seconds(31)) < 90_000);
    }

    #[test]
    fn what_is_kept_of_jumps_is_bounded_and_forgets_none() {
        let mut clock = Clock::default();
        clock.look(Duration::ZERO, 0);
        for n in 1..=1000 {
            assert_eq!(clock.look(seconds(n), n as i64 * (1000 + YEAR)), Some(YEAR));
        }
        assert_eq!(clock.stretches.len(), MOST);
        assert_eq!(clock.age(0), seconds(1000));
        clock.look(seconds(1001), i64::MAX);
        assert_eq!(clock.age(i64::MIN), clock.age(i64::MIN), "nothing overflows");
        assert_eq!(clock.before(seconds(u64::MAX)), Millis::MIN);
    }
}
