//! Choices of one question start from what the first of them computed, also within a block.

use super::world::{World, roomy};
use crate::{BlockCopy, CacheRoot, Config, Request, RequestId, StepPlan, Tokens};

fn question(length: u32) -> Vec<u32> {
    (0..length).map(|position| 1 + position * 3 % 50).collect()
}

fn choice(world: &mut World, length: u32, max_new: u32, fork_of: Option<RequestId>) -> RequestId {
    let request = Request { fork_of, ..Request::new(question(length), Tokens(max_new)) };
    world.try_submit(request).expect("it fits")
}

/// The first choice and three more.
fn choices(world: &mut World, length: u32, max_new: u32) -> RequestId {
    let first = choice(world, length, max_new, None);
    (0..3).for_each(|_| _ = choice(world, length, max_new, Some(first)));
    first
}

/// Tokens of prompts, and copies, until nobody was left.
fn until_done(world: &mut World) -> (u32, Vec<BlockCopy>) {
    let (mut computed, mut copies) = (0, Vec::new());
    while !world.unfinished().is_empty() {
        let plan = world.step().expect("somebody runs");
        computed += plan.chunks.iter().map(|chunk| chunk.tokens.0).sum::<u32>();
        copies.extend(plan.copies);
    }
    world.drain();
    world.check_all_is_back();
    (computed, copies)
}

#[test]
fn choices_compute_the_last_token_of_their_prompt_only() {
    // Blocks of four: a prompt within two blocks and one of many, which end in the middle of a block; and one whose last
    // token alone is in its last block, where there is nothing to copy.
    for (length, copies) in [(11, 3), (103, 3), (101, 0)] {
        let mut world = World::new(Config { max_batch_prefill_tokens: Tokens(512), ..roomy() });
        choices(&mut world, length, 8);
        let (computed, copied) = until_done(&mut world);
        assert_eq!((computed, copied.len()), (length + 3, copies), "{length} tokens");
    }
}

#[test]
fn a_short_question_is_computed_sooner_than_waited_for() {
    let mut world = World::new(Config { max_batch_prefill_tokens: Tokens(512), ..roomy() });
    choices(&mut world, 3, 8);
    assert_eq!(world.step().expect("all enter").admitted.len(), 4);
    world.drain();
}

/// The plan in which a second choice enters after the first has had its first token.
fn enters_later(world: &mut World, request: Request) -> StepPlan {
    world.step();
    world.try_submit(request).expect("it fits");
    world.step().expect("both run")
}

#[test]
fn what_is_copied_is_the_block_of_the_first_choice_in_which_the_prompt_ends() {
    let mut world = World::new(roomy());
    let first = choice(&mut world, 11, 20, None);
    let plan = enters_later(&mut world, Request { fork_of: Some(first), ..Request::new(question(11), Tokens(20)) });
    let chunk = &plan.chunks[0];
    let tables =
        [&chunk.blocks, &plan.decodes[0].blocks].map(|range| &plan.blocks[range.start as usize..range.end as usize]);
    assert_eq!(plan.copies, [BlockCopy { from: tables[1][2], to: tables[0][2] }]);
    assert_eq!((chunk.start, chunk.tokens, tables[0][..2] == tables[1][..2]), (Tokens(10), Tokens(1), true));
    world.drain();
}

#[test]
fn nothing_is_copied_from_one_that_is_gone_or_has_another_root() {
    let mut world = World::new(roomy());
    let gone = choice(&mut world, 11, 1, None);
    let plan = enters_later(&mut world, Request { fork_of: Some(gone), ..Request::new(question(11), Tokens(20)) });
    assert_eq!((plan.copies.len(), plan.chunks[0].start), (0, Tokens(8)));
    world.drain();
    // Within the first block, where no lookup stands between them.
    let first = choice(&mut world, 3, 20, None);
    let root = CacheRoot { salt: Some("mine".into()), ..CacheRoot::default() };
    let salted = Request { fork_of: Some(first), root, ..Request::new(question(3), Tokens(20)) };
    let plan = enters_later(&mut world, salted);
    assert_eq!((plan.copies.len(), plan.chunks[0].start), (0, Tokens(0)));
    world.drain();
}

#[test]
fn who_wants_something_of_every_position_copies_nothing() {
    let mut world = World::new(roomy());
    let first = choice(&mut world, 11, 20, None);
    let request = Request { fork_of: Some(first), reads_cache: false, ..Request::new(question(11), Tokens(20)) };
    let plan = enters_later(&mut world, request);
    assert_eq!((plan.copies.len(), plan.chunks[0].tokens), (0, Tokens(11)));
    world.drain();
}
