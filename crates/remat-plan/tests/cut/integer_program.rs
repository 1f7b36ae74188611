//! The same question as an integer program, for a solver that knows nothing of graphs: the least time within a budget.
//!
//! The step runs in slots: each op of the forward pass, the handover, and for each op of the backward pass one for
//! each value that may be recomputed before it, and its own. Binary variables say what is saved, what the forward
//! pass runs, and before which op what is recomputed; from these follows what kernels write, and what is there in
//! each slot. Views and ops of several results are left out.

use crate::by_definition::{Meaning, whole};
use crate::random_graphs::joint_graphs;
use good_lp::{
    Expression, ProblemVariables, ResolutionError, Solution, SolverModel, Variable, constraint,
    variable,
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
    compute_bound: Vec<bool>,
    reduction: Vec<bool>,
    written: Vec<Option<bool>>,
    workspace: Vec<f64>,
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
            compute_bound: nodes.iter().map(|node| node.compute_bound).collect(),
            reduction: nodes.iter().map(|node| node.reduction).collect(),
            written: nodes.iter().map(|node| node.written).collect(),
            workspace: nodes
                .iter()
                .map(|node| whole(node.workspace) as f64)
                .collect(),
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

    /// Whether kernels write a value that is not handed on, if that does not depend on what fuses with it and runs.
    fn settled(&self, v: usize) -> Option<bool> {
        self.written[v].or((!self.fusible[v] || self.reduction[v]).then_some(true))
    }

    /// Whether an op of the backward pass reads the value and does not fuse with it.
    fn apart(&self, v: usize) -> bool {
        let mut ops = self.ops.iter();
        ops.any(|&op| self.reads(op, v) && !(self.fusible[op] && self.fusible[v]))
    }

    /// Whether kernels write the result of an op of the backward pass.
    fn op_written(&self, op: usize) -> bool {
        let handed_on = self.backward_output[op];
        handed_on || self.settled(op).unwrap_or_else(|| self.apart(op))
    }

    /// The stage in which an op of the backward pass is last computed.
    fn last(&self, op: usize) -> usize {
        let readers = self.ops.iter().filter(|&&user| self.reads(user, op));
        if self.op_written(op) {
            return self.stage(op);
        }
        readers
            .map(|&user| self.last(user))
            .fold(self.stage(op), usize::max)
    }

    /// An op of the backward pass reads the value in this stage or later.
    fn read_from(&self, v: usize, stage: usize) -> bool {
        let mut ops = self.ops.iter();
        ops.any(|&op| self.reads(op, v) && self.last(op) >= stage)
    }
}

