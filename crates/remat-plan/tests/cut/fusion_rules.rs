//! Bans that follow from which ops fuse, against their definitions on names and sets.

use crate::random_graphs::joint_graphs;
use crate::small_truths::graph;
use proptest::prelude::*;
use remat_plan::cut::{
    Ban, Claim, CutError, Description, FusionRules, JointGraph, Node, Wishes, partition, verify,
};
use std::collections::{BTreeMap, BTreeSet};

const ALL: FusionRules = FusionRules {
    materialized_backward: true,
    used_far_apart: true,
    long_fusible_chains: true,
};

/// The rules by their definitions: every set is computed anew until it grows no more.
struct Definition<'a> {
    graph: &'a Description,
    /// Places among the ops of the forward pass.
    place: BTreeMap<&'a str, usize>,
    found: BTreeMap<&'a str, Ban>,
}

impl<'a> Definition<'a> {
    fn bans(graph: &'a Description) -> BTreeMap<&'a str, Ban> {
        let forward = graph.nodes.iter().filter(|node| node.forward == Some(true));
        let place = forward.enumerate().map(|(k, node)| (&*node.name, k));
        let mut definition = Definition {
            graph,
            place: place.collect(),
            found: BTreeMap::new(),
        };
        definition.materialized_backward();
        definition.used_far_apart();
        definition.long_fusible_chains();
        definition.found
    }

    fn node(&self, name: &str) -> &'a Node {
        let mut nodes = self.graph.nodes.iter();
        nodes.find(|node| node.name == name).unwrap()
    }

    fn readers(&self, name: &str) -> Vec<&'a Node> {
        let reads = |node: &&Node| node.inputs.iter().any(|input| input == name);
        self.graph.nodes.iter().filter(reads).collect()
    }

    fn fuses(&self, name: &str, reader: &Node) -> bool {
        reader.fuses_as_reader || (self.node(name).fusible && reader.fusible)
    }

    fn ban(&mut self, name: &'a str, ban: Ban) {
        let node = self.node(name);
        let exempt = node.free || !node.recomputable || self.graph.inputs.contains(&node.name);
        if self.place.contains_key(name) && !exempt {
            self.found.entry(name).or_insert(ban);
        }
    }

    fn is_item(&self, node: &Node) -> bool {
        let reads: BTreeSet<&String> = node.inputs.iter().collect();
        node.op == "getitem" && reads.len() == 1 && !self.node(&node.inputs[0]).savable
    }

    fn materialized_backward(&mut self) {
        for node in &self.graph.nodes {
            let mut same = BTreeSet::from([&*node.name]);
            loop {
                let readers = same.iter().flat_map(|name| self.readers(name));
                let views =
                    readers.filter(|reader| reader.view_of.is_some() && !self.is_item(reader));
                let more: Vec<&str> = views.map(|view| &*view.name).collect();
                let before = same.len();
                same.extend(more);
                if same.len() == before {
                    break;
                }
            }
            let unfused = |name: &&str| {
                let late = |reader: &&Node| !self.place.contains_key(&*reader.name);
                let mut readers = self.readers(name).into_iter().filter(late);
                readers.any(|reader| !self.fuses(name, reader))
            };
            if same.iter().any(unfused) {
                self.ban(&node.name, Ban::Unfusible);
            }
        }
    }

    fn forward_readers(&self, name: &str) -> Vec<&'a Node> {
        let mut readers = self.readers(name);
        readers.retain(|reader| self.place.contains_key(&*reader.name));
        readers
    }

    fn used_far_apart(&mut self) {
        for &name in self.place.clone().keys() {
            let readers = self.forward_readers(name);
            let Some(last) = readers.iter().map(|reader| self.place[&*reader.name]).max() else {
                continue;
            };
            let mut reached: BTreeSet<&str> = readers.iter().map(|reader| &*reader.name).collect();
            let mut first = last;
            loop {
                let before = reached.len();
                for name in reached.clone() {
                    for reader in self.forward_readers(name) {
                        let place = self.place[&*reader.name];
                        if place <= last && !self.fuses(name, reader) {
                            first = first.min(place);
                        }
                        if place <= last {
                            reached.insert(&reader.name);
                        }
                    }
                }
                if reached.len() == before {
                    break;
                }
            }
            for reader in readers {
                if self.place[&*reader.name] > first && self.fuses(name, reader) {
                    self.ban(&reader.name, Ban::UsedFarApart);
                }
            }
        }
    }

    /// Walks from each op, the earliest next; where but one op is left to go on with, more than a hundred places on,
    /// that is banned.
    fn long_fusible_chains(&mut self) {
        let mut starts: Vec<&str> = self.place.keys().copied().collect();
        starts.sort_by_key(|name| self.place[name]);
        let mut visited = BTreeSet::new();
        for start in starts {
            let mut waiting = vec![start];
            while !waiting.is_empty() {
                waiting.sort_by_key(|name| std::cmp::Reverse(self.place[name]));
                let name = waiting.pop().unwrap();
                if !visited.insert(name) {
                    continue;
                }
                if self.place[name] > self.place[start] + 100 && waiting.is_empty() {
                    self.ban(name, Ban::LongChain);
                    break;
                }
                for reader in self.forward_readers(name) {
                    let open = !self.found.contains_key(&*reader.name) && reader.recomputable;
                    if open && self.fuses(name, reader) {
                        waiting.push(&reader.name);
                    }
                }
            }
        }
    }
}

