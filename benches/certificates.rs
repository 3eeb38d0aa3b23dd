//! All workers of a large cluster at once; each needs a certificate before it can report: the cost
//! of a signature, the time for all workers, whether every worker succeeds, and the rate of
//! requests to the API server.
//!
//! Each worker is the program's own client, with its own key, token and backoff. The token review
//! is simulated with the latency of a real one; it counts reviews per second.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use base::stop::Stop;
use client::protocol::ResultId;
use client::{Access, Client};
use sonobuoy::outside::{Authority, SigningRequest, serve_certifying};

use super::{Better, PLUGIN, Server, percent, tell, until_input_ends, verdict};

/// The role of the process that issues certificates.
pub(super) const ROLE: &str = "certifier";
const WORKERS: usize = 5_000;
/// Latency of a token review of a busy API server.
const REVIEW: Duration = Duration::from_millis(20);
const REVIEWS_FILE: &str = "most-reviews-in-a-second";

/// The role: serves until end of input, then reports the maximum number of reviews within one
/// second.
pub(super) fn serve(dir: &Path, nodes: &str) {
    let names: Vec<String> = (0..nodes.parse().unwrap())
        .map(|node| format!("n{node}"))
        .collect();
    let stop = Stop::new();
    let report = dir.with_file_name(REVIEWS_FILE);
    let recent = Mutex::new((VecDeque::<Instant>::new(), 0));
    let node_of = move |token: &str| {
        let now = Instant::now();
        {
            let (begun, most) = &mut *recent.lock().unwrap();
            begun.push_back(now);
            while begun
                .front()
                .is_some_and(|first| now - *first >= Duration::from_secs(1))
            {
                begun.pop_front();
            }
            if begun.len() > *most {
                *most = begun.len();
                std::fs::write(&report, most.to_string()).unwrap();
            }
        }
        Stop::new().wait(REVIEW);
        token.strip_prefix("token-of-").map(str::to_owned)
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            until_input_ends();
            stop.stop();
        });
        serve_certifying(dir, PLUGIN, &names, node_of, tell, &stop).unwrap();
    });
}

pub(super) fn measure(base: &Path) {
    signing();
    let ours = Server::start_for(ROLE, base, &WORKERS.to_string());
    let around = ours.dir.parent().unwrap();
    let content = |node: usize| format!("{node:08} ").repeat(456)[..4096].to_owned();
    let clients: Vec<Client> = (0..WORKERS)
        .map(|node| {
            let token_file = around.join(format!("token-{node}"));
            std::fs::write(&token_file, format!("token-of-n{node}")).unwrap();
            let access = Access {
                token_file: token_file.display().to_string(),
                ..ours.access.clone()
            };
            Client::new(&access, ResultId::on_node(PLUGIN, format!("n{node}"))).unwrap()
        })
        .collect();
    let (barrier, times, lost) = (
        Barrier::new(WORKERS),
        Mutex::new(Vec::new()),
        Mutex::new(Vec::new()),
    );
    std::thread::scope(|scope| {
        for (node, client) in clients.iter().enumerate() {
            let (barrier, times, lost, content) = (&barrier, &times, &lost, &content);
            let work = move || {
                barrier.wait();
                let begin = Instant::now();
                match client.submit_bytes("result", content(node).as_bytes()) {
                    Ok(_) => times.lock().unwrap().push(begin.elapsed()),
                    Err(error) => lost.lock().unwrap().push(error.to_string()),
                }
            };
            std::thread::Builder::new()
                .stack_size(256 * 1024)
                .spawn_scoped(scope, work)
                .unwrap();
        }
    });
    let (times, mut lost) = (times.into_inner().unwrap(), lost.into_inner().unwrap());
    for node in 0..WORKERS {
        if std::fs::read_to_string(ours.stored(node)).ok() != Some(content(node)) {
            lost.push(format!("node {node} has no result"));
        }
    }
    lost.iter()
        .take(5)
        .for_each(|reason| println!("  lost: {reason}"));
    println!(
        "certificates for {WORKERS} workers at once: half have reported after {:?}, the last \
         after {:?}",
        percent(&times, 50),
        percent(&times, 100)
    );
    let reviews: f64 = std::fs::read_to_string(around.join(REVIEWS_FILE))
        .unwrap()
        .parse()
        .unwrap();
    verdict(
        "certificates, lost",
        lost.len() as f64,
        0.0,
        Better::Smaller,
    );
    // Counted shortly after release: two reviews a second apart may appear closer.
    verdict(
        "certificates, most reviews in a second",
        reviews,
        53.0,
        Better::Smaller,
    );
    // At the configured rate of all addresses.
    let reviewed = WORKERS as f64 / 50.0;
    let ratio = percent(&times, 100).as_secs_f64() / reviewed;
    verdict(
        "certificates, times what the reviews alone take",
        ratio,
        1.5,
        Better::Smaller,
    );
    verdict(
        "certificates, aggregator's peak memory in MiB",
        ours.peak(),
        64.0,
        Better::Smaller,
    );
}

/// Time per certificate.
fn signing() {
    let authority = Authority::new(Duration::from_secs(3600)).unwrap();
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let request = rcgen::CertificateParams::default()
        .serialize_request(&key)
        .unwrap()
        .pem()
        .unwrap();
    let times: Vec<Duration> = (0..WORKERS)
        .map(|node| {
            let id = ResultId::on_node(PLUGIN, format!("n{node}"));
            let begin = Instant::now();
            let request = SigningRequest::from_pem(request.as_bytes()).unwrap();
            authority
                .certify(&id, &request, Duration::from_secs(3600))
                .unwrap();
            begin.elapsed()
        })
        .collect();
    // Other processes occasionally take the processor during a few.
    let each = percent(&times, 50);
    verdict(
        "certificates, signing one, in ms",
        each.as_secs_f64() * 1e3,
        1.0,
        Better::Smaller,
    );
}
