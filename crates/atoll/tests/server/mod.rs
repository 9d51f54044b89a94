mod fixture;
mod http;

mod access;
mod crashes;
mod execs;
mod lifecycle;
mod published_client;
mod readme;
mod wrong_input;
