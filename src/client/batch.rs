//! Sends what TLS has made of a request in few large pieces instead of a record at a time.
//!
//! Owns the output between ureq's TLS and its socket. Never makes the peer wait: all that is held is sent before anything
//! is waited for.

use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};

/// No record of TLS is longer.
const MAX_RECORD_BYTES: usize = (16 << 10) + 256;

/// Comes between the connectors for TCP and TLS.
#[derive(Debug)]
pub(super) struct Batching;

impl<T: Transport> Connector<T> for Batching {
    type Out = Batch<T>;

    fn connect(&self, details: &ConnectionDetails, inner: Option<T>) -> Result<Option<Batch<T>>, Error> {
        let input = || LazyBuffers::new(details.config.input_buffer_size(), 1);
        Ok(inner.map(|inner| Batch { inner, held: 0, input: input() }))
    }
}

/// A connection that sends when its buffer has no room for another record, or before it waits for input.
#[derive(Debug)]
pub(super) struct Batch<T> {
    inner: T,
    /// How much of its output buffer, from the start, is yet to be sent.
    held: usize,
    /// Its input buffer cannot be lent through a shared reference.
    input: LazyBuffers,
}

impl<T: Transport> Transport for Batch<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.held += amount;
        if self.output().len() < MAX_RECORD_BYTES { self.send(timeout) } else { Ok(()) }
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.send(timeout)?;
        if self.inner.buffers().input().is_empty() && !self.inner.await_input(timeout)? {
            return Ok(false);
        }
        let from = self.inner.buffers();
        let to = self.input.input_append_buf();
        let amount = to.len().min(from.input().len());
        to[..amount].copy_from_slice(&from.input()[..amount]);
        from.input_consume(amount);
        self.input.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.inner.is_open()
    }
}

impl<T: Transport> Batch<T> {
    fn send(&mut self, timeout: NextTimeout) -> Result<(), Error> {
        match std::mem::take(&mut self.held) {
            0 => Ok(()),
            held => self.inner.transmit_output(held, timeout),
        }
    }
}

impl<T: Transport> Buffers for Batch<T> {
    fn output(&mut self) -> &mut [u8] {
        &mut self.inner.buffers().output()[self.held..]
    }

    fn tmp_and_output(&mut self) -> (&mut [u8], &mut [u8]) {
        (self.input.input_append_buf(), &mut self.inner.buffers().output()[self.held..])
    }

    fn input(&self) -> &[u8] {
        self.input.input()
    }

    fn input_append_buf(&mut self) -> &mut [u8] {
        self.input.input_append_buf()
    }

    fn input_appended(&mut self, amount: usize) {
        self.input.input_appended(amount);
    }

    fn input_consume(&mut self, amount: usize) {
        self.input.input_consume(amount);
    }

    fn can_use_input(&self) -> bool {
        self.input.can_use_input()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was sent and waited for, in order.
    #[derive(Debug)]
    struct Socket {
        buffers: LazyBuffers,
        calls: Vec<String>,
        /// What comes at each wait.
        answers: Vec<&'static [u8]>,
    }

    impl Transport for Socket {
        fn buffers(&mut self) -> &mut dyn Buffers {
            &mut self.buffers
        }

        fn transmit_output(&mut self, amount: usize, _: NextTimeout) -> Result<(), Error> {
            let sent = &self.buffers.output()[..amount];
            self.calls.push(format!("{amount} to {}", sent[amount - 1]));
            Ok(())
        }

        fn await_input(&mut self, _: NextTimeout) -> Result<bool, Error> {
            self.calls.push("wait".into());
            let answer = self.answers.pop().unwrap_or_default();
            self.buffers.input_append_buf()[..answer.len()].copy_from_slice(answer);
            self.buffers.input_appended(answer.len());
            Ok(!answer.is_empty())
        }

        fn is_open(&mut self) -> bool {
            true
        }
    }

    fn batch(output: usize, answers: Vec<&'static [u8]>) -> Batch<Socket> {
        let inner = Socket { buffers: LazyBuffers::new(16, output), calls: Vec::new(), answers };
        Batch { inner, held: 0, input: LazyBuffers::new(4, 1) }
    }

    fn write(batch: &mut Batch<Socket>, sizes: &[u8]) {
        for (size, last) in sizes.iter().map(|kib| usize::from(*kib) << 10).zip(1..) {
            batch.output()[size - 1] = last;
            batch.transmit_output(size, NextTimeout::default()).unwrap();
        }
    }

    #[test]
    fn records_are_sent_together_when_no_other_has_room_and_before_anything_is_waited_for() {
        for (output, sizes, calls) in [
            (64 << 10, &[16, 16, 16, 16, 16][..], &["49152 to 3", "32768 to 5", "wait"][..]),
            (64 << 10, &[1], &["1024 to 1", "wait"]),
            (64 << 10, &[], &["wait"]),
            // Too small for one record: each piece by itself, as it comes.
            (8 << 10, &[8, 8, 1], &["8192 to 1", "8192 to 2", "1024 to 3", "wait"]),
        ] {
            let mut batch = batch(output, Vec::new());
            write(&mut batch, sizes);
            assert!(!batch.await_input(NextTimeout::default()).unwrap(), "{sizes:?}");
            assert_eq!(batch.inner.calls, calls, "{sizes:?}");
        }
    }

    #[test]
    fn input_that_has_no_room_at_once_is_not_lost_and_not_waited_for() {
        let mut batch = batch(64, vec![b"second", b"the first"]);
        let mut read = Vec::new();
        while batch.await_input(NextTimeout::default()).unwrap() {
            read.extend_from_slice(batch.input());
            let amount = batch.input().len();
            batch.input_consume(amount);
        }
        assert_eq!(read, b"the firstsecond");
        assert_eq!(batch.inner.calls, ["wait"; 3]);
    }
}
