//! Runs the scheduler that serves traffic against a model of what steps cost: no GPU, no clock, no I/O.
//!
//! Time is a number that jumps from one event to the next, so an hour of traffic takes a second or so, and the same
//! workload, knobs and cost model give the same bytes every time.
//!
//! # In reading order
//!
//! 1. [`Workload`]: who asks for what, and when; from a file ([`read_jsonl`]) or made up ([`Preset`]).
//! 2. [`CostModel`]: how long a step takes, and the router between two steps.
//! 3. [`simulate`]: the event loop. It gives a [`Run`]: what happened to every request, and who ran in which step.
//! 4. [`Report`]: a run in figures, as a table or as JSON; [`comparison`]: several side by side.
//! 5. [`timeline`]: a run as a picture. [`Sweep`]: where more load stops paying.
//! 6. [`Recording`]: what a trace of a server tells. [`Fit`]: the cost model of its steps. [`Prediction`]: its requests
//!    again, under other knobs.
//!
//! ```
//! use headrace_scheduler::*;
//! use headrace_simulator::*;
//!
//! let workload = Preset::Seed.workload(PresetKnobs { requests: 20, ..PresetKnobs::default() });
//! let config = Config { max_batch_size: 8, ..Config::default() };
//! let run = simulate(&workload, &config, &CostModel::UNIT)?;
//! assert_eq!(run.requests.len(), 20);
//! # Ok::<(), Stuck>(())
//! ```

mod compare;
mod cost_model;
mod figures;
mod fit;
mod jsonl;
mod prediction;
mod presets;
mod pretend_shard;
mod random;
mod recording;
mod report;
mod run;
mod sweep;
mod timeline;
mod tokens;
mod workload;
mod world;

pub use compare::comparison;
pub use cost_model::{CostModel, CostModelError};
pub use figures::Figures;
pub use fit::{Fit, NothingToFit, Quality};
pub use jsonl::{JsonlError, read_jsonl};
pub use prediction::Prediction;
pub use presets::{Preset, PresetKnobs};
pub use recording::{Recording, RecordingError, unread_bytes};
pub use report::{Latencies, Report};
pub use run::{Bar, Ending, Outcome, Phase, Run};
pub use sweep::{Limits, Point, Rates, Sweep};
pub use timeline::timeline;
pub use workload::{Arrival, NamedBlocks, Prefix, Workload};
pub use world::{Stuck, record, simulate};
