mod fixture;
mod http;

mod access;
mod crashes;
mod execs;
mod files;
mod folders;
mod lifecycle;
mod machine;
mod published_client;
mod readme;
mod shell;
mod socket;
mod terminal;
mod wrong_input;
