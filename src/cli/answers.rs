//! What the nodes have answered to `sonobuoy each`: read from an archive, printed in the form that
//! the user wants, and judged.
//!
//! Outputs are bytes of untrusted programs. Text shows them with control characters and invalid
//! bytes made visible; JSON has them exactly. At most one output is in memory at a time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::Write as _;

use anyhow::Result;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::Value;

use super::output;
use base::json::json;
use base::{Joined as _, hex, sha256, visible};
use kube::Object as _;
use model::nodes::Choice;
use model::verdict::{self, Exit, Outcome};
use model::{layout, names, remedies};
use report::{ArchiveSource, ExtractedFiles, PassAction};

/// Maximum names in the reason of the exit code.
const MAX_NAMED_NODES: usize = 10;
/// The outputs of a command, in the order in which they are shown.
const STREAMS: [&str; 2] = ["stdout", "stderr"];

/// The form in which answers are printed.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum EachForm {
    Grouped,
    Wide,
    Json,
}

/// The answers of all nodes.
pub(super) struct Answers {
    files: ExtractedFiles,
    nodes: Vec<NodeAnswer>,
}

/// The answer of a node.
struct NodeAnswer {
    node: String,
    /// The folder of the result in the archive; none if the node did not answer.
    folder: Option<String>,
    outcome: Outcome,
    /// How the command ended, or why there is no answer.
    end: String,
    /// The exit code, unless the command was killed.
    code: Option<i64>,
    /// The lengths of the outputs, of which the archive may have a part.
    lengths: [u64; 2],
    /// Equal for equal ends and outputs.
    digest: String,
}

impl Answers {
    /// Reads the archive of a run, or of one under way.
    pub(super) fn read(archive: &str) -> Result<Self> {
        let mut results = BTreeMap::new();
        let mut errors = BTreeMap::new();
        let files = ArchiveSource::open(archive)?.extract(|_, name, _, _| {
            if name == layout::EXCLUDED {
                return Ok(PassAction::Keep);
            }
            let Some(found) = layout::delivered(name).filter(|found| found.plugin == names::EACH)
            else {
                return Ok(PassAction::Skip);
            };
            let node = found.node.to_owned();
            if let Some(folder) = name.strip_suffix("/each.json") {
                results.insert(node, folder.to_owned());
            } else if !found.is_result && name.ends_with(layout::ERROR_FILE) {
                errors.insert(node, name.to_owned());
            }
            Ok(PassAction::Keep)
        })?;
        errors.retain(|node, _| !results.contains_key(node));
        let mut nodes = Vec::new();
        for (node, folder) in results {
            nodes.push(NodeAnswer::read(&files, node, folder)?);
        }
        for (node, path) in errors {
            let error = files.document(&path)?.unwrap_or_default();
            nodes.push(NodeAnswer::missing(node, error["error"].text()));
        }
        let mut answers = Self { files, nodes };
        answers.sort();
        Ok(answers)
    }

    /// Adds the nodes without a pod, unless the choice leaves them out on purpose.
    pub(super) fn add_excluded(&mut self, choice: &Choice) -> Result<()> {
        let mut excluded: BTreeMap<String, BTreeMap<String, String>> =
            self.files.json(layout::EXCLUDED)?;
        let named = choice.names();
        for (node, reason) in excluded.remove(names::EACH).unwrap_or_default() {
            if *choice == Choice::default() || named.contains(&&*node) {
                self.nodes.push(NodeAnswer::missing(node, &reason));
            }
        }
        self.sort();
        Ok(())
    }

    fn sort(&mut self) {
        self.nodes
            .sort_by_cached_key(|answer| yaml::natural(&answer.node));
    }

