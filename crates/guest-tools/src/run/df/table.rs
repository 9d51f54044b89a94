//! The table, as GNU `df` prints it.

use super::{mounts::FileSystem, options::Options};

const UNITS: &str = "KMGTPE";

/// In which unit sizes are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unit {
    /// Multiples of so many bytes, which the header calls so.
    Blocks(u64, String),
    /// Powers of 1024 with a letter.
    Human,
    /// Powers of 1000 with a letter.
    Si,
}

impl Default for Unit {
    fn default() -> Self {
        Self::Blocks(1024, "1K".into())
    }
}

impl Unit {
    /// Reads a block size such as `1M`, `K`, `512` or `1GB`.
    pub(super) fn of(text: &str) -> Result<Self, String> {
        let wrong = || format!("invalid block size '{text}'");
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let count: u64 = if number.is_empty() { 1 } else { number.parse().map_err(|_| wrong())? };
        let (letter, base) = match unit {
            "" if !number.is_empty() => return Self::blocks(count, text.into()).ok_or_else(wrong),
            _ if unit.len() == 1 => (unit, 1024),
            _ => match unit.strip_suffix("iB") {
                Some(letter) => (letter, 1024),
                None => (unit.strip_suffix('B').ok_or_else(wrong)?, 1000_u64),
            },
        };
        let letter = letter.to_uppercase();
        let power = UNITS.find(&letter).filter(|_| letter.len() == 1).ok_or_else(wrong)?;
        let power = u32::try_from(power).map_err(|_| wrong())? + 1;
        let bytes = base.checked_pow(power).and_then(|unit| unit.checked_mul(count));
        let name = if number.is_empty() { format!("1{text}") } else { text.to_owned() };
        Self::blocks(bytes.ok_or_else(wrong)?, name).ok_or_else(wrong)
    }

    fn blocks(bytes: u64, name: String) -> Option<Self> {
        (bytes > 0).then_some(Self::Blocks(bytes, name))
    }

    fn show(&self, bytes: u64) -> String {
        match self {
            Self::Blocks(block, _) => bytes.div_ceil(*block).to_string(),
            Self::Human => short(bytes, 1024),
            Self::Si => short(bytes, 1000),
        }
    }
}

/// A number with at most three digits and a letter, never less than it is.
fn short(value: u64, base: u64) -> String {
    let mut unit: u64 = 1;
    let letters = UNITS.chars().map(|c| if base == 1000 && c == 'K' { 'k' } else { c });
    for letter in std::iter::once(None).chain(letters.map(Some)) {
        let whole = value.div_ceil(unit);
        if whole < base || letter == Some('E') {
            let tenths = (u128::from(value) * 10).div_ceil(u128::from(unit));
            return match letter {
                Some(letter) if tenths < 100 => format!("{}.{}{letter}", tenths / 10, tenths % 10),
                Some(letter) => format!("{whole}{letter}"),
                None => whole.to_string(),
            };
        }
        unit = unit.saturating_mul(base);
    }
    value.to_string()
}

/// One column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Source,
    Type,
    Inodes,
    InodesUsed,
    InodesFree,
    InodesPercent,
    Size,
    Used,
    Available,
    Percent,
    File,
    Target,
}

impl Column {
    pub(super) const ALL: [Self; 12] = [
        Self::Source,
        Self::Type,
        Self::Inodes,
        Self::InodesUsed,
        Self::InodesFree,
        Self::InodesPercent,
        Self::Size,
        Self::Used,
        Self::Available,
        Self::Percent,
        Self::File,
        Self::Target,
    ];

    /// Its name for `--output`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Type => "fstype",
            Self::Inodes => "itotal",
            Self::InodesUsed => "iused",
            Self::InodesFree => "iavail",
            Self::InodesPercent => "ipcent",
            Self::Size => "size",
            Self::Used => "used",
            Self::Available => "avail",
            Self::Percent => "pcent",
            Self::File => "file",
            Self::Target => "target",
        }
    }

    fn title(self, options: &Options) -> String {
        match self {
            Self::Source => "Filesystem".into(),
            Self::Type => "Type".into(),
            Self::Inodes => "Inodes".into(),
            Self::InodesUsed => "IUsed".into(),
            Self::InodesFree => "IFree".into(),
            Self::InodesPercent => "IUse%".into(),
            Self::Size => match &options.unit {
                Unit::Blocks(bytes, _) if options.posix => format!("{bytes}-blocks"),
                Unit::Blocks(_, name) => format!("{name}-blocks"),
                Unit::Human | Unit::Si => "Size".into(),
            },
            Self::Used => "Used".into(),
            Self::Available if matches!(options.unit, Unit::Blocks(..)) => "Available".into(),
            Self::Available => "Avail".into(),
            Self::Percent if options.posix => "Capacity".into(),
            Self::Percent => "Use%".into(),
            Self::File => "File".into(),
            Self::Target => "Mounted on".into(),
        }
    }

    fn value(self, row: &FileSystem, options: &Options) -> String {
        let count = |number: u64| match &options.unit {
            Unit::Blocks(..) => number.to_string(),
            unit => unit.show(number),
        };
        let inodes_used = row.inodes.saturating_sub(row.inodes_free);
        match self {
            Self::Source => row.source.clone(),
            Self::Type => row.kind.clone(),
            Self::Inodes => count(row.inodes),
            Self::InodesUsed => count(inodes_used),
            Self::InodesFree => count(row.inodes_free),
            Self::InodesPercent => percent(inodes_used, row.inodes_free),
            Self::Size => options.unit.show(row.size),
            Self::Used => options.unit.show(row.used),
            Self::Available => options.unit.show(row.available),
            Self::Percent => percent(row.used, row.available),
            Self::File => row.file.clone(),
            Self::Target => row.at.to_string_lossy().into_owned(),
        }
    }

    /// The least width of a column; text is aligned to the left and numbers to the right.
    fn least(self) -> usize {
        match self {
            Self::Source => 14,
            Self::Type | Self::Percent | Self::InodesPercent => 4,
            Self::File | Self::Target => 0,
            _ => 5,
        }
    }

    fn is_text(self) -> bool {
        matches!(self, Self::Source | Self::Type | Self::File | Self::Target)
    }
}