/// The least nanoseconds recomputed by a plan within the budget; `None` if there is none.
#[allow(clippy::needless_range_loop)] // Stages number many lists.
fn least(plain: &Plain, budget: u64) -> Option<f64> {
    let mut variables = ProblemVariables::new();
    let nodes = plain.bytes.len();
    let stages = plain.ops.len() + 1;
    let mut binary = |wanted: bool, most: f64| {
        wanted.then(|| variables.add(variable().integer().min(0).max(most)))
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
        if !plain.fusible[v] || plain.compute_bound[v] || plain.apart(v) {
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
    let mut bounds = Vec::new();
    // A variable that is 1 where one of these is.
    let mut any = |least: Vec<Expression>| -> Variable {
        let any = variables.add(variable().min(0).max(1));
        bounds.extend(least.into_iter().map(|least| constraint!(any >= least)));
        any
    };
    let users = |v: usize| -> Vec<usize> {
        let users = plain.made.iter().copied();
        users.filter(|&user| plain.reads(user, v)).collect()
    };
    // The values that each pass writes, if it runs them.
    let written = |v: usize, handed_on: bool, runs: &dyn Fn(usize) -> Expression| {
        let mut least = vec![Expression::from(if handed_on { 1.0 } else { 0.0 })];
        match plain.settled(v) {
            Some(settled) => least.push(Expression::from(if settled { 1.0 } else { 0.0 })),
            None => {
                let apart = users(v).into_iter().filter(|&user| !plain.fusible[user]);
                least.extend(apart.map(runs));
            }
        }
        least
    };
    let mut early_written = vec![None; nodes];
    let mut again_written = vec![None; nodes];
    for &v in &plain.made {
        let mut least = written(v, plain.forward_output[v], &|user| {
            early[user].unwrap().into()
        });
        least.push(saved[v].unwrap().into());
        early_written[v] = Some(any(least));
        let mut least = written(v, plain.backward_output[v], &|user| sum(user, stages));
        if plain.settled(v).is_none() && plain.apart(v) {
            least.push(Expression::from(1.0));
        }
        again_written[v] = Some(any(least));
    }
    let mut room = |bytes: Expression| rules.push(constraint!(bytes <= budget as f64));
    let base: f64 = (0..nodes)
        .filter(|&v| plain.given[v])
        .map(|v| plain.bytes[v])
        .sum();
    // The forward pass, slot by slot.
    for &slot in &plain.made {
        let mut bytes = base + plain.workspace[slot] * early[slot].unwrap();
        let mut read = vec![None; nodes];
        for &v in plain.made.iter().rev() {
            // By ops to come, and by values in kernels that are.
            let least = users(v).into_iter().map(|user| {
                if user >= slot {
                    early[user].unwrap().into()
                } else {
                    read[user].unwrap() - early_written[user].unwrap()
                }
            });
            read[v] = Some(any(least.collect()));
        }
        for &v in plain.made.iter().filter(|&&v| v <= slot) {
            let written = early_written[v].unwrap();
            let mut least = vec![
                Expression::from(saved[v].unwrap()),
                read[v].unwrap() + written - 1.0,
            ];
            if v == slot || plain.forward_output[v] {
                least.push(early[v].unwrap() + written - 1.0);
            }
            bytes += plain.bytes[v] * any(least);
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
        if let (false, Some(again)) = (handover, again.get(place).and_then(|of| of[stage])) {
            bytes += plain.workspace[place] * again;
        }
        let mut read = vec![None; nodes];
        for &v in plain.made.iter().rev() {
            let mut least: Vec<Expression> = Vec::new();
            for user in users(v) {
                least.extend(
                    (0..stages)
                        .filter(|&b| (b, user) >= (stage, place))
                        .map(|b| again[user][b].unwrap().into()),
                );
                let (read, written) = (read[user].unwrap(), again_written[user].unwrap());
                least.push(sum(user, stages) + read - written - 1.0);
            }
            if plain.read_from(v, stage) {
                least.push(Expression::from(1.0));
            }
            read[v] = Some(any(least));
        }
        for &v in &plain.made {
            let (read, written) = (read[v].unwrap(), again_written[v].unwrap());
            let mut kept = vec![saved[v].unwrap() + read - 1.0];
            if plain.forward_output[v] {
                kept.push(Expression::from(1.0));
            }
            if plain.backward_output[v] || handover {
                kept.push(saved[v].unwrap().into());
            }
            let born = if place >= v { stage + 1 } else { stage };
            let mut anew = vec![sum(v, born) + read + written - 2.0];
            if place == v {
                anew.push(again[v][stage].unwrap() + written - 1.0);
            }
            if plain.backward_output[v] {
                anew.push(sum(v, born));
            }
            for least in [kept, anew] {
                bytes += plain.bytes[v] * any(least);
            }
        }
        room(bytes);
    }
    rules.extend(bounds);
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

/// Bytes of results of the ops of the backward pass that are there in a slot, and of the workspace of the op that runs.
fn of_ops(plain: &Plain, stage: usize, place: usize) -> f64 {
    let there = |&&op: &&usize| {
        let born = plain.stage(op);
        let is_made = born < stage || (born == stage && place == plain.bytes.len());
        let stays = plain.backward_output[op] || plain.read_from(op, stage);
        is_made && plain.op_written(op) && (born == stage || stays)
    };
    let results = plain.ops.iter().filter(there).map(|&op| plain.bytes[op]);
    let running = (plain.ops.get(stage)).filter(|_| place == plain.bytes.len());
    results.sum::<f64>() + running.map_or(0.0, |&op| plain.workspace[op])
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
