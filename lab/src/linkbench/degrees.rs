//! How many links a node has: LinkBench's observed distribution (`nlinks` of its file `config/Distribution.dat`).
//!
//! The file gives for each of 19,951 degrees the share of nodes that have no more links. Kept here are all degrees up to 16, where 99%
//! of the nodes are, and some thirty further points, rounded to four digits; between these the share of nodes with more links falls
//! by a power. The mean of that is 4.09 links, the file's 4.10.
//!
//! Nodes are ranked by degree. The node of rank r among n gets the mean degree of its n-th part of the distribution, so that a graph of
//! any size has the distribution's mean. The published driver gives it the highest degree of that part: the first node
//! of a small graph has 961,963 links there, 480 times as many as a graph of 2,000 nodes has nodes.
//!
//! A degree is divided between the two types of links. The published driver's division gives more than the degree: half of it, rounded
//! down, for each type, and one more for as many types as the other half counts. It is kept: the mean is 4.36 links then
//! (4.37 with the whole file).

/// Types of links.
pub const LINK_TYPES: u64 = 2;

/// Degrees, ascending, and the percentage of nodes that have more links.
const MORE: [(u64, f64); 46] = [
    (0, 54.67),
    (1, 22.54),
    (2, 13.04),
    (3, 8.007),
    (4, 5.549),
    (5, 4.172),
    (6, 3.277),
    (7, 2.680),
    (8, 2.239),
    (9, 1.922),
    (10, 1.672),
    (11, 1.463),
    (12, 1.300),
    (13, 1.175),
    (14, 1.066),
    (15, 0.9731),
    (EXACT, 0.8920),
    (20, 0.6730),
    (24, 0.5521),
    (32, 0.4169),
    (40, 0.3386),
    (50, 0.2784),
    (64, 0.2286),
    (100, 0.1686),
    (150, 0.1338),
    (200, 0.1149),
    (300, 0.09393),
    (500, 0.07254),
    (700, 0.06064),
    (1000, 0.04934),
    (1500, 0.03792),
    (2000, 0.03063),
    (3000, 0.02145),
    (4000, 0.01608),
    (5000, 0.01255),
    (7000, 0.008286),
    (10_000, 0.004955),
    (15_000, 0.002502),
    (19_998, 0.001462),
    (30_000, 0.0006161),
    (49_994, 0.000186),
    (69_740, 8.528e-5),
    (99_383, 3.721e-5),
    (198_095, 9.55e-6),
    (315_801, 1.98e-6),
    (MOST, 0.0),
];
/// Up to here every degree has its own entry.
const EXACT: u64 = 16;
/// The highest degree.
const MOST: u64 = 961_963;

/// The degrees of `n` nodes by rank.
#[derive(Clone, Debug)]
pub struct Degrees {
    n: u64,
    /// Parts of the distribution from the highest degrees down.
    parts: Vec<Part>,
}

/// Nodes whose degrees are between two entries.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// The share of nodes with higher degrees, and that with these degrees or higher ones.
    from: f64,
    to: f64,
    /// Links of all nodes with higher degrees, over the number of all nodes.
    before: f64,
    shape: Shape,
}

#[derive(Clone, Copy, Debug)]
enum Shape {
    /// All have this degree.
    Level(f64),
    /// The share of nodes with more than x links is `share * (x / degree)^(-1 / power)`, for whole numbers x.
    Power { degree: f64, share: f64, power: f64 },
}

impl Part {
    /// Links of the nodes of the part up to this share of all nodes.
    fn links_to(&self, share: f64) -> f64 {
        match self.shape {
            Shape::Level(degree) => degree * (share - self.from),
            Shape::Power { degree, share: end, power } => {
                let at = |s: f64| (s / end).powf(1.0 - power);
                // Between x - 1 and x the nodes have x links: rounded to the nearest, a half more is the whole number above.
                degree * end / (1.0 - power) * (at(share) - at(self.from)) + 0.5 * (share - self.from)
            }
        }
    }
}

