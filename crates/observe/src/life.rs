//! The file that one name held when the window opened, derived from the events on it. Pure; knows no paths.

/// What a name held when the window opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// Nothing.
    Absent,
    /// This inode.
    Was(u64),
    /// Nothing, unless a later event shows otherwise.
    Unsure,
}

/// A file that appeared at a name or left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    Created,
    /// Merged with other events on the same file at this name, which may have come first: the file was there,
    /// left, and got another link.
    CreatedMaybeAgain(u64),
    /// Both in one event, most likely in this order.
    CreatedAndDeleted(u64),
    Deleted(u64),
    MovedAway(u64),
    MovedHere(u64),
}

/// The history of a name in one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) start: Start,
    /// Whether a file is there, by the last event.
    pub(crate) there: bool,
    first: Turn,
    turns: bool,
}

impl Life {
    /// The first turn decides. `told` is what an earlier answer reported about the name: it may have been ahead
    /// of the events, and it knows more than a merged one.
    pub(crate) fn begin(turn: Turn, told: Option<Option<u64>>) -> Self {
        let start = match (told, turn) {
            (Some(Some(inode)), _) | (None, Turn::Deleted(inode) | Turn::MovedAway(inode)) => {
                Start::Was(inode)
            }
            (Some(None), _) | (None, Turn::Created) => Start::Absent,
            (None, Turn::MovedHere(_) | Turn::CreatedMaybeAgain(_) | Turn::CreatedAndDeleted(_)) => {
                Start::Unsure
            }
        };
        Self { start, there: turn.leaves(), first: turn, turns: false }
    }

    /// Later turns do not show what was there at the start, except an exchange, which is two renames in one: the
    /// file that leaves is not the one that came.
    pub(crate) fn add_turn(&mut self, turn: Turn) {
        self.there = turn.leaves();
        if let (false, Turn::MovedHere(here), Turn::MovedAway(inode)) = (self.turns, self.first, turn)
            && here != inode
        {
            self.was(inode);
        }
        self.turns = true;
    }

    /// A later event shows that this file was there.
    pub(crate) fn was(&mut self, inode: u64) {
        if self.start == Start::Unsure {
            self.start = Start::Was(inode);
        }
    }

    /// The file that was there, if it was created again.
    pub(crate) fn perhaps(&self) -> Option<u64> {
        match (self.start, self.first) {
            (Start::Unsure, Turn::CreatedMaybeAgain(inode) | Turn::CreatedAndDeleted(inode)) => Some(inode),
            _ => None,
        }
    }
}

impl Turn {
    /// Whether a file is at the name afterwards.
    fn leaves(self) -> bool {
        matches!(self, Turn::Created | Turn::CreatedMaybeAgain(_) | Turn::MovedHere(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(turns: &[Turn]) -> Life {
        let mut life = Life::begin(turns[0], None);
        turns[1..].iter().for_each(|turn| life.add_turn(*turn));
        life
    }

    #[test]
    fn the_first_turn_decides() {
        let life = after(&[Turn::Created, Turn::Deleted(7)]);
        assert_eq!((life.start, life.there), (Start::Absent, false));
        let life = after(&[Turn::Deleted(7), Turn::Created]);
        assert_eq!((life.start, life.there), (Start::Was(7), true));
    }

    #[test]
    fn an_exchange_is_told_from_a_rename() {
        assert_eq!(after(&[Turn::MovedHere(7), Turn::MovedAway(8)]).start, Start::Was(8));
        assert_eq!(after(&[Turn::MovedHere(7), Turn::MovedAway(7)]).start, Start::Unsure);
        assert_eq!(after(&[Turn::MovedHere(7), Turn::Deleted(7), Turn::MovedAway(8)]).start, Start::Unsure);
    }

    #[test]
    fn a_victim_may_be_reported_late() {
        let mut life = after(&[Turn::MovedHere(7), Turn::MovedAway(7)]);
        life.was(8);
        assert_eq!(life.start, Start::Was(8));
    }

    #[test]
    fn what_was_told_wins() {
        assert_eq!(Life::begin(Turn::Deleted(7), Some(None)).start, Start::Absent);
        assert_eq!(Life::begin(Turn::Created, Some(Some(7))).start, Start::Was(7));
    }
}
