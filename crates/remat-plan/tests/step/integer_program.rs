//! The same question as an integer program, for a solver that knows nothing of schedules (Jain et al., "Checkmate",
//! MLSys 2020, section 4).
//!
//! Row `t` of each variable is the slot that ends with the first run of op `t`, and the last row is the end of the
//! step. `R[t][i]`: op `i` runs in slot `t`. `S[t][i]`: its result is in memory when slot `t` begins. `FREE[t][k][i]`:
//! the result of `i` goes right after `k` ran in slot `t`. Steps have ops of one result each, no views and no writes.

use crate::numbered::Numbered;
use crate::random_steps::{check, steps};
use crate::recordings::{constant, fresh, op, release};
use crate::sets_of_runs::Frontier;
use crate::shortest_path::best_order;
use good_lp::{
    Constraint, Expression, ProblemVariables, ResolutionError, Solution, SolverModel, Variable,
    constraint, variable,
};
use proptest::prelude::*;
use remat_core::Bytes;
use remat_plan::step::{Planner, Search, Step};
use remat_trace::Event;
use std::cell::Cell;
use std::ops::ControlFlow;

const KIB: u64 = 1024;

/// The solver works with tolerances, which small numbers suit.
fn in_kib(bytes: u64) -> f64 {
    bytes as f64 / KIB as f64
}

/// An op that is no constant, with one result.
struct Node {
    reads: Vec<usize>,
    bytes: f64,
    workspace: f64,
    cost: f64,
    repeatable: bool,
    /// Whether the result is there at the end.
    stays: bool,
    /// Bytes of constants that are there when it runs for the first time.
    constants: f64,
}

fn nodes(events: &[Event]) -> Vec<Node> {
    let step = Numbered::of(events);
    let constant = |op: usize| {
        let storage = step.tensors[step.ops[op].outputs[0]].storage;
        step.storages[storage].constant
    };
    let ops: Vec<usize> = (0..step.ops.len()).filter(|&op| !constant(op)).collect();
    let node = |&number: &usize| {
        let op = &step.ops[number];
        assert_eq!(op.outputs.len(), 1);
        let makers = op.inputs.iter().map(|&input| step.tensors[input].op);
        let before = (0..number).filter(|&op| constant(op));
        let bytes = |op: usize| step.storages[step.tensors[step.ops[op].outputs[0]].storage].bytes;
        Node {
            reads: makers
                .filter_map(|maker| ops.iter().position(|&op| op == maker))
                .collect(),
            bytes: in_kib(bytes(number)),
            workspace: in_kib(op.workspace),
            cost: op.cost as f64,
            repeatable: op.repeatable,
            stays: step.left.contains(&op.outputs[0]),
            constants: in_kib(before.map(bytes).sum()),
        }
    };
    ops.iter().map(node).collect()
}

/// The variables of an integer program.
struct Program {
    runs: Vec<Vec<Variable>>,
    saved: Vec<Vec<Variable>>,
    /// By slot, op, and result that goes right after it.
    freed: Vec<Vec<Vec<Variable>>>,
}

impl Program {
    fn new(nodes: &[Node], variables: &mut ProblemVariables) -> Program {
        let count = nodes.len();
        let mut binary =
            |most: bool| variables.add(variable().integer().min(0).max(u8::from(most)));
        let mut table = |may: &dyn Fn(usize, usize) -> bool, rows: usize| -> Vec<Vec<Variable>> {
            (0..rows)
                .map(|t| (0..count).map(|i| binary(may(t, i))).collect())
                .collect()
        };
        let runs = table(&|t, i| i == t || (i < t && nodes[i].repeatable), count + 1);
        let saved = table(&|t, i| i < t, count + 2);
        let mut freed = Vec::new();
        for t in 0..=count {
            let may = |k: usize, i: usize| k <= t && (i == k || nodes[k].reads.contains(&i));
            freed.push(table(&may, count));
        }
        Program { runs, saved, freed }
    }

    fn rules(&self, nodes: &[Node], budget: u64) -> Vec<Constraint> {
        let count = nodes.len();
        let mut rules = Vec::new();
        for t in 0..=count {
            let (runs, saved, after) = (&self.runs[t], &self.saved[t], &self.saved[t + 1]);
            if t < count {
                rules.push(constraint!(runs[t] >= 1));
            }
            for i in 0..count {
                rules.push(constraint!(after[i] <= saved[i] + runs[i]));
                rules.push(constraint!(saved[i] + runs[i] <= 1));
                for &read in &nodes[i].reads {
                    rules.push(constraint!(runs[i] <= saved[read] + runs[read]));
                }
            }
            rules.extend(self.memory(nodes, t, budget));
        }
        for (i, _) in nodes.iter().enumerate().filter(|(_, node)| node.stays) {
            rules.push(constraint!(self.saved[count + 1][i] >= 1));
        }
        rules
    }

