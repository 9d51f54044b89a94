//! What one name held when the window opened, told from the events on it. Pure; knows no paths.

/// What a name held when the window opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// Nothing.
    Absent,
    /// This inode.
    Was(u64),
    /// Nothing, unless it turns out that this inode, renamed to here, took another's place.
    Unsure(u64),
}

/// A file that appeared at a name or left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    Created,
    Deleted(u64),
    MovedAway(u64),
    MovedHere(u64),
    /// Both in one event, in this order: only a second link to the same file can come back.
    CreatedAndDeleted,
}

/// The life of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) start: Start,
    /// Whether a file is there, by the last event.
    pub(crate) there: bool,
}

impl Life {
    /// The first turn decides. `told` is what the last answer said about the name, where that may be
    /// ahead of the events.
    pub(crate) fn begin(turn: Turn, told: Option<Option<u64>>) -> Self {
        let start = match (told, turn) {
            (Some(Some(inode)), _) => Start::Was(inode),
            (Some(None), _) | (None, Turn::Created | Turn::CreatedAndDeleted) => Start::Absent,
            (None, Turn::Deleted(inode) | Turn::MovedAway(inode)) => Start::Was(inode),
            (None, Turn::MovedHere(inode)) => Start::Unsure(inode),
        };
        Self { start, there: turn.leaves() }
    }

    /// The next turn can only settle what was unsure.
    pub(crate) fn go_on(&mut self, turn: Turn) {
        self.there = turn.leaves();
        let Start::Unsure(here) = self.start else { return };
        self.start = match turn {
            // An exchange: what leaves is not what came.
            Turn::MovedAway(inode) if inode != here => Start::Was(inode),
            _ => Start::Absent,
        };
    }

    /// The renamed file took the place of this one.
    pub(crate) fn replaced(&mut self, victim: u64) {
        if matches!(self.start, Start::Unsure(_)) {
            self.start = Start::Was(victim);
        }
    }
}

impl Turn {
    /// Whether a file is at the name afterwards.
    fn leaves(self) -> bool {
        matches!(self, Turn::Created | Turn::MovedHere(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(turns: &[Turn]) -> Life {
        let mut life = Life::begin(turns[0], None);
        turns[1..].iter().for_each(|turn| life.go_on(*turn));
        life
    }

    #[test]
    fn the_first_turn_decides() {
        assert_eq!(after(&[Turn::Created, Turn::Deleted(7)]), Life { start: Start::Absent, there: false });
        assert_eq!(after(&[Turn::Deleted(7), Turn::Created]), Life { start: Start::Was(7), there: true });
    }

    #[test]
    fn an_exchange_is_told_from_a_rename() {
        assert_eq!(after(&[Turn::MovedHere(7), Turn::MovedAway(8)]).start, Start::Was(8));
        assert_eq!(after(&[Turn::MovedHere(7), Turn::MovedAway(7)]).start, Start::Absent);
        assert_eq!(after(&[Turn::MovedHere(7), Turn::Deleted(7), Turn::MovedAway(8)]).start, Start::Absent);
    }

    #[test]
    fn what_was_told_wins() {
        assert_eq!(Life::begin(Turn::Deleted(7), Some(None)).start, Start::Absent);
        assert_eq!(Life::begin(Turn::Created, Some(Some(7))).start, Start::Was(7));
    }
}
