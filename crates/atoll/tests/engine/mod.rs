pub(crate) mod fixture;
pub(crate) mod usage;

mod audit;
mod cgroup_v2;
mod cli_help;
mod conformance;
mod doctor;
mod files;
mod guests;
mod hardening;
mod host_image;
mod launcher;
mod limits;
mod profiles;
mod repair;
mod run;
mod runtimes;
mod tools;
