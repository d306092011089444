//! What some words and variables say of other flags.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use clap::error::{Error, ErrorKind};

use super::program::Program;
use super::{
    BatchingFlags, Command, Flags, HttpFlags, LimitFlags, ModelFlags, Origin, Origins, RouterFlags, ServeFlags,
};

/// Where SageMaker looks for a server.
const SAGEMAKER_PORT: u16 = 8080;

impl Flags {
    /// Gives flags that were left out the values that others imply.
    pub(super) fn with_implied(mut self, program: Program) -> Result<Self, Error> {
        match &mut self.command {
            Command::Serve(flags) => {
                hostname_of_a_container(&mut flags.http, &mut self.origins);
                plain_counts(&flags.limits, &flags.batching, &mut self.origins);
                other_names(&flags.limits, &flags.http, &mut self.origins);
                model_by_position(&mut flags.model, &mut self.origins)?;
                port_of_sagemaker(flags, &mut self.origins);
            }
            Command::Router(flags) => {
                hostname_of_a_container(&mut flags.http, &mut self.origins);
                plain_counts(&flags.limits, &flags.batching, &mut self.origins);
                other_names(&flags.limits, &flags.http, &mut self.origins);
                if program == Program::Router {
                    usual_socket(flags, &mut self.origins);
                }
            }
            Command::Warm(flags) => model_by_position(&mut flags.model, &mut self.origins)?,
            Command::Simulate(_) | Command::Bench(_) => {}
        }
        Ok(self)
    }
}

/// A container's HOSTNAME names the container, and nobody asked for that address: bound to it alone, the server would shut
/// out its own localhost.
fn hostname_of_a_container(http: &mut HttpFlags, origins: &mut Origins) {
    let set = matches!(origins.origin("hostname"), Some(Origin::Variable(_)));
    if set && http.hostname.parse::<IpAddr>().is_err() {
        let how = format!("HOSTNAME is {}, which is no IP address", http.hostname);
        http.hostname = Ipv4Addr::UNSPECIFIED.to_string();
        origins.set("hostname", &http.hostname, Origin::Derived(how));
    }
}

/// Counts that were written with a unit (`8k`), as numbers.
fn plain_counts(limits: &LimitFlags, batching: &BatchingFlags, origins: &mut Origins) {
    let counts =
        [("max-total-tokens", limits.max_total_tokens), ("max-num-batched-tokens", batching.max_num_batched_tokens)];
    for (flag, count) in counts {
        if let (Some(count), Some(origin)) = (count, origins.origin(flag).cloned()) {
            origins.set(flag, count, origin);
        }
    }
}

/// What was said by another flag of the same meaning; where both were given, the check says which to keep.
fn other_names(limits: &LimitFlags, http: &HttpFlags, origins: &mut Origins) {
    let allowed = http.allowed_origins.as_ref().map(|origins| origins.0.join(","));
    let named = [
        ("max-input-tokens", "max-input-length", limits.max_input_length.map(|tokens| tokens.to_string())),
        ("cors-allow-origin", "allowed-origins", allowed),
    ];
    for (flag, other, value) in named {
        let unset = origins.origin(flag) == Some(&Origin::Unset);
        if let (true, Some(value), Some(origin)) = (unset, value, origins.origin(other).cloned()) {
            origins.set(flag, value, origin);
        }
    }
}

/// `headrace serve MODEL`. It wins over a variable.
fn model_by_position(flags: &mut ModelFlags, origins: &mut Origins) -> Result<(), Error> {
    let Some(model) = flags.model.take() else { return Ok(()) };
    if origins.is_typed("model-id") {
        let sentence = format!("{model} and --model-id {} both name a model; keep one\n", flags.model_id);
        return Err(Error::raw(ErrorKind::ArgumentConflict, sentence));
    }
    origins.set("model-id", &model, Origin::Typed("MODEL".to_owned()));
    flags.model_id = model;
    Ok(())
}

/// SageMaker names the model by a variable of its own, and no port.
fn port_of_sagemaker(flags: &mut ServeFlags, origins: &mut Origins) {
    let sagemaker = origins.origin("model-id") == Some(&Origin::Variable("HF_MODEL_ID".to_owned()));
    if sagemaker && origins.origin("port") == Some(&Origin::Default) {
        flags.http.port = SAGEMAKER_PORT;
        origins.set("port", SAGEMAKER_PORT, Origin::Derived("SageMaker's, as HF_MODEL_ID names the model".to_owned()));
    }
}

/// Text Generation Inference's router looks for its shards where its shards listen.
fn usual_socket(flags: &mut RouterFlags, origins: &mut Origins) {
    if flags.fake.fake_shard || !flags.model.shards.is_empty() || flags.model.master_shard_uds_path.is_some() {
        return;
    }
    let socket: PathBuf = std::env::temp_dir().join("text-generation-server-0");
    let how = Origin::Derived("where text-generation-server listens".to_owned());
    origins.set("master-shard-uds-path", socket.display(), how);
    flags.model.master_shard_uds_path = Some(socket);
}
