//! Minimum cuts of joint graphs.

mod bad_input;
mod budgets;
mod by_definition;
mod fusion_rules;
mod groups;
mod integer_program;
mod kernels;
mod networks;
mod partitions;
mod random_graphs;
mod small_truths;
