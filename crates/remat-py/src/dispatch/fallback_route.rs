//! The ways of ops through the fallback, as Python describes them when they are first seen.

use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

use rustc_hash::FxHashMap;

use crate::call::arity::{Arity, Schema, Seen};
use crate::ffi::dispatcher::Op;

/// The fallback's treatment of an op. It never changes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Route {
    /// Runs as it is: it makes a view.
    Run,
    /// Runs as it is; autograd leaves gradients in leaves by it, which are pinned.
    Detach,
    /// Is passed on, and the ops that it is made of come here.
    Decompose,
    /// Is told to the session.
    Session(&'static Arity),
}

static ROUTES: RwLock<Option<FxHashMap<usize, Route>>> = RwLock::new(None);

/// The lock of all routes, held against all others.
pub(super) type Locked = RwLockWriteGuard<'static, Option<FxHashMap<usize, Route>>>;

/// Waits for those who look a route up, and keeps others from it.
pub(super) fn lock_routes() -> Locked {
    ROUTES.write().unwrap_or_else(PoisonError::into_inner)
}

impl Route {
    /// The route of an op that was seen before.
    pub(super) fn of(op: Op) -> Option<Route> {
        let routes = ROUTES.read().unwrap_or_else(PoisonError::into_inner);
        let known = routes.as_ref()?;
        known.get(&op.id()).copied()
    }

    /// Forgets all calls that were watched.
    pub(super) fn forget_calls() {
        let routes = ROUTES.read().unwrap_or_else(PoisonError::into_inner);
        for route in routes.iter().flat_map(FxHashMap::values) {
            if let Route::Session(arity) = route {
                arity.seen.forget();
            }
        }
    }

    /// Keeps the route of an op, as Python described it: the name of its way, and its schema.
    pub(super) fn learn(op: Op, way: &str, schema: Schema) -> Route {
        let route = match way {
            "run" => Route::Run,
            "detach" => Route::Detach,
            "decompose" => Route::Decompose,
            // Ops are never undefined, but for those of a library that is being edited: the entries are few and small.
            _ => Route::Session(Box::leak(Box::new(Arity {
                schema,
                seen: Seen::default(),
            }))),
        };
        let mut routes = lock_routes();
        routes.get_or_insert_default().insert(op.id(), route);
        route
    }
}
