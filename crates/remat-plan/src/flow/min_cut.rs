//! The minimum cut nearest the sink, and its proof.

use crate::adjacency::Adjacency;
use crate::flow::network::{Capacity, Edge, Network};
use crate::flow::push_relabel::{Flow, INFINITY};

/// A minimum cut with its two sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinCut {
    /// Sum of the capacities that are cut, and the flow that proves that no cut costs less.
    pub cost: u64,
    /// For each vertex whether it is on the side of the sink.
    pub sink_side: Vec<bool>,
}

/// Why there is no minimum cut.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoMinCut {
    /// Edges from the source to the sink, none of which is to be cut, by number.
    Endless(Vec<usize>),
    /// The finite capacities add up to 2^62 or more.
    TooLarge(u128),
    /// Flow and cut do not prove one another, which would be an error in the solver.
    Uncertified(String),
}

/// The minimum cut nearest the sink: of all minimum cuts, the one with the fewest vertices beside the sink.
///
/// Vertices that infinite edges tie to the source or to the sink are contracted into it. The maximum flow of the rest
/// is found by push-relabel (Goldberg and Tarjan 1988, with the heuristics of Cherkassky and Goldberg 1997), in
/// `O(vertices^2 sqrt(edges))` at worst and close to linear time on joint graphs. Each time, a check proves that the
/// flow is a flow, that no infinite edge is cut, and that the cut costs as much as the flow carries.
///
/// ```
/// use remat_plan::cut::{min_cut, Capacity::{Finite, Infinite}, Network};
///
/// // source -5-> 2 -inf-> 3 -3-> sink, and 3 -1-> 4 -inf-> sink
/// let mut network = Network::new(3);
/// let out_of_2 = [(0, 2, Finite(5)), (2, 3, Infinite)];
/// let to_the_sink = [(3, 1, Finite(3)), (3, 4, Finite(1)), (4, 1, Infinite)];
/// for (tail, head, capacity) in out_of_2.into_iter().chain(to_the_sink) {
///     network.edge(tail, head, capacity);
/// }
/// let cut = min_cut(&network).expect("2 and 4 can be parted");
/// assert_eq!(cut.cost, 4);
/// assert_eq!(cut.sink_side, [false, true, false, false, true]);
/// ```
pub fn min_cut(network: &Network) -> Result<MinCut, NoMinCut> {
    let contracted = Contracted::new(network)?;
    let mut flow = Flow::new(contracted.vertices, &contracted.edges);
    flow.maximize();
    let beyond = flow.reaches_sink();
    flow.certify(&beyond).map_err(NoMinCut::Uncertified)?;
    let side = |&vertex: &u32| beyond[vertex as usize];
    let cut = MinCut {
        cost: flow.value(),
        sink_side: contracted.place.iter().map(side).collect(),
    };
    certify(network, &cut).map_err(NoMinCut::Uncertified)?;
    Ok(cut)
}

/// The minimum cut nearest the source: the one with the most vertices beside the sink.
pub fn min_cut_nearest_source(network: &Network) -> Result<MinCut, NoMinCut> {
    match min_cut(&network.reversed()) {
        Ok(mut cut) => {
            cut.sink_side.swap(0, 1);
            cut.sink_side.iter_mut().for_each(|side| *side = !*side);
            Ok(cut)
        }
        Err(NoMinCut::Endless(mut path)) => {
            path.reverse();
            Err(NoMinCut::Endless(path))
        }
        Err(error) => Err(error),
    }
}

/// Checks that the cut parts source from sink, cuts no infinite edge, and has the cost that it names.
fn certify(network: &Network, cut: &MinCut) -> Result<(), String> {
    let side = |vertex: u32| cut.sink_side[vertex as usize];
    if side(Network::SOURCE) || !side(Network::SINK) {
        return Err("source and sink are not parted".into());
    }
    let mut cost = 0u64;
    for edge in &network.edges {
        if side(edge.tail) || !side(edge.head) {
            continue;
        }
        match edge.capacity {
            Capacity::Finite(capacity) => cost += capacity,
            Capacity::Infinite => return Err(format!("{edge:?} is cut")),
        }
    }
    if cost != cut.cost {
        return Err(format!("the cut costs {cost}, the flow is {}", cut.cost));
    }
    Ok(())
}

