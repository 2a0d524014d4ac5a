//! Traces of allocations, read from text.

use cuda_memory::trace::Trace;

fn high(text: &str) -> u64 {
    text.parse::<Trace>().expect("a valid trace").high()
}

#[test]
fn the_high_water_mark_counts_what_is_allocated_at_the_same_time() {
    assert_eq!(high(""), 0);
    assert_eq!(high("a 0 1 100 0\nf 1 1 0\na 2 2 60 0"), 100);
    assert_eq!(high("a 0 1 100 0\na 1 2 60 0\nf 2 1 0\na 3 1 30 0"), 160);
}

#[test]
fn sizes_beyond_any_memory_are_counted() {
    let most = u64::MAX;
    let text = format!("a 0 1 {most} 0\na 1 2 {most} 0\nf 2 1 0\nf 3 2 0\na 4 3 5 0\nf 5 3 0");
    assert_eq!(high(&text), most);
}
