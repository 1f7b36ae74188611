//! Properties of all plans, on random chains.
