//! Files that flags name: read whole, as far as a ConfigMap could hold them.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use base::at::At as _;
use base::small;

/// Maximum size of files named by flags: keys, registry lists, credentials.
pub(super) const MAX_FILE_BYTES: u64 = 1 << 20;

/// The last part of a path.
pub(super) fn base_name(path: &str) -> Result<String> {
    let name = Path::new(path).file_name().and_then(|name| name.to_str());
    name.map(str::to_owned)
        .with_context(|| format!("`{path}` does not name a file"))
}

/// The text of a file named by a flag.
pub(super) fn read_text(path: &str) -> Result<String> {
    small::text(read_file(path)?).at("cannot read", path)
}

/// The bytes of a file named by a flag.
pub(super) fn read_file(path: &str) -> Result<Vec<u8>> {
    match small::read(Path::new(path), MAX_FILE_BYTES) {
        Err(error) if error.kind() == ErrorKind::FileTooLarge => {
            bail!(
                "`{path}` has more than {} KiB, which is more than a ConfigMap can hold",
                MAX_FILE_BYTES >> 10
            )
        }
        read => read.at("cannot read", path),
    }
}
