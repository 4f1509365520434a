//! The synthetic web, the simulator and the experiments.

pub mod demo;
pub mod experiment;
pub mod redis;
pub mod sim;
pub mod wan;
pub mod web;
