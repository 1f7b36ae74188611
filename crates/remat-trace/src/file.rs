//! Files in and out: compression, atomic writing, lines with limits.

use crate::destination::{Destination, Unfinished};
use crate::{Problem, TraceError};
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Limits on the size of a trace. A reader that meets one gives up, so the limits bound the memory of every reader.
///
/// A reader holds one line and some 16 bytes a tensor. A program that keeps the events (`remat simulate`) takes some
/// 100 bytes for each counted in `events`, and the engine that replays them some 300 more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes in a line.
    pub line: usize,
    /// Bytes in the whole file, unpacked: compressed bombs and endless streams stop here.
    pub unpacked: u64,
    /// Tensors in a trace.
    pub tensors: usize,
    /// Events in a trace, each counted with the tensors that it names.
    pub events: u64,
}

impl Default for Limits {
    /// Lines of 16 MiB, 4 GiB unpacked, 2^24 tensors (16.8 million), 2^25 events with the tensors that they name.
    fn default() -> Self {
        Limits {
            line: 16 << 20,
            unpacked: 4 << 30,
            tensors: 1 << 24,
            events: 1 << 25,
        }
    }
}

const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// Some editors and shells of other systems begin UTF-8 text with it.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The lines of a file, unpacked.
pub(crate) struct Lines {
    input: Box<dyn BufRead + Send>,
    limits: Limits,
    file: String,
    line: u64,
    /// Unpacked bytes that may still come.
    left: u64,
    buffer: Vec<u8>,
    ended_in_newline: bool,
    stored: Arc<AtomicU64>,
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines")
            .field("file", &self.file)
            .field("line", &self.line)
            .finish_non_exhaustive()
    }
}

impl Lines {
    /// Opens a file, `-` for standard input.
    pub(crate) fn open(path: &Path, limits: Limits) -> Result<Self, TraceError> {
        if path.as_os_str() == "-" {
            return Lines::new(Box::new(io::stdin()), "<stdin>".into(), limits);
        }
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => Lines::new(Box::new(file), name, limits),
            Err(error) => Err(TraceError {
                file: name,
                line: 0,
                problem: Problem::Open(error),
            }),
        }
    }

    /// Reads lines from any source; errors call the source `name`.
    pub(crate) fn new(
        raw: Box<dyn Read + Send>,
        name: String,
        limits: Limits,
    ) -> Result<Self, TraceError> {
        let stored = Arc::new(AtomicU64::new(0));
        let input = match unpacked(Counted {
            raw,
            count: Arc::clone(&stored),
        }) {
            Ok(input) => input,
            Err(error) => {
                return Err(TraceError {
                    file: name,
                    line: 0,
                    problem: read_problem(error),
                });
            }
        };
        Ok(Lines {
            input,
            limits,
            file: name,
            line: 0,
            left: limits.unpacked,
            buffer: Vec::new(),
            ended_in_newline: true,
            stored,
        })
    }

    /// Moves to the next line that is not blank; `false` at the end.
    pub(crate) fn advance(&mut self) -> Result<bool, TraceError> {
        loop {
            if !self.fill()? {
                return Ok(false);
            }
            self.line += 1;
            if self.line == 1 && self.buffer.starts_with(BYTE_ORDER_MARK) {
                self.buffer.drain(..BYTE_ORDER_MARK.len());
            }
            if !self.text().is_empty() {
                return Ok(true);
            }
        }
    }

    /// The line moved to, without blanks around it.
    pub(crate) fn text(&self) -> &[u8] {
        self.buffer.trim_ascii()
    }

    /// Bytes of the file, as it is stored, that were taken in so far.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.stored.load(Ordering::Relaxed)
    }

    /// The error that is found at the line moved to.
    pub(crate) fn error(&self, problem: Problem) -> TraceError {
        TraceError {
            file: self.file.clone(),
            line: self.line,
            problem,
        }
    }

    /// The error for a line that is not the expected JSON.
    pub(crate) fn syntax(&self, error: &serde_json::Error) -> TraceError {
        if error.is_eof() && !self.ended_in_newline {
            return self.error(Problem::Truncated("its last line is incomplete"));
        }
        // serde_json counts lines within the text; ours is one line.
        let message = error.to_string();
        let what = message.split(" at line ").next().unwrap_or(&message);
        self.error(Problem::Syntax(what.to_owned()))
    }

    fn fill(&mut self) -> Result<bool, TraceError> {
        self.buffer.clear();
        loop {
            let available = match self.input.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    self.line += 1;
                    return Err(self.error(read_problem(error)));
                }
            };
            let newline = available.iter().position(|&byte| byte == b'\n');
            let taken = newline.map_or(available.len(), |at| at + 1);
            let text = newline.unwrap_or(taken);
            if taken as u64 > self.left {
                self.line += 1;
                return Err(self.error(Problem::TooLarge {
                    limit: self.limits.unpacked,
                }));
            }
            if self.buffer.len() + text > self.limits.line {
                self.line += 1;
                return Err(self.error(Problem::LineTooLong {
                    limit: self.limits.line,
                }));
            }
            self.buffer.extend_from_slice(&available[..text]);
            self.left -= taken as u64;
            self.input.consume(taken);
            if taken == 0 || newline.is_some() {
                self.ended_in_newline = newline.is_some();
                return Ok(newline.is_some() || !self.buffer.is_empty());
            }
        }
    }
}