    /// Limits of the bytes in memory during each op of a slot.
    fn memory(&self, nodes: &[Node], t: usize, budget: u64) -> Vec<Constraint> {
        let count = nodes.len();
        let constants = nodes
            .get(t)
            .or(nodes.last())
            .map_or(0.0, |node| node.constants);
        let mut rules = Vec::new();
        let mut there = Expression::from(constants);
        for (node, &saved) in nodes.iter().zip(&self.saved[t]) {
            there += node.bytes * saved;
        }
        rules.push(constraint!(there.clone() <= in_kib(budget)));
        for k in 0..count.min(t + 1) {
            let runs = self.runs[t][k];
            there += nodes[k].bytes * runs;
            rules.push(constraint!(
                there.clone() + nodes[k].workspace * runs <= in_kib(budget)
            ));
            for i in (0..count).filter(|&i| i == k || nodes[k].reads.contains(&i)) {
                let gone = self.freed[t][k][i];
                rules.push(constraint!(gone <= runs));
                rules.push(constraint!(gone + self.saved[t + 1][i] <= 1));
                let later = nodes.iter().zip(&self.runs[t]).skip(k + 1);
                for (_, &runs) in later.filter(|(later, _)| later.reads.contains(&i)) {
                    rules.push(constraint!(gone + runs <= 1));
                }
                there -= nodes[i].bytes * gone;
            }
        }
        rules
    }
}

/// The fewest nanoseconds of runs again within a budget, if there is a schedule.
fn least(events: &[Event], budget: u64) -> Option<u64> {
    let nodes = nodes(events);
    let mut variables = ProblemVariables::new();
    let program = Program::new(&nodes, &mut variables);
    let mut time = Expression::default();
    for (i, node) in nodes.iter().enumerate() {
        let again = program.runs.iter().enumerate().filter(|&(t, _)| t != i);
        time += again
            .map(|(_, runs)| node.cost * runs[i])
            .sum::<Expression>();
    }
    let solver = good_lp::solvers::microlp::microlp;
    let mut problem = variables.minimise(time.clone()).using(solver);
    for rule in program.rules(&nodes, budget) {
        problem.add_constraint(rule);
    }
    match problem.solve() {
        Ok(solution) => Some(solution.eval(time).round() as u64),
        Err(ResolutionError::Infeasible) => None,
        Err(error) => panic!("{error}"),
    }
}

/// The time of runs again of a plan, if one is found.
fn planned(events: &[Event], budget: u64) -> Option<u64> {
    let step = Step::from_events(events).expect("events that follow one another");
    let search = Search {
        iterations: Some(60),
        ..Search::default()
    };
    let watch = &mut |_: &_| ControlFlow::Continue(());
    let plan = Planner::new(&step).plan(Bytes(budget), &search, watch);
    plan.ok().map(|plan| plan.recompute_ns)
}

fn shortest(events: &[Event], budget: u64) -> Option<u64> {
    best_order(&Numbered::of(events), budget).map(|best| best.recompute_ns)
}

/// Steps of at most 6 ops.
#[test]
fn an_integer_program_agrees_with_all_sets_of_runs_and_with_the_shortest_path() {
    let compared = Cell::new(0);
    check(60, &steps(3..=6, &[]), |events| {
        let Some(frontier) = Frontier::of(&events, 1 << 12) else {
            return Ok(());
        };
        for &(budget, again) in &frontier.0 {
            prop_assert_eq!(least(&events, budget), Some(again));
            prop_assert_eq!(shortest(&events, budget), Some(again));
            prop_assert!(planned(&events, budget).is_none_or(|plan| plan >= again));
            compared.set(compared.get() + 1);
        }
        if let Some(budget) = frontier.0[0].0.checked_sub(1) {
            prop_assert_eq!(least(&events, budget), None);
        }
        Ok(())
    });
    assert!(compared.get() > 50, "{compared:?}");
}

/// Layers of these KiB and nanoseconds, a loss, and gradients of a KiB that read the layers in reverse.
fn network(layers: &[(u64, u64)]) -> Vec<Event> {
    let mut events = vec![constant(0, 2 * KIB)];
    let count = layers.len() as u64;
    for (layer, &(kib, cost)) in (1..).zip(layers) {
        events.push(op(&[layer - 1], &[(layer, fresh(kib * KIB))], cost));
    }
    let loss = count + 1;
    events.push(op(&[count], &[(loss, fresh(KIB))], 1));
    for (gradient, layer) in (loss..).zip((1..=count).rev()) {
        let cost = 2 * layers[layer as usize - 1].1;
        let inputs = [gradient, layer, layer - 1];
        events.push(op(&inputs, &[(gradient + 1, fresh(KIB))], cost));
        events.extend([release(gradient), release(layer)]);
    }
    events
}

/// Networks of 3 and 4 layers, which are 7 and 9 ops, within each budget that is a number of KiB. Measured: of 19
/// budgets with runs again 3 are refused; all other plans are the optimum.
#[test]
fn plans_of_small_networks_are_the_optimum_of_an_integer_program() {
    let networks: [&[(u64, u64)]; 4] = [
        &[(4, 10), (4, 10), (4, 10)],
        &[(6, 5), (2, 40), (3, 20)],
        &[(4, 7), (3, 9), (5, 4), (2, 8)],
        &[(2, 5), (5, 20), (3, 8), (4, 3)],
    ];
    let (mut again, mut refused) = (0, 0);
    for layers in networks {
        let events = network(layers);
        let peak = Step::from_events(&events).expect("a step").peak_bytes();
        for budget in (KIB..=peak).step_by(KIB as usize) {
            let least = least(&events, budget);
            assert_eq!(least, shortest(&events, budget), "{layers:?} in {budget}");
            match planned(&events, budget) {
                None => refused += u32::from(least.is_some()),
                plan => assert_eq!(least, plan, "{layers:?} in {budget}"),
            }
            again += u32::from(least.is_some_and(|least| least > 0));
        }
    }
    assert!(again == 19 && refused <= 3, "{again} {refused}");
}
