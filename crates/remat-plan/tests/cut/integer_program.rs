//! The same question as an integer program, for a solver that knows nothing of graphs: the least time within a budget.
//!
//! The step runs in slots: each op of the forward pass, the handover, and for each op of the backward pass one for each value that may be
//! recomputed before it, and its own. Binary variables say what is saved, what the forward pass runs, and before which op what is
//! recomputed; from these follows what is there in each slot. Views and ops of several results are left out.

use crate::by_definition::{whole, Meaning};
use crate::random_graphs::joint_graphs;
use good_lp::{
    constraint, variable, Expression, ProblemVariables, ResolutionError, Solution, SolverModel,
    Variable,
};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use remat_plan::cut::{Budgets, CutError, Description, JointGraph, Wishes};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// A joint graph by number of node.
struct Plain {
    bytes: Vec<f64>,
    cost: Vec<f64>,
    fusible: Vec<bool>,
    savable: Vec<bool>,
    inputs: Vec<Vec<usize>>,
    given: Vec<bool>,
    tangent: Vec<bool>,
    forward_output: Vec<bool>,
    backward_output: Vec<bool>,
    /// Not to be recomputed within any budget.
    fixed: Vec<bool>,
    /// In `V_f`, and no input.
    made: Vec<usize>,
    /// The ops of the backward pass.
    ops: Vec<usize>,
}

impl Plain {
    fn of(graph: &Description) -> Plain {
        let forward = Meaning::of(graph).forward;
        let id = |name: &String| {
            graph
                .nodes
                .iter()
                .position(|node| node.name == *name)
                .unwrap()
        };
        let listed = |list: &[String]| {
            let ids: BTreeSet<usize> = list.iter().map(id).collect();
            (0..graph.nodes.len())
                .map(|node| ids.contains(&node))
                .collect::<Vec<bool>>()
        };
        let nodes = &graph.nodes;
        let inputs: Vec<Vec<usize>> = nodes
            .iter()
            .map(|node| node.inputs.iter().map(id).collect())
            .collect();
        let (given, tangent) = (listed(&graph.inputs), listed(&graph.tangents));
        let backward_output = listed(&graph.backward_outputs);
        let mut wanted = backward_output.clone();
        for node in (0..nodes.len())
            .rev()
            .filter(|&node| !forward.contains(nodes[node].name.as_str()))
        {
            if wanted[node] {
                inputs[node].iter().for_each(|&read| wanted[read] = true);
            }
        }
        let of_forward = |node: &usize| forward.contains(nodes[*node].name.as_str());
        Plain {
            bytes: nodes.iter().map(|node| whole(node.bytes) as f64).collect(),
            cost: nodes.iter().map(|node| whole(node.cost) as f64).collect(),
            fusible: nodes.iter().map(|node| node.fusible).collect(),
            savable: nodes.iter().map(|node| node.savable).collect(),
            fixed: nodes
                .iter()
                .map(|node| node.random || !node.recomputable)
                .collect(),
            forward_output: listed(&graph.forward_outputs),
            made: (0..nodes.len())
                .filter(|node| of_forward(node) && !given[*node])
                .collect(),
            ops: (0..nodes.len())
                .filter(|&node| wanted[node] && !of_forward(&node) && !tangent[node])
                .collect(),
            inputs,
            given,
            tangent,
            backward_output,
        }
    }

    fn reads(&self, user: usize, value: usize) -> bool {
        self.inputs[user].contains(&value)
    }

    /// The stage in which a node of the backward pass runs.
    fn stage(&self, op: usize) -> usize {
        self.ops.iter().position(|&other| other == op).unwrap()
    }
}

