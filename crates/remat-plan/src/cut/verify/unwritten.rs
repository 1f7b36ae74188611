//! Values that a pass never writes, because kernels compute them where they are read.

use crate::cut::verify::check::Check;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Values of the pass that are in no memory. `keeps` says how many references outlast the pass.
pub(crate) fn unwritten(
    check: &Check<'_>,
    order: &[usize],
    runs: &[bool],
    keeps: &impl Fn(usize) -> usize,
) -> HashSet<usize> {
    let memory = Shared::of(check, order);
    let groups = memory.sharing.iter();
    let groups = groups.filter(|(owner, all)| fuses(check, **owner, all, runs, keeps));
    let mut found: HashSet<usize> = groups.flat_map(|(_, all)| all.iter().copied()).collect();
    let depth = depths(check, order, runs);
    let mut sources = Sources::default();
    for &id in order {
        let read = sources.add(check, id, &found);
        let open = found.contains(&id) && check.graph.nodes[id].written.is_none();
        if open && memory.owner[&id] == id {
            let all = &memory.sharing[&id];
            let readers = all.iter().flat_map(|&shared| check.users(shared));
            let readers = readers.filter(|user| runs[*user] && !all.contains(user));
            let readers: Vec<usize> = readers.collect();
            let apart = readers.iter().any(|user| depth[user] > depth[&id]);
            let dear = sources.heavy.contains(&id) || read > check.graph.shared_reads;
            if readers.len() > 1 && apart && dear {
                all.iter().for_each(|shared| _ = found.remove(shared));
            }
        }
    }
    found
}

/// Values that share memory.
struct Shared {
    /// Of each value the one whose memory it is in, which is no view.
    owner: HashMap<usize, usize>,
    /// All values in the memory of an owner.
    sharing: HashMap<usize, Vec<usize>>,
}

impl Shared {
    fn of(check: &Check<'_>, order: &[usize]) -> Shared {
        let mut owner: HashMap<usize, usize> = HashMap::new();
        let mut sharing: HashMap<usize, Vec<usize>> = HashMap::new();
        for &id in order {
            let shared = match check.graph.nodes[id].view_of {
                Some(base) => owner.get(&(base as usize)).copied(),
                None => Some(id),
            };
            if let Some(shared) = shared {
                owner.insert(id, shared);
                sharing.entry(shared).or_default().push(id);
            }
        }
        Shared { owner, sharing }
    }
}

/// The values in one memory can all be in kernels with their readers.
fn fuses(
    check: &Check<'_>,
    owner: usize,
    sharing: &[usize],
    runs: &[bool],
    keeps: &impl Fn(usize) -> usize,
) -> bool {
    let nodes = &check.graph.nodes;
    let fused = |&id: &usize| {
        let mut readers = check.users(id).filter(|&user| runs[user]);
        nodes[id].fusible && readers.all(|user| nodes[user].fusible)
    };
    let several = |&id: &usize| !nodes[id].savable && check.parts(id).next().is_some();
    let alone = !nodes[owner].reduction && sharing.iter().all(fused);
    nodes[owner].part_of.is_none()
        && !sharing.iter().any(several)
        && sharing.iter().all(|&id| keeps(id) == 0)
        && nodes[owner].written.map_or(alone, |written| !written)
}

/// The values in memory from which each value is computed.
#[derive(Default)]
struct Sources {
    read: HashMap<usize, BTreeSet<usize>>,
    heavy: HashSet<usize>,
}

impl Sources {
    /// Adds a value, and returns how many it is computed from.
    fn add(&mut self, check: &Check<'_>, id: usize, found: &HashSet<usize>) -> usize {
        let mut read = BTreeSet::new();
        for input in check
            .graph
            .inputs
            .of(id)
            .iter()
            .map(|&input| input as usize)
        {
            match self.read.get(&input) {
                Some(those) if found.contains(&input) => {
                    read.extend(those.iter().copied());
                    if self.heavy.contains(&input) {
                        self.heavy.insert(id);
                    }
                }
                _ => _ = read.insert(input),
            }
        }
        if check.graph.nodes[id].heavy {
            self.heavy.insert(id);
        }
        let count = read.len();
        let known = read.into_iter().take(check.graph.shared_reads + 1);
        self.read.insert(id, known.collect());
        count
    }
}

/// Number of kernels that have to end before the one of each op: of ops on the way to it that do not fuse.
fn depths(check: &Check<'_>, order: &[usize], runs: &[bool]) -> HashMap<usize, usize> {
    let mut depth: HashMap<usize, usize> = HashMap::new();
    for &id in order {
        let mut most = 0;
        for &input in check.graph.inputs.of(id) {
            if let (true, Some(before)) = (runs[input as usize], depth.get(&(input as usize))) {
                let fuse =
                    check.graph.nodes[input as usize].fusible && check.graph.nodes[id].fusible;
                most = most.max(before + usize::from(!fuse));
            }
        }
        depth.insert(id, most);
    }
    depth
}
