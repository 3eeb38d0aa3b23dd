//! The aggregator as a whole: over the wire, killed and restarted, with the original's worker; and
//! what fuzzers call.

#[cfg(test)]
mod certificate;
#[cfg(test)]
mod crash;
#[cfg(test)]
pub(super) mod fixture;
pub mod fuzz;
#[cfg(test)]
mod original;
#[cfg(test)]
mod server;
#[cfg(test)]
mod store;
#[cfg(test)]
mod wire;