fn read_problem(error: io::Error) -> Problem {
    // Both decoders say so when the packed stream stops before its end.
    if error.kind() == io::ErrorKind::UnexpectedEof {
        Problem::Truncated("its compressed data stop before their end")
    } else {
        Problem::Read(error)
    }
}

/// A stream that counts the bytes read from it, so that a progress bar can follow a packed file.
struct Counted {
    raw: Box<dyn Read + Send>,
    count: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.raw.read(buffer)?;
        self.count.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// A reader of the unpacked bytes; the first bytes tell gzip, zstd or plain.
fn unpacked(mut raw: Counted) -> io::Result<Box<dyn BufRead + Send>> {
    let mut magic = Vec::new();
    raw.by_ref()
        .take(ZSTD_MAGIC.len() as u64)
        .read_to_end(&mut magic)?;
    let packed_gzip = magic.starts_with(GZIP_MAGIC);
    let packed_zstd = magic.starts_with(ZSTD_MAGIC);
    let whole = BufReader::new(io::Cursor::new(magic).chain(raw));
    Ok(if packed_gzip {
        Box::new(BufReader::new(flate2::bufread::MultiGzDecoder::new(whole)))
    } else if packed_zstd {
        Box::new(BufReader::new(zstd::Decoder::with_buffer(whole)?))
    } else {
        Box::new(whole)
    })
}

/// A file being written. Its ending selects the packing (`.zst`, `.gz`, else plain). Until it is finished it is called
/// as [`Destination::of`] says, so that a file called `PATH` is always whole.
pub(crate) struct Output {
    sink: Sink,
    /// None for standard output.
    unfinished: Option<Unfinished>,
}

enum Sink {
    Plain(BufWriter<File>),
    Gzip(Box<flate2::write::GzEncoder<BufWriter<File>>>),
    Zstd(zstd::Encoder<'static, BufWriter<File>>),
    Standard(BufWriter<io::Stdout>),
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output")
            .field("unfinished", &self.unfinished)
            .finish_non_exhaustive()
    }
}

impl Output {
    /// Starts a file, `-` for standard output.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        if path.as_os_str() == "-" {
            return Ok(Output {
                sink: Sink::Standard(BufWriter::new(io::stdout())),
                unfinished: None,
            });
        }
        let (file, unfinished) = Destination::of(path)?.create()?;
        let file = BufWriter::new(file);
        let sink = match path.extension().and_then(|ending| ending.to_str()) {
            Some("zst") => Sink::Zstd(checked_zstd(file)?),
            Some("gz") => Sink::Gzip(Box::new(flate2::write::GzEncoder::new(
                file,
                flate2::Compression::default(),
            ))),
            _ => Sink::Plain(file),
        };
        Ok(Output {
            sink,
            unfinished: Some(unfinished),
        })
    }

    /// Writes out what is buffered and gives the file its name.
    pub(crate) fn finish(self) -> io::Result<()> {
        let mut file = match self.sink {
            Sink::Plain(file) => file,
            Sink::Gzip(encoder) => encoder.finish()?,
            Sink::Zstd(encoder) => encoder.finish()?,
            Sink::Standard(mut out) => return out.flush(),
        };
        file.flush()?;
        self.unfinished.map_or(Ok(()), |file| file.complete())
    }
}

/// zstd with a checksum, so that damage within the file is found.
fn checked_zstd(file: BufWriter<File>) -> io::Result<zstd::Encoder<'static, BufWriter<File>>> {
    let mut encoder = zstd::Encoder::new(file, zstd::DEFAULT_COMPRESSION_LEVEL)?;
    encoder.include_checksum(true)?;
    Ok(encoder)
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.sink {
            Sink::Plain(sink) => sink.write(bytes),
            Sink::Gzip(sink) => sink.write(bytes),
            Sink::Zstd(sink) => sink.write(bytes),
            Sink::Standard(sink) => sink.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.sink {
            Sink::Plain(sink) => sink.flush(),
            Sink::Gzip(sink) => sink.flush(),
            Sink::Zstd(sink) => sink.flush(),
            Sink::Standard(sink) => sink.flush(),
        }
    }
}