    /// The exit code other than 0, with the nodes that caused it.
    pub(super) fn exit(&self) -> Option<Exit> {
        let all = self.nodes.len();
        let with = |outcome: Outcome| -> Vec<&str> {
            let answers = self.nodes.iter();
            let matching = answers.filter(|answer| answer.outcome == outcome);
            matching.map(|answer| &*answer.node).collect()
        };
        let failed = with(Outcome::Failed);
        if !failed.is_empty() {
            let (count, names) = (failed.len(), listed(&failed));
            let reason = format!("the command failed on {}: {names}", share(count, all));
            return Some(Exit { code: 3, reason });
        }
        let missing = with(Outcome::Unknown);
        if !missing.is_empty() || all == 0 {
            let (count, names) = (missing.len(), listed(&missing));
            let reason = match (count, all) {
                (_, 0) => "there was no node to ask".to_owned(),
                _ if count == all => format!("no node answered: {names}"),
                _ => format!("{} did not answer: {names}", share(count, all)),
            };
            return Some(Exit { code: 4, reason });
        }
        None
    }

    /// Prints all answers in a form for people.
    pub(super) fn print(&self, form: EachForm) -> Result<()> {
        if form == EachForm::Wide {
            output::print(&self.rows()?);
            return Ok(());
        }
        let groups = self.groups();
        let largest = groups.iter().map(Vec::len).max().unwrap_or_default();
        for group in &groups {
            let is_odd = group.len() < largest && largest * 2 > self.nodes.len();
            output::print(&self.group(group, is_odd)?);
        }
        Ok(())
    }

    /// Prints a line of JSON for each node that is not in `printed`, and adds it there.
    pub(super) fn print_lines(
        &self,
        cluster: Option<&str>,
        printed: &mut BTreeSet<String>,
    ) -> Result<()> {
        let mut out = output::stdout();
        for answer in &self.nodes {
            if printed.insert(answer.node.clone()) {
                writeln!(out, "{}", self.line(answer, cluster)?)?;
            }
        }
        Ok(out.flush()?)
    }

    /// Nodes with equal answers: failed ones first, then missing ones, then the largest group.
    fn groups(&self) -> Vec<Vec<&NodeAnswer>> {
        let mut groups = BTreeMap::<&str, Vec<&NodeAnswer>>::new();
        for answer in &self.nodes {
            groups.entry(&answer.digest).or_default().push(answer);
        }
        let mut groups: Vec<_> = groups.into_values().collect();
        groups.sort_by_key(|group| {
            let (outcome, count) = (group[0].outcome, group.len());
            (
                Reverse(outcome),
                Reverse(count),
                yaml::natural(&group[0].node),
            )
        });
        groups
    }

    /// A group as text: a line about its nodes, and the outputs of one of them.
    fn group(&self, group: &[&NodeAnswer], is_odd: bool) -> Result<String> {
        let first = group[0];
        let share = share(group.len(), self.nodes.len());
        let end = match first.outcome {
            Outcome::Passed => String::new(),
            _ => format!(", {}", first.end),
        };
        let names = group.iter().map(|answer| &*answer.node).joined(" ");
        let odd = if is_odd { ", unlike most" } else { "" };
        let head = format!("{share}{odd}{end}: {names}");
        let mut text = format!("{}\n", visible::line(&head));
        let [stdout, stderr] = self.shown_outputs(first)?;
        add_indented(&mut text, "  ", &stdout);
        add_indented(&mut text, "  stderr: ", &stderr);
        text.push('\n');
        Ok(text)
    }

    fn rows(&self) -> Result<String> {
        let mut rows = Vec::new();
        for answer in &self.nodes {
            let outputs = self.shown_outputs(answer)?;
            let lines = outputs.iter().flat_map(|output| output.lines());
            let first = lines.map(str::trim).find(|line| !line.is_empty());
            rows.push([
                answer.node.clone(),
                answer.end.clone(),
                first.unwrap_or_default().to_owned(),
            ]);
        }
        Ok(output::table(["NODE", "END", "OUTPUT"], &rows, false))
    }

    fn line(&self, answer: &NodeAnswer, cluster: Option<&str>) -> Result<Value> {
        let mut line = json!({
            "node": answer.node, "status": answer.outcome.word(), "code": answer.code,
            "end": answer.end,
        });
        if let Some(cluster) = cluster {
            line["cluster"] = json!(cluster);
        }
        for (stream, length) in STREAMS.iter().zip(answer.lengths) {
            match String::from_utf8(self.output(answer, stream)?) {
                Ok(text) => line[*stream] = json!(text),
                Err(error) => {
                    let encoded = BASE64_STANDARD.encode(error.as_bytes());
                    line[format!("{stream}Base64")] = json!(encoded);
                }
            }
            line[format!("{stream}Bytes")] = json!(length);
        }
        Ok(line)
    }

