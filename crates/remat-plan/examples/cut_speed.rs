//! How long minimum cuts take, by size and kind of network: `cargo run --release -p remat-plan --example cut_speed`.
//!
//! With arguments, only these: `cut_speed ladder 1000000`. Sizes count vertices of the split graph. Everything runs
//! on one core; times are those that the processor spent on it, where the system tells, as shared machines let it
//! wait. The last family is planned as a whole, names and all; its size counts nodes.

use remat_plan::cut::Capacity::{Finite, Infinite};
use remat_plan::cut::{
    Budgets, Description, JointGraph, Network, Node, Quantity, Wishes, min_cut, partition,
};
use std::time::Instant;

type Family = fn(u32, &mut Random) -> Network;

const FAMILIES: &[(&str, Family)] = &[
    ("chain", chain),
    ("ladder", ladder),
    ("skips", skips),
    ("dense", dense),
    ("wide", wide),
    ("random", random),
    ("grid", grid),
];
const SIZES: [u32; 4] = [1_000, 10_000, 100_000, 1_000_000];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |name: &str, size: u32| {
        let named = arguments.first().is_none_or(|wanted| wanted == name);
        let sized = arguments
            .get(1)
            .is_none_or(|wanted| *wanted == size.to_string());
        named && sized
    };
    println!("| family | vertices | edges | min cut s | cost |");
    println!("| --- | ---: | ---: | ---: | ---: |");
    for &(name, family) in FAMILIES {
        for size in SIZES.into_iter().filter(|&size| wanted(name, size)) {
            let (network, edges) = counted(family, size);
            let start = Clock::now();
            let cut = min_cut(&network).expect("there is a finite cut");
            println!(
                "| {name} | {size} | {edges} | {:.4} | {} |",
                start.seconds(),
                cut.cost
            );
        }
    }
    println!();
    println!("| joint graph | nodes | read s | partition s | saved |");
    println!("| --- | ---: | ---: | ---: | ---: |");
    for size in SIZES
        .into_iter()
        .filter(|&size| wanted("transformer", size))
    {
        let description = transformer(size);
        let nodes = description.nodes.len();
        let json = serde_json::to_string(&description).expect("it is JSON");
        let start = Clock::now();
        let graph: JointGraph = json.parse().expect("the graph is sound");
        let read = start.seconds();
        let start = Clock::now();
        let cut = partition(&graph, &Wishes::default()).expect("there is a cut");
        println!(
            "| transformer | {nodes} | {read:.4} | {:.4} | {} |",
            start.seconds(),
            cut.saved.len()
        );
    }
    println!();
    println!(
        "| nodes | search s | tradeoffs | peak of the cut MiB | budget MiB | recomputed ms | bound ms |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for size in [300, 1_000, 5_000]
        .into_iter()
        .filter(|&size| wanted("budgets", size))
    {
        budgets(size);
    }
}

/// Plans within budgets of a transformer of about so many nodes.
fn budgets(size: u32) {
    let graph = JointGraph::new(transformer(size)).expect("the graph is sound");
    let start = Clock::now();
    let go_on = &mut |_| std::ops::ControlFlow::Continue(());
    let budgets = Budgets::new(&graph, &Wishes::default(), go_on).expect("there is a cut");
    let seconds = start.seconds();
    let tradeoffs = budgets.tradeoffs();
    let (smallest, cut) = (
        tradeoffs[0].peak_bytes,
        tradeoffs[tradeoffs.len() - 1].peak_bytes,
    );
    for part in [0.0, 0.25, 0.5, 0.75] {
        let budget = smallest + ((cut - smallest) as f64 * part) as u64;
        let planned = budgets.plan(budget).expect("it fits");
        let mib = |bytes: u64| bytes >> 20;
        println!(
            "| {} | {seconds:.2} | {} | {} | {} | {:.2} | {:.2} |",
            graph.len(),
            tradeoffs.len(),
            mib(cut),
            mib(budget),
            planned.cut.recompute_ns as f64 / 1e6,
            planned.bound_ns as f64 / 1e6,
        );
    }
}

