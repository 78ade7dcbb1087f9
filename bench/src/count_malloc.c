/*
 * Counts the allocations of each thread, whoever makes them: Rust, C and C++ end in the same functions. The executable's
 * malloc takes the place of the C library's for the whole process; the work is left to glibc's own entry points.
 *
 * A counter per thread, not one of all: a shared one would cost exactly those who allocate.
 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *at, size_t size);
extern void *__libc_memalign(size_t align, size_t size);
extern void __libc_free(void *at);

static __thread uint64_t allocations __attribute__((tls_model("initial-exec")));

/* Allocations of the calling thread so far. */
uint64_t strata_bench_allocations(void) { return allocations; }

void *malloc(size_t size) {
  allocations++;
  return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
  allocations++;
  return __libc_calloc(count, size);
}

void *realloc(void *at, size_t size) {
  allocations++;
  return __libc_realloc(at, size);
}

void *memalign(size_t align, size_t size) {
  allocations++;
  return __libc_memalign(align, size);
}

void *aligned_alloc(size_t align, size_t size) { return memalign(align, size); }

int posix_memalign(void **out, size_t align, size_t size) {
  void *at = memalign(align, size);
  if (!at)
    return ENOMEM;
  *out = at;
  return 0;
}

void free(void *at) { __libc_free(at); }