impl Degrees {
    /// The degrees of so many nodes.
    pub fn new(n: u64) -> Degrees {
        let mut parts: Vec<Part> = Vec::with_capacity(MORE.len());
        let mut before = 0.0;
        for i in (0..MORE.len()).rev() {
            let (degree, more) = MORE[i];
            let from = more / 100.0;
            let (lower, to) = if i == 0 { (0, 1.0) } else { (MORE[i - 1].0, MORE[i - 1].1 / 100.0) };
            let shape = if degree <= EXACT {
                Shape::Level(degree as f64)
            } else if from == 0.0 {
                Shape::Level((lower + degree) as f64 / 2.0)
            } else {
                let power = (degree as f64 / lower as f64).ln() / (to / from).ln();
                Shape::Power { degree: lower as f64, share: to, power }
            };
            let part = Part { from, to, before, shape };
            before += part.links_to(to);
            parts.push(part);
        }
        Degrees { n, parts }
    }

    /// The degree of a rank below `n`; 0 has the highest.
    pub fn degree(&self, rank: u64) -> u64 {
        // Whole numbers whose sums are right, too.
        let links = |rank: u64| (self.links_before(rank as f64 / self.n as f64) * self.n as f64).round();
        (links(rank + 1) - links(rank)) as u64
    }

    /// Links of the nodes of this share with the highest degrees, over the number of all nodes.
    fn links_before(&self, share: f64) -> f64 {
        let at = self.parts.partition_point(|part| part.to < share).min(self.parts.len() - 1);
        self.parts[at].before + self.parts[at].links_to(share)
    }
}

/// Links of the type with this number, 0 or 1, of a node of this degree.
pub fn of_type(degree: u64, number: u64) -> u64 {
    let half = degree / LINK_TYPES;
    half + u64::from(number < degree - half)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(degree: u64) -> u64 {
        (0..LINK_TYPES).map(|number| of_type(degree, number)).sum()
    }

    #[test]
    fn the_mean_is_that_of_the_file_at_any_size() {
        for n in [1000, 2000, 50_000, 1_000_000] {
            let degrees = Degrees::new(n);
            let (mut plain, mut divided) = (0, 0);
            for rank in 0..n {
                plain += degrees.degree(rank);
                divided += both(degrees.degree(rank));
            }
            let (plain, divided) = (plain as f64 / n as f64, divided as f64 / n as f64);
            assert!((plain / 4.097 - 1.0).abs() < 0.01, "{n}: {plain}");
            assert!((divided / 4.371 - 1.0).abs() < 0.01, "{n}: {divided}");
        }
    }

    /// Shares of nodes with more links, from the published file, at degrees that have no entry here, too.
    #[test]
    fn the_shares_are_those_of_the_file() {
        let n = 1_000_000;
        let degrees = Degrees::new(n);
        let mut all: Vec<u64> = (0..n).map(|rank| degrees.degree(rank)).collect();
        assert!(all.windows(2).all(|pair| pair[0] + 1 >= pair[1]), "ranks fall");
        all.sort_unstable();
        let published = [
            (0, 54.66839),
            (1, 22.53741),
            (3, 8.00695),
            (10, 1.67197),
            (17, 0.82012),
            (30, 0.44306),
            (80, 0.19482),
            (128, 0.14608),
            (256, 0.10154),
            (400, 0.08128),
            (1300, 0.04177),
            (2500, 0.02534),
            (8000, 0.00688),
        ];
        for (degree, more) in published {
            let found = (n as usize - all.partition_point(|&d| d <= degree)) as f64 * 100.0 / n as f64;
            // The two percent are the interpolation's; the last addend is a node more or less at the edge.
            assert!((found - more).abs() < more * 0.02 + 2e-4, "more than {degree}: {found}%, not {more}%");
        }
    }

    /// The heavy end: links of the thousandth of the nodes that has most.
    #[test]
    fn the_tail_is_heavy() {
        let n = 1_000_000;
        let degrees = Degrees::new(n);
        let top: u64 = (0..n / 1000).map(|rank| degrees.degree(rank)).sum();
        let share = top as f64 / n as f64;
        assert!((share / 2.636 - 1.0).abs() < 0.02, "{share} links a node, of all nodes, belong to the thousandth");
        assert!((90_000..140_000).contains(&degrees.degree(0)), "{}", degrees.degree(0));
        assert_eq!(degrees.degree(n - 1), 0);
    }

    #[test]
    fn types() {
        let divided = |degree| (of_type(degree, 0), of_type(degree, 1));
        assert_eq!([0, 1, 2, 3, 4, 5].map(divided), [(0, 0), (1, 0), (2, 1), (2, 2), (3, 3), (3, 3)]);
    }
}
