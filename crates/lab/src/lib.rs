//! The synthetic web, the simulator and the experiments.

pub mod experiment;
pub mod web;
