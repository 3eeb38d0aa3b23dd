//! The HTML page: self-contained, escaped, used in a browser, and large.

use std::process::Command;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::export::{results, run};
use crate::support::{self, Folder, Sonobuoy};

#[test]
fn page_is_self_contained_and_escaped() {
    let page = results(&run(), "--format html").run_any().stdout;
    for needle in ["src=", "@import", "url(", "http:", "https:", "//cdn"] {
        // Escaped text of the archive contains one `src=`.
        let found =
            page.matches(needle).count() - page.matches(&format!("&lt;img {needle}")).count();
        assert_eq!(found, 0, "{needle}");
    }
    assert!(page.contains("&lt;b&gt;bold&lt;/b&gt; &amp; &#39;quoted&#39; &quot;name&quot;"));
    assert!(!page.contains("<b>bold") && !page.contains("<img") && !page.contains('\u{1b}'));
    assert_eq!(page.matches("<script>").count(), 1);
    assert!(page.contains("1 of 4 nodes is unknown: <b>n4</b>."));
    assert!(page.contains("1 h 2 min"));
    // Every link has a target.
    for link in page.split("href=\"#").skip(1) {
        let id = link.split('"').next().unwrap();
        assert!(page.contains(&format!("id=\"{id}\"")), "{id}");
    }
}

/// The texts of elements without attributes.
fn inside_tags<'t>(page: &'t str, name: &str) -> impl Iterator<Item = &'t str> {
    let (start, end) = (format!("<{name}>"), format!("</{name}>"));
    let parts: Vec<&str> = page.split(&start).skip(1).collect();
    parts
        .into_iter()
        .map(move |part| part.split(&end).next().unwrap())
}

/// An inline script or style as a policy names it.
fn source_of(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    format!("'sha256-{}'", BASE64_STANDARD.encode(digest))
}

#[test]
fn page_permits_its_own_script_and_style_alone() {
    let page = results(&run(), "--format html").run_any().stdout;
    let policy = page
        .split("Content-Security-Policy\" content=\"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap();
    let [script, style] = ["script", "style"].map(|name| {
        let texts: Vec<_> = inside_tags(&page, name).collect();
        assert_eq!(texts.len(), 1, "{name}");
        source_of(texts[0])
    });
    let expected = format!(
        "default-src 'none'; style-src {style}; style-src-attr 'unsafe-inline'; script-src {script}; img-src data:"
    );
    assert_eq!(policy, expected);
}

/// Uses the page in a browser; the outcome is in an attribute of the page.
const USE: &str = "
const errors = []; addEventListener('error', event => errors.push(event.message));
addEventListener('load', async () => {
  const tests = () => [...document.querySelectorAll('details.t, details.r, p.k')];
  const shown = () => tests().filter(test => !test.hidden).length;
  const search = document.getElementById('q'), count = document.getElementById('count');
  const type = text => { search.value = text; search.dispatchEvent(new Event('input')); };
  const outcome = { title: document.title, tools: !document.querySelector('.tools').hidden, all: shown() };
  outcome.open = [...document.querySelectorAll('details')].filter(node => node.open).map(node => node.className);
  type('DISK n2'); outcome.found = shown(); outcome.count = count.textContent;
  outcome.sections = [...document.querySelectorAll('section')].filter(node => !node.hidden).map(node => node.id);
  outcome.unfolded = document.querySelectorAll('details.all[open]').length;
  type('two'); outcome.card = shown() + ' ' + document.querySelector('#failures').hidden;
  type('nothing like it'); outcome.none = count.textContent; outcome.empty = !document.querySelector('#empty').hidden; outcome.hash = location.hash;
  type('');
  const box = document.querySelector('.tools input[value=passed]'); box.click(); outcome.without = shown(); box.click();
  outcome.again = shown() + count.textContent;
  const fail = document.querySelector('details.t'); fail.parentElement.parentElement.open = false; location.hash = fail.id;
  dispatchEvent(new HashChangeEvent('hashchange')); outcome.revealed = fail.open && fail.parentElement.parentElement.open;
  fail.querySelector('summary').click(); outcome.clicked = fail.open;
  const row = document.querySelector('details.r.passed'); row.open = true;
  await new Promise(done => setTimeout(done, 50));
  outcome.link = row.querySelector('.copy').textContent;
  outcome.requests = performance.getEntriesByType('resource').map(entry => entry.name).filter(name => !name.startsWith('data:'));
  outcome.wide = document.documentElement.scrollWidth > innerWidth;
  outcome.errors = errors;
  // Present if the accessibility checker was inserted before this script.
  if (window.axe) {
    document.querySelectorAll('details').forEach(node => { node.open = true; });
    const found = await axe.run(document, { resultTypes: ['violations'] });
    outcome.axe = found.violations.map(rule => rule.id + ': ' + rule.nodes[0].html);
  }
  document.documentElement.dataset.outcome = JSON.stringify(outcome);
});
";

/// The accessibility checker, as npm installs it: `npm install --no-save axe-core`.
fn axe() -> Option<String> {
    let folders = [
        std::env::var_os("AXE_CORE").map(std::path::PathBuf::from),
        Some("node_modules/axe-core".into()),
    ];
    folders
        .into_iter()
        .flatten()
        .find_map(|folder| std::fs::read_to_string(folder.join("axe.min.js")).ok())
}

/// What scripts found out about a page in a browser; `None` if no browser starts.
fn used(folder: &Folder, page: &str, scripts: &[&str]) -> Option<Value> {
    let chromium = support::any_program(&["chromium", "chromium-browser", "google-chrome"])?;
    // The page's policy permits its own script alone.
    let mut sources = String::from("script-src ");
    let mut elements = String::new();
    for script in scripts {
        sources += &format!("{} ", source_of(script));
        elements += &format!("<script>{script}</script>");
    }
    let permitted = page.replacen("script-src ", &sources, 1);
    let path = folder.write(
        "page.html",
        permitted.replace("</body>", &(elements + "</body>")),
    );
    let done = Command::new(chromium)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--window-size=400,900",
        ])
        .args([
            "--disable-background-networking",
            "--no-first-run",
            "--enable-logging=stderr",
            "--v=0",
        ])
        .arg(format!(
            "--user-data-dir={}",
            folder.join("browser").display()
        ))
        .args(["--virtual-time-budget=4000", "--dump-dom"])
        .arg(format!("file://{}", path.display()))
        .env("HOME", folder.path())
        .output()
        .unwrap();
    let (dom, log) = (
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr),
    );
    let console: Vec<_> = log
        .lines()
        .filter(|line| line.contains("CONSOLE"))
        .collect();
    assert_eq!(console, [""; 0], "the console stays empty");
    let Some(outcome) = dom
        .split("data-outcome=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
    else {
        // A browser that cannot start proves nothing about the page.
        assert!(dom.is_empty(), "{dom}\n{log}");
        let last = log.lines().last().unwrap_or_default();
        support::skipped("chromium", &format!("it does not run: {last}"));
        return None;
    };
    Some(serde_json::from_str(&outcome.replace("&quot;", "\"").replace("&amp;", "&")).unwrap())
}

