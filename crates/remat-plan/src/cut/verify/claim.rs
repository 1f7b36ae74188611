//! What a plan is worth, from the words of the paper, of `timeline.rs` and of `kernels.rs` alone: nothing here is shared with the planner but the graph
//! and its JSON.

use crate::cut::error::Short;
use crate::cut::graph::joint_graph::JointGraph;
use serde::Deserialize;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;

/// What a plan says of itself; only `saved` must be there.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Claim {
    /// Names of what is saved.
    pub saved: Vec<String>,
    /// Names of what is recomputed.
    pub recomputed: Option<Vec<String>>,
    /// Names of what is recomputed although the rules ban it.
    #[serde(default)]
    pub lifted: Vec<String>,
    /// Sum of the capacities cut.
    pub cost: Option<u64>,
    /// Bytes of what is saved.
    pub saved_bytes: Option<u64>,
    /// The most bytes at once.
    pub peak_bytes: Option<u64>,
    /// Nanoseconds that run a second time.
    pub recompute_ns: Option<u64>,
    /// Bytes that the step was to fit in.
    pub budget_bytes: Option<u64>,
}

/// What a valid plan is worth.
#[derive(Clone, Debug, PartialEq)]
pub struct Verified {
    /// Names of what is recomputed, in the order of the graph.
    pub recomputed: Vec<String>,
    /// Sum of the capacities cut.
    pub cost: u64,
    /// Bytes of what is saved.
    pub saved_bytes: u64,
    /// The most bytes at once.
    pub peak_bytes: u64,
    /// Nanoseconds of ops that run a second time beside the kernels of the backward pass.
    pub recompute_ns: u64,
}

/// Why a plan is not valid, or not worth what it says.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault(String);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Fault {}

fn fault<T>(reason: String) -> Result<T, Fault> {
    Err(Fault(reason))
}

/// Recomputes what a plan is worth, and compares it with what it says. Takes time `O(size log size)`.
///
/// Not valid is a plan that saves what no one could hand on, leaves the backward pass without a value, or has it recompute what is not to
/// be recomputed and is not said to be lifted; random ops are never.
pub fn verify(graph: &JointGraph, claim: &Claim) -> Result<Verified, Fault> {
    let check = Check::new(graph, claim)?;
    check.bans()?;
    let verified = check.worth();
    agree(claim, &verified)?;
    Ok(verified)
}

fn agree(claim: &Claim, verified: &Verified) -> Result<(), Fault> {
    let numbers = [
        ("cost", claim.cost, verified.cost),
        ("saved_bytes", claim.saved_bytes, verified.saved_bytes),
        ("peak_bytes", claim.peak_bytes, verified.peak_bytes),
        ("recompute_ns", claim.recompute_ns, verified.recompute_ns),
    ];
    for (field, said, found) in numbers {
        match said {
            Some(said) if said != found => {
                return fault(format!("it says {field} {said}, found is {found}"))
            }
            _ => {}
        }
    }
    if let Some(said) = &claim.recomputed {
        let sorted = |names: &[String]| {
            let mut names = names.to_vec();
            names.sort();
            names
        };
        if sorted(said) != sorted(&verified.recomputed) {
            return fault(
                "what it says is recomputed is not what follows from what is saved".into(),
            );
        }
    }
    match claim.budget_bytes {
        Some(budget) if verified.peak_bytes > budget => fault(format!(
            "its peak of {} bytes is above its budget of {budget}",
            verified.peak_bytes
        )),
        _ => Ok(()),
    }
}

/// Where a node is worked out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// Given to the forward pass.
    Input,
    /// Could be made without tangents.
    Forward,
    /// Needs a tangent, or is one.
    Backward,
}

struct Check<'a> {
    graph: &'a JointGraph,
    place: Vec<Place>,
    saved: Vec<bool>,
    lifted: Vec<bool>,
    /// Some output of the backward pass comes of it by way of ops that the backward pass runs.
    useful: Vec<bool>,
}

