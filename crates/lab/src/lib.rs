//! The synthetic web, the simulator and the experiments.

pub mod web;
