//! Egress of a sandbox, which has no other. [`policy`] holds the policy and its decisions; [`Reach`] the
//! addresses that are out of reach unless an entry names them; [`Recorder`] receives every decision.
//!
//! Nothing here knows sandboxes, HTTP fronts or databases: the core passes sockets that live in a sandbox's
//! network, a policy, and a recorder.

mod address;
mod dial;
mod engine;
mod front;
mod http;
mod names;
pub mod policy;
pub mod presets;
mod record;
mod session;
mod tls;
mod token;
mod variables;

pub use address::{BadNet, Net, Reach};
pub use dial::{Dialer, FetchLimits, Fetched};
pub use engine::{Egress, EgressSettings, Lookup, Serving, Usage};
pub use policy::{Asked, Entry, Host, Limits, Mode, Policy, Presets, Request, Rules, Target, Verdict};
pub use record::{Decision, Recorder, Sockets, Via};
pub use tls::Authority;
pub use token::{BadToken, Claims, LIFETIME, Tokens};
pub use variables::variables;

/// How many cases a property is tested with; `make fuzz-egress` sets many more.
#[cfg(test)]
fn fuzz_cases() -> u32 {
    std::env::var("ATOLL_FUZZ_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(256)
}