#[test]
fn page_can_be_searched_and_folded_in_a_browser() {
    let folder = run();
    let page = results(&folder, "--format html").run_any().stdout;
    let axe = axe();
    let checker = axe.as_deref().unwrap_or_default();
    let Some(outcome) = used(&folder, &page, &[checker, USE]) else {
        return;
    };
    let mut expected = json!({
        "title": "1 failed of 10 that ran (1 skipped) · Sonobuoy", "tools": true, "all": 11,
        "open": ["cause failed", "cause unknown"], "found": 1, "count": "1 of 11 tests",
        "sections": ["plugin-check"], "unfolded": 1, "card": "1 false", "none": "0 of 11 tests", "empty": true, "hash": "#q=nothing%20like%20it", "without": 7,
        "again": "11", "revealed": true, "clicked": false, "link": "Copy link", "requests": [], "wide": false, "errors": [],
    });
    match axe {
        Some(_) => expected["axe"] = json!([]),
        None => support::skipped(
            "axe-core",
            "axe-core is not installed; `npm install --no-save axe-core` brings it",
        ),
    }
    assert_eq!(outcome, expected);
}

/// Counts tests and matches, and checks that no element is too wide once everything is unfolded.
const COUNT: &str = "
const errors = []; addEventListener('error', event => errors.push(event.message));
addEventListener('load', () => {
  const shown = () => [...document.querySelectorAll('details.t, details.r, p.k')].filter(test => !test.hidden).length;
  const outcome = { all: shown(), errors };
  const search = document.getElementById('q'); search.value = 'worker-0042'; search.dispatchEvent(new Event('input'));
  outcome.found = shown(); location.hash = '#q=&node=worker-1003.example.org'; dispatchEvent(new HashChangeEvent('hashchange'));
  const panel = document.getElementById('node');
  outcome.node = [...panel.querySelectorAll('dt, dd')].map(node => node.textContent).join(' ');
  outcome.linked = !!document.querySelector(panel.querySelector('dd a').hash);
  panel.querySelector('button').click(); outcome.only = [search.value, location.hash];
  search.value = ''; search.dispatchEvent(new Event('input'));
  document.querySelectorAll('details').forEach(node => { node.open = true; });
  outcome.wide = document.documentElement.scrollWidth > innerWidth;
  document.documentElement.dataset.outcome = JSON.stringify(outcome);
});
";

