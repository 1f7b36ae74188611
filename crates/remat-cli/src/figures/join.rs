//! How the points of a series are joined.

/// A place in pixels.
type Place = (f64, f64);

/// How the points of a series are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Join {
    /// From point to point, each with a marker.
    Straight,
    /// What holds at a point holds up to the next one. The first and the last point have a marker, and of the others those that
    /// are not too near to the one before.
    Stairs,
}

impl Join {
    /// Pixels across between two markers.
    const APART: f64 = 28.0;

    /// The corners of the line through these points.
    pub(super) fn line(self, points: &[Place]) -> Vec<Place> {
        match self {
            Join::Straight => points.to_vec(),
            Join::Stairs => stairs(points),
        }
    }

    /// The points that have a marker.
    pub(super) fn marked(self, points: &[Place]) -> Vec<Place> {
        match self {
            Join::Straight => points.to_vec(),
            Join::Stairs => apart(points),
        }
    }
}

fn stairs(points: &[Place]) -> Vec<Place> {
    let rise = |pair: &[Place]| [(pair[1].0, pair[0].1), pair[1]];
    let first = points.first().copied();
    first
        .into_iter()
        .chain(points.windows(2).flat_map(rise))
        .collect()
}

fn apart(points: &[Place]) -> Vec<Place> {
    let mut marked: Vec<Place> = Vec::new();
    let last = points.last().map_or(0.0, |last| last.0);
    for (index, &point) in points.iter().enumerate() {
        let far = |other: &Place| point.0 - other.0 >= Join::APART;
        let free = marked.last().is_none_or(far) && last - point.0 >= Join::APART;
        if index == 0 || index + 1 == points.len() || free {
            marked.push(point);
        }
    }
    marked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stairs_hold_a_value_up_to_the_next_point() {
        let points = [(0.0, 9.0), (5.0, 4.0), (6.0, 1.0)];
        let corners = [(0.0, 9.0), (5.0, 9.0), (5.0, 4.0), (6.0, 4.0), (6.0, 1.0)];
        assert_eq!(Join::Stairs.line(&points), corners);
        assert_eq!(Join::Straight.line(&points), points);
        assert_eq!(Join::Stairs.line(&[]), []);
    }

    #[test]
    fn markers_of_stairs_are_apart_and_the_ends_have_one() {
        let points: Vec<Place> = (0..=100).map(|x| (f64::from(x), 0.0)).collect();
        let marked = Join::Stairs.marked(&points);
        assert_eq!((marked[0].0, marked[marked.len() - 1].0), (0.0, 100.0));
        assert!(marked
            .windows(2)
            .all(|pair| pair[1].0 - pair[0].0 >= Join::APART));
        assert!(marked.len() >= 4);
        assert_eq!(Join::Straight.marked(&points), points);
        assert_eq!(Join::Stairs.marked(&points[..1]), points[..1]);
        assert_eq!(Join::Stairs.marked(&points[..2]), points[..2]);
    }
}
