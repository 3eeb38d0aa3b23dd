//! Images that plugins need, and what depends on a version of Kubernetes: tags, lists of tests.
//!
//! Owns where images go in other registries, the docker program, and the arithmetic of test lists. Registries are
//! `base::oci`'s. Knows no cluster and no flag.

pub(crate) mod docker;
pub(crate) mod lists;
pub(crate) mod release;
mod translation;
mod wanted;

pub(crate) use translation::{Translation, registries};
pub(crate) use wanted::Wanted;
