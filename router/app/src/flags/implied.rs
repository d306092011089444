//! What some words and variables say of other flags.

use std::path::PathBuf;

use clap::error::{Error, ErrorKind};

use super::program::Program;
use super::{Command, Flags, HttpFlags, Origin, Origins, RouterFlags, ServeFlags};

/// Where SageMaker looks for a server.
const SAGEMAKER_PORT: u16 = 8080;

impl Flags {
    /// Gives flags that were left out the values that others imply.
    pub(super) fn with_implied(mut self, program: Program) -> Result<Self, Error> {
        match &mut self.command {
            Command::Serve(flags) => {
                note_hostname(&mut flags.http, &self.origins);
                model_by_position(flags, &mut self.origins)?;
                port_of_sagemaker(flags, &mut self.origins);
            }
            Command::Router(flags) => {
                note_hostname(&mut flags.http, &self.origins);
                if program == Program::Router {
                    usual_socket(flags, &mut self.origins);
                }
            }
            Command::Simulate(_) | Command::Bench(_) => {}
        }
        Ok(self)
    }
}

/// A container's own name is no address that somebody asked for.
fn note_hostname(http: &mut HttpFlags, origins: &Origins) {
    http.hostname_from_environment = matches!(origins.origin("hostname"), Some(Origin::Variable(_)));
}

/// `headrace serve MODEL`. It wins over a variable.
fn model_by_position(flags: &mut ServeFlags, origins: &mut Origins) -> Result<(), Error> {
    let Some(model) = flags.model.model.take() else { return Ok(()) };
    if origins.is_typed("model-id") {
        let sentence = format!("{model} and --model-id {} both name a model; keep one\n", flags.model.model_id);
        return Err(Error::raw(ErrorKind::ArgumentConflict, sentence));
    }
    origins.set("model-id", &model, Origin::Typed("MODEL".to_owned()));
    flags.model.model_id = model;
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
