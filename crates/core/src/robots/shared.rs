//! Rules in memory, equal ones once: most sites have no robots.txt, or the one that came with their software.

use std::collections::HashSet;
use std::sync::Arc;

use super::Robots;

/// All rules that somebody holds.
#[derive(Debug, Default)]
pub struct SharedRobots {
    all: HashSet<Arc<Robots>>,
    bytes: usize,
}

impl SharedRobots {
    /// Rules to hold on to until they are [given back](SharedRobots::give_back).
    pub fn share(&mut self, robots: Robots) -> Arc<Robots> {
        if let Some(known) = self.all.get(&robots) {
            return Arc::clone(known);
        }
        let robots = Arc::new(robots);
        self.bytes += robots.memory_bytes();
        self.all.insert(Arc::clone(&robots));
        robots
    }

    /// Takes rules back, if there are any.
    pub fn give_back(&mut self, robots: Option<Arc<Robots>>) {
        let Some(robots) = robots else { return };
        // This one, and that of the set.
        if Arc::strong_count(&robots) == 2 && self.all.remove(&robots) {
            self.bytes -= robots.memory_bytes();
        }
    }

    /// About how much memory they take.
    pub fn memory_bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_rules_are_held_once_and_as_long_as_anybody_holds_them() {
        let mut shared = SharedRobots::default();
        let rules =
            |path: &str| Robots::parse(format!("User-agent: *\nDisallow: {path}").as_bytes(), "nephila");
        let [a, b, other] = ["/a", "/a", "/b"].map(|path| shared.share(rules(path)));
        assert!(Arc::ptr_eq(&a, &b) && !Arc::ptr_eq(&a, &other));
        let both = shared.memory_bytes();
        assert_eq!(both, a.memory_bytes() + other.memory_bytes());
        shared.give_back(Some(a));
        assert_eq!(shared.memory_bytes(), both);
        shared.give_back(Some(b));
        assert_eq!(shared.memory_bytes(), other.memory_bytes());
        shared.give_back(None);
        shared.give_back(Some(other));
        assert_eq!((shared.memory_bytes(), shared.all.len()), (0, 0));
    }
}
