mod browser;
mod fixture;
mod http;

mod access;
mod crashes;
mod forwarding;
mod hostile_page;
mod lifecycle;
mod preview;
mod published_client;
mod readme;
mod wrong_input;
