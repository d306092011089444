//! docs/reference is what the program says of itself.

mod harness;

use std::fs;
use std::path::Path;

use harness::{Headrace, text};

#[test]
fn the_reference_is_as_make_reference_writes_it() {
    let written = tempfile::tempdir().expect("a temporary directory");
    // Whatever the environment says must not show.
    let ended =
        Headrace::start_with(&["reference", text(written.path())], &[("MAX_BATCH_SIZE", ""), ("PORT", "1")]).wait();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    let names = |dir: &Path| {
        let mut names: Vec<_> =
            fs::read_dir(dir).expect("a directory").map(|file| file.expect("a file").file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&kept), names(written.path()), "run `make reference`");
    for name in names(&kept) {
        let read = |dir: &Path| fs::read_to_string(dir.join(&name)).expect("text");
        assert!(read(&kept) == read(written.path()), "{} is stale: run `make reference`", name.display());
    }
}
