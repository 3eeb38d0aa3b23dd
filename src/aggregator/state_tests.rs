//! The state of a run: what settles results, waits, silence and the document.

use super::*;

const SILENCE: Duration = Duration::from_secs(60);

fn failed(error: &str) -> Standing {
    Standing::Failed { error: error.into(), kind: FailureKind::Failed }
}

fn document(state: &State, now: Instant) -> Run {
    state.document(SILENCE, now)
}

#[test]
fn the_run_is_processed_once_everything_is_in_failures_included() {
    let ids = [ResultId::global("a"), ResultId::on_node("b", "n1"), ResultId::on_node("b", "n2")];
    let mut state = State::new(ids.to_vec(), 24 << 20);
    let now = Instant::now();
    let mut seen = Vec::new();
    for standing in
        [Standing::Accepted { identity: None }, failed("no"), Standing::Accepted { identity: None }]
    {
        let run = document(&state, now);
        seen.push((run.status, run.percent_complete.unwrap()));
        let id = &ids[seen.len() - 1];
        state.take(id).unwrap();
        state.settle(id, standing);
    }
    let run = document(&state, now);
    seen.push((run.status.clone(), run.percent_complete.unwrap()));
    let words = [status::RUNNING, status::RUNNING, status::RUNNING, status::POST_PROCESSING];
    let expected: Vec<(String, f64)> =
        words.into_iter().map(str::to_owned).zip([0.0, 0.3333, 0.6666, 1.0]).collect();
    assert_eq!(seen, expected);
    let entries = run.plugins.unwrap();
    let told: Vec<_> = entries.iter().map(|e| (e.node.as_str(), e.status.as_str())).collect();
    assert_eq!(told, [("global", "complete"), ("n1", "failed"), ("n2", "complete")]);
    assert_eq!(entries[1].message.as_deref(), Some("no"));
    state.finished(Archive { size: 7, ..Archive::default() });
    assert_eq!(document(&state, now).status, status::COMPLETE);
    state.failed("disk on fire".into());
    let run = document(&state, now);
    assert_eq!((run.status.as_str(), run.error.as_deref()), (status::FAILED, Some("disk on fire")));
}

#[test]
fn a_slot_is_taken_by_one_at_a_time_and_never_after_its_result() {
    let id = ResultId::global("a");
    let mut state = State::new(vec![id.clone()], 24 << 20);
    assert_eq!(state.take(&ResultId::global("b")), Err(Taken::Unexpected));
    assert_eq!(state.take(&id), Ok(()));
    assert_eq!(state.take(&id), Err(Taken::Busy));
    state.release(&id);
    assert_eq!(state.take(&id), Ok(()));
    state.settle(&id, failed("no"));
    assert_eq!(state.take(&id), Ok(()), "an error may be replaced");
    state.settle(&id, Standing::Accepted { identity: None });
    assert_eq!(state.take(&id), Err(Taken::Duplicate));
}

#[test]
fn spoiled_uploads_are_given_up_after_window_or_limit() {
    let id = ResultId::global("a");
    let mut state = State::new(vec![id.clone()], 24 << 20);
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let given_up = |state: &State, now| {
        !state.given_up(Duration::from_secs(120), Duration::from_secs(600), now).is_empty()
    };
    for minute in 0..10 {
        state.refuse(&id, "bad".into(), at(minute * 60));
        assert!(!given_up(&state, at(minute * 60 + 59)), "{minute}");
    }
    assert!(given_up(&state, at(600)), "the limit counts from the first");
    state.settle(&id, Standing::Awaited);
    state.refuse(&id, "bad".into(), at(0));
    assert!(!given_up(&state, at(119)) && given_up(&state, at(120)));
    state.settle(&id, Standing::Accepted { identity: None });
    state.refuse(&id, "late".into(), at(0));
    assert_eq!(state.standing(&id), Some(&Standing::Accepted { identity: None }));
}

