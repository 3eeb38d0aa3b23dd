//! Bytes as hexadecimal digits.

/// Two lower-case digits for each byte.
pub fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