impl<'a> Check<'a> {
    fn new(graph: &'a JointGraph, claim: &Claim) -> Result<Check<'a>, Fault> {
        let mut place = Vec::with_capacity(graph.len());
        for (id, node) in graph.nodes.iter().enumerate() {
            let tainted = |&read: &u32| place[read as usize] == Place::Backward;
            place.push(
                match node.tangent || graph.inputs.of(id).iter().any(tainted) {
                    true => Place::Backward,
                    false if node.input => Place::Input,
                    false => Place::Forward,
                },
            );
        }
        let mut check = Check {
            graph,
            place,
            saved: marked(graph, "saved", &claim.saved)?,
            lifted: marked(graph, "lifted", &claim.lifted)?,
            useful: vec![false; graph.len()],
        };
        check.follow()?;
        Ok(check)
    }

    /// From the outputs of the backward pass to what is handed to it.
    fn follow(&mut self) -> Result<(), Fault> {
        let graph = self.graph;
        for id in (0..graph.len()).rev() {
            let node = &graph.nodes[id];
            if self.saved[id] {
                self.can_be_saved(id)?;
            }
            self.useful[id] |= node.backward_output;
            if !self.useful[id] || self.saved[id] {
                continue;
            }
            if self.place[id] == Place::Input {
                return fault(format!(
                    "the backward pass needs {}, an input that is not saved",
                    self.name(id)
                ));
            }
            for &read in graph.inputs.of(id) {
                self.useful[read as usize] = true;
            }
        }
        let idle = (0..graph.len()).find(|&id| self.saved[id] && !self.useful[id]);
        match idle {
            Some(id) => fault(format!("{} is saved and nothing reads it", self.name(id))),
            None => Ok(()),
        }
    }

    fn can_be_saved(&self, id: usize) -> Result<(), Fault> {
        if self.place[id] == Place::Backward {
            return fault(format!(
                "{} is saved, but comes of a tangent",
                self.name(id)
            ));
        }
        match self.graph.nodes[id].savable {
            true => Ok(()),
            false => fault(format!("{} is saved, but is not savable", self.name(id))),
        }
    }

    fn name(&self, id: usize) -> Short<'a> {
        Short(&self.graph.names[id])
    }

    /// The backward pass runs it although the forward pass could.
    fn again(&self, id: usize) -> bool {
        self.useful[id] && !self.saved[id] && self.place[id] == Place::Forward
    }

    /// The backward pass runs it.
    fn late(&self, id: usize) -> bool {
        let op = self.place[id] == Place::Backward && !self.graph.nodes[id].tangent;
        self.again(id) || (op && self.useful[id])
    }

