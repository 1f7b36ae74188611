//! Maximum flow by push-relabel (Goldberg and Tarjan, "A new approach to the maximum-flow problem", 1988; with global
//! relabeling and the gap heuristic of Cherkassky and Goldberg, "On implementing the push-relabel method", 1997),
//! along paths of a few arcs (Goldberg, "The partial augment-relabel algorithm for the maximum flow problem", 2008).
//!
//! Where flow is pushed arc by arc, excess runs into each dead end before that is relabeled, and back: on densely
//! connected layers a hundred times as often as along paths.
//!
//! This file runs only the first of the two phases of push-relabel. It finds a preflow, which may leave excess on its
//! way. The sink gets as much of a maximum preflow as of a maximum flow, which is enough for the cut nearest the
//! sink: the vertices from which the sink can still be reached.

use crate::flow::network::Network;
use std::collections::VecDeque;

/// More than all finite capacities together.
pub(crate) const INFINITY: u64 = 1 << 62;

const SOURCE: usize = Network::SOURCE as usize;
const SINK: usize = Network::SINK as usize;
/// No vertex.
const NONE: u32 = u32::MAX;
/// Arcs of a path that excess is pushed along.
const PATH: usize = 4;

/// One direction of an edge.
#[derive(Clone, Copy)]
struct Arc {
    head: u32,
    /// The other direction of the edge.
    mate: u32,
    /// The amount that can still be pushed.
    residual: u64,
}

/// A preflow on a network of flat arrays, arcs sorted by the vertex they come from.
pub(crate) struct Flow<'a> {
    edges: &'a [(u32, u32, u64)],
    /// The arc that each edge became.
    arc_of: Vec<u32>,
    /// Where the arcs of each vertex begin.
    start: Vec<u32>,
    arcs: Vec<Arc>,
    excess: Vec<u64>,
    /// At most the number of arcs to the sink; as many as there are vertices where the sink cannot be reached.
    label: Vec<u32>,
    /// The arc that each vertex goes on with.
    current: Vec<u32>,
    levels: Levels,
    active: Active,
    /// The arcs of the path under way.
    path: Vec<u32>,
    /// Steps since labels were last made exact.
    work: usize,
}

