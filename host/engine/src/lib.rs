//! Models to graphs, memory plans, sequences and sampling.
