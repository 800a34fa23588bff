//! The reference model, on cases whose results are evident.

use deepram_testkit::{Mismatch, Model};

fn read(model: &Model, addr: u64, len: usize) -> Vec<u8> {
    let mut found = vec![9; len];
    model.read(addr, &mut found);
    found
}

#[test]
fn bytes_are_found_where_they_were_written_across_pages() {
    let mut model = Model::new();
    model.write(4094, &[1, 2, 3, 4]);
    assert_eq!(read(&model, 4093, 6), [0, 1, 2, 3, 4, 0]);
    assert_eq!(model.expect_now().map(|(addr, _)| addr).collect::<Vec<_>>(), [0, 4096]);
    model.write(100, &[]);
    assert_eq!(model.expect_now().count(), 2);
}

#[test]
fn each_token_keeps_the_bytes_of_its_sync() {
    let mut model = Model::new();
    model.write(0, &[1]);
    model.sync(1);
    model.write(0, &[2]);
    model.write(8192, &[2]);
    model.sync(5);
    model.write(0, &[3]);
    let first = |token| model.expect(token).map(|(addr, page)| (addr, page[0])).collect::<Vec<_>>();
    assert_eq!(first(1), [(0, 1)]);
    assert_eq!(first(5), [(0, 2), (8192, 2)]);
    assert_eq!(model.tokens().collect::<Vec<_>>(), [1, 5]);
    model.rollback(1);
    assert_eq!(read(&model, 0, 1), [1]);
    assert_eq!(model.last_token(), Some(1));
    model.release(1);
    assert_eq!(model.last_token(), None);
}

#[test]
fn a_crash_leaves_the_last_sync_and_what_was_persisted_since() {
    let mut model = Model::new();
    model.write(0, &[1; 8]);
    model.sync(1);
    model.write(0, &[2; 8]);
    model.write(4096, &[2; 8]);
    model.persist(2, 3);
    model.persist(4100, 1);
    model.write(0, &[3; 8]);
    model.crash();
    assert_eq!(read(&model, 0, 8), [1, 1, 2, 2, 2, 1, 1, 1]);
    assert_eq!(read(&model, 4096, 8), [0, 0, 0, 0, 2, 0, 0, 0]);
}

#[test]
fn what_is_freed_is_expected_no_more_but_kept_by_older_tokens() {
    let mut model = Model::new();
    model.alloc(0, 8192);
    model.write(0, &[1]);
    model.sync(1);
    model.free(0, 4096);
    assert_eq!(model.expect_now().map(|(addr, _)| addr).collect::<Vec<_>>(), [4096]);
    assert_eq!(model.expect(1).count(), 2);
    let mut crashed = model.clone();
    crashed.crash();
    assert_eq!(read(&crashed, 0, 1), [1]);
    model.sync(2);
    model.crash();
    assert_eq!(model.expect_now().count(), 1);
}

#[test]
fn a_check_names_the_first_byte_that_differs() {
    let mut model = Model::new();
    model.write(4096, &[1, 2, 3, 4]);
    model.sync(1);
    let with = |bytes: &'static [u8]| {
        move |_: u64, buf: &mut [u8]| {
            buf.fill(0);
            buf[..bytes.len()].copy_from_slice(bytes);
        }
    };
    assert_eq!(model.check(with(&[1, 2, 3, 4])), Ok(()));
    let mismatch = model.check_token(1, with(&[1, 9, 9, 4])).unwrap_err();
    let expected = Mismatch { addr: 4097, expected: 2, found: 9, differing: 2 };
    assert_eq!(mismatch, expected);
    assert_eq!(
        mismatch.to_string(),
        "at 0x1001: expected 0x02, found 0x09 (2 of the page's 4096 bytes differ)"
    );
}

#[test]
fn a_read_that_fills_nothing_does_not_pass() {
    let mut model = Model::new();
    model.alloc(0, 4096);
    assert_eq!(model.check(|_, _| {}).unwrap_err().differing, 4096);
}

#[test]
#[should_panic(expected = "token 1 is not later than 1")]
fn tokens_only_grow() {
    let mut model = Model::new();
    model.sync(1);
    model.sync(1);
}
