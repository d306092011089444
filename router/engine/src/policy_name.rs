//! The word for each scheduling policy, as flags, `/info` and metrics have it.

use headrace_scheduler::PolicyKind;

/// One of six fixed words.
pub fn policy_name(policy: PolicyKind) -> &'static str {
    match policy {
        PolicyKind::Fcfs => "fcfs",
        PolicyKind::Priority => "priority",
        PolicyKind::Fair => "fair",
        PolicyKind::Shortest => "shortest",
        PolicyKind::Static { .. } => "static",
        PolicyKind::Dynamic { .. } => "dynamic",
    }
}
