//! The state of a run: results, waits, silent workers and the status document.

use super::*;

fn failed(error: &str) -> ResultState {
    ResultState::Failed {
        error: error.into(),
        kind: FailureKind::Failed,
    }
}

#[test]
fn processing_starts_when_all_results_arrived_or_failed() {
    let ids = [
        ResultId::global("a"),
        ResultId::on_node("b", "n1"),
        ResultId::on_node("b", "n2"),
    ];
    let mut state = State::new(ids.to_vec(), 24 << 20);
    let now = Instant::now();
    let mut seen = Vec::new();
    for result in [ResultState::Accepted, failed("no"), ResultState::Accepted] {
        let run = state.document(now);
        seen.push((run.status, run.percent_complete.unwrap()));
        let id = &ids[seen.len() - 1];
        assert!(state.acquire(id).unwrap());
        state.settle(id, result);
    }
    let run = state.document(now);
    seen.push((run.status.clone(), run.percent_complete.unwrap()));
    let words = [
        status::RUNNING,
        status::RUNNING,
        status::RUNNING,
        status::POST_PROCESSING,
    ];
    let expected: Vec<(String, f64)> = words
        .into_iter()
        .map(str::to_owned)
        .zip([0.0, 0.3333, 0.6666, 1.0])
        .collect();
    assert_eq!(seen, expected);
    let entries = run.plugins.unwrap();
    let told: Vec<_> = entries
        .iter()
        .map(|e| (e.node.as_str(), e.status.as_str()))
        .collect();
    assert_eq!(
        told,
        [("global", "complete"), ("n1", "failed"), ("n2", "complete")]
    );
    assert_eq!(entries[1].message.as_deref(), Some("no"));
    state.ended(Ok(Archive {
        size: 7,
        ..Archive::default()
    }));
    let run = state.document(now);
    assert_eq!(
        (&*run.status, run.upload.as_deref()),
        (status::COMPLETE, None)
    );
    state.uploads = true;
    assert_eq!(state.document(now).upload.as_deref(), Some(status::RUNNING));
    state.ended(Err("disk on fire".into()));
    let run = state.document(now);
    assert_eq!(
        (run.status.as_str(), run.error.as_deref()),
        (status::FAILED, Some("disk on fire"))
    );
}

#[test]
fn slot_has_one_upload_and_closes_with_the_result() {
    let id = ResultId::global("a");
    let mut state = State::new(vec![id.clone()], 24 << 20);
    assert!(matches!(
        state.acquire(&ResultId::global("b")),
        Err(Refusal::Unexpected)
    ));
    assert!(state.acquire(&id).unwrap() && !state.acquire(&id).unwrap());
    state.release(&id);
    assert!(state.acquire(&id).unwrap());
    state.settle(&id, failed("no"));
    assert!(state.acquire(&id).unwrap(), "an error may be replaced");
    state.settle(&id, ResultState::Accepted);
    assert!(matches!(state.acquire(&id), Err(Refusal::Duplicate)));
}

#[test]
fn second_upload_waits_for_the_end_of_the_first() {
    let id = ResultId::global("a");
    let mut state = State::new(vec![id.clone()], 24 << 20);
    let [first, second, third]: [Arc<Meter>; 3] = Default::default();
    let sender = Sender::default();
    let begins = |state: &mut State, upload| state.begin(&id, &sender, upload, true).is_ok();
    assert!(begins(&mut state, &first) && !begins(&mut state, &second));
    assert!(
        state.begin(&id, &sender, &Arc::default(), false).is_ok(),
        "small bodies need not be alone"
    );
    state.end(&id, &second);
    assert!(
        !begins(&mut state, &second),
        "only the one under way can end"
    );
    state.end(&id, &first);
    assert!(begins(&mut state, &second));
    second.evict();
    assert!(begins(&mut state, &third) && !begins(&mut state, &first));
}