/// The same graph with all rules on and drawn facts.
fn with_facts(mut description: Description, bits: &[u8]) -> Description {
    let outputs = description.forward_outputs.clone();
    let mut runs: BTreeSet<String> = outputs
        .into_iter()
        .chain(description.inputs.clone())
        .collect();
    for node in description.nodes.iter().rev() {
        if runs.contains(&node.name) {
            runs.extend(node.inputs.iter().cloned());
        }
    }
    for (node, bits) in description.nodes.iter_mut().zip(bits.iter().cycle()) {
        node.forward = Some(runs.contains(&node.name));
        node.free = bits % 5 == 0;
        node.fuses_as_reader = bits % 7 == 0;
        node.compute_bound = false;
    }
    description.fusion_rules = ALL;
    description
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn bans_are_those_of_the_definitions(
        description in joint_graphs(24, 8),
        bits in prop::collection::vec(any::<u8>(), 1..40),
    ) {
        let description = with_facts(description, &bits);
        let wanted = Definition::bans(&description);
        let graph = JointGraph::new(description.clone()).unwrap();
        match partition(&graph, &Wishes::default()) {
            Ok(cut) => {
                let banned: BTreeMap<&str, Ban> =
                    cut.banned.iter().map(|(name, ban)| (&**name, *ban)).collect();
                for (name, ban) in wanted {
                    prop_assert_eq!(banned.get(name), Some(&ban), "{}", name);
                }
                let far = |ban: &&Ban| matches!(ban, Ban::UsedFarApart | Ban::LongChain);
                prop_assert_eq!(banned.values().filter(far).count(), Definition::bans(&description).values().filter(far).count());
                let claim = Claim { saved: cut.saved, ..Claim::default() };
                prop_assert!(verify(&graph, &claim).is_ok());
            }
            Err(error) => prop_assert!(matches!(error, CutError::NoCut { .. }), "{error}"),
        }
    }
}

/// The bans of a chain of so many ops.
fn chain(count: usize, rules: FusionRules) -> Vec<(String, Ban)> {
    let ops: Vec<String> = (1..=count)
        .map(|k| {
            format!(
                "a{k} = sin {}; ",
                if k == 1 {
                    "x".into()
                } else {
                    format!("a{}", k - 1)
                }
            )
        })
        .collect();
    let text = format!("x; {}g; dx = mul g a{count}", ops.concat());
    let mut net = graph(&text, ["x", "g", &format!("a{count}"), "dx"]);
    net.fusion_rules = rules;
    partition(&JointGraph::new(net).unwrap(), &Wishes::default())
        .unwrap()
        .banned
}

#[test]
fn of_a_long_chain_every_hundredth_op_is_banned() {
    let named: Vec<String> = chain(250, ALL).into_iter().map(|(name, _)| name).collect();
    assert_eq!(named, ["a101", "a203"]);
    assert_eq!(chain(250, FusionRules::default()), []);
    assert_eq!(chain(100, ALL), []);
}

#[test]
fn what_is_read_before_and_after_a_product_is_not_computed_twice() {
    let mut net = graph(
        "x; a = sin x; m = mm a; b = mul a m; y = mul b a; g; dx = mul g y",
        ["x", "g", "y", "dx"],
    );
    net.nodes[2].fusible = false;
    let banned = |rules| {
        let net = Description {
            fusion_rules: rules,
            ..net.clone()
        };
        partition(&JointGraph::new(net).unwrap(), &Wishes::default())
            .unwrap()
            .banned
    };
    assert_eq!(banned(FusionRules::default()), []);
    // b is the first op behind the product, y reads a behind b.
    assert_eq!(banned(ALL), [("y".to_owned(), Ban::UsedFarApart)]);
}
