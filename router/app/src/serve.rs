//! `headrace serve`: prepare the model, start its shards, serve until something ends it, leave nothing behind.

use std::sync::Arc;
use std::time::Duration;

use headrace_shard::ShardError;
use tokio::time::timeout;

use crate::config::ServeConfig;
use crate::connect::{connect, deadlines};
use crate::defaults;
use crate::failure::Failure;
use crate::listen::Door;
use crate::model::{Model, ServedModel};
use crate::prepare::{Preparation, PrepareError, Prepared};
use crate::python::Python;
use crate::service::{self, Plan};
use crate::shard_group::ShardGroup;
use crate::signals::Signals;
use crate::timeline::Timeline;

/// A broken connection and the end of the process behind it are seen in either order; the process says more. Longer than
/// it takes to tell which of several ranks went first.
const DEATH_AFTER_ERROR: Duration = Duration::from_secs(3);

/// Runs the command. Ends well when a signal asked for the end.
pub async fn run(config: ServeConfig, signals: &mut Signals) -> Result<(), Failure> {
    let mut timeline = Timeline::start();
    let binary = std::env::current_exe().map_err(Failure::Runtime)?;
    let python = Python::find(config.compute.python.as_deref(), &binary);
    let door = Door::open(&config.service.http, "preparing the model")?;

    let Some(prepared) = prepare(&config, &python, signals).await? else { return Ok(()) };
    timeline.mark("preparing the model");
    door.front.doing("starting the shard");
    let model = Model::read(&prepared.model_dir, config.service.http.tokenizer_config.as_deref())?;
    // What config.json tells need not wait until the weights are loaded.
    let context = if config.compute.rope.is_none() { model.plain_context() } else { None };
    defaults::within_context(&config.service, context)?;
    let model = Arc::new(ServedModel {
        model,
        dir: prepared.model_dir,
        model_id: prepared.model_id,
        revision: prepared.revision,
    });

    let mut group = ShardGroup::start(&config.shard, &config.compute, &python, &model.dir)?;
    let outcome = with_shards(config, model, door, timeline, &mut group, signals).await;
    match &outcome {
        Err(failure) if failure.is_hang() => group.kill().await,
        _ => group.stop().await,
    }
    outcome
}

/// `None`: a signal came first.
async fn prepare(config: &ServeConfig, python: &Python, signals: &mut Signals) -> Result<Option<Prepared>, Failure> {
    let mut preparation = Preparation::start(python, &config.model)?;
    tokio::select! {
        prepared = preparation.finish() => match prepared {
            Err(PrepareError::Said) if python.lacks_the_package().await => {
                Err(PrepareError::NoPackage { program: python.program().display().to_string() }.into())
            }
            prepared => Ok(Some(prepared?)),
        },
        signal = signals.next() => {
            tracing::info!("{signal} while the model was being prepared");
            preparation.stop().await;
            Ok(None)
        }
    }
}

/// Serves while all ranks live.
async fn with_shards(
    config: ServeConfig,
    model: Arc<ServedModel>,
    door: Door,
    timeline: Timeline,
    group: &mut ShardGroup,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let (addresses, front) = (group.addresses(), door.front.clone());
    let deadlines = deadlines(config.service.step_timeout);
    let connect = async move { connect(&addresses, deadlines, &front).await };
    let plan = Plan { config: &config.service, model, door, timeline };
    let started = tokio::select! {
        started = service::start(plan, connect) => started,
        death = group.death() => return Err(Failure::Died(death)),
        signal = signals.next() => {
            tracing::info!("{signal} before the server was ready");
            return Ok(());
        }
    };
    let outcome = match started {
        Ok(service) => service.run(signals, group.death()).await,
        Err(failure) => Err(failure),
    };
    match outcome {
        // A shard that refuses is alive, and has said why.
        Err(Failure::Shard(ShardError::Refused { .. })) => outcome,
        Err(failure) if failure.is_hang() => Err(failure),
        Err(failure @ (Failure::Shard(_) | Failure::Engine(_))) => Err(rather_death(failure, group).await),
        outcome => outcome,
    }
}

/// What happened to a process, if that is why the connection broke.
async fn rather_death(failure: Failure, group: &mut ShardGroup) -> Failure {
    match timeout(DEATH_AFTER_ERROR, group.death()).await {
        Ok(death) => Failure::Died(death),
        Err(_) => failure,
    }
}