/// A network that counts its edges.
fn counted(family: Family, size: u32) -> (Network, usize) {
    let network = family(size, &mut Random(1));
    let edges = network.edges().len();
    (network, edges)
}

/// A linear congruential generator.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        ((self.0 >> 33) % u64::from(bound)) as u32
    }

    fn capacity(&mut self) -> u64 {
        1 + u64::from(self.below(1 << 20))
    }
}

/// The split graph of nodes that read earlier ones: node `i` reads what `reads(i)` says; the first `given` are
/// inputs, `needed` says what the backward pass needs.
fn split(
    nodes: u32,
    given: u32,
    random: &mut Random,
    reads: impl Fn(u32, &mut Random) -> Vec<u32>,
    needed: impl Fn(u32, &mut Random) -> bool,
) -> Network {
    let mut network = Network::new(2 * nodes);
    for node in 0..nodes {
        let (into, out) = (2 + 2 * node, 3 + 2 * node);
        if node < given {
            network.edge(Network::SOURCE, into, Infinite);
        } else {
            for read in reads(node, random) {
                network.edge(3 + 2 * read, into, Infinite);
            }
        }
        network.edge(into, out, Finite(random.capacity()));
        if needed(node, random) {
            network.edge(out, Network::SINK, Infinite);
        }
    }
    network
}

/// Each node reads the one before, the last is needed: as deep as can be.
fn chain(vertices: u32, random: &mut Random) -> Network {
    let nodes = vertices / 2;
    split(
        nodes,
        1,
        random,
        |node, _| vec![node - 1],
        |node, _| node + 1 == nodes,
    )
}

/// Two chains whose nodes read one another.
fn ladder(vertices: u32, random: &mut Random) -> Network {
    let nodes = vertices / 2;
    split(
        nodes,
        2,
        random,
        |node, _| vec![node - 2, (node - 1 - node % 2).min(node - 1)],
        |node, _| node + 2 >= nodes,
    )
}

/// A chain with residual connections over four nodes, of which every tenth is needed.
fn skips(vertices: u32, random: &mut Random) -> Network {
    let nodes = vertices / 2;
    let reads = |node: u32, _: &mut Random| match node % 4 {
        0 => vec![node - 1, node - 4],
        _ => vec![node - 1],
    };
    split(nodes, 4, random, reads, |node, random| {
        node + 1 == nodes || random.below(10) == 0
    })
}

/// Each node reads the 16 before, as in blocks of a DenseNet; the last are needed.
fn dense(vertices: u32, random: &mut Random) -> Network {
    let nodes = vertices / 2;
    let reads = |node: u32, _: &mut Random| (node.saturating_sub(16)..node).collect();
    split(nodes, 16, random, reads, |node, _| node + 16 >= nodes)
}

/// Three layers, each node reading 4 of the layer before.
fn wide(vertices: u32, random: &mut Random) -> Network {
    let layer = vertices / 2 / 4;
    let reads = |node: u32, random: &mut Random| {
        let before = (node / layer - 1) * layer;
        (0..4).map(|_| before + random.below(layer)).collect()
    };
    split(4 * layer, layer, random, reads, |node, _| node >= 3 * layer)
}

/// Each node reads three of the thousand before; a tenth is needed.
fn random(vertices: u32, random: &mut Random) -> Network {
    let reads = |node: u32, random: &mut Random| {
        let near = node.min(1000);
        (0..3).map(|_| node - 1 - random.below(near)).collect()
    };
    split(vertices / 2, 100, random, reads, |_, random| {
        random.below(10) == 0
    })
}

