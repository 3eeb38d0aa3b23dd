//! Tests of programs that are shell scripts.

use super::*;

#[test]
fn program_is_limited_in_time_and_output() {
    let asked = |script: &str, limit| {
        let late = std::sync::atomic::AtomicBool::new(false);
        let told = || late.store(true, std::sync::atomic::Ordering::Relaxed);
        let said = ask(
            Command::new("sh").args(["-c", script]),
            Some(b"a\n"),
            8,
            limit,
            &told,
        );
        (
            said.map(|(bytes, status)| (bytes, status.code()))
                .map_err(|error| error.kind()),
            late.into_inner(),
        )
    };
    let long = Duration::from_secs(600);
    assert_eq!(
        asked("echo seven.; exit 3", long),
        (Ok((b"seven.\n".to_vec(), Some(3))), false)
    );
    assert_eq!(
        asked("read word; echo $word", long),
        (Ok((b"a\n".to_vec(), Some(0))), false)
    );
    assert_eq!(asked("yes", long), (Err(ErrorKind::FileTooLarge), false));
    let told = |script: &str| {
        let mut command = Command::new("sh");
        let said = ask_for_credentials(command.args(["-c", script]), Some(b"a\n"), 8, true, long);
        said.map(|(bytes, status)| (bytes, status.code()))
            .map_err(|error| error.kind())
    };
    assert_eq!(
        told("read word; echo $word; exit 3"),
        Ok((b"a\n".to_vec(), Some(3)))
    );
    assert_eq!(told("yes"), Err(ErrorKind::FileTooLarge));
    // Its children are killed with it.
    assert_eq!(
        asked("sleep 600 & sleep 600", Duration::ZERO),
        (Err(ErrorKind::TimedOut), true)
    );
}

/// A process in a session of its own survives its group, and keeps the pipe open.
#[test]
fn program_ends_in_time_although_a_descendant_holds_its_output() {
    let script = "setsid sleep 120 & echo $!; exit 0";
    for interactive_input in [None, Some(&b"a\n"[..])] {
        let began = std::time::Instant::now();
        let mut command = Command::new("sh");
        let command = command.args(["-c", script]);
        let limit = Duration::from_millis(200);
        let output = ask_for_credentials(command, interactive_input, 8, false, limit);
        assert_eq!(
            output.map_err(|error| error.kind()).unwrap_err(),
            ErrorKind::TimedOut
        );
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "{:?}",
            began.elapsed()
        );
    }
}
