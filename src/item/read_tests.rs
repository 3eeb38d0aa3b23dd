//! Both readers of trees yield the same.

use super::*;

/// Everything a visitor receives, and the outcome.
#[derive(Default)]
struct Record(Vec<String>);

impl Visit for Record {
    fn enter(&mut self, item: Item) -> anyhow::Result<()> {
        self.0.push(format!("{item:?}"));
        Ok(())
    }

    fn leave(&mut self) -> anyhow::Result<()> {
        self.0.push("end".into());
        Ok(())
    }

    fn leaf(&mut self, item: Item) -> anyhow::Result<()> {
        self.enter(item)
    }
}

fn check(text: &str, fast: bool) {
    let told = |read: &dyn Fn(&mut Record) -> anyhow::Result<()>| {
        let mut record = Record::default();
        let end = read(&mut record).map_err(|error| format!("{error:#}"));
        (record.0, end)
    };
    let whole = told(&|record| read_any(text.as_bytes(), Writer::Aggregator, record));
    let both = told(&|record| read(io::Cursor::new(text), Writer::Aggregator, record));
    assert_eq!(both, whole, "{text}");
    let alone = told(&|record| {
        let source = Quick::new(text.as_bytes());
        Reader { source, taken: Rc::default(), writer: Writer::Aggregator }.document(record)
    });
    if fast {
        assert_eq!(alone, whole, "{text}");
    } else {
        assert!(alone.1.is_err(), "{text}");
    }
}

#[test]
fn what_programs_write_means_the_same_to_both_readers() {
    for text in [
        "name: p\nstatus: passed\n",
        "name: p\nitems:\n- name: a\n  status: passed\n  meta:\n    file: x\n- name: b\n  items:\n  - name: c\n",
        "name: p\nitems:\n  - name: a\n    details:\n      n: 5\n      l:\n      - 1\n      - two\n  - name: b\n",
        "name: 'it''s'\nstatus: \"a\\tb\\u00e9\\x41\\\\\\\"\"\n",
        "name: a long one that\n  goes on\n\n  and on\nstatus: passed\n",
        "name: 'folded\n  text  \n\n  here'\nstatus: \"esc \\\n  aped \\\n  \\ too\"\n",
        "name: p\ndetails:\n  a: |\n    one\n      two\n\n    three\n  b: |-\n    x\n  c: |+\n    y\n\nstatus: s\n",
        "name: p\ndetails:\n  a: |2-\n      indented\n    less\n  b: \"\"\n  c: ''\n  d:\nstatus: s",
        "name: p\ndetails:\n  'k 1': v\n  \"k\\n2\": 'v'\n  k-3: -5\n  url: http://x:80/y#z\n  t: 12:30:45\n",
        "name: p\nmeta:\n  error: |-\n    tab\tbed\nitems:\n- name: x\n",
        "name: 123\nstatus: yes\ndetails:\n  a: 0x1f\n  b: no\n  c: 1.5\n  d: ~\n",
    ] {
        check(text, true);
    }
    for text in [
        "",
        "# c\nname: p\n",
        "---\nname: p\n",
        "name: p # c\n",
        "name: {a: b}\n",
        "name: p\nitems: [{name: x}]\n",
        "name: &a p\nstatus: *a\n",
        "name: !!str 5\n",
        "name: p\nitems:\n- name: a\n...\n",
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
        "name: p\n<<: x\n",
        "name: p\nitems:\n- name: a\n- name: {x\n",
    ] {
        check(text, false);
    }
}

#[test]
fn stored_trees_mean_the_same_to_both_readers() {
    for name in ["results-quick-no-failures", "testResultsOutput"] {
        let path = format!("{}/tests/fixtures/archives/{name}.tar.gz", env!("CARGO_MANIFEST_DIR"));
        let file = base::archive::Gunzip::new(io::BufReader::new(std::fs::File::open(path).unwrap()));
        let mut reader = base::archive::Reader::new(file, base::archive::Limits::default());
        while let Some(entry) = reader.next_entry().unwrap() {
            if entry.name.ends_with(b"sonobuoy_results.yaml") {
                let mut text = String::new();
                reader.read_to_string(&mut text).unwrap();
                check(&text, true);
            }
        }
    }
}
