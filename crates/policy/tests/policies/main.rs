//! Policies compared with their papers, on a volume without an engine.

mod as_published;
mod baselines;
mod caching;
mod colloid;
mod equi;
mod exclusive;
mod filters;
mod hystor;
mod most;
mod orthus;
mod pass;
mod pass_pace;
mod purge;
mod raid1;
mod settings;
mod volume;
mod wardrop;
mod wishes;
mod working_set;
mod working_set_nodes;
mod working_set_settings;
