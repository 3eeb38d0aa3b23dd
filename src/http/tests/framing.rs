//! Split, truncated and damaged streams have one meaning and never panic.

use super::script::{consistent, play};

/// A pseudo-random generator with a seed, so that failures are reproducible.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides.max(1) as u64).unwrap()
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.roll(from.len())]
    }
}

/// A random valid request.
fn request(dice: &mut Dice) -> Vec<u8> {
    let method = dice.pick(&["GET", "PUT", "POST", "POST", "POST", "HEAD", "X-ODD"]);
    let path = dice.pick(&["/", "/a/b", "/early", "/a//b", "/%2e%2e/x", "/q?a=b"]);
    let mut out = format!("{method} {path} HTTP/1.1\r\nHost: h\r\n").into_bytes();
    if dice.roll(4) == 0 {
        out.extend(b"Expect: 100-continue\r\n");
    }
    for _ in 0..dice.roll(5) {
        out.extend(format!("X-{}: {}\r\n", dice.roll(9), "v".repeat(dice.roll(300))).as_bytes());
    }
    let body: Vec<u8> = (0..dice.roll(3000))
        .map(|_| u8::try_from(dice.roll(256)).unwrap())
        .collect();
    match dice.roll(3) {
        0 => out.extend(b"\r\n"),
        1 => {
            out.extend(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
            out.extend(body);
        }
        _ => {
            out.extend(b"Transfer-Encoding: chunked\r\n\r\n");
            let mut rest = body.as_slice();
            while !rest.is_empty() {
                let (chunk, after) = rest.split_at(1 + dice.roll(rest.len()));
                rest = after;
                let extension = dice.pick(&["", "", ";x", " ; name=\"value\"", ";a=b;c=d"]);
                out.extend(format!("{:x}{extension}\r\n", chunk.len()).as_bytes());
                out.extend(chunk);
                out.extend(b"\r\n");
            }
            out.extend(
                dice.pick(&[
                    "0\r\n\r\n",
                    "000\r\nT: v\r\n\r\n",
                    "0;x=y\r\nA: \r\nB: c\r\n\r\n",
                ])
                .as_bytes(),
            );
        }
    }
    if dice.roll(8) == 0 {
        out.extend(b"\r\n");
    }
    out
}

#[test]
fn parsing_is_independent_of_how_a_stream_is_split() {
    for seed in 1..100 {
        let mut dice = Dice::new(seed);
        let stream: Vec<u8> = (0..1 + dice.roll(4))
            .flat_map(|_| request(&mut dice))
            .collect();
        consistent(&stream);
        let pieces: Vec<usize> = (0..20).map(|_| 1 + dice.roll(50)).collect();
        assert_eq!(
            play(&stream, &[usize::MAX]),
            play(&stream, &pieces),
            "seed {seed}"
        );
    }
}

#[test]
fn interrupted_reads_are_repeated() {
    for seed in 1..20 {
        let mut dice = Dice::new(seed);
        let stream: Vec<u8> = (0..1 + dice.roll(4))
            .flat_map(|_| request(&mut dice))
            .collect();
        assert_eq!(
            play(&stream, &[usize::MAX]),
            play(&stream, &[0, 7, 0, 0, 1, 40]),
            "seed {seed}"
        );
    }
}

#[test]
fn damaged_stream_never_panics() {
    for seed in 1..200 {
        let mut dice = Dice::new(seed);
        let mut stream: Vec<u8> = (0..1 + dice.roll(3))
            .flat_map(|_| request(&mut dice))
            .collect();
        for _ in 0..1 + dice.roll(6) {
            let at = dice.roll(stream.len());
            match dice.roll(4) {
                0 => stream[at] = u8::try_from(dice.roll(256)).unwrap(),
                1 => drop(stream.remove(at)),
                2 => stream.insert(
                    at,
                    dice.pick(&["\r", "\n", "\0", ":", ";", "f", " "])
                        .as_bytes()[0],
                ),
                _ => {
                    let piece = dice.pick(&[
                        "Content-Length: 5\r\n",
                        "\r\n\r\n",
                        "ffffffffffffffff\r\n",
                        "0\r\n\r\n",
                    ]);
                    stream.splice(at..at, piece.bytes());
                }
            }
        }
        consistent(&stream);
    }
}

#[test]
fn former_fuzz_findings_are_parsed() {
    let mut count = 0;
    for stream in base::testing::corpus("http") {
        consistent(&stream);
        count += 1;
    }
    assert!(count > 10, "the corpus holds {count}");
}

#[test]
fn chunked_bodies_are_decoded_or_refused() {
    let long = "x".repeat(2000);
    let many_extensions = format!("1;{}\r\na\r\n", "y".repeat(1000)).repeat(70) + "0\r\n\r\n";
    let long_trailers =
        "0\r\n".to_owned() + &format!("T: {}\r\n", "z".repeat(1000)).repeat(70) + "\r\n";
    for (body, expected) in [
        ("3\r\nabc\r\n0\r\n\r\n", Ok("abc")),
        ("1\r\na\r\n2;ext=\"a b\"\r\nbc\r\n0\r\n\r\n", Ok("abc")),
        (
            "A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n",
            Ok("0123456789"),
        ),
        ("0000000000000003\r\nabc\r\n0\r\n\r\n", Ok("abc")),
        ("0\r\n\r\n", Ok("")),
        ("00000000000000003\r\nabc\r\n0\r\n\r\n", Err(400)),
        ("ffffffffffffffff0\r\n", Err(400)),
        ("3\nabc\r\n0\r\n\r\n", Err(400)),
        ("3\r\nabc\n0\r\n\r\n", Err(400)),
        ("3\r\nabcd\r\n0\r\n\r\n", Err(400)),
        ("3\r\nab\r\n0\r\n\r\n", Err(400)),
        ("0x3\r\nabc\r\n0\r\n\r\n", Err(400)),
        ("+3\r\nabc\r\n0\r\n\r\n", Err(400)),
        ("-3\r\nabc\r\n0\r\n\r\n", Err(400)),
        (" 3\r\nabc\r\n0\r\n\r\n", Err(400)),
        ("3 \r\nabc\r\n0\r\n\r\n", Err(400)),
        ("3 x\r\nabc\r\n0\r\n\r\n", Err(400)),
        ("\r\n", Err(400)),
        (";x\r\n", Err(400)),
        ("g\r\n", Err(400)),
        ("3;\0\r\nabc\r\n0\r\n\r\n", Err(400)),
        ("0\r\nno colon\r\n\r\n", Err(400)),
        ("0\r\n folded: x\r\n\r\n", Err(400)),
        ("0\r\nname : x\r\n\r\n", Err(400)),
        ("3\r\nabc\r\n", Err(408)),
        ("3\r\nabc", Err(408)),
        ("3\r\nabc\r\n0\r\n", Err(408)),
        (&format!("3;{long}\r\nabc\r\n0\r\n\r\n"), Err(400)),
        (&format!("0\r\nT: {long}\r\n\r\n"), Err(400)),
        (&many_extensions, Err(400)),
        (&long_trailers, Err(400)),
    ] {
        let head = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
        let (seen, answers) = play(format!("{head}{body}").as_bytes(), &[3]);
        let shown = &body[..body.len().min(60)];
        match expected {
            Ok(text) => {
                assert_eq!(
                    (seen[0].body.as_slice(), seen[0].complete),
                    (text.as_bytes(), true),
                    "{shown:?}"
                );
                assert!(answers.starts_with("HTTP/1.1 200 "), "{shown:?}: {answers}");
            }
            Err(status) => {
                assert!(!seen[0].complete, "{shown:?}");
                assert!(
                    answers.starts_with(&format!("HTTP/1.1 {status} ")),
                    "{shown:?}: {answers}"
                );
                assert!(
                    answers.contains("connection: close"),
                    "{shown:?}: {answers}"
                );
            }
        }
    }
}

#[test]
fn bytes_after_a_refusal_are_no_request() {
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n";
    for lines in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 0\r\nContent-Length: 44\r\n",
        "Content-Length : 0\r\n",
        "Transfer-Encoding: \x0bchunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "X: y\n",
        "X: y\r\r\n",
    ] {
        let stream = format!("POST /first HTTP/1.1\r\nHost: h\r\n{lines}\r\n0\r\n\r\n{smuggled}");
        let (seen, answers) = play(stream.as_bytes(), &[7]);
        assert_eq!(seen, [], "{lines:?}");
        assert!(answers.starts_with("HTTP/1.1 400 "), "{lines:?}: {answers}");
        assert_eq!(
            answers.matches("HTTP/1.1 ").count(),
            1,
            "{lines:?}: {answers}"
        );
    }
}

#[test]
fn heads_are_bounded() {
    for (size, status) in [(15_000, "200"), (66_000, "431"), (1_000_000, "431")] {
        let line = "a".repeat(size);
        let stream = format!("GET / HTTP/1.1\r\nHost: h\r\nX: {line}\r\n\r\n");
        let (_, answers) = play(stream.as_bytes(), &[1000]);
        assert!(
            answers.starts_with(&format!("HTTP/1.1 {status} ")),
            "{size}: {answers}"
        );
    }
    let endless = format!("GET /{}", "a".repeat(100_000));
    let (_, answers) = play(endless.as_bytes(), &[usize::MAX]);
    assert!(answers.starts_with("HTTP/1.1 431 "), "{answers}");
}

#[test]
fn continue_is_sent_only_when_the_body_is_read() {
    let ask = |path: &str| {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        );
        play(format!("{head}ab").as_bytes(), &[head.len(), 2]).1
    };
    assert!(
        ask("/").starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK"),
        "{}",
        ask("/")
    );
    let refused = ask("/early");
    assert!(
        refused.starts_with("HTTP/1.1 200 OK") && refused.contains("connection: close"),
        "{refused}"
    );
}