/// A square of nodes, each reading those above it and to its left; the top row is given, the bottom row needed.
fn grid(vertices: u32, random: &mut Random) -> Network {
    let side = f64::from(vertices / 2).sqrt() as u32;
    let reads = |node: u32, _: &mut Random| match node % side {
        0 => vec![node - side],
        _ => vec![node - side, node - 1],
    };
    split(side * side, side, random, reads, |node, _| {
        node >= side * (side - 1)
    })
}

/// A transformer's joint graph of about so many nodes: layers of attention and a multilayer perceptron with GeLU and
/// dropout, in primitives.
fn transformer(nodes: u32) -> Description {
    let mut graph = Description::default();
    let mut last = graph_input(&mut graph, "x", 1 << 20);
    let mut layers = Vec::new();
    while 2 * graph.nodes.len() < nodes as usize {
        let layer = layers.len();
        let weights = ["qkv", "proj", "up", "down"]
            .map(|name| graph_input(&mut graph, &format!("{name}{layer}"), 3 << 20));
        let mut made = vec![last.clone()];
        let mut at = last.clone();
        for (step, weight) in weights.iter().enumerate() {
            let product = push(
                &mut graph,
                &format!("mm{layer}.{step}"),
                4 << 20,
                &[&at, weight],
                Kind::Product,
            );
            made.push(product.clone());
            at = product;
            for element in 0..6 {
                at = push(
                    &mut graph,
                    &format!("p{layer}.{step}.{element}"),
                    4 << 20,
                    &[&at, made.last().expect("a product")],
                    Kind::Pointwise,
                );
                made.push(at.clone());
            }
        }
        last = push(
            &mut graph,
            &format!("res{layer}"),
            1 << 20,
            &[&at, &last],
            Kind::Pointwise,
        );
        layers.push((made, weights));
    }
    graph.forward_outputs.push(last);
    graph.tangents.push("g".into());
    let mut gradient = push(&mut graph, "g", 1 << 20, &[], Kind::Pointwise);
    for (layer, (made, weights)) in layers.iter().enumerate().rev() {
        for (step, value) in made.iter().enumerate().rev() {
            gradient = push(
                &mut graph,
                &format!("b{layer}.{step}"),
                4 << 20,
                &[&gradient, value],
                Kind::Pointwise,
            );
            if step % 7 == 1 {
                let (weight, read) = (&weights[step / 7], &made[step - 1]);
                let name = format!("dw{layer}.{step}");
                let wanted = push(
                    &mut graph,
                    &name,
                    3 << 20,
                    &[&gradient, read],
                    Kind::Product,
                );
                graph.backward_outputs.push(wanted);
                gradient = push(
                    &mut graph,
                    &format!("dx{layer}.{step}"),
                    4 << 20,
                    &[&gradient, weight],
                    Kind::Product,
                );
            }
        }
    }
    graph.backward_outputs.push(gradient);
    graph
}

enum Kind {
    Pointwise,
    Product,
}

fn graph_input(graph: &mut Description, name: &str, bytes: u64) -> String {
    graph.inputs.push(name.into());
    push(graph, name, bytes, &[], Kind::Pointwise)
}

fn push(graph: &mut Description, name: &str, bytes: u64, inputs: &[&str], kind: Kind) -> String {
    let product = matches!(kind, Kind::Product);
    graph.nodes.push(Node {
        fusible: !product,
        compute_bound: product,
        cost: Quantity::Whole(if product { 200_000 } else { 20_000 }),
        ..Node::new(name, bytes, inputs)
    });
    name.into()
}

/// Time that this thread has had a processor, or has lasted where the system does not say.
struct Clock {
    spent: Option<u64>,
    wall: Instant,
}

impl Clock {
    fn now() -> Clock {
        let wall = Instant::now();
        let spent = spent();
        Clock { spent, wall }
    }

    fn seconds(&self) -> f64 {
        match (self.spent, spent()) {
            (Some(start), Some(end)) => (end - start) as f64 / 1e9,
            _ => self.wall.elapsed().as_secs_f64(),
        }
    }
}

fn spent() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}
