//! Compiles the allocation counter, which must be C: its symbols take the place of the C library's for all code of the
//! process, also that of rivals written in C++.

fn main() {
    println!("cargo::rerun-if-changed=src/count_malloc.c");
    cc::Build::new().file("src/count_malloc.c").opt_level(2).warnings(true).compile("count_malloc");
}