impl<'a> Flow<'a> {
    /// Nothing flows yet. Edges are tail, head, capacity; none goes into the source or out of the sink.
    pub(crate) fn new(vertices: u32, edges: &'a [(u32, u32, u64)]) -> Flow<'a> {
        let count = vertices as usize;
        let mut start = vec![0u32; count + 1];
        for &(tail, head, _) in edges {
            start[tail as usize + 1] += 1;
            start[head as usize + 1] += 1;
        }
        for vertex in 0..count {
            start[vertex + 1] += start[vertex];
        }
        let mut next = start.clone();
        let mut place = |vertex: u32| {
            let place = &mut next[vertex as usize];
            *place += 1;
            *place - 1
        };
        let arc = |head, mate, residual| Arc {
            head,
            mate,
            residual,
        };
        let mut arcs = vec![arc(0, 0, 0); 2 * edges.len()];
        let mut arc_of = Vec::with_capacity(edges.len());
        for &(tail, head, capacity) in edges {
            let (there, back) = (place(tail), place(head));
            arcs[there as usize] = arc(head, back, capacity);
            arcs[back as usize] = arc(tail, there, 0);
            arc_of.push(there);
        }
        Flow {
            edges,
            arc_of,
            current: start[..count].to_vec(),
            start,
            arcs,
            excess: vec![0; count],
            label: vec![0; count],
            levels: Levels::new(count),
            active: Active::new(count),
            path: Vec::with_capacity(PATH),
            work: 0,
        }
    }

    /// The amount that has reached the sink.
    pub(crate) fn value(&self) -> u64 {
        self.excess[SINK]
    }

    /// Finds a maximum preflow.
    pub(crate) fn maximize(&mut self) {
        let vertices = self.excess.len();
        let patience = 2 * (6 * vertices + self.edges.len());
        for arc in self.arcs_of(SOURCE) {
            let Arc { head, residual, .. } = self.arcs[arc];
            self.send(arc, residual);
            self.excess[head as usize] += residual;
        }
        self.relabel_all();
        while let Some(vertex) = self.active.pop() {
            self.discharge(vertex as usize);
            if self.work > patience {
                self.relabel_all();
            }
        }
    }

    fn arcs_of(&self, vertex: usize) -> std::ops::Range<usize> {
        self.start[vertex] as usize..self.start[vertex + 1] as usize
    }

    fn send(&mut self, arc: usize, amount: u64) {
        self.arcs[arc].residual -= amount;
        let mate = self.arcs[arc].mate as usize;
        self.arcs[mate].residual += amount;
    }

    /// Pushes the excess of a vertex on, until none is left or the sink cannot be reached: along paths of arcs that
    /// each lead one label down, to the sink or `PATH` arcs away. Where a path ends before, its last vertex is
    /// relabeled, and the path goes on from the one before.
    fn discharge(&mut self, vertex: usize) {
        let nowhere = self.excess.len() as u32;
        let mut at = vertex;
        while self.excess[vertex] > 0 && self.label[vertex] < nowhere {
            match self.down(at) {
                Some(arc) => {
                    self.path.push(arc as u32);
                    at = self.arcs[arc].head as usize;
                    if self.path.len() == PATH || at == SINK {
                        self.augment();
                        at = vertex;
                    }
                }
                None => {
                    self.relabel(at);
                    at = self.path.pop().map_or(vertex, |arc| self.tail(arc));
                }
            }
        }
        self.path.clear();
    }

    /// The arc that a vertex goes on with, if it has one to a vertex one label down.
    fn down(&mut self, vertex: usize) -> Option<usize> {
        let below = self.label[vertex].wrapping_sub(1);
        let arcs = self.current[vertex]..self.start[vertex + 1];
        let leads_down = |&arc: &u32| {
            let Arc { head, residual, .. } = self.arcs[arc as usize];
            residual > 0 && self.label[head as usize] == below
        };
        let found = arcs.clone().find(leads_down);
        self.current[vertex] = found.unwrap_or(arcs.end);
        found.map(|arc| arc as usize)
    }

    fn tail(&self, arc: u32) -> usize {
        let mate = self.arcs[arc as usize].mate;
        self.arcs[mate as usize].head as usize
    }

    /// Pushes excess along the path, arc by arc.
    fn augment(&mut self) {
        for place in 0..self.path.len() {
            let arc = self.path[place];
            self.push(self.tail(arc), arc as usize);
        }
        self.path.clear();
    }

    fn push(&mut self, vertex: usize, arc: usize) {
        let Arc { head, residual, .. } = self.arcs[arc];
        let (head, amount) = (head as usize, residual.min(self.excess[vertex]));
        self.send(arc, amount);
        self.excess[vertex] -= amount;
        self.excess[head] += amount;
        if head != SINK {
            self.active.add(head as u32);
        }
    }

    /// Raises a vertex to one above the lowest it can push to, or to where all are that lead nowhere.
    fn relabel(&mut self, vertex: usize) {
        let nowhere = self.excess.len() as u32;
        let mut lowest = NONE;
        let arcs = self.arcs_of(vertex);
        self.work += 12 + arcs.len();
        for arc in arcs {
            let Arc { head, residual, .. } = self.arcs[arc];
            if residual > 0 && self.label[head as usize] < lowest {
                lowest = self.label[head as usize];
                self.current[vertex] = arc as u32;
            }
        }
        let old = self.label[vertex];
        self.levels.leave(vertex as u32, old);
        self.label[vertex] = nowhere;
        if self.levels.first[old as usize] == NONE {
            self.levels.give_up_above(old, &mut self.label);
        } else if lowest < nowhere - 1 {
            self.label[vertex] = lowest + 1;
            self.levels.enter(vertex as u32, lowest + 1);
        }
    }

    /// Makes labels exact: how many arcs it takes to the sink (global relabeling), by a breadth-first search from
    /// there.
    fn relabel_all(&mut self) {
        let nowhere = self.excess.len() as u32;
        self.work = 0;
        self.levels.clear();
        self.active.clear();
        self.label.fill(nowhere);
        self.current
            .copy_from_slice(&self.start[..nowhere as usize]);
        self.label[SINK] = 0;
        self.levels.enter(SINK as u32, 0);
        let mut queue = vec![SINK as u32];
        let mut done = 0;
        while let Some(&vertex) = queue.get(done) {
            done += 1;
            let label = self.label[vertex as usize] + 1;
            for arc in self.arcs_of(vertex as usize) {
                let Arc { head, mate, .. } = self.arcs[arc];
                let other = head as usize;
                let reaches = self.arcs[mate as usize].residual > 0;
                if reaches && self.label[other] == nowhere && other != SOURCE {
                    self.label[other] = label;
                    self.levels.enter(head, label);
                    if self.excess[other] > 0 {
                        self.active.add(head);
                    }
                    queue.push(head);
                }
            }
        }
    }

    /// The vertices from which the sink can still be reached: with a maximum preflow, the sink side of the minimum
    /// cut nearest the sink.
    pub(crate) fn reaches_sink(&mut self) -> Vec<bool> {
        self.relabel_all();
        let nowhere = self.excess.len() as u32;
        self.label.iter().map(|&label| label < nowhere).collect()
    }

    /// Checks that the preflow is one and fills every edge of the cut, so that no flow brings the sink more than the
    /// cut lets through.
    pub(crate) fn certify(&self, beyond: &[bool]) -> Result<(), String> {
        let mut came = vec![0u64; self.excess.len()];
        let mut went = vec![0u64; self.excess.len()];
        for (&(tail, head, capacity), &arc) in self.edges.iter().zip(&self.arc_of) {
            let flow = capacity.checked_sub(self.arcs[arc as usize].residual);
            let flow = flow.ok_or_else(|| format!("flow runs back from {head} to {tail}"))?;
            came[head as usize] += flow;
            went[tail as usize] += flow;
            if !beyond[tail as usize] && beyond[head as usize] && flow < capacity {
                return Err(format!("the cut from {tail} to {head} is not full"));
            }
        }
        for vertex in 0..self.excess.len() {
            if vertex != SOURCE && came[vertex] < went[vertex] {
                return Err(format!("more flows out of {vertex} than into it"));
            }
        }
        if came[SINK] != self.value() {
            let (came, value) = (came[SINK], self.value());
            return Err(format!("{came} flows into the sink, {value} was counted"));
        }
        Ok(())
    }
}

/// Vertices that may have excess, first in, first out.
struct Active {
    queue: VecDeque<u32>,
    queued: Vec<bool>,
}

impl Active {
    fn new(vertices: usize) -> Active {
        Active {
            queue: VecDeque::with_capacity(vertices),
            queued: vec![false; vertices],
        }
    }

