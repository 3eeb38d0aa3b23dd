//! Differences between two texts, line by line, for messages of failed tests.

use std::fmt::Write as _;
use std::path::PathBuf;

/// Fails with a line by line difference unless both texts are the same.
#[track_caller]
pub fn assert_same(what: &str, expected: &str, actual: &str) {
    assert!(
        expected == actual,
        "{what} differs (- expected, + actual):\n{}",
        lines(expected, actual)
    );
}

/// Compares with a file in `tests/fixtures`, or writes it when UPDATE_GOLDEN is set.
#[track_caller]
pub fn assert_golden(name: &str, actual: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let path: PathBuf = super::fixture(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, actual).unwrap();
    } else {
        assert_same(name, &super::fixture_text(name), actual);
    }
}

/// The difference, with two lines around each change.
fn lines(expected: &str, actual: &str) -> String {
    let old: Vec<&str> = expected.split('\n').collect();
    let new: Vec<&str> = actual.split('\n').collect();
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let tail = old[head..]
        .iter()
        .rev()
        .zip(new[head..].iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    let (from, to) = (&old[head..old.len() - tail], &new[head..new.len() - tail]);
    let mut text = String::new();
    let around = |text: &mut String, lines: &[&str]| {
        for line in lines {
            let _ = writeln!(text, "  {line}");
        }
    };
    around(&mut text, &old[head.saturating_sub(2)..head]);
    for (sign, kept) in common(from, to) {
        let _ = writeln!(text, "{sign} {kept}");
    }
    around(
        &mut text,
        &old[old.len() - tail..(old.len() - tail + 2).min(old.len())],
    );
    text
}

/// Keeps the longest common lines; the others are removed or inserted.
fn common<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<(char, &'a str)> {
    if old.len().saturating_mul(new.len()) > 4_000_000 {
        return old
            .iter()
            .map(|line| ('-', *line))
            .chain(new.iter().map(|line| ('+', *line)))
            .collect();
    }
    let mut length = vec![vec![0_u32; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            length[i][j] = if old[i] == new[j] {
                length[i + 1][j + 1] + 1
            } else {
                length[i + 1][j].max(length[i][j + 1])
            };
        }
    }
    let (mut i, mut j, mut result) = (0, 0, Vec::new());
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            result.push((' ', old[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == new.len() || (i < old.len() && length[i + 1][j] >= length[i][j + 1]) {
            result.push(('-', old[i]));
            i += 1;
        } else {
            result.push(('+', new[j]));
            j += 1;
        }
    }
    result
}

#[test]
fn a_difference_shows_what_changed_and_little_else() {
    let text = lines("a\nb\nc\nd\ne\nf\n", "a\nb\nc\nD\ne\nf\n");
    assert_eq!(text, "  b\n  c\n- d\n+ D\n  e\n  f\n");
}