    fn users(&self, id: usize) -> impl Iterator<Item = usize> + '_ {
        self.graph.users.of(id).iter().map(|&user| user as usize)
    }

    /// Nothing banned is recomputed, but for what is said to be.
    fn bans(&self) -> Result<(), Fault> {
        for id in (0..self.graph.len()).filter(|&id| self.again(id)) {
            let node = &self.graph.nodes[id];
            if node.random {
                return fault(format!("{} is random and is recomputed", self.name(id)));
            }
            if !node.recomputable {
                return fault(format!(
                    "{} is recomputed, which the graph forbids",
                    self.name(id)
                ));
            }
            match self.ban(id) {
                Some(reason) if !self.lifted[id] => {
                    return fault(format!(
                        "{} is recomputed, which is banned: {reason}",
                        self.name(id)
                    ))
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn ban(&self, id: usize) -> Option<&'static str> {
        let node = &self.graph.nodes[id];
        let read: u128 = (self.graph.inputs.of(id).iter())
            .map(|&read| u128::from(self.graph.nodes[read as usize].bytes))
            .sum();
        let apart = |user: usize| !(node.fusible && self.graph.nodes[user].fusible);
        if node.compute_bound {
            return Some("it is compute-bound");
        }
        if node.reduction && u128::from(node.bytes) * 4 < read {
            return Some("it is a reduction to less than a quarter");
        }
        let mut late = self
            .users(id)
            .filter(|&user| self.place[user] == Place::Backward);
        late.any(apart)
            .then_some("an op of the backward pass that it does not fuse with reads it")
    }

    fn worth(&self) -> Verified {
        let early = self.early();
        let saved = (0..self.graph.len()).filter(|&id| self.saved[id]);
        let again = (0..self.graph.len()).filter(|&id| self.again(id));
        Verified {
            cost: saved.clone().map(|id| self.capacity(id)).sum(),
            saved_bytes: saved.map(|id| self.graph.nodes[id].bytes).sum(),
            recomputed: again
                .clone()
                .map(|id| self.graph.names[id].clone())
                .collect(),
            recompute_ns: again
                .filter(|&id| early[id] && !self.free(id))
                .map(|id| self.graph.nodes[id].cost)
                .sum(),
            peak_bytes: self.peak(&early),
        }
    }

    fn capacity(&self, id: usize) -> u64 {
        let node = &self.graph.nodes[id];
        let stays_in_kernels =
            node.fusible && self.users(id).all(|user| self.graph.nodes[user].fusible);
        let written = node.input || node.forward_output || !stays_in_kernels;
        node.bytes * if written { 1 } else { 2 }
    }

    /// It is not compute-bound, and all that reads it in the backward pass is in a kernel with it.
    fn free(&self, id: usize) -> bool {
        let mut readers = self.users(id).filter(|&user| self.late(user));
        let node = &self.graph.nodes[id];
        node.fusible && !node.compute_bound && readers.all(|user| self.graph.nodes[user].fusible)
    }

    /// What the forward pass runs.
    fn early(&self) -> Vec<bool> {
        let mut early = vec![false; self.graph.len()];
        for id in (0..self.graph.len()).rev() {
            let wanted = self.saved[id] || self.graph.nodes[id].forward_output;
            early[id] = self.place[id] == Place::Forward
                && (wanted || self.users(id).any(|user| early[user]));
        }
        early
    }

    /// What the backward pass runs, in order: each op of its own, what is recomputed for it before it.
    fn order(&self) -> Vec<usize> {
        let mut due = vec![usize::MAX; self.graph.len()];
        let mut late: Vec<usize> = (0..self.graph.len()).filter(|&id| self.late(id)).collect();
        for &id in late.iter().rev() {
            due[id] = match self.place[id] {
                Place::Backward => id,
                _ => self
                    .users(id)
                    .filter(|&user| self.late(user))
                    .map(|user| due[user])
                    .min()
                    .unwrap_or(usize::MAX),
            };
        }
        late.sort_by_key(|&id| (due[id], self.place[id] == Place::Backward, id));
        late
    }

    /// The step with its references counted.
    fn peak(&self, early: &[bool]) -> u64 {
        let mut memory = Memory::default();
        let mut values: HashMap<usize, Value> = HashMap::new();
        for id in (0..self.graph.len()).filter(|&id| self.place[id] == Place::Input) {
            let buffer = memory.take(self.graph.nodes[id].bytes);
            values.insert(id, Value::given(buffer));
        }
        let forward: Vec<usize> = (0..self.graph.len()).filter(|&id| early[id]).collect();
        let keeps = |id: usize| {
            usize::from(self.saved[id]) + usize::from(self.graph.nodes[id].forward_output)
        };
        self.pass(&forward, early, keeps, &mut memory, &mut values);
        // Beside the forward outputs, only what is saved can be reached now.
        let returned = (forward.iter())
            .filter(|&&id| self.graph.nodes[id].forward_output)
            .filter_map(|id| values[id].buffer);
        returned.for_each(|buffer| memory.refer(buffer));
        values.retain(|&id, _| {
            self.place[id] == Place::Input || self.saved[id] || self.graph.nodes[id].forward_output
        });
        let runs: Vec<bool> = (0..self.graph.len()).map(|id| self.late(id)).collect();
        for id in 0..self.graph.len() {
            let readers = self.users(id).filter(|&user| runs[user]).count();
            match values.get_mut(&id) {
                Some(value) if self.place[id] != Place::Input => {
                    value.readers = readers + usize::from(self.graph.nodes[id].backward_output);
                    let gone = value.readers == 0 || self.again(id);
                    let buffer = value.buffer.filter(|_| gone);
                    buffer.into_iter().for_each(|buffer| memory.drop(buffer));
                }
                _ => {}
            }
            if self.graph.nodes[id].tangent {
                let buffer = memory.take(self.graph.nodes[id].bytes);
                values.insert(id, Value::given(buffer));
            }
        }
        memory.look(0);
        let keeps = |id: usize| usize::from(self.graph.nodes[id].backward_output);
        self.pass(&self.order(), &runs, keeps, &mut memory, &mut values);
        memory.peak
    }

    /// Results of an op of several that have memory of their own.
    fn parts(&self, id: usize) -> impl Iterator<Item = usize> + '_ {
        self.users(id).filter(move |&user| {
            let node = &self.graph.nodes[user];
            node.part_of == Some(id as u32) && node.view_of.is_none()
        })
    }

    /// Values of the pass that are in no memory, being computed where they are read.
    fn unwritten(
        &self,
        order: &[usize],
        runs: &[bool],
        keeps: &impl Fn(usize) -> usize,
    ) -> HashSet<usize> {
        // What shares memory, by the node that is no view.
        let mut owner: HashMap<usize, usize> = HashMap::new();
        let mut sharing: HashMap<usize, Vec<usize>> = HashMap::new();
        for &id in order {
            let shared = match self.graph.nodes[id].view_of {
                Some(base) => owner.get(&(base as usize)).copied(),
                None => Some(id),
            };
            if let Some(shared) = shared {
                owner.insert(id, shared);
                sharing.entry(shared).or_default().push(id);
            }
        }
        let fused = |&id: &usize| {
            let mut readers = self.users(id).filter(|&user| runs[user]);
            self.graph.nodes[id].fusible && readers.all(|user| self.graph.nodes[user].fusible)
        };
        let unwritten = |owner: usize, sharing: &[usize]| {
            let node = &self.graph.nodes[owner];
            let several =
                |&id: &usize| !self.graph.nodes[id].savable && self.parts(id).next().is_some();
            let alone = !node.reduction && sharing.iter().all(fused);
            node.part_of.is_none()
                && !sharing.iter().any(several)
                && sharing.iter().all(|&id| keeps(id) == 0)
                && node.written.map_or(alone, |written| !written)
        };
        let groups = sharing.iter();
        let groups = groups.filter(|(owner, sharing)| unwritten(**owner, sharing));
        let mut found: HashSet<usize> = groups
            .flat_map(|(_, sharing)| sharing.iter().copied())
            .collect();
        let depth = self.depth(order, runs);
        let mut sources: HashMap<usize, BTreeSet<usize>> = HashMap::new();
        let mut heavy: HashSet<usize> = HashSet::new();
        for &id in order {
            let mut read = BTreeSet::new();
            for input in self.graph.inputs.of(id).iter().map(|&input| input as usize) {
                match sources.get(&input) {
                    Some(those) if found.contains(&input) => {
                        read.extend(those.iter().copied());
                        if heavy.contains(&input) {
                            heavy.insert(id);
                        }
                    }
                    _ => _ = read.insert(input),
                }
            }
            if self.graph.nodes[id].heavy {
                heavy.insert(id);
            }
            if found.contains(&id) && owner[&id] == id && self.graph.nodes[id].written.is_none() {
                let all = &sharing[&id];
                let readers = all.iter().flat_map(|&shared| self.users(shared));
                let readers = readers.filter(|user| runs[*user] && !all.contains(user));
                let readers: Vec<usize> = readers.collect();
                let apart = readers.iter().any(|user| depth[user] > depth[&id]);
                let dear = heavy.contains(&id) || read.len() > self.graph.shared_reads;
                if readers.len() > 1 && apart && dear {
                    all.iter().for_each(|shared| _ = found.remove(shared));
                }
            }
            read = read.into_iter().take(self.graph.shared_reads + 1).collect();
            sources.insert(id, read);
        }
        found
    }

    /// Kernels that have to end before each op can be in one: by ops on the way to it that do not fuse.
    fn depth(&self, order: &[usize], runs: &[bool]) -> HashMap<usize, usize> {
        let mut depth: HashMap<usize, usize> = HashMap::new();
        for &id in order {
            let mut most = 0;
            for &input in self.graph.inputs.of(id) {
                if let (true, Some(before)) = (runs[input as usize], depth.get(&(input as usize))) {
                    let fuse =
                        self.graph.nodes[input as usize].fusible && self.graph.nodes[id].fusible;
                    most = most.max(before + usize::from(!fuse));
                }
            }
            depth.insert(id, most);
        }
        depth
    }

    /// Runs ops; `keeps` says how many references outlast the pass.
    fn pass(
        &self,
        order: &[usize],
        runs: &[bool],
        keeps: impl Fn(usize) -> usize,
        memory: &mut Memory,
        values: &mut HashMap<usize, Value>,
    ) {
        let unwritten = self.unwritten(order, runs, &keeps);
        let readers = |id: usize| self.users(id).filter(|&user| runs[user]).count() + keeps(id);
        let mut parts: HashMap<usize, usize> = HashMap::new();
        for &id in order {
            let readers = readers(id);
            if unwritten.contains(&id) {
                memory.look(self.graph.nodes[id].workspace);
                values.insert(id, Value::computed_where_read(readers));
                if readers == 0 {
                    self.leave(id, memory, values);
                }
                continue;
            }
            let buffer = self.buffer(id, runs, &mut parts, memory, values);
            memory.look(self.graph.nodes[id].workspace);
            let value = Value {
                buffer: Some(buffer),
                readers,
            };
            values.insert(id, value);
            self.leave(id, memory, values);
            if readers == 0 {
                memory.drop(buffer);
            }
        }
    }

    /// The buffer of a value that is written, and those of the results of an op of several.
    fn buffer(
        &self,
        id: usize,
        runs: &[bool],
        parts: &mut HashMap<usize, usize>,
        memory: &mut Memory,
        values: &HashMap<usize, Value>,
    ) -> usize {
        let node = &self.graph.nodes[id];
        let base = node.view_of.map(|base| &values[&(base as usize)]);
        let buffer = match (base.and_then(|base| base.buffer), parts.remove(&id)) {
            (Some(buffer), _) => {
                memory.refer(buffer);
                buffer
            }
            (None, Some(part)) => part,
            (None, None) => memory.take(node.bytes),
        };
        for part in self.parts(id) {
            let bytes = self.graph.nodes[part].bytes;
            match runs[part] {
                true => _ = parts.insert(part, memory.take(bytes)),
                false if node.view_of.is_some() => {}
                false => memory.grow(buffer, bytes),
            }
        }
        buffer
    }

    /// What a value was computed from is read no more by it. What no one else reads goes, and leaves what it was computed from in turn if it
    /// was never written.
    fn leave(&self, id: usize, memory: &mut Memory, values: &mut HashMap<usize, Value>) {
        let mut leaving = vec![id];
        while let Some(id) = leaving.pop() {
            for &read in self.graph.inputs.of(id) {
                let value = values.get_mut(&(read as usize));
                let value = value.expect("inputs run before what reads them");
                value.readers -= 1;
                match (value.readers, value.buffer) {
                    (0, Some(buffer)) => memory.drop(buffer),
                    (0, None) => leaving.push(read as usize),
                    _ => {}
                }
            }
        }
    }
}

fn marked(graph: &JointGraph, list: &str, names: &[String]) -> Result<Vec<bool>, Fault> {
    let mut marked = vec![false; graph.len()];
    let ids = graph
        .find(names)
        .map_err(|name| Fault(format!("{list} names {}, which is no node", Short(name))))?;
    for (id, name) in ids.into_iter().zip(names) {
        if std::mem::replace(&mut marked[id as usize], true) {
            return fault(format!("{list} names {} twice", Short(name)));
        }
    }
    Ok(marked)
}

#[derive(Debug)]
struct Value {
    /// `None` if it is computed where it is read.
    buffer: Option<usize>,
    /// Reads to come, and references that stay.
    readers: usize,
}

impl Value {
    /// Stays, whoever reads it.
    fn given(buffer: usize) -> Value {
        Value {
            buffer: Some(buffer),
            readers: usize::MAX / 2,
        }
    }

    fn computed_where_read(readers: usize) -> Value {
        Value {
            buffer: None,
            readers,
        }
    }
}

/// Buffers with reference counts.
#[derive(Default)]
struct Memory {
    /// Bytes and references of each buffer.
    buffers: Vec<(u64, usize)>,
    there: u64,
    peak: u64,
}

impl Memory {
    fn take(&mut self, bytes: u64) -> usize {
        self.buffers.push((bytes, 1));
        self.there += bytes;
        self.buffers.len() - 1
    }

    fn grow(&mut self, buffer: usize, bytes: u64) {
        self.buffers[buffer].0 += bytes;
        self.there += bytes;
    }

    fn refer(&mut self, buffer: usize) {
        self.buffers[buffer].1 += 1;
    }

    fn drop(&mut self, buffer: usize) {
        let (bytes, references) = &mut self.buffers[buffer];
        *references -= 1;
        if *references == 0 {
            self.there -= *bytes;
        }
    }

    /// While an op runs that takes so much workspace.
    fn look(&mut self, workspace: u64) {
        self.peak = self.peak.max(self.there + workspace);
    }
}
