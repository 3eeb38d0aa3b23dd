//! A tree read item by item equals the tree read as a whole.

use super::*;

fn check(text: &str) {
    let told = |read: &dyn Fn(&mut Visit<'_>) -> anyhow::Result<()>| {
        let mut record = Vec::new();
        let read = read(&mut |step| {
            record.push(match step {
                Step::Enter(item) | Step::Item(item) => format!("{item:?}"),
                Step::Leave => "end".into(),
            });
            Ok(())
        });
        read.map_err(|_| ()).map(|()| record)
    };
    let whole = told(&|visit| read_expanded(text, visit));
    let streamed = told(&|visit| read(text.as_bytes(), Writer::Plugin, visit));
    assert_eq!(streamed, whole, "{text}");
}

#[test]
fn streamed_tree_equals_whole_tree() {
    for text in [
        "name: p\nstatus: passed\n",
        "name: p\nitems:\n- name: a\n  status: passed\n  meta:\n    file: x\n- name: b\n  \
         items:\n  - name: c\n",
        "name: p\nitems:\n  - name: a\n    details:\n      k: 5\n      l:\n      - 1\n      - \
         two\n  - name: b\n",
        "name: 'it''s'\nstatus: \"a\\tb\\u00e9\\x41\\\\\\\"\"\n",
        "name: a long one that\n  goes on\n\n  and on\nstatus: passed\n",
        "name: 'folded\n  text  \n\n  here'\nstatus: \"esc \\\n  aped \\\n  \\ too\"\n",
        "name: p\ndetails:\n  a: |\n    one\n      two\n\n    three\n  b: |-\n    x\n  c: |+\n    \
         y\n\nstatus: s\n",
        "name: p\ndetails:\n  a: |2-\n      indented\n    less\n  b: \"\"\n  c: ''\n  d:\nstatus: \
         s",
        "name: p\ndetails:\n  'k 1': v\n  \"k\\n2\": 'v'\n  k-3: -5\n  url: http://x:80/y#z\n  t: \
         12:30:45\n",
        "name: p\nmeta:\n  error: |-\n    tab\tbed\nitems:\n- name: x\n",
        "name: 123\ndetails:\n  a: 0x1f\n  b: no\n  c: 1.5\n  d: ~\n",
        "# c\nname: p\n",
        "---\nname: p\n",
        "name: p # c\n",
        "name: p\nitems: [{name: x}]\n",
        "name: !!str 5\n",
        "name: a: b\n",
        "name: p\n status: x\n",
        "name: p\nitems:\n- name: a\n   status: b\n",
        "name: 'open\n",
        "name: \"\\q\"\n",
        "name:\tp\n",
        "name: a\tb\n",
        "name: p\r\nstatus: x\r\n",
        "name: > \n  folded\n",
        "- a\n",
        "name: p\nitems:\n- \n  name: a\n",
        "? name\n: p\n",
        "name: p\u{85}x\n",
        "name: p\nitems:\n- name: a\n- name: {x\n",
    ] {
        check(text);
    }
}

#[test]
fn streamed_stored_tree_equals_whole_tree() {
    for name in ["results-quick-no-failures", "testResultsOutput"] {
        let path = format!(
            "{}/../../tests/fixtures/archives/{name}.tar.gz",
            env!("CARGO_MANIFEST_DIR")
        );
        let file =
            base::archive::Gunzip::new(io::BufReader::new(std::fs::File::open(path).unwrap()));
        let mut reader = base::archive::Reader::new(file, base::archive::Limits::default());
        while let Some(entry) = reader.next_entry().unwrap() {
            if entry.name.ends_with(b"sonobuoy_results.yaml") {
                let mut text = String::new();
                reader.read_to_string(&mut text).unwrap();
                check(&text);
            }
        }
    }
}