    /// What the command has written to both streams, with a mark where it was cut.
    fn shown_outputs(&self, answer: &NodeAnswer) -> Result<[String; 2]> {
        let mut texts = [String::new(), String::new()];
        for ((text, stream), length) in texts.iter_mut().zip(STREAMS).zip(answer.lengths) {
            let bytes = self.output(answer, stream)?;
            *text = String::from_utf8_lossy(&bytes).into_owned();
            if length > bytes.len() as u64 {
                text.push_str(&format!("\n[cut: {} of {length} bytes]\n", bytes.len()));
            }
        }
        Ok(texts)
    }

    fn output(&self, answer: &NodeAnswer, stream: &str) -> Result<Vec<u8>> {
        let Some(folder) = &answer.folder else {
            return Ok(Vec::new());
        };
        let bytes = self.files.small(&format!("{folder}/{stream}"))?;
        Ok(bytes.unwrap_or_default())
    }
}

impl NodeAnswer {
    fn read(files: &ExtractedFiles, node: String, folder: String) -> Result<Self> {
        let record = files
            .document(&format!("{folder}/each.json"))?
            .unwrap_or_default();
        let details = &record["details"];
        let mut digests = details.to_string();
        for stream in STREAMS {
            let bytes = files.small(&format!("{folder}/{stream}"))?;
            digests.push_str(&hex(sha256(bytes.unwrap_or_default())));
        }
        let outcome = match record["status"].text() {
            verdict::PASSED => Outcome::Passed,
            _ => Outcome::Failed,
        };
        Ok(Self {
            node,
            folder: Some(folder),
            outcome,
            end: details["end"].text().to_owned(),
            code: details["code"].as_i64(),
            lengths: STREAMS.map(|stream| {
                let length = &details[format!("{stream}Bytes")];
                length.as_u64().unwrap_or_default()
            }),
            digest: hex(sha256(digests)),
        })
    }

    /// A node that did not answer.
    fn missing(node: String, reason: &str) -> Self {
        let reason = match reason {
            "" => "no reason is known",
            reason => reason,
        };
        // Names of pods differ, the cause does not.
        let key = remedies::cause_key(reason, &HashSet::from([node.clone()]));
        Self {
            node,
            folder: None,
            outcome: Outcome::Unknown,
            end: format!("no answer: {reason}"),
            code: None,
            lengths: [0; 2],
            digest: hex(sha256(key)),
        }
    }
}

/// A number of nodes among all.
fn share(count: usize, all: usize) -> String {
    match (count, all) {
        (1, 1) => "1 node".into(),
        _ if count == all => format!("all {all} nodes"),
        _ => format!("{count} of {all} nodes"),
    }
}

