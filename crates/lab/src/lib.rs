//! The synthetic web, the simulator and the experiments.
