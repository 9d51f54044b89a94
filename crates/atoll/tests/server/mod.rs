mod fixture;
mod http;

mod access;
mod crashes;
mod folders;
mod lifecycle;
mod published_client;
mod readme;
mod wrong_input;
