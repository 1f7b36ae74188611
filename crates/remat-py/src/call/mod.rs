//! One call of a torch op: its description, its arguments, its signature, and the record to replay it by.

pub mod arguments;
pub mod arity;
pub mod entries;
pub mod expected;
pub mod form;
pub mod func;
pub mod global_state;
pub mod invocation;
pub mod knowledge;
pub mod outline;
pub mod pass;
pub mod random;
pub mod record;
pub mod rules;
pub mod signature;
pub mod stacked;
pub mod template;
pub mod view;
