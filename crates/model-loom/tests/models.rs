//! Every model, and its twin in the wrong order, which must fail.

#![cfg(feature = "loom")]

use esker_model_loom::{
    PublishOrder, ReadOrder, TakeOrder, batches_are_whole, picture_and_sequence, snapshots_keep_what_they_see,
};

/// V1.
#[test]
fn v1_a_batch_is_inserted_and_then_published() {
    batches_are_whole(PublishOrder::AfterInsert);
}

#[test]
#[should_panic(expected = "is not there")]
fn v1_published_before_the_insert() {
    batches_are_whole(PublishOrder::BeforeInsert);
}

#[test]
#[should_panic(expected = "is not there")]
fn v1_published_in_the_middle_of_a_batch() {
    batches_are_whole(PublishOrder::InTheMiddle);
}

/// V2.
#[test]
fn v2_the_picture_is_taken_before_the_sequence() {
    picture_and_sequence(ReadOrder::PictureFirst);
}

#[test]
#[should_panic(expected = "found None")]
fn v2_the_sequence_before_the_picture() {
    picture_and_sequence(ReadOrder::SequenceFirst);
}

/// V3.
#[test]
fn v3_a_snapshot_is_taken_at_once() {
    snapshots_keep_what_they_see(TakeOrder::AtOnce);
}

#[test]
#[should_panic(expected = "a snapshot at 1")]
fn v3_a_snapshot_taken_in_two_steps() {
    snapshots_keep_what_they_see(TakeOrder::InTwoSteps);
}