/// A network in which the vertices that infinite edges tie to source or sink are one with it.
struct Contracted {
    vertices: u32,
    /// The vertex that each vertex of the network became.
    place: Vec<u32>,
    /// No edge goes into the source, out of the sink, or round.
    edges: Vec<(u32, u32, u64)>,
}

impl Contracted {
    fn new(network: &Network) -> Result<Contracted, NoMinCut> {
        let finite = |edge: &Edge| match edge.capacity {
            Capacity::Finite(capacity) => u128::from(capacity),
            Capacity::Infinite => 0,
        };
        let sum = network.edges.iter().map(finite).sum::<u128>();
        if sum >= u128::from(INFINITY) {
            return Err(NoMinCut::TooLarge(sum));
        }
        let ahead = tied(network, Network::SOURCE, |edge| (edge.tail, edge.head));
        let behind = tied(network, Network::SINK, |edge| (edge.head, edge.tail));
        if ahead[Network::SINK as usize] {
            return Err(NoMinCut::Endless(endless(network)));
        }
        let mut vertices = 2;
        let mut number = |(&ahead, &behind)| match (ahead, behind) {
            (true, _) => Network::SOURCE,
            (_, true) => Network::SINK,
            _ => {
                vertices += 1;
                vertices - 1
            }
        };
        let place: Vec<u32> = ahead.iter().zip(&behind).map(&mut number).collect();
        let edges = network.edges.iter().filter_map(|edge| {
            let (tail, head) = (place[edge.tail as usize], place[edge.head as usize]);
            let capacity = match edge.capacity {
                Capacity::Finite(capacity) => capacity,
                Capacity::Infinite => INFINITY,
            };
            let carries = tail != head && head != Network::SOURCE && tail != Network::SINK;
            carries.then_some((tail, head, capacity))
        });
        Ok(Contracted {
            vertices,
            edges: edges.collect(),
            place,
        })
    }
}

/// The vertices that infinite edges lead to from a vertex, itself included.
fn tied(network: &Network, from: u32, ends: impl Fn(&Edge) -> (u32, u32) + Copy) -> Vec<bool> {
    let infinite = |edge: &&Edge| edge.capacity == Capacity::Infinite;
    let pairs = network.edges.iter().filter(infinite).map(ends);
    let next = Adjacency::new(network.vertices as usize, pairs);
    let mut tied = vec![false; network.vertices as usize];
    tied[from as usize] = true;
    let mut stack = vec![from];
    while let Some(vertex) = stack.pop() {
        for &other in next.of(vertex as usize) {
            if !std::mem::replace(&mut tied[other as usize], true) {
                stack.push(other);
            }
        }
    }
    tied
}

/// The fewest infinite edges that lead from the source to the sink, if any do.
fn endless(network: &Network) -> Vec<usize> {
    let infinite = |&id: &u32| network.edges[id as usize].capacity == Capacity::Infinite;
    let ids = (0..network.edges.len() as u32).filter(infinite);
    let out = ids.map(|id| (network.edges[id as usize].tail, id));
    let next = Adjacency::new(network.vertices as usize, out);
    let mut by: Vec<Option<u32>> = vec![None; network.vertices as usize];
    let mut queue = std::collections::VecDeque::from([Network::SOURCE]);
    while let Some(vertex) = queue.pop_front() {
        for &id in next.of(vertex as usize) {
            let head = network.edges[id as usize].head;
            if head != Network::SOURCE && by[head as usize].is_none() {
                by[head as usize] = Some(id);
                queue.push_back(head);
            }
        }
    }
    let mut path = Vec::new();
    let mut at = Network::SINK;
    while let Some(id) = by[at as usize] {
        path.push(id as usize);
        at = network.edges[id as usize].tail;
    }
    path.reverse();
    path
}