#[test]
fn spoiled_uploads_fail_after_window_or_limit() {
    let id = ResultId::global("a");
    let mut state = State::new(vec![id.clone()], 24 << 20);
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let given_up = |state: &State, now| !state.given_up(Duration::from_secs(120), now).is_empty();
    for minute in 0..10 {
        state.refuse(&id, "bad".into(), at(minute * 60));
        assert!(!given_up(&state, at(minute * 60 + 59)), "{minute}");
    }
    assert!(given_up(&state, at(600)), "the limit counts from the first");
    state.settle(&id, ResultState::Awaited);
    state.refuse(&id, "bad".into(), at(0));
    assert!(!given_up(&state, at(119)) && given_up(&state, at(120)));
    state.settle(&id, ResultState::Accepted);
    state.refuse(&id, "late".into(), at(0));
    assert_eq!(state.result(&id), Some(&ResultState::Accepted));
}

#[test]
fn silent_workers_are_reported_with_the_likely_cause() {
    let ids = [
        ResultId::global("never"),
        ResultId::global("once"),
        ResultId::global("later"),
    ];
    let mut state = State::new(ids.to_vec(), 24 << 20);
    let start = Instant::now();
    for plugin in ["never", "once"] {
        state.apply(
            Record::Started {
                plugin: plugin.into(),
                at: "t".into(),
            },
            start,
        );
    }
    assert!(state.note_contact(&ids[1], start + Duration::from_secs(5)));
    assert!(!state.note_contact(&ResultId::global("x"), start));
    let messages = |seconds| {
        let run = state.document(start + Duration::from_secs(seconds));
        run.plugins
            .unwrap()
            .into_iter()
            .map(|entry| entry.message)
            .collect::<Vec<_>>()
    };
    assert_eq!(messages(119), [None, None, None]);
    let [never, once, later] = &messages(125)[..] else {
        panic!()
    };
    assert!(
        never
            .as_ref()
            .unwrap()
            .contains("not been heard from in the 125 s since the plugin was started")
    );
    assert!(once.as_ref().unwrap().contains("last heard from 120 s ago"));
    assert_eq!(*later, None, "what was not started is not missed");
    let entries = state
        .document(start + Duration::from_secs(22))
        .plugins
        .unwrap();
    assert_eq!(
        entries.iter().map(|e| e.last_heartbeat).collect::<Vec<_>>(),
        [None, Some(17), None]
    );
}

#[test]
fn worker_without_heartbeats_is_silent_unless_it_uploads() {
    let ids = ["beats", "uploads", "original", "done", "foreign", "once"]
        .map(|node| ResultId::on_node("p", node));
    let mut state = State::new(ids.to_vec(), 24 << 20);
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    for id in [&ids[0], &ids[1], &ids[3]] {
        assert!(state.beat(id, true, start) && state.beat(id, true, start));
    }
    assert!(!state.beat(&ResultId::global("x"), true, start));
    // Clients of others, and a single heartbeat, promise nothing.
    assert!(state.beat(&ids[4], false, start) && state.beat(&ids[4], false, start));
    assert!(state.beat(&ids[5], true, start));
    // The original's worker reports progress without heartbeats.
    assert!(state.note_contact(&ids[2], start));
    state.settle(&ids[3], ResultState::Accepted);
    let upload = std::sync::Arc::<http::Meter>::default();
    state
        .begin(&ids[1], &Sender::default(), &upload, true)
        .unwrap();
    let mut silent = |seconds| {
        upload.time(false, || Ok(1)).unwrap();
        let silent = state.gone_silent(Duration::from_secs(60), at(seconds));
        silent
            .into_iter()
            .map(|(id, quiet)| (id.node, quiet.as_secs()))
            .collect::<Vec<_>>()
    };
    assert_eq!(silent(59), []);
    assert_eq!(silent(65), [("beats".to_owned(), 65)]);
    state.end(&ids[1], &upload);
    let names = |state: &mut State, seconds| {
        state
            .gone_silent(Duration::from_secs(60), at(seconds))
            .len()
    };
    assert_eq!(
        (
            names(&mut state, 66),
            names(&mut state, 125),
            names(&mut state, 126)
        ),
        (1, 1, 2)
    );
    state.beat(&ids[0], true, at(126));
    assert_eq!(names(&mut state, 126), 1, "it has come back");
}