/// The least nanoseconds recomputed by a plan within the budget; `None` if there is none.
#[allow(clippy::needless_range_loop)] // Stages number many lists.
fn least(plain: &Plain, budget: u64) -> Option<f64> {
    let mut variables = ProblemVariables::new();
    let nodes = plain.bytes.len();
    let stages = plain.ops.len() + 1;
    let mut binary = |wanted: bool, most: f64| match wanted {
        true => Some(variables.add(variable().integer().min(0).max(most))),
        false => None,
    };
    let made = |v: usize| plain.made.contains(&v);
    let saved: Vec<Option<Variable>> = (0..nodes)
        .map(|v| binary(made(v), if plain.savable[v] { 1.0 } else { 0.0 }))
        .collect();
    let early: Vec<Option<Variable>> = (0..nodes).map(|v| binary(made(v), 1.0)).collect();
    let again: Vec<Vec<Option<Variable>>> = (0..nodes)
        .map(|v| {
            (0..stages)
                .map(|_| binary(made(v), if plain.fixed[v] { 0.0 } else { 1.0 }))
                .collect()
        })
        .collect();
    let paid: Vec<Option<Variable>> = (0..nodes)
        .map(|v| made(v).then(|| variables.add(variable().min(0).max(1))))
        .collect();
    let sum = |v: usize, upto: usize| again[v][..upto].iter().flatten().sum::<Expression>();
    let mut rules = Vec::new();
    for &v in &plain.made {
        let (saved_v, early_v) = (saved[v].unwrap(), early[v].unwrap());
        rules.push(constraint!(saved_v + sum(v, stages) <= 1));
        rules.push(constraint!(early_v >= saved_v));
        if plain.forward_output[v] {
            rules.push(constraint!(early_v >= 1));
        }
        let users: Vec<usize> = plain
            .made
            .iter()
            .copied()
            .filter(|&user| plain.reads(user, v))
            .collect();
        for &user in &users {
            rules.push(constraint!(early_v >= early[user].unwrap()));
        }
        for stage in 0..stages {
            let direct = needed(plain, v, stage);
            let mut wanted = Expression::from(if direct { 1.0 } else { 0.0 });
            if direct {
                rules.push(constraint!(saved_v + sum(v, stage + 1) >= 1));
            }
            for &user in &users {
                rules.push(constraint!(
                    saved_v + sum(v, stage + 1) >= again[user][stage].unwrap()
                ));
                wanted += again[user][stage].unwrap();
            }
            // No sooner than it is needed.
            rules.push(constraint!(again[v][stage].unwrap() <= wanted));
        }
        let apart = |&op: &usize| plain.reads(op, v) && !plain.fusible[op];
        if !plain.fusible[v] || plain.ops.iter().any(apart) {
            rules.push(constraint!(
                paid[v].unwrap() >= sum(v, stages) + early_v - 1
            ));
        }
        for &user in users.iter().filter(|&&user| !plain.fusible[user]) {
            rules.push(constraint!(
                paid[v].unwrap() >= sum(v, stages) + early_v + sum(user, stages) - 2
            ));
        }
    }
    let mut room = |bytes: Expression| rules.push(constraint!(bytes <= budget as f64));
    let mut there = |least: Vec<Expression>| -> (Variable, Vec<Expression>) {
        (variables.add(variable().min(0).max(1)), least)
    };
    let mut bounds = Vec::new();
    let base: f64 = (0..nodes)
        .filter(|&v| plain.given[v])
        .map(|v| plain.bytes[v])
        .sum();
    // The forward pass, slot by slot.
    for &slot in &plain.made {
        let mut bytes = Expression::from(base);
        for &v in plain.made.iter().filter(|&&v| v <= slot) {
            let mut least = vec![Expression::from(saved[v].unwrap())];
            if v == slot || plain.forward_output[v] {
                least.push(early[v].unwrap().into());
            }
            let later = plain
                .made
                .iter()
                .filter(|&&user| user >= slot && plain.reads(user, v));
            least.extend(later.map(|&user| Expression::from(early[user].unwrap())));
            let (alive, least) = there(least);
            bytes += plain.bytes[v] * alive;
            bounds.push((alive, least));
        }
        room(bytes);
    }
    // The handover and the backward pass.
    let held: f64 = (0..nodes)
        .filter(|&v| plain.tangent[v])
        .map(|v| plain.bytes[v])
        .sum();
    let slots = (0..stages).flat_map(|stage| {
        plain
            .made
            .iter()
            .copied()
            .chain([nodes])
            .map(move |place| (stage, place))
    });
    for (stage, place) in std::iter::once((0, 0)).chain(slots) {
        let handover = (stage, place) == (0, 0) && !plain.made.contains(&0);
        let mut bytes = Expression::from(base + held + of_ops(plain, stage, place));
        for &v in &plain.made {
            let used: Vec<(usize, usize)> = (0..stages)
                .flat_map(|b| plain.made.iter().map(move |&user| (b, user)))
                .filter(|&(b, user)| (b, user) >= (stage, place) && plain.reads(user, v))
                .collect();
            let stays = (stage..stages)
                .any(|b| needed(plain, v, b) && (b, nodes) >= (stage, place))
                || plain.backward_output[v];
            let mut kept = vec![];
            if plain.forward_output[v] {
                kept.push(Expression::from(1.0));
            }
            if stays || handover {
                kept.push(saved[v].unwrap().into());
            }
            kept.extend(
                used.iter()
                    .map(|&(b, user)| saved[v].unwrap() + again[user][b].unwrap() - 1.0),
            );
            let born = if place >= v { stage + 1 } else { stage };
            let mut anew = vec![];
            if place == v {
                anew.push(Expression::from(again[v][stage].unwrap()));
            }
            if stays {
                anew.push(sum(v, born));
            }
            anew.extend(
                used.iter()
                    .map(|&(b, user)| sum(v, born) + again[user][b].unwrap() - 1.0),
            );
            for least in [kept, anew] {
                let (alive, least) = there(least);
                bytes += plain.bytes[v] * alive;
                bounds.push((alive, least));
            }
        }
        room(bytes);
    }
    for (alive, least) in bounds {
        rules.extend(least.into_iter().map(|least| constraint!(alive >= least)));
    }
    let time: Expression = plain
        .made
        .iter()
        .map(|&v| plain.cost[v] * paid[v].unwrap())
        .sum();
    let mut problem = variables
        .minimise(time.clone())
        .using(good_lp::solvers::microlp::microlp);
    for rule in rules {
        problem.add_constraint(rule);
    }
    match problem.solve() {
        Ok(solution) => Some(solution.eval(time).round()),
        Err(ResolutionError::Infeasible) => None,
        Err(error) => panic!("{error}"),
    }
}