    fn add(&mut self, vertex: u32) {
        if !std::mem::replace(&mut self.queued[vertex as usize], true) {
            self.queue.push_back(vertex);
        }
    }

    fn pop(&mut self) -> Option<u32> {
        let vertex = self.queue.pop_front()?;
        self.queued[vertex as usize] = false;
        Some(vertex)
    }

    fn clear(&mut self) {
        self.queue.clear();
        self.queued.fill(false);
    }
}

/// The vertices by label.
struct Levels {
    /// The first vertex of each label, and its neighbours in the list of its label.
    first: Vec<u32>,
    next: Vec<u32>,
    previous: Vec<u32>,
    /// No vertex from which the sink can be reached has a higher label.
    highest: usize,
}

impl Levels {
    fn new(vertices: usize) -> Levels {
        Levels {
            first: vec![NONE; vertices],
            next: vec![NONE; vertices],
            previous: vec![NONE; vertices],
            highest: 0,
        }
    }

    fn clear(&mut self) {
        self.first[..=self.highest].fill(NONE);
        self.highest = 0;
    }

    fn enter(&mut self, vertex: u32, label: u32) {
        let first = std::mem::replace(&mut self.first[label as usize], vertex);
        self.next[vertex as usize] = first;
        self.previous[vertex as usize] = NONE;
        if first != NONE {
            self.previous[first as usize] = vertex;
        }
        self.highest = self.highest.max(label as usize);
    }

    fn leave(&mut self, vertex: u32, label: u32) {
        let (next, previous) = (self.next[vertex as usize], self.previous[vertex as usize]);
        if next != NONE {
            self.previous[next as usize] = previous;
        }
        match previous {
            NONE => self.first[label as usize] = next,
            _ => self.next[previous as usize] = next,
        }
    }

    /// Gives up all vertices above a label that none has: they cannot reach the sink (the gap heuristic).
    fn give_up_above(&mut self, gap: u32, labels: &mut [u32]) {
        let nowhere = labels.len() as u32;
        for level in gap as usize + 1..=self.highest {
            let mut vertex = std::mem::replace(&mut self.first[level], NONE);
            while vertex != NONE {
                labels[vertex as usize] = nowhere;
                vertex = self.next[vertex as usize];
            }
        }
        self.highest = gap as usize;
    }
}
