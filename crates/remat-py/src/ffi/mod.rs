//! The edges of the extension: torch's storages and Python functions, allocators, Python's errors.

pub mod arena;
pub mod autocast;
pub mod autograd;
pub mod boxed;
pub mod caching;
pub mod caught;
pub mod counted;
pub mod deaths;
pub mod dispatcher;
pub mod errors;
pub mod fastcall;
pub mod generator;
pub mod gil;
pub mod instances;
pub mod layout;
mod local_keys;
mod marked;
pub mod owned;
pub mod settings;
pub mod shell;
mod small;
pub mod symbols;
pub mod thread;
pub mod torch_internals;
pub mod watch;
