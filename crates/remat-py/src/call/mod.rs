//! One call of a torch op: its description, its arguments, its signature, and the record to replay it by.

pub mod arguments;
pub mod entries;
pub mod form;
pub mod func;
pub mod global_state;
pub mod invocation;
pub mod knowledge;
pub mod outline;
pub mod random;
pub mod record;
pub mod rules;
pub mod signature;
pub mod stacked;
pub mod template;
pub mod view;