fn percent(used: u64, free: u64) -> String {
    let all = u128::from(used) + u128::from(free);
    if all == 0 { "-".into() } else { format!("{}%", (u128::from(used) * 100).div_ceil(all)) }
}

/// The whole table, with its header.
pub(super) fn render(options: &Options, rows: &[FileSystem]) -> String {
    let columns = columns(options);
    let mut lines = vec![columns.iter().map(|column| column.title(options)).collect::<Vec<_>>()];
    let total = options.total.then(|| total(rows));
    for row in rows.iter().chain(&total) {
        lines.push(columns.iter().map(|column| printable(&column.value(row, options))).collect());
    }
    let widths: Vec<usize> = (0..columns.len())
        .map(|n| lines.iter().map(|line| line[n].chars().count()).max().unwrap_or(0).max(columns[n].least()))
        .collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).zip(&columns).enumerate().map(|(n, ((cell, width), column))| {
            let last = n + 1 == columns.len();
            match column.is_text() {
                true if last => cell.clone(),
                true => format!("{cell:<width$}"),
                false => format!("{cell:>width$}"),
            }
        });
        text.push_str(&cells.collect::<Vec<_>>().join(" "));
        text.push('\n');
    }
    text
}

fn columns(options: &Options) -> Vec<Column> {
    if let Some(columns) = &options.columns {
        return columns.clone();
    }
    let figures = match options.inodes {
        true => [Column::Inodes, Column::InodesUsed, Column::InodesFree, Column::InodesPercent],
        false => [Column::Size, Column::Used, Column::Available, Column::Percent],
    };
    let kind = options.with_type.then_some(Column::Type);
    std::iter::once(Column::Source).chain(kind).chain(figures).chain([Column::Target]).collect()
}

fn total(rows: &[FileSystem]) -> FileSystem {
    let sum = |of: fn(&FileSystem) -> u64| rows.iter().map(of).fold(0, u64::saturating_add);
    FileSystem {
        source: "total".into(),
        kind: "-".into(),
        at: "-".into(),
        file: "-".into(),
        size: sum(|row| row.size),
        used: sum(|row| row.used),
        available: sum(|row| row.available),
        inodes: sum(|row| row.inodes),
        inodes_free: sum(|row| row.inodes_free),
    }
}

/// A name without what would move a terminal's cursor.
fn printable(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(at: &str, size: u64, used: u64) -> FileSystem {
        FileSystem {
            source: "/dev/loop0".into(),
            kind: "btrfs".into(),
            at: at.into(),
            file: "-".into(),
            size,
            used,
            available: size - used,
            inodes: 0,
            inodes_free: 0,
        }
    }

    #[test]
    fn the_table_has_the_columns_and_widths_of_coreutils() {
        let rows = [row("/workspace", 1 << 30, 3 << 20), row("/mnt\n", 512 << 20, 512 << 20)];
        let human = Options { unit: Unit::Human, total: true, ..Options::default() };
        let expected = "\
Filesystem      Size  Used Avail Use% Mounted on
/dev/loop0      1.0G  3.0M 1021M   1% /workspace
/dev/loop0      512M  512M     0 100% /mnt?
total           1.5G  515M 1021M  34% -
";
        assert_eq!(render(&human, &rows), expected);
        let plain = render(&Options { with_type: true, ..Options::default() }, &rows[..1]);
        let expected = "\
Filesystem     Type  1K-blocks  Used Available Use% Mounted on
/dev/loop0     btrfs   1048576  3072   1045504   1% /workspace
";
        assert_eq!(plain, expected);
        let inodes = render(&Options { inodes: true, posix: true, ..Options::default() }, &rows[..1]);
        assert!(inodes.ends_with("    0     0     0     - /workspace\n"), "{inodes}");
    }

    #[test]
    fn sizes_are_rounded_up_and_block_sizes_have_names() {
        for (bytes, human, si) in [
            (0, "0", "0"),
            (1023, "1023", "1.1k"),
            (1024, "1.0K", "1.1k"),
            (10 << 20, "10M", "11M"),
            ((10 << 20) + 1, "11M", "11M"),
            (1 << 30, "1.0G", "1.1G"),
            (u64::MAX, "16E", "19E"),
        ] {
            assert_eq!((Unit::Human.show(bytes), Unit::Si.show(bytes)), (human.into(), si.into()), "{bytes}");
        }
        for (text, bytes, name) in [
            ("1M", 1 << 20, "1M"),
            ("M", 1 << 20, "1M"),
            ("4KB", 4000, "4KB"),
            ("512", 512, "512"),
            ("GiB", 1 << 30, "1GiB"),
        ] {
            assert_eq!(Unit::of(text), Ok(Unit::Blocks(bytes, name.into())), "{text}");
        }
        for wrong in ["", "0", "0K", "K1", "1X", "99999999999999999999", "99E", "iB", "B"] {
            assert!(Unit::of(wrong).is_err(), "{wrong}");
        }
    }
}
