//! Provides connections of [`super::dial`] to ureq, which speaks HTTP over them.
//!
//! Owns the adapter to ureq's transport. Knows nothing about requests. ureq's own connector supports neither a custom server
//! name, nor proxies by Go's rules, nor a stop.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};

use super::dial::{Dialer, Stream};

/// Opens connections for ureq.
#[derive(Debug)]
pub(super) struct Opener(pub Dialer);

impl Connector<()> for Opener {
    type Out = Connection;

    fn connect(&self, details: &ConnectionDetails, _: Option<()>) -> Result<Option<Connection>, ureq::Error> {
        let left = details.timeout.not_zero().map(|left| *left);
        let stream = self
            .0
            .dial(left.unwrap_or(Duration::MAX))
            // `Io` would mean that the request may have been sent.
            .map_err(|error| ureq::Error::Other(Box::new(error)))?;
        let (input, output) = (details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(Connection { stream, buffers: LazyBuffers::new(input, output), broken: false }))
    }
}

/// ureq resolves before it connects; here resolving is part of connecting, or is left to the proxy.
#[derive(Debug)]
pub(super) struct NoResolver;

impl Resolver for NoResolver {
    fn resolve(
        &self,
        _: &Uri,
        _: &ureq::config::Config,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let mut addresses = self.empty();
        addresses.push(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        Ok(addresses)
    }
}

/// A connection as ureq sees it.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Stream,
    buffers: LazyBuffers,
    broken: bool,
}

impl Connection {
    fn failed(&mut self, error: io::Error, timeout: NextTimeout) -> ureq::Error {
        self.broken = true;
        match error.kind() {
            io::ErrorKind::TimedOut => ureq::Error::Timeout(timeout.reason),
            _ => error.into(),
        }
    }
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        let timeout = timeout.for_write();
        self.stream.write_limit(timeout.not_zero().map(|limit| *limit))?;
        let sent = self.stream.write_all(&self.buffers.output()[..amount]).and_then(|()| self.stream.flush());
        sent.map_err(|error| self.failed(error, timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        let timeout = timeout.for_read();
        self.stream.read_limit(timeout.not_zero().map(|limit| *limit))?;
        let amount = loop {
            match self.stream.read(self.buffers.input_append_buf()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error, timeout)),
                Ok(amount) => break amount,
            }
        };
        self.buffers.input_appended(amount);
        self.broken |= amount == 0;
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        !self.broken && self.stream.is_quiet()
    }

    fn is_tls(&self) -> bool {
        // Regardless of the scheme, ureq must not add TLS.
        true
    }
}