#[test]
fn silent_workers_are_named_with_the_likely_cause() {
    let ids = [ResultId::global("never"), ResultId::global("once"), ResultId::global("later")];
    let mut state = State::new(ids.to_vec(), 24 << 20);
    let start = Instant::now();
    state.launched("never", start);
    state.launched("once", start);
    assert!(state.hear(&ids[1], start + Duration::from_secs(5)));
    assert!(!state.hear(&ResultId::global("x"), start));
    let messages = |seconds| {
        let run = document(&state, start + Duration::from_secs(seconds));
        run.plugins.unwrap().into_iter().map(|entry| entry.message).collect::<Vec<_>>()
    };
    assert_eq!(messages(59), [None, None, None]);
    let [never, once, later] = &messages(65)[..] else { panic!() };
    assert!(never.as_ref().unwrap().contains("not been heard from in the 65 s since the plugin was started"));
    assert!(once.as_ref().unwrap().contains("last heard from 60 s ago"));
    assert_eq!(*later, None, "what was not started is not missed");
    let entries = document(&state, start + Duration::from_secs(22)).plugins.unwrap();
    assert_eq!(entries.iter().map(|e| e.last_heartbeat).collect::<Vec<_>>(), [None, Some(17), None]);
}

#[test]
fn a_worker_that_stops_its_heartbeats_is_silent_unless_it_uploads() {
    let ids = ["beats", "uploads", "original", "done"].map(|node| ResultId::on_node("p", node));
    let mut state = State::new(ids.to_vec(), 24 << 20);
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    for id in [&ids[0], &ids[1], &ids[3]] {
        assert!(state.beat(id, start));
    }
    assert!(!state.beat(&ResultId::global("x"), start));
    // It shows its progress and sends no heartbeats.
    assert!(state.hear(&ids[2], start));
    state.settle(&ids[3], Standing::Accepted { identity: None });
    let upload = std::sync::Arc::<base::http::Meter>::default();
    state.begin(&ids[1], Some(&upload)).unwrap();
    let mut silent = |seconds| {
        upload.time(false, || Ok(1)).unwrap();
        let silent = state.gone_silent(Duration::from_secs(60), at(seconds));
        silent.into_iter().map(|(id, quiet)| (id.node, quiet.as_secs())).collect::<Vec<_>>()
    };
    assert_eq!(silent(59), []);
    assert_eq!(silent(65), [("beats".to_owned(), 65)]);
    state.end(&ids[1], &upload);
    let names = |state: &mut State, seconds| state.gone_silent(Duration::from_secs(60), at(seconds)).len();
    assert_eq!((names(&mut state, 66), names(&mut state, 125), names(&mut state, 126)), (1, 1, 2));
    state.beat(&ids[0], at(126));
    assert_eq!(names(&mut state, 126), 1, "it has come back");
}

#[test]
fn results_of_processing_reach_every_node_that_has_some() {
    let nodes = ["n1", "n2", "n3"].map(|node| ResultId::on_node("d", node));
    let mut state = State::new([&nodes[..], &[ResultId::global("j")]].concat(), 24 << 20);
    let counts = BTreeMap::from([("passed".to_owned(), 2)]);
    state.processed("d", |id| (id.node != "n2").then(|| (format!("of {}", id.node), counts.clone())));
    let entries = document(&state, Instant::now()).plugins.unwrap();
    let told: Vec<_> = entries.iter().map(|entry| entry.result_status.as_str()).collect();
    assert_eq!(told, ["of n1", "", "of n3", ""], "a node without an item is skipped");
    assert_eq!((entries[2].result_counts.as_ref(), entries[1].result_counts.as_ref()), (Some(&counts), None));
}

#[test]
fn those_who_wait_are_told_once() {
    let id = ResultId::global("a");
    let mut state = State::new(vec![id.clone()], 24 << 20);
    let (waiter, onlooker) = (Stop::new(), Stop::new());
    state.wait_here(waiter.clone());
    state.wake_on_change(onlooker.clone());
    state.progress(&id, Progress::default(), "now".into());
    assert!(onlooker.stopped() && !waiter.stopped(), "progress is not a result");
    state.settle(&id, Standing::Accepted { identity: None });
    assert!(waiter.stopped());
    assert!(state.waiters.is_empty() && state.onlookers.is_empty());
}
