mod fixture;
mod http;

mod access;
mod crashes;
mod lifecycle;
mod machine;
mod published_client;
mod readme;
mod wrong_input;