#[test]
fn processing_results_reach_every_node() {
    let nodes = ["n1", "n2", "n3"].map(|node| ResultId::on_node("d", node));
    let mut state = State::new([&nodes[..], &[ResultId::global("j")]].concat(), 24 << 20);
    let counts = BTreeMap::from([("passed".to_owned(), 2)]);
    state.processed("d", |id| {
        (id.node != "n2").then(|| (format!("of {}", id.node), counts.clone()))
    });
    let entries = state.document(Instant::now()).plugins.unwrap();
    let told: Vec<_> = entries
        .iter()
        .map(|entry| entry.result_status.as_str())
        .collect();
    assert_eq!(
        told,
        ["of n1", "", "of n3", ""],
        "a node without an item is skipped"
    );
    assert_eq!(
        (
            entries[2].result_counts.as_ref(),
            entries[1].result_counts.as_ref()
        ),
        (Some(&counts), None)
    );
}

#[test]
fn waiters_are_notified_once() {
    let id = ResultId::global("a");
    let mut state = State::new(vec![id.clone()], 24 << 20);
    let (waiter, onlooker) = (Stop::new(), Stop::new());
    state.wait_here(waiter.clone());
    state.wake_on_change(onlooker.clone());
    state.progress(&id, Progress::default(), "now".into());
    assert!(
        onlooker.stopped() && !waiter.stopped(),
        "progress is not a result"
    );
    state.settle(&id, ResultState::Accepted);
    assert!(waiter.stopped());
    assert!(state.waiters.is_empty() && state.onlookers.is_empty());
}

#[test]
fn receipts_state_the_outcome_of_each_result() {
    let ids = [
        ResultId::on_node("p", "a"),
        ResultId::on_node("p", "b"),
        ResultId::global("q"),
    ];
    let mut state = State::new(ids.to_vec(), 1 << 20);
    for at in ["t0", "t9"] {
        state.apply(
            Record::Started {
                plugin: "p".into(),
                at: at.into(),
            },
            Instant::now(),
        );
    }
    state.note_contact(&ids[0], Instant::now());
    let sender = Sender::new(Some("plugin"), Some("w/1"));
    state
        .begin(&ids[0], &sender, &Arc::default(), false)
        .unwrap();
    state
        .begin(&ids[0], &sender, &Arc::default(), false)
        .unwrap();
    let known = state.receipt(&ids[0]).cloned().unwrap();
    let receipt = Receipt {
        arrived: Some("t1".into()),
        size: 7,
        sha256: "e3b0".into(),
        ..known
    };
    state.apply(
        Record::Accepted {
            id: ids[0].clone(),
            receipt,
        },
        Instant::now(),
    );
    let list = serde_json::to_value(state.received()).unwrap();
    let (first, heard) = (&list[0], &list[0]["first_heartbeat"]);
    assert!(
        clock::parse_rfc3339(heard.as_str().unwrap()).is_some(),
        "{heard}"
    );
    for (key, value) in [
        ("plugin", "p"),
        ("node", "a"),
        ("started", "t0"),
        ("arrived", "t1"),
        ("sha256", "e3b0"),
        ("identity", "plugin"),
        ("worker", "w/1"),
    ] {
        assert_eq!(first[key], value, "{first}");
    }
    assert_eq!((&first["size"], &first["attempts"]), (&7.into(), &2.into()));
    assert_eq!(
        list[2].to_string(),
        r#"{"arrived":null,"attempts":0,"error":"no result arrived","first_heartbeat":null,"identity":"","node":"global","plugin":"q","sha256":"","size":0,"started":null,"worker":""}"#
    );
}

#[test]
fn worker_name_is_bounded_and_printable() {
    for (worker, kept) in [
        (None, String::new()),
        (Some("sonobuoy/0.60.0"), "sonobuoy/0.60.0".into()),
        (Some("a\u{1b}[31m\r\nb é"), "a[31mb ".into()),
        (Some(&*"x".repeat(1_000)), "x".repeat(MAX_WORKER_BYTES)),
    ] {
        assert_eq!(Sender::new(Some("plugin"), worker).worker, kept);
    }
}
