//! Work on long texts: on threads of its own that take what others leave of the processors.
//!
//! A text of 100,000 tokens keeps a thread busy for half a second. On a machine whose cores all compute, an ordinary
//! thread would take half of one from the shard, and every stream would feel it. A thread that has been nice for once
//! cannot stop being so, so these serve nobody else.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::error::ApiError;

type Job = Box<dyn FnOnce() + Send>;

/// A few threads. They end with it.
pub(crate) struct LongWork {
    jobs: mpsc::SyncSender<Job>,
    /// One permit per thread: what is sent is begun at once.
    free: Arc<Semaphore>,
}

impl LongWork {
    /// # Errors
    /// The system has no thread to give.
    pub fn start(threads: usize) -> std::io::Result<Self> {
        let (jobs, inbox) = mpsc::sync_channel(threads);
        let inbox = Arc::new(Mutex::new(inbox));
        for _ in 0..threads {
            let inbox = inbox.clone();
            thread::Builder::new().name("long-text".into()).spawn(move || work(&inbox))?;
        }
        Ok(Self { jobs, free: Arc::new(Semaphore::new(threads)) })
    }

    /// Runs `work` when a thread is free; `None`: it panicked.
    ///
    /// A caller that goes away while it runs does not free the thread.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
        let permit = self.free.clone().acquire_owned().await.map_err(|_| CLOSED)?;
        let (made, done) = oneshot::channel();
        let job = move |permit: OwnedSemaphorePermit| {
            // Nobody may be left to hear of it.
            let _ = made.send(work());
            drop(permit);
        };
        self.jobs.try_send(Box::new(move || job(permit))).map_err(|_| CLOSED)?;
        done.await.map_err(|_| ApiError::Internal("reading the request's text failed"))
    }
}

fn work(inbox: &Mutex<mpsc::Receiver<Job>>) {
    be_nice();
    loop {
        let job = inbox.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        // The message is out, and what the job held is dropped: the thread is as good as before.
        let _ = catch_unwind(AssertUnwindSafe(job));
    }
}

/// Where cores are scarce, a thirtieth of one; where they are not, a whole one.
#[cfg(target_os = "linux")]
fn be_nice() {
    const NICE: i32 = 15;
    // Of this thread alone, as Linux counts priorities. Where it is refused, nothing is lost but the courtesy.
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        tracing::debug!("threads for long texts keep their priority: {error}");
    }
}

/// Elsewhere priorities are the whole process's.
#[cfg(not(target_os = "linux"))]
fn be_nice() {}

const CLOSED: ApiError = ApiError::Internal("the threads for long texts have ended");

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn its_threads_are_nice_and_no_other_is() {
        let nice = || rustix::process::getpriority_process(None).unwrap();
        let before = nice();
        let long = LongWork::start(2).unwrap();
        assert!(long.run(nice).await.unwrap() > before);
        assert_eq!((nice(), tokio::task::spawn_blocking(nice).await.unwrap()), (before, before));
    }

    #[tokio::test]
    async fn work_that_panics_is_an_error_and_its_thread_works_on() {
        let long = LongWork::start(1).unwrap();
        for _ in 0..3 {
            assert!(long.run(|| panic!("on purpose")).await.is_err());
        }
        assert_eq!(long.run(|| 7).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn no_more_runs_at_once_than_there_are_threads() {
        let long = Arc::new(LongWork::start(2).unwrap());
        let (began, begun) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let ended = Arc::new(Mutex::new(ended));
        let work = || {
            let (began, ended) = (began.clone(), ended.clone());
            move || {
                began.send(()).unwrap();
                ended.lock().unwrap().recv().unwrap();
            }
        };
        let running: Vec<_> = (0..3)
            .map(|_| {
                tokio::spawn({
                    let (long, work) = (long.clone(), work());
                    async move { long.run(work).await.unwrap() }
                })
            })
            .collect();
        while long.free.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        begun.recv().unwrap();
        assert!(running.iter().all(|task| !task.is_finished()));
        (0..3).for_each(|_| end.send(()).unwrap());
        for task in running {
            task.await.unwrap();
        }
        assert_eq!(begun.try_iter().count(), 2);
    }
}
