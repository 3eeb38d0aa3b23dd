//! Gzip on several processors: blocks are compressed separately and joined into one member that any reader accepts.
//!
//! Starts its threads in the caller's scope and ends them when it is finished. At most two blocks per thread are held, so
//! memory does not grow with the data.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Scope;

use flate2::{Compress, Compression, Crc, FlushCompress, Status};

/// The size of a block. Each one starts without history, which costs about 32 KiB of context: half a percent of a block
/// of this size.
const BLOCK_BYTES: usize = 1 << 20;
/// No flags, no time, no name, an unknown system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

type Packed = (Vec<u8>, Crc);
type Job = (Vec<u8>, SyncSender<Packed>);

/// Compresses what is written to it and passes it on in order.
pub(super) struct Parallel<W> {
    out: W,
    block: Vec<u8>,
    jobs: SyncSender<Job>,
    /// Blocks being compressed, oldest first.
    pending: VecDeque<Receiver<Packed>>,
    threads: usize,
    crc: Crc,
}

impl<W: Write> Parallel<W> {
    /// Starts `threads` threads in `scope` and writes the header of the stream.
    pub(super) fn new<'scope>(
        scope: &'scope Scope<'scope, '_>,
        threads: usize,
        mut out: W,
    ) -> io::Result<Self> {
        out.write_all(&HEADER)?;
        let (jobs, queue) = sync_channel::<Job>(threads);
        let queue = Arc::new(Mutex::new(queue));
        let mut started = 0;
        while started < threads {
            let queue = queue.clone();
            let work = move || {
                loop {
                    let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok((block, done)) = job else { break };
                    // After a failed write, nobody is waiting.
                    let _ = done.send(compress(&block));
                }
            };
            let thread = std::thread::Builder::new().name(format!("compress-{started}"));
            if thread.spawn_scoped(scope, work).is_err() {
                break;
            }
            started += 1;
        }
        Ok(Self {
            out,
            block: Vec::with_capacity(BLOCK_BYTES),
            jobs,
            pending: VecDeque::new(),
            threads: started,
            crc: Crc::new(),
        })
    }

    /// Writes what is left and the end of the stream; returns `out`.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.send()?;
        while !self.pending.is_empty() {
            self.receive()?;
        }
        // An empty last block; the blocks before are not marked as last.
        self.out.write_all(&[3, 0])?;
        self.out.write_all(&self.crc.sum().to_le_bytes())?;
        self.out.write_all(&self.crc.amount().to_le_bytes())?;
        Ok(self.out)
    }

    fn send(&mut self) -> io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        if self.pending.len() >= 2 * self.threads {
            self.receive()?;
        }
        let block = std::mem::replace(&mut self.block, Vec::with_capacity(BLOCK_BYTES));
        let (done, receiver) = sync_channel(1);
        self.pending.push_back(receiver);
        if self.threads == 0 {
            // This thread must do, where no other one may start.
            return done.send(compress(&block)).map_err(|_| ended());
        }
        self.jobs.send((block, done)).map_err(|_| ended())
    }

    fn receive(&mut self) -> io::Result<()> {
        let Some(oldest) = self.pending.pop_front() else { return Ok(()) };
        let (packed, crc) = oldest.recv().map_err(|_| ended())?;
        self.crc.combine(&crc);
        self.out.write_all(&packed)
    }
}

impl<W: Write> Write for Parallel<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let count = data.len().min(BLOCK_BYTES - self.block.len());
        self.block.extend_from_slice(&data[..count]);
        if self.block.len() == BLOCK_BYTES {
            self.send()?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A block as raw deflate that ends on a byte and is not the last.
fn deflate(block: &[u8]) -> Vec<u8> {
    let mut compress = Compress::new(Compression::default(), false);
    let mut out = Vec::with_capacity(block.len() / 2 + 64);
    loop {
        let taken = usize::try_from(compress.total_in()).unwrap_or(usize::MAX);
        let status = compress.compress_vec(&block[taken.min(block.len())..], &mut out, FlushCompress::Sync);
        // Free space after a flush means that everything was written.
        match status {
            Ok(Status::Ok) if out.len() < out.capacity() && compress.total_in() == block.len() as u64 => {
                return out;
            }
            Ok(Status::Ok | Status::BufError) => out.reserve(out.capacity().max(1 << 16)),
            Ok(Status::StreamEnd) | Err(_) => return out,
        }
    }
}

fn compress(block: &[u8]) -> Packed {
    let mut crc = Crc::new();
    crc.update(block);
    (deflate(block), crc)
}

fn ended() -> io::Error {
    io::Error::other("a compressing thread has ended")
}
