//! A web server for downloads of the program, on a separate HTTP implementation.

use tiny_http::{Response, Server};

/// Serves the status code and content that `answer` returns for a path, while `test` runs with the
/// server's URL.
pub fn serve(answer: impl Fn(&str) -> (u16, String) + Sync, test: impl FnOnce(&str)) {
    let server = Server::http("127.0.0.1:0").unwrap();
    let url = format!("http://{}", server.server_addr());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for request in server.incoming_requests() {
                let (code, content) = answer(request.url());
                // A client may disconnect early.
                let _ = request.respond(Response::from_string(content).with_status_code(code));
            }
        });
        let end = Unblock(&server);
        test(&url);
        drop(end);
    });
}

/// Ends the server's thread, also when the test fails.
struct Unblock<'a>(&'a Server);

impl Drop for Unblock<'_> {
    fn drop(&mut self) {
        self.0.unblock();
    }
}
