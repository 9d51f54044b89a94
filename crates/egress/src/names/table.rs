//! Which address of the reserved block stands for which name. A name keeps its address for as long as it is in
//! the table, and after a restart too unless two names hash to one. An address that was given out is not given to
//! another name while a client may still have the answer cached.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    net::Ipv4Addr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use atoll_types::egress_address::{RESERVED, RESERVED_PREFIX};

/// The TTL of an answer.
pub(crate) const LIFETIME: Duration = Duration::from_secs(30);
const MOST_NAMES: usize = 4096;

#[derive(Default)]
pub(crate) struct Table(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    names: HashMap<String, Ipv4Addr>,
    addresses: HashMap<Ipv4Addr, (String, Instant)>,
}

/// Whether an address is of the block.
pub(crate) fn is_reserved(address: Ipv4Addr) -> bool {
    let shift = 32 - u32::from(RESERVED_PREFIX);
    u32::from(address) >> shift == u32::from(RESERVED) >> shift
}

fn nth(n: u32) -> Ipv4Addr {
    let size = 1_u32 << (32 - u32::from(RESERVED_PREFIX));
    // Neither the first nor the last: some tools take them for a network and a broadcast.
    Ipv4Addr::from(u32::from(RESERVED) + 1 + n % (size - 2))
}

impl Table {
    /// The address of a name. None: every candidate is taken by a name that a client just queried.
    pub(crate) fn address(&self, name: &str) -> Option<Ipv4Addr> {
        self.at(name, Instant::now())
    }

    fn at(&self, name: &str, now: Instant) -> Option<Ipv4Addr> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Inner { names, addresses } = &mut *inner;
        if let Some(address) = names.get(name) {
            if let Some((_, used)) = addresses.get_mut(address) {
                *used = now;
            }
            return Some(*address);
        }
        if names.len() >= MOST_NAMES {
            let old = addresses.iter().min_by_key(|(_, (_, used))| *used);
            let old = old.filter(|(_, (_, used))| now.saturating_duration_since(*used) > LIFETIME);
            let (address, name) = old.map(|(address, (name, _))| (*address, name.clone()))?;
            addresses.remove(&address);
            names.remove(&name);
        }
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let first = u32::try_from(hasher.finish() >> 33).unwrap_or_default();
        let free = (0..=u32::try_from(MOST_NAMES).unwrap_or_default()).map(|n| nth(first.wrapping_add(n)));
        let address = free.into_iter().find(|address| !addresses.contains_key(address))?;
        names.insert(name.to_owned(), address);
        addresses.insert(address, (name.to_owned(), now));
        Some(address)
    }

    /// The name of an address. A lookup renews it.
    pub(crate) fn name(&self, address: Ipv4Addr) -> Option<String> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (name, used) = inner.addresses.get_mut(&address)?;
        *used = Instant::now();
        Some(name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_address_and_an_address_its_name() {
        let table = Table::default();
        let one = table.address("a.example").unwrap();
        let two = table.address("b.example").unwrap();
        assert!(is_reserved(one) && is_reserved(two) && one != two);
        assert_eq!(table.address("a.example"), Some(one));
        assert_eq!(table.name(one).as_deref(), Some("a.example"));
        assert_eq!(table.name(Ipv4Addr::new(198, 18, 0, 0)), None);
        assert_eq!(Table::default().address("a.example"), Some(one), "after a restart too");
    }

    #[test]
    fn the_table_is_bounded_and_forgets_only_what_nobody_believes() {
        let table = Table::default();
        let now = Instant::now();
        for n in 0..MOST_NAMES {
            assert!(table.at(&format!("n{n}.example"), now).is_some());
        }
        assert_eq!(table.at("more.example", now + LIFETIME / 2), None);
        assert!(table.at("more.example", now + LIFETIME * 2).is_some());
        let inner = table.0.lock().unwrap();
        assert_eq!((inner.names.len(), inner.addresses.len()), (MOST_NAMES, MOST_NAMES));
    }

    #[test]
    fn the_block_is_the_reserved_one() {
        for n in [0, 1, 131_069, 131_070, u32::MAX] {
            assert!(is_reserved(nth(n)), "{n}");
        }
        assert!(!is_reserved(Ipv4Addr::new(198, 17, 255, 255)));
        assert!(!is_reserved(Ipv4Addr::new(198, 20, 0, 0)));
    }
}
