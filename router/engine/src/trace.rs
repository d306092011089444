//! Where the scheduler's trace goes: files in turn, written by a thread of their own.
//!
//! The driver never waits for a disk. If the writer falls behind, what it was writing is cut off there, and the trace
//! goes on in a new segment, which begins with a snapshot and so can be replayed alone, as soon as there is room.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::thread;

use headrace_scheduler::trace::TracedScheduler;

/// Bytes of a segment, about: it ends with the first turn that makes it longer.
const SEGMENT_BYTES: u64 = 32 << 20;
/// Segments that are kept; older ones are deleted.
const KEPT_SEGMENTS: u64 = 8;
/// Pieces that may wait for the writer.
const WAITING_PIECES: usize = 256;

/// What goes to the writer.
enum Piece {
    /// The beginning of a segment.
    First(Vec<u8>),
    More(Vec<u8>),
}

/// A trace in files `PATH.000001`, `PATH.000002`, …; the last eight are kept, 32 MB each.
#[derive(Clone, Debug)]
pub struct TraceFiles {
    pieces: SyncSender<Piece>,
}

impl TraceFiles {
    /// Deletes what an earlier run left under the same name (its later segments would be read as this run's), creates the
    /// first file, and starts the thread that writes.
    ///
    /// # Errors
    /// The file cannot be created, or there is no thread to be had.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut writer = Writer { path: path.to_owned(), file: None, number: 0 };
        writer.delete_earlier()?;
        writer.next_file()?;
        writer.number = 0;
        let (pieces, waiting) = mpsc::sync_channel(WAITING_PIECES);
        thread::Builder::new().name("trace".into()).spawn(move || writer.run(&waiting))?;
        Ok(Self { pieces })
    }
}

/// The driver's side: what was recorded in a turn goes on its way at its end.
pub(crate) struct Tracing {
    files: Option<TraceFiles>,
    /// The next piece begins a segment.
    begins: bool,
}

impl Tracing {
    pub fn new(files: Option<TraceFiles>) -> Self {
        Self { files, begins: true }
    }

    pub fn begin(&mut self, scheduler: &mut TracedScheduler) {
        if self.files.is_some() {
            scheduler.begin_segment();
            self.begins = true;
        }
    }

    /// Hands over what a turn recorded.
    pub fn turn(&mut self, scheduler: &mut TracedScheduler) {
        let Some(files) = &self.files else { return };
        let bytes = scheduler.take_trace();
        if bytes.is_empty() {
            return;
        }
        let piece = if self.begins { Piece::First(bytes) } else { Piece::More(bytes) };
        match files.pieces.try_send(piece) {
            Ok(()) => self.begins = false,
            // What is lost here would make the rest of the segment meaningless.
            Err(TrySendError::Full(_)) => {
                tracing::warn!("the trace is written too slowly; it goes on in a new segment");
                return self.begin(scheduler);
            }
            Err(TrySendError::Disconnected(_)) => {
                scheduler.end_trace();
                self.files = None;
                return;
            }
        }
        if scheduler.segment_bytes() > SEGMENT_BYTES {
            self.begin(scheduler);
        }
    }
}

struct Writer {
    path: PathBuf,
    file: Option<File>,
    number: u64,
}

impl Writer {
    /// Ends when the engine has, or with the first error: a trace with a hole is worth nothing.
    fn run(mut self, pieces: &Receiver<Piece>) {
        while let Ok(piece) = pieces.recv() {
            if let Err(error) = self.write(&piece) {
                let path = self.path.display();
                tracing::error!(%error, "cannot write the trace {path}; it ends here, and the server goes on");
                return;
            }
        }
    }

    fn write(&mut self, piece: &Piece) -> io::Result<()> {
        let (Piece::First(bytes) | Piece::More(bytes)) = piece;
        if matches!(piece, Piece::First(_)) {
            self.next_file()?;
        }
        self.file.as_mut().map_or(Ok(()), |file| file.write_all(bytes))
    }

    fn delete_earlier(&self) -> io::Result<()> {
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let prefix = format!("{}.", self.path.file_name().unwrap_or_default().to_string_lossy());
        for entry in fs::read_dir(directory.unwrap_or(Path::new(".")))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let number = name.strip_prefix(&prefix).filter(|number| number.len() == 6);
            if number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit())) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    fn next_file(&mut self) -> io::Result<()> {
        self.number += 1;
        self.file = Some(File::create(self.name(self.number))?);
        if let Some(old) = self.number.checked_sub(KEPT_SEGMENTS).filter(|&old| old > 0) {
            match fs::remove_file(self.name(old)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn name(&self, number: u64) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number:06}"));
        name.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_earlier_run_left_is_deleted_and_nothing_else() {
        let dir = std::env::temp_dir().join(format!("headrace-trace-earlier-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        for name in ["run.000001", "run.000007", "run.txt", "run.0000010", "other.000001"] {
            fs::write(dir.join(name), "left").expect("written");
        }
        drop(TraceFiles::create(&dir.join("run")).expect("created"));
        let mut names: Vec<_> = fs::read_dir(&dir)
            .expect("listed")
            .map(|entry| entry.expect("entry").file_name().into_string().expect("text"))
            .collect();
        names.sort();
        assert_eq!(names, ["other.000001", "run.000001", "run.0000010", "run.txt"]);
        fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn old_segments_are_deleted_and_the_newest_are_kept() {
        let dir = std::env::temp_dir().join(format!("headrace-trace-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        let mut writer = Writer { path: dir.join("trace"), file: None, number: 0 };
        for number in 0..12_u8 {
            writer.write(&Piece::First(vec![number])).expect("written");
            writer.write(&Piece::More(vec![number, number])).expect("written");
        }
        let mut names: Vec<_> = fs::read_dir(&dir).expect("listed").map(|entry| entry.expect("entry").path()).collect();
        names.sort();
        assert_eq!((names.len(), fs::read(&names[0]).expect("read")), (8, vec![4, 4, 4]));
        assert!(names[7].ends_with("trace.000012"));
        fs::remove_dir_all(&dir).expect("removed");
    }
}
