//! The files of a trace.

use std::fs;
use std::path::{Path, PathBuf};

use headrace_simulator::Recording;

use super::SimulateError;

/// A file of a trace with what is in it.
pub struct Segment {
    pub path: PathBuf,
    pub bytes: Vec<u8>,
}

/// Reads the segment `trace`, or all of `trace.000001`, `trace.000002`, … that are there, in order.
///
/// # Errors
///
/// There is none, or one cannot be read.
pub fn read(trace: &Path) -> Result<Vec<Segment>, SimulateError> {
    let paths = if trace.is_file() { vec![trace.to_owned()] } else { numbered(trace) };
    if paths.is_empty() {
        return Err(SimulateError::NoTrace { path: trace.to_owned() });
    }
    paths
        .into_iter()
        .map(|path| match fs::read(&path) {
            Ok(bytes) => Ok(Segment { path, bytes }),
            Err(reason) => Err(SimulateError::Read { path, reason }),
        })
        .collect()
}

/// All segments of a trace as one recording.
///
/// # Errors
///
/// As [`read`], or they do not fit together.
pub fn recording(trace: &Path) -> Result<Recording, SimulateError> {
    let segments: Vec<Vec<u8>> = read(trace)?.into_iter().map(|segment| segment.bytes).collect();
    Recording::read(&segments).map_err(|reason| SimulateError::Trace { path: trace.to_owned(), reason })
}

fn numbered(trace: &Path) -> Vec<PathBuf> {
    let directory = trace.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = trace.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut numbered: Vec<(u64, PathBuf)> = files
        .filter_map(|file| {
            let number = file.file_name().to_string_lossy().strip_prefix(&name)?.strip_prefix('.')?.to_owned();
            // At least six digits, as they are written.
            let digits = number.len() >= 6 && number.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| number.parse().ok().map(|number| (number, file.path())))?
        })
        .collect();
    numbered.sort();
    numbered.into_iter().map(|(_, path)| path).collect()
}