/// The first names, and the number of the others.
fn listed(names: &[&str]) -> String {
    let first = names.iter().take(MAX_NAMED_NODES).copied().joined(", ");
    match names.len().saturating_sub(MAX_NAMED_NODES) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Adds the lines of an output, with what would control a terminal made visible.
fn add_indented(text: &mut String, indent: &str, output: &str) {
    for line in output.lines() {
        text.push_str(indent);
        text.push_str(&visible::text(line));
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::temp::Folder;
    use std::fs;

    /// A node with its output and exit code; none if it did not answer.
    type Given<'a> = (&'a str, Option<(&'a [u8], i64)>);

    /// The answers in an unpacked archive.
    fn answers(nodes: &[Given<'_>], excluded: &Value) -> Answers {
        let folder = Folder::new().unwrap();
        let write = |path: String, content: &[u8]| {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        for (node, answer) in nodes {
            let Some((stdout, code)) = answer else {
                let error = json!({"error": "the node was lost"}).to_string();
                let path = format!("plugins/each/errors/{node}/error.json");
                write(path, error.as_bytes());
                continue;
            };
            let status = if *code == 0 { "passed" } else { "failed" };
            let details = json!({
                "end": format!("exit code {code}"), "code": code,
                "stdoutBytes": stdout.len(), "stderrBytes": 0,
            });
            let record = json!({"status": status, "details": details}).to_string();
            let place = format!("plugins/each/results/{node}");
            write(format!("{place}/each.json"), record.as_bytes());
            write(format!("{place}/stdout"), stdout);
            write(format!("{place}/stderr"), b"");
        }
        write(layout::EXCLUDED.into(), excluded.to_string().as_bytes());
        Answers::read(&folder.to_string_lossy()).unwrap()
    }

    const SAME: Option<(&[u8], i64)> = Some((b"same", 0));

    fn heads(answers: &Answers) -> Vec<String> {
        let groups = answers.groups();
        let texts = groups.iter().map(|group| answers.group(group, false));
        let first_line = |text: Result<String>| text.unwrap().lines().next().unwrap().to_owned();
        texts.map(first_line).collect()
    }

    #[test]
    fn failed_groups_come_first_then_missing_ones_then_the_largest() {
        let nodes = [
            ("n10", SAME),
            ("n2", SAME),
            ("n3", Some((&b"other"[..], 0))),
            ("n4", None),
            ("n5", Some((&b"same"[..], 1))),
        ];
        let expected = [
            "1 of 5 nodes, exit code 1: n5",
            "1 of 5 nodes, no answer: the node was lost: n4",
            "2 of 5 nodes: n2 n10",
            "1 of 5 nodes: n3",
        ];
        assert_eq!(heads(&answers(&nodes, &json!({}))), expected);
    }

    #[test]
    fn one_cause_is_shown_once() {
        let reason =
            |pod: &str| format!("creating Pod `sonobuoy-each-node-{pod}`: it is forbidden");
        let [first, second] = ["385a899ab834977d-1779f59f4d", "385a899ab834977d-35971be6e9"];
        let mut answers = answers(&[], &json!({}));
        for (node, pod) in [("a", first), ("b", second)] {
            let missing = NodeAnswer::missing(node.to_owned(), &reason(pod));
            answers.nodes.push(missing);
        }
        assert_eq!(answers.groups().len(), 1);
    }

    #[test]
    fn exit_code_is_that_of_the_worst_answer() {
        let failed = Some((&b""[..], 2));
        for (nodes, code) in [
            (vec![("a", SAME)], None),
            (vec![("a", SAME), ("b", None)], Some(4)),
            (vec![("a", failed), ("b", None)], Some(3)),
            (vec![], Some(4)),
        ] {
            let exit = answers(&nodes, &json!({})).exit();
            assert_eq!(exit.map(|exit| exit.code), code, "{nodes:?}");
        }
    }

    #[test]
    fn excluded_node_counts_unless_a_flag_leaves_it_out() {
        let excluded = json!({"each": {"win": "label `kubernetes.io/os` is not `linux`"}});
        for (only, sample, expected) in [("", 0, 2), ("a", 0, 1), ("a,win", 0, 2), ("", 1, 1)] {
            let mut answers = answers(&[("a", SAME)], &excluded);
            let choice = Choice {
                only: only.into(),
                sample,
                ..Choice::default()
            };
            answers.add_excluded(&choice).unwrap();
            assert_eq!(answers.nodes.len(), expected, "{only} {sample}");
        }
    }

    #[test]
    fn line_names_the_cluster_and_encodes_bytes_that_are_no_text() {
        let answers = answers(&[("a", Some((&b"\xff"[..], 0)))], &json!({}));
        let line = answers.line(&answers.nodes[0], Some("prod")).unwrap();
        let expected = json!({
            "cluster": "prod", "node": "a", "status": "passed", "code": 0, "end": "exit code 0",
            "stdoutBase64": "/w==", "stdoutBytes": 1, "stderr": "", "stderrBytes": 0,
        });
        assert_eq!(line, expected);
    }

    #[test]
    fn long_lists_of_nodes_are_cut_in_the_reason() {
        let names: Vec<String> = (0..12).map(|number| format!("n{number}")).collect();
        let nodes: Vec<Given<'_>> = names.iter().map(|name| (&**name, None)).collect();
        let exit = answers(&nodes, &json!({})).exit().unwrap();
        assert!(
            exit.reason.ends_with("n8, n9 and 2 more"),
            "{}",
            exit.reason
        );
    }
}
