//! Where something is on the globe, and how far two places are from each other.

use serde::{Deserialize, Serialize};

/// Of the sphere, in kilometres.
const EARTH_RADIUS_KM: f64 = 6_371.0;

/// A place on the globe, in thousandths of degrees: no address is known to be anywhere more exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Position {
    latitude: i32,
    longitude: i32,
}

impl Position {
    /// The place at these degrees north and east, if there is one.
    pub fn new(latitude: f64, longitude: f64) -> Option<Position> {
        let is_one = latitude.abs() <= 90.0 && longitude.abs() <= 180.0;
        let thousandths = |degrees: f64| (degrees * 1_000.0).round() as i32;
        is_one.then(|| Position { latitude: thousandths(latitude), longitude: thousandths(longitude) })
    }

    /// How far another place is, along the surface, in kilometres.
    pub fn apart(self, other: Position) -> f64 {
        let radians = |thousandths: i32| (f64::from(thousandths) / 1_000.0).to_radians();
        let (here, there) = (radians(self.latitude), radians(other.latitude));
        let half_sine = |from: i32, to: i32| (radians(to - from) / 2.0).sin().powi(2);
        let north = half_sine(self.latitude, other.latitude);
        let east = half_sine(self.longitude, other.longitude);
        let chord = (north + here.cos() * there.cos() * east).clamp(0.0, 1.0);
        2.0 * EARTH_RADIUS_KM * chord.sqrt().asin()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_as_far_apart_as_on_the_globe() {
        let at = |latitude, longitude| Position::new(latitude, longitude).unwrap();
        let (paris, tokyo, lima) = (at(48.857, 2.352), at(35.690, 139.692), at(-12.046, -77.043));
        for (one, other, expected) in [(paris, tokyo, 9_712.0), (paris, lima, 10_252.0), (paris, paris, 0.0)]
        {
            let apart = one.apart(other);
            assert!((apart - expected).abs() < 0.005 * expected + 0.001, "{apart} km, not {expected}");
            assert_eq!(apart, other.apart(one));
        }
        // Across the line where dates change, and from pole to pole.
        assert!(at(0.0, 179.5).apart(at(0.0, -179.5)) < 112.0);
        assert!((at(90.0, 0.0).apart(at(-90.0, 50.0)) - 20_015.0).abs() < 1.0);
        for (latitude, longitude) in [(90.1, 0.0), (0.0, -180.1), (f64::NAN, 0.0), (0.0, f64::INFINITY)] {
            assert_eq!(Position::new(latitude, longitude), None);
        }
    }
}
