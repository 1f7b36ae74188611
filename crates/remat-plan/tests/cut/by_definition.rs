//! Cost of a choice of saved values by the words of the paper's section 3, on names and sets, without the planner.

use remat_plan::cut::{Description, Node, Quantity};
use std::collections::{BTreeSet, HashMap};

/// A joint graph and what its words mean.
pub(crate) struct Meaning<'a> {
    graph: &'a Description,
    nodes: HashMap<&'a str, &'a Node>,
    /// Computable from the inputs alone.
    pub(crate) forward: BTreeSet<&'a str>,
    pub(crate) banned: BTreeSet<&'a str>,
}

type Names<'a> = BTreeSet<&'a str>;

impl<'a> Meaning<'a> {
    pub(crate) fn of(graph: &'a Description) -> Meaning<'a> {
        let nodes: HashMap<&str, &Node> = graph
            .nodes
            .iter()
            .map(|node| (node.name.as_str(), node))
            .collect();
        let mut meaning = Meaning {
            graph,
            nodes,
            forward: Names::new(),
            banned: Names::new(),
        };
        let given: Names = graph.inputs.iter().map(String::as_str).collect();
        let tangents: Names = graph.tangents.iter().map(String::as_str).collect();
        meaning.forward = meaning.computable(given, &|node| !tangents.contains(node.name.as_str()));
        meaning.banned = meaning
            .forward
            .iter()
            .copied()
            .filter(|&name| meaning.is_banned(name))
            .collect();
        meaning
    }

    fn node(&self, name: &str) -> &'a Node {
        self.nodes[name]
    }

    fn users(&self, name: &'a str) -> impl Iterator<Item = &'a Node> + '_ {
        self.graph
            .nodes
            .iter()
            .filter(move |user| user.inputs.iter().any(|input| input == name))
    }

    /// The nodes that ops that may run compute from these.
    fn computable(&self, mut there: Names<'a>, may: &dyn Fn(&Node) -> bool) -> Names<'a> {
        loop {
            let before = there.len();
            for node in &self.graph.nodes {
                if may(node)
                    && node
                        .inputs
                        .iter()
                        .all(|input| there.contains(input.as_str()))
                {
                    there.insert(&node.name);
                }
            }
            if there.len() == before {
                return there;
            }
        }
    }

    fn is_banned(&self, name: &'a str) -> bool {
        let node = self.node(name);
        let read: BTreeSet<&str> = node.inputs.iter().map(String::as_str).collect();
        let read: u64 = read.iter().map(|input| whole(self.node(input).bytes)).sum();
        let mut backward = self
            .users(name)
            .filter(|user| !self.forward.contains(user.name.as_str()));
        !self.graph.inputs.iter().any(|input| input == name)
            && (node.compute_bound
                || node.random
                || !node.recomputable
                || node.reduction && 4 * whole(node.bytes) < read
                || backward.any(|user| !(user.fusible && node.fusible)))
    }

    /// The cost of saving it; `None` if it cannot be saved.
    fn capacity(&self, name: &'a str) -> Option<u64> {
        let node = self.node(name);
        let listed = |list: &[String]| list.iter().any(|listed| listed == name);
        let written = listed(&self.graph.inputs)
            || listed(&self.graph.forward_outputs)
            || !node.fusible
            || self.users(name).any(|user| !user.fusible);
        node.savable
            .then_some(whole(node.bytes) * if written { 1 } else { 2 })
    }

    /// The cost of saving these, and the nodes that are then recomputed; `None` if the choice is not valid (section
    /// 3.2).
    pub(crate) fn worth(&self, saved: &Names<'a>) -> Option<(u64, Names<'a>)> {
        let cost = saved
            .iter()
            .map(|name| self.capacity(name))
            .sum::<Option<u64>>()?;
        let given: Names = saved
            .iter()
            .copied()
            .chain(self.graph.tangents.iter().map(String::as_str))
            .collect();
        let inputs: Names = self.graph.inputs.iter().map(String::as_str).collect();
        let may = |node: &Node| {
            !self.banned.contains(node.name.as_str()) && !inputs.contains(node.name.as_str())
        };
        let there = self.computable(given.clone(), &may);
        let wanted: Vec<&str> = self
            .graph
            .backward_outputs
            .iter()
            .map(String::as_str)
            .collect();
        if wanted.iter().any(|name| !there.contains(name)) {
            return None;
        }
        let mut run = Names::new();
        let mut work = wanted;
        while let Some(name) = work.pop() {
            if !given.contains(name) && run.insert(name) {
                work.extend(self.node(name).inputs.iter().map(String::as_str));
            }
        }
        let recomputed = run.intersection(&self.forward).copied().collect();
        Some((cost, recomputed))
    }

    /// Of all choices: the least cost, and what each choice at that cost recomputes.
    pub(crate) fn best(&self) -> Option<(u64, Vec<Names<'a>>)> {
        let names: Vec<&str> = self.forward.iter().copied().collect();
        let mut best: Option<(u64, Vec<Names>)> = None;
        for choice in 0..1u32 << names.len() {
            let chosen = (0..names.len()).filter(|bit| choice >> bit & 1 == 1);
            let saved = chosen.map(|bit| names[bit]).collect();
            let Some((cost, recomputed)) = self.worth(&saved) else {
                continue;
            };
            match &mut best {
                Some((least, _)) if *least < cost => {}
                Some((least, all)) if *least == cost => all.push(recomputed),
                _ => best = Some((cost, vec![recomputed])),
            }
        }
        best
    }
}

pub(crate) fn whole(quantity: Quantity) -> u64 {
    match quantity {
        Quantity::Whole(value) => value,
        Quantity::Other(value) => panic!("{value} is not whole"),
    }
}
