//! The images that plugins need, and the data that depends on a Kubernetes version: tags, lists of tests.
//!
//! Owns the names of images in other registries, calls to docker, and the combination of test lists. `base::oci` handles
//! registries. Knows neither clusters nor flags.

pub(crate) mod conformance;
pub(crate) mod docker;
pub(crate) mod kit;
pub(crate) mod lists;
pub(crate) mod release;
mod translation;
pub(crate) mod verify;
mod wanted;

pub(crate) use translation::{Translation, registries};
pub(crate) use wanted::{CONFORMANCE, CONFORMANCE_LATEST, PluginImages, images_of, is_conformance};
