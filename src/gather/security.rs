//! Security features of the node: SELinux, AppArmor, FIPS mode, SSH host keys, Secure Boot lockdown.

use serde_json::{Map, Value};

use super::{Facts, Node, Source, pairs};
use base::json::json;

pub(crate) struct Security;

impl Source for Security {
    fn gather(&self, node: &Node, facts: &mut Facts) {
        facts.set("fips", node.text("/proc/sys/crypto/fips_enabled").as_deref() == Some("1"));
        let armoured = node.is_dir("/sys/kernel/security/apparmor");
        facts.set("apparmor", json!({ "status": if armoured { "enabled" } else { "disabled" } }));
        facts.set("selinux", selinux(node));
        for kind in ["dsa", "rsa", "ecdsa", "ed25519"] {
            let folders = ["/etc/ssh", "/etc/openssh", "/etc"];
            let text =
                folders.iter().find_map(|folder| node.some(&format!("{folder}/ssh_host_{kind}_key.pub")));
            let words: Vec<&str> = text.as_deref().unwrap_or_default().split_whitespace().collect();
            if let [keytype, key, ..] = words[..] {
                facts.set(&format!("ssh_host_key_{kind}_public"), key);
                facts.set(&format!("ssh_host_key_{kind}_public_keytype"), keytype);
            }
        }
        let lockdown = node.text("/sys/kernel/security/lockdown");
        let chosen = lockdown.and_then(|text| Some(text.split_once('[')?.1.split_once(']')?.0.to_owned()));
        let modules = node.text("/sys/kernel/security/lsm");
        facts.set_own("security", json!({ "lockdown": chosen, "modules": modules }));
    }
}

fn selinux(node: &Node) -> Value {
    let Some(enforcing) = node.text("/sys/fs/selinux/enforce") else {
        return json!({ "status": "disabled" });
    };
    let mode = |on: bool| if on { "enforcing" } else { "permissive" };
    let config = node.text("/etc/selinux/config").unwrap_or_default();
    let field =
        |name: &str| pairs(&config, '=').find(|(key, _)| *key == name).map(|(_, value)| value.to_lowercase());
    let mut found = Map::new();
    found.insert("status".into(), "enabled".into());
    found.insert("mode".into(), mode(enforcing == "1").into());
    found.insert("config_mode".into(), field("SELINUX").unwrap_or_else(|| "unknown".into()).into());
    found.insert("type".into(), field("SELINUXTYPE").unwrap_or_else(|| "unknown".into()).into());
    let version: Option<u64> = node.number("/sys/fs/selinux/policyvers");
    found.insert("policyvers".into(), version.map_or_else(|| "unknown".into(), Value::from));
    Value::Object(found)
}

#[cfg(test)]
mod tests {
    use super::super::node::tests::Scratch;
    use super::*;

    #[test]
    fn selinux_is_read_from_the_kernel_and_its_config() {
        let files = [
            ("sys/fs/selinux/enforce", "0"),
            ("sys/fs/selinux/policyvers", "33"),
            ("etc/selinux/config", "# mode\nSELINUX=enforcing\nSELINUXTYPE=targeted\n"),
        ];
        let (_scratch, node) = Scratch::node(&files);
        let expected = json!({"status": "enabled", "mode": "permissive", "config_mode": "enforcing", "type": "targeted", "policyvers": 33});
        assert_eq!(selinux(&node), expected);
    }
}