/// The op of this stage reads the value itself, or it is an output that is looked for when all ops have run.
fn needed(plain: &Plain, v: usize, stage: usize) -> bool {
    match plain.ops.get(stage) {
        Some(&op) => plain.reads(op, v),
        None => plain.backward_output[v],
    }
}

/// Bytes of results of the ops of the backward pass that are there in a slot.
fn of_ops(plain: &Plain, stage: usize, place: usize) -> f64 {
    let there = |&&op: &&usize| {
        let born = plain.stage(op);
        let is_made = born < stage || (born == stage && place == plain.bytes.len());
        let read = |&user: &usize| plain.reads(user, op) && plain.stage(user) >= stage;
        is_made && (born == stage || plain.backward_output[op] || plain.ops.iter().any(read))
    };
    plain
        .ops
        .iter()
        .filter(there)
        .map(|&op| plain.bytes[op])
        .sum()
}

#[test]
fn an_integer_program_finds_no_faster_plan() {
    let mut runner = TestRunner::deterministic();
    let (mut planned, mut refused) = (0, 0);
    while planned < 60 || refused < 20 {
        let mut graph = joint_graphs(8, 4).new_tree(&mut runner).unwrap().current();
        for node in &mut graph.nodes {
            (node.view_of, node.op) = (None, "op".into());
        }
        let plain = Plain::of(&graph);
        let graph = JointGraph::new(graph).unwrap();
        let Ok(budgets) = Budgets::new(&graph, &Wishes::default(), &mut |_| {
            ControlFlow::Continue(())
        }) else {
            continue;
        };
        let tradeoffs = budgets.tradeoffs();
        for tradeoff in &tradeoffs {
            let budget = tradeoff.peak_bytes;
            assert_eq!(
                least(&plain, budget),
                Some(tradeoff.recompute_ns as f64),
                "within {budget}"
            );
            planned += 1;
        }
        let budget = tradeoffs[0].peak_bytes - 1;
        assert_eq!(least(&plain, budget), None, "within {budget}");
        assert!(matches!(
            budgets.plan(budget),
            Err(CutError::Infeasible { certain: true, .. })
        ));
        refused += 1;
    }
}
