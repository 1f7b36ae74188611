//! Flow networks.

/// The capacity of an edge: the most flow through it, and the cost of cutting it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// A finite amount.
    Finite(u64),
    /// Any flow; the edge must not be cut.
    Infinite,
}

/// An edge of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The vertex it comes from.
    pub tail: u32,
    /// The vertex it goes to.
    pub head: u32,
    /// Its capacity.
    pub capacity: Capacity,
}

/// A directed graph with capacities, a source and a sink (section 2.5 of the paper). Vertices are numbered from 0.
#[derive(Clone, Debug, Default)]
pub struct Network {
    pub(crate) vertices: u32,
    pub(crate) edges: Vec<Edge>,
}

impl Network {
    /// The source.
    pub const SOURCE: u32 = 0;
    /// The sink.
    pub const SINK: u32 = 1;

    /// A network of the source, the sink, and so many vertices besides, numbered from 2 on.
    pub fn new(besides: u32) -> Network {
        Network {
            vertices: besides + 2,
            edges: Vec::new(),
        }
    }

    /// Adds an edge.
    ///
    /// # Panics
    /// If it comes from, or goes to, no vertex, or if there are 2^30 edges.
    pub fn edge(&mut self, tail: u32, head: u32, capacity: Capacity) {
        assert!(tail < self.vertices && head < self.vertices);
        assert!(self.edges.len() < 1 << 30);
        self.edges.push(Edge {
            tail,
            head,
            capacity,
        });
    }

    /// Its edges, in the order in which they were added.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// The reversed network: every edge turned round, source and sink exchanged.
    pub(crate) fn reversed(&self) -> Network {
        let turned = |vertex: u32| match vertex {
            Network::SOURCE => Network::SINK,
            Network::SINK => Network::SOURCE,
            other => other,
        };
        let edge = |edge: &Edge| Edge {
            tail: turned(edge.head),
            head: turned(edge.tail),
            capacity: edge.capacity,
        };
        Network {
            vertices: self.vertices,
            edges: self.edges.iter().map(edge).collect(),
        }
    }
}