#[test]
fn page_of_five_thousand_nodes_stays_small() {
    const NODES: u64 = 5_000;
    let folder = Folder::new();
    folder.write("meta/info.json", r#"{"plugins":["probe","host-facts"]}"#);
    let mut trees = [
        String::from("name: probe\nitems:\n"),
        String::from("name: host-facts\nitems:\n"),
    ];
    for number in 0..NODES {
        let node = format!("worker-{number:04}.example.org");
        let facts = json!({"ansible_kernel": if number == 7 { "5.4.0" } else { "6.1.0" }, "ansible_processor_vcpus": 16});
        let file = format!("plugins/host-facts/results/{node}/host-facts.json");
        folder.write(&file, json!({"ansible_facts": facts}).to_string());
        let failed = number % 1_000 == 3;
        let dns = if failed {
            "failed, details: {error: no such host}"
        } else {
            "passed"
        };
        let leaves = [
            format!("{{name: dns, status: {dns}}}, {{name: disk, status: passed}}"),
            "{name: file, status: passed}".into(),
        ];
        for (tree, leaves) in trees.iter_mut().zip(leaves) {
            tree.push_str(&format!(
                "- {{name: {node}, status: passed, meta: {{type: node}}, items: [{leaves}]}}\n"
            ));
        }
    }
    for (tree, plugin) in trees.iter().zip(["probe", "host-facts"]) {
        folder.write(&format!("plugins/{plugin}/sonobuoy_results.yaml"), tree);
    }
    let page = results(&folder, "--format html").run_any().stdout;
    assert!(page.len() < 6_000_000, "{} bytes", page.len());
    assert!(
        page.contains("5 failed of 15,000 that ran")
            && page.contains("1 of 5,000 nodes runs kernel 5.4.0")
    );
    let plain = page.matches("<p class=\"k passed\"").count();
    assert!(
        plain > 9_000 && page.matches("<details").count() < 100,
        "{plain}"
    );
    let Some(outcome) = used(&folder, &page, &[COUNT]) else {
        return;
    };
    let [all, found] = ["all", "found"].map(|key| outcome[key].as_u64().unwrap());
    assert!(all >= 10_000 && found == 3, "{outcome}");
    assert_eq!(
        (&outcome["wide"], &outcome["errors"]),
        (&json!(false), &json!([]))
    );
    assert_eq!(
        outcome["node"],
        "probe failed host-facts passed Failed dns "
    );
    assert_eq!(outcome["linked"], true);
    let name = "worker-1003.example.org";
    assert_eq!(
        outcome["only"],
        json!([name, format!("#q={name}&node={name}")])
    );
}

/// Opens the panel of a node from its name in a table.
const OPEN: &str = "
addEventListener('load', () => {
  const row = [...document.querySelectorAll('.matrix tr')].find(row => row.textContent.includes('n4'));
  row.querySelector('button').click();
  const panel = document.getElementById('node');
  const outcome = { told: [...panel.querySelectorAll('h3, dt, dd')].map(node => node.textContent.trim()), hash: location.hash };
  panel.querySelectorAll('button')[1].click();
  outcome.closed = panel.hidden && location.hash === '';
  document.documentElement.dataset.outcome = JSON.stringify(outcome);
});
";

#[test]
fn node_in_the_page_has_a_panel_with_all_about_it() {
    let folder = run();
    let page = results(&folder, "--format html").run_any().stdout;
    let Some(outcome) = used(&folder, &page, &[OPEN]) else {
        return;
    };
    let told = json!(["n4", "check", "1 complete, 1 unknown", "Failed", "dns"]);
    assert_eq!(
        outcome,
        json!({"told": told, "hash": "#q=&node=n4", "closed": true})
    );
}

#[test]
fn several_archives_make_the_page_of_the_last_with_their_trend() {
    let (earlier, last) = (run(), run());
    let tree = last.join("plugins/check/sonobuoy_results.yaml");
    let passed = std::fs::read_to_string(&tree)
        .unwrap()
        .replace("unknown", "failed");
    std::fs::write(&tree, passed).unwrap();
    last.write(
        "meta/run.log",
        "{\"time\":\"2026-02-01T00:00:00Z\"}\n{\"time\":\"2026-02-01T01:02:03Z\"}\n",
    );
    let page = results(&last, "--format html")
        .arg(earlier.path())
        .run_any()
        .stdout;
    let trend = page
        .split("<section id=\"trend\">")
        .nth(1)
        .unwrap()
        .split("</section>")
        .next()
        .unwrap();
    assert!(trend.contains("Trend: 2 runs"), "{trend}");
    let starts: Vec<_> = trend
        .split("<th scope=\"row\">")
        .skip(1)
        .map(|row| &row[..16])
        .collect();
    assert_eq!(starts, ["2026-02-01 00:00", "2026-01-01 00:00"]);
    let marks = |test: &str| {
        let row = trend.split("<tr>").find(|row| row.contains(test)).unwrap();
        let marks = row
            .split("aria-label=\"")
            .skip(1)
            .map(|mark| mark.split('"').next().unwrap());
        marks.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        (marks("dns").as_str(), marks("&lt;b&gt;bold").as_str()),
        ("none failed", "failed failed")
    );
    assert!(
        page.contains("2026-02-01 00:00 UTC"),
        "the page is that of the last run"
    );
}

#[test]
fn cause_has_one_card_per_test_the_nodes_and_a_command() {
    let folder = Folder::new();
    folder.write("meta/info.json", r#"{"plugins":["net","$(touch x)"]}"#);
    let node = |name: &str, number: u32| {
        format!(
            "- name: {name}\n  status: failed\n  meta: {{type: node}}\n  items:\n  - {{name: reach, status: failed, details: \
             {{failure: 'dial tcp 10.0.0.{number}:443: i/o timeout'}}}}\n"
        )
    };
    let nodes = [node("vm-1", 1), node("vm-10", 10), node("vm-2", 2)].concat();
    folder.write(
        "plugins/net/sonobuoy_results.yaml",
        format!("name: net\nstatus: failed\nitems:\n{nodes}"),
    );
    let tree =
        "name: x\nstatus: failed\nitems:\n- {name: odd, status: failed, details: {failure: odd}}\n";
    folder.write("plugins/$(touch x)/sonobuoy_results.yaml", tree);
    let page = results(&folder, "--format html").run_any().stdout;
    assert_eq!(
        page.matches("<details class=\"t failed\"").count(),
        2,
        "a card per test and cause"
    );
    let chips = page
        .split("<p class=\"chips\"><a ")
        .nth(1)
        .unwrap()
        .split("</p>")
        .next()
        .unwrap();
    let (two, ten) = (
        chips.find(">vm-2<").unwrap(),
        chips.find(">vm-10<").unwrap(),
    );
    let one = chips.find(">vm-1<").unwrap();
    assert!(one < two && two < ten, "{chips}");
    for id in chips
        .split("href=\"#")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
    {
        assert!(page.contains(&format!("id=\"{id}\"")), "{id}");
    }
    let cause = page
        .split("<details class=\"cause failed\"")
        .nth(1)
        .unwrap();
    let summary = cause.split("</summary>").next().unwrap();
    assert!(
        summary.ends_with(
            "<b>reach</b> <small>3 nodes · values differ · net</small><span class=\"message\">\
             dial tcp <span class=\"vary\">10.0.0.1</span>:443: i/o timeout</span>"
        ),
        "{summary}"
    );
}

#[test]
fn command_to_run_again_is_offered_where_it_works() {
    let folder = Folder::new();
    let plugins = ["e2e", "network", "hello", "of-a-file", "$(touch x)"];
    folder.write("meta/info.json", json!({"plugins": plugins}).to_string());
    for plugin in plugins {
        let tree = format!(
            "name: x\nstatus: failed\nitems:\n- {{name: a test, status: failed, details: \
             {{failure: why {plugin}}}}}\n"
        );
        folder.write(&format!("plugins/{plugin}/sonobuoy_results.yaml"), tree);
    }
    // One is built in, the other a file with the name of a built-in plugin.
    for (plugin, program) in [("network", "/sonobuoy"), ("hello", "/bin/sh")] {
        let definition = json!({"Definition": {"spec": {"command": [program]}}});
        folder.write(
            &format!("plugins/{plugin}/definition.json"),
            definition.to_string(),
        );
    }
    let commands = || {
        let page = results(&folder, "--format html").run_any().stdout;
        let commands = page.split("data-rerun=\"").skip(1);
        let mut commands: Vec<_> = commands
            .map(|rest| rest.split('"').next().unwrap().to_owned())
            .collect();
        commands.sort();
        commands
    };
    assert_eq!(commands(), ["sonobuoy run --local -p network"]);
    folder.write("serverversion.json", r#"{"gitVersion":"v1.34.2"}"#);
    assert_eq!(
        commands(),
        [
            "sonobuoy run --wait --e2e-focus &#39;a test&#39;",
            "sonobuoy run --wait -p network",
        ]
    );
}

#[test]
fn skipped_tests_show_their_reason_and_leave_first() {
    let folder = Folder::new();
    folder.write("meta/info.json", r#"{"plugins":["p"]}"#);
    let mut tree = String::from(
        "name: p\nstatus: passed\nitems:\n- name: j.xml\n  status: passed\n  \
         meta: {type: file, file: results/global/j.xml}\n  items:\n",
    );
    for number in 0..9_000 {
        let status = if number < 4_000 { "skipped" } else { "passed" };
        tree.push_str(&format!("  - {{name: t{number}, status: {status}}}\n"));
    }
    folder.write("plugins/p/sonobuoy_results.yaml", tree);
    let suite = "<testsuite name=\"s\"><testcase name=\"t0\">\
                 <skipped message=\"the node has no GPU\"/></testcase></testsuite>";
    folder.write("plugins/p/results/global/j.xml", suite);
    let page = results(&folder, "--format html").run_any().stdout;
    assert_eq!(page.matches("<p class=\"k passed\"").count(), 5_000);
    assert_eq!(page.matches("<p class=\"k\"").count(), 3_000);
    assert!(page.contains(">t0 <i>the node has no GPU</i>"));
    assert!(page.contains("and 1,000 more in the archive, all skipped"));
    assert!(page.contains("data-unlisted=\"1000\""));
}

#[test]
fn timeline_compares_at_least_two_bars() {
    let folder = run();
    let result = |plugin: &str| {
        json!({"plugin": plugin, "node": "global", "started": "2026-01-01T00:00:10Z",
               "arrived": "2026-01-01T00:01:00Z"})
    };
    let page = |results_of: Value| {
        folder.write("meta/results.json", results_of.to_string());
        results(&folder, "--format html").run_any().stdout
    };
    assert!(!page(json!([result("e2e")])).contains("<h3>Timeline</h3>"));
    assert!(page(json!([result("e2e"), result("gone")])).contains("<h3>Timeline</h3>"));
}

#[test]
fn archive_compared_with_itself_is_remarked() {
    let folder = run();
    let diff = |words: &str| {
        let command = Sonobuoy::new("results diff")
            .arg(folder.path())
            .arg(folder.path());
        let command = words.split_whitespace().fold(command, Sonobuoy::arg);
        command.run_any().stdout
    };
    let remark = "Both archives are of the same run.";
    assert!(diff("").starts_with(remark));
    assert!(diff("--format html").contains(remark));
    assert!(diff("--format json").contains("\"sameRun\":true"));
}

/// Which buttons the causes have at the start, and where the panel is after a click on a picture.
const START: &str = "
addEventListener('load', () => {
  const buttons = card => [...card.querySelectorAll(':scope > .copy')].map(button => button.textContent);
  const outcome = { buttons: [...document.querySelectorAll('details.cause')].map(buttons) };
  const picture = document.querySelector('svg.nodes');
  if (picture) {
    picture.scrollIntoView();
    const box = picture.getBoundingClientRect();
    picture.dispatchEvent(new MouseEvent('click', { clientX: box.left + 3, clientY: box.top + 3 }));
    const panel = document.getElementById('node').getBoundingClientRect();
    outcome.panel = panel.height > 0 && panel.top >= 0 && panel.top < innerHeight;
  }
  document.documentElement.dataset.outcome = JSON.stringify(outcome);
});
";

#[test]
fn open_causes_have_their_buttons_and_a_click_on_a_picture_shows_the_node() {
    let folder = Folder::new();
    folder.write("meta/info.json", r#"{"plugins":["network"]}"#);
    let mut tree = String::from("name: network\nstatus: failed\nitems:\n");
    for number in 0..100 {
        tree.push_str(&format!(
            "- name: n{number}\n  status: failed\n  meta: {{type: node}}\n  \
             items: [{{name: dns, status: failed, details: {{failure: no such host}}}}]\n"
        ));
    }
    folder.write("plugins/network/sonobuoy_results.yaml", tree);
    let page = results(&folder, "--format html").run_any().stdout;
    let Some(outcome) = used(&folder, &page, &[START]) else {
        return;
    };
    let buttons = ["Copy link", "Copy command to run again", "Copy as issue"];
    assert_eq!(outcome, json!({"buttons": [buttons], "panel": true}));
}
