//! Suggests known words for a misspelt one.
//!
//! Counts missing, extra, replaced and swapped letters. Does not know the meaning of the words.
//! Starts no thread.

/// At most three known words similar to `word`, the most similar first.
pub fn similar<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let plain = |text: &str| text.replace(['-', '_'], "").to_lowercase();
    let letters_of_word = plain(word);
    // Longer words may contain more mistakes; words of two letters may contain none.
    let limit = match letters_of_word.chars().count() {
        0..=1 => return Vec::new(),
        2..=5 => 1,
        6..=8 => 2,
        _ => 3,
    };
    let mut matches: Vec<((usize, bool), &str)> = (known.into_iter())
        .filter_map(|candidate| {
            let letters = plain(candidate);
            // A prefix of a known word is an abbreviation of it.
            let distance = if letters.starts_with(&letters_of_word) {
                0
            } else {
                strsim::osa_distance(&letters_of_word, &letters)
            };
            let rank = (distance, letters != letters_of_word);
            (distance <= limit && distance < letters.len()).then_some((rank, candidate))
        })
        .collect();
    matches.sort_by_key(|(rank, _)| *rank);
    matches.dedup_by_key(|(_, candidate)| *candidate);
    // Words less similar than the best match are noise.
    let nearest = matches.first().map(|(rank, _)| *rank);
    matches
        .into_iter()
        .take_while(|(rank, _)| Some(*rank) == nearest)
        .map(|(_, word)| word)
        .take(3)
        .collect()
}

/// `; did you mean ...?`, or nothing.
pub fn hint<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    question(similar(word, known))
}

/// `; did you mean ...?` with these words, or nothing.
pub fn question<T: Into<String>>(words: impl IntoIterator<Item = T>) -> String {
    let words: Vec<String> = words.into_iter().map(Into::into).collect();
    if words.is_empty() {
        String::new()
    } else {
        format!("; did you mean `{}`?", words.join("` or `"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_suggested() {
        let known = [
            "run", "status", "wait", "retrieve", "results", "logs", "delete", "gen", "images",
            "e2e",
        ];
        for (word, expected) in [
            ("rnu", &["run"][..]),
            ("statsu", &["status"]),
            ("STATUS", &["status"]),
            ("retreive", &["retrieve"]),
            ("result", &["results"]),
            ("log", &["logs"]),
            ("del", &["delete"]),
            ("imgaes", &["images"]),
            ("list", &[]),
            ("x", &[]),
            ("re", &["retrieve", "results"]),
            ("", &[]),
            ("frobnicate", &[]),
        ] {
            assert_eq!(similar(word, known), expected, "{word}");
        }
        assert_eq!(
            similar("systemd_logs", ["e2e", "systemd-logs"]),
            ["systemd-logs"]
        );
        assert_eq!(
            similar("kube-config", ["kubeconfigs", "kubeconfig"]),
            ["kubeconfig"]
        );
        assert_eq!(
            similar("kube-config", ["kubeconfig", "context"]),
            ["kubeconfig"]
        );
        assert_eq!(
            hint("aple", ["apple", "ample"]),
            "; did you mean `apple` or `ample`?"
        );
    }
}
