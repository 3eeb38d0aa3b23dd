//! The server over real sockets and scripted connections.

#[cfg(test)]
mod attack;
#[cfg(test)]
mod framing;
pub(super) mod script;
#[cfg(test)]
mod tls;

#[cfg(test)]
pub(super) use live::{echo, exchange, with_server};

#[cfg(test)]
mod live {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use super::super::*;
    use base::stop::StopOnDrop;

    /// Runs a server during `client`.
    pub(in super::super) fn with_server<T>(
        server: &Server,
        handler: impl Fn(&mut Request<'_>) -> Response + Sync,
        client: impl FnOnce(SocketAddr) -> T,
    ) -> T {
        let stop = Stop::new();
        std::thread::scope(|scope| {
            let running = scope.spawn(|| server.run(&stop, &handler));
            // A failed assertion in the client must not leave the server running, or the test
            // hangs.
            let ends = StopOnDrop(&stop);
            let result = client(server.local_addr());
            drop(ends);
            running.join().unwrap().unwrap();
            result
        })
    }

    /// Reads the body and returns its length and completeness.
    pub(in super::super) fn echo(request: &mut Request<'_>) -> Response {
        let mut body = Vec::new();
        match request.body().read_to_end(&mut body) {
            Ok(_) => Response::text(
                200,
                format_args!("{} {} {}", request.method, request.path, body.len()),
            ),
            Err(error) => Response::text(500, error),
        }
    }

    /// Sends everything, and returns the response until the end.
    pub(in super::super) fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
        let mut socket = TcpStream::connect(address).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        socket.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).unwrap();
        String::from_utf8(answer).unwrap()
    }

    #[test]
    fn limits_count_networks_of_ipv6() {
        for (address, expected) in [
            ("10.0.0.7", "10.0.0.7"),
            ("::ffff:10.0.0.7", "10.0.0.7"),
            ("fd00:1:2:3:4:5:6:7", "fd00:1:2:3::"),
            ("fd00:1:2:3::1", "fd00:1:2:3::"),
            ("fd00:1:2:4::1", "fd00:1:2:4::"),
        ] {
            let found = network(address.parse().unwrap());
            assert_eq!(found.to_string(), expected, "{address}");
        }
    }

    #[test]
    fn requests_on_one_connection_are_answered_in_order() {
        let server = Server::bind("127.0.0.1:0").unwrap();
        let text = with_server(&server, echo, |address| {
            exchange(
                address,
                b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc\r\n\
                  POST /b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n0\r\nT: v\r\n\r\n\
                  PUT /c HTTP/1.1\r\nHost: h\r\n\r\n",
            )
        });
        let bodies: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with(['P']))
            .collect();
        assert_eq!(bodies, ["POST /a 3", "POST /b 2", "PUT /c 0"], "{text}");
    }
}
