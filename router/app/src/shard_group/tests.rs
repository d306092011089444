use super::*;

/// Ranks that are shell scripts.
fn group(scripts: &[&str]) -> ShardGroup {
    let spawn = |(rank, script): (u32, &&str)| {
        ShardProcess::spawn(rank, Path::new("/bin/sh"), vec!["-c".into(), (*script).into()]).expect("a shell")
    };
    ShardGroup { ranks: (0..).zip(scripts).map(spawn).collect(), sockets: Vec::new() }
}

#[tokio::test]
async fn the_rank_that_went_first_is_named_and_not_one_that_followed() {
    let mut ranks = group(&["exit 3", "sleep 300", "sleep 0.2; kill -KILL $$"]);
    let death = ranks.death().await;
    assert_eq!((death.rank, death.cause), (2, Cause::Signal(9)));
    ranks.stop().await;
}

#[tokio::test]
async fn a_rank_that_followed_one_of_another_machine_is_named_itself() {
    let mut ranks = group(&["echo 'error: rank 5 is gone' >&2; exit 3", "sleep 300"]);
    let death = ranks.death().await;
    assert_eq!(death.to_string(), "rank 0: rank 5 is gone");
    ranks.stop().await;
}

#[tokio::test]
async fn all_are_stopped_in_the_time_of_one() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let ready = |rank: u32| folder.path().join(rank.to_string());
    let stubborn = |rank| format!("trap '' TERM; touch {}; while :; do sleep 1; done", ready(rank).display());
    let scripts = [0, 1, 2].map(stubborn);
    let mut ranks = group(&scripts.each_ref().map(String::as_str));
    while !(0..3).all(|rank| ready(rank).exists()) {
        tokio::task::yield_now().await;
    }
    timeout(Duration::from_secs(6), ranks.stop()).await.expect("three seconds of grace for all together");
    assert_eq!(ranks.death().await.cause, Cause::Signal(9));
}
