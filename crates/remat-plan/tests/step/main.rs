//! Plans of whole steps.

mod addresses;
mod hostile;
mod integer_program;
mod last_uses;
mod numbered;
mod random_plans;
mod random_steps;
mod recorded_traces;
mod recordings;
mod rules;
mod sets_of_runs;
mod shortest_path;
mod small_optima;
mod small_truths;
