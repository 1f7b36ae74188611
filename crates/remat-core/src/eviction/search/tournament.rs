//! A kinetic tournament (Basch, Guibas, Hershberger 1997), for scores that fall with time: a tree of matches over
//! candidates whose winners hold for a span of clocks. A changed candidate voids the matches above it; the next search
//! plays again the matches that were voided or whose span does not hold now. As the clock may go back (a plan is undone),
//! spans have a beginning too.
//!
//! Leaves are blocks of candidates. n candidates take n / 8 leaves of 80 bytes, a changed candidate O(log n) matches, and
//! so does every change of a leader within a subtree: O(log n) amortized for each line that rises to its top.

use super::line::{Line, Span};
use super::order::{Aging, Entrant};

/// Candidates in a leaf.
const BLOCK: usize = 8;

/// The winner's slot of a match without candidates.
const NOBODY: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    /// The winner; copied here, so that a match looks at two neighbours only.
    winner: Entrant,
    /// When it surely wins.
    span: Span,
}

impl Node {
    const VOID: Node = Node {
        winner: Entrant {
            line: Line {
                rate: 0.0,
                since: 0,
            },
            slot: NOBODY,
        },
        span: Span::NEVER,
    };
}

/// The tree; the children of node `i` are `2i` and `2i + 1`, the root is 1. A void node's ancestors are void.
#[derive(Default)]
pub(super) struct Tournament {
    nodes: Vec<Node>,
    /// A power of two; 0 while no tournament is on.
    leaves: usize,
    /// Nodes to be played, each below the one before; at most two a level.
    open: Vec<u32>,
}

impl Tournament {
    pub(super) fn is_on(&self) -> bool {
        self.leaves > 0
    }

    pub(super) fn stop(&mut self) {
        self.leaves = 0;
    }

    /// The entrant at this place came, went or changed.
    #[inline]
    pub(super) fn change(&mut self, place: usize) {
        let leaf = place / BLOCK;
        if leaf >= self.leaves {
            // Too large for the tree: the next search starts over.
            self.leaves = 0;
            return;
        }
        let mut node = self.leaves + leaf;
        while node > 0 && self.nodes[node].span != Span::NEVER {
            self.nodes[node].span = Span::NEVER;
            node /= 2;
        }
    }

    /// The slot of the entrant that goes first.
    pub(super) fn best(&mut self, order: &Aging<'_>, entrants: &[Entrant]) -> Option<u32> {
        if self.leaves == 0 {
            self.start(entrants.len());
        }
        self.open.clear();
        self.open.push(1);
        while let Some(&index) = self.open.last() {
            let node = index as usize;
            let (left, right) = (2 * node, 2 * node + 1);
            if node < self.leaves {
                let open = self.open.len();
                for child in [left, right] {
                    if !self.nodes[child].span.holds(order.clock) {
                        self.open.push(child as u32);
                    }
                }
                if self.open.len() > open {
                    continue;
                }
                self.nodes[node] = play(order, &self.nodes[left], &self.nodes[right]);
            } else {
                let first = (node - self.leaves) * BLOCK;
                self.nodes[node] = play_block(order, entrants, first);
            }
            self.open.pop();
        }
        let winner = self.nodes[1].winner.slot;
        (winner != NOBODY).then_some(winner)
    }

    fn start(&mut self, candidates: usize) {
        self.leaves = candidates.div_ceil(BLOCK).next_power_of_two();
        self.nodes.clear();
        self.nodes.resize(2 * self.leaves, Node::VOID);
    }
}

/// The winner's node of a match.
#[inline]
fn play(order: &Aging<'_>, a: &Node, b: &Node) -> Node {
    let both = a.span.and(b.span);
    if b.winner.slot == NOBODY {
        return Node { span: both, ..*a };
    }
    if a.winner.slot == NOBODY {
        return Node { span: both, ..*b };
    }
    let (winner, loser) = if order.before(a.winner, b.winner) {
        (a.winner, b.winner)
    } else {
        (b.winner, a.winner)
    };
    let span = order.span(winner, loser);
    debug_assert!(span.holds(order.clock), "{span:?} without {}", order.clock);
    Node {
        winner,
        span: both.and(span),
    }
}

/// The winner's node of a block.
fn play_block(order: &Aging<'_>, entrants: &[Entrant], first: usize) -> Node {
    let end = entrants.len().min(first + BLOCK);
    let Some((&one, others)) = entrants.get(first..end).and_then(<[_]>::split_first) else {
        return Node {
            span: Span::ALWAYS,
            ..Node::VOID
        };
    };
    let mut winner = one;
    for &entrant in others {
        if order.before(entrant, winner) {
            winner = entrant;
        }
    }
    let mut span = Span::ALWAYS;
    for &entrant in &entrants[first..end] {
        if entrant.slot != winner.slot {
            span = span.and(order.span(winner, entrant));
        }
    }
    debug_assert!(span.holds(order.clock), "{span:?} without {}", order.clock);
    Node { winner, span }
}
