// Runs the blocks of a kernel on the calling thread.
#pragma once
#include <string>

typedef void (*lf_kernel)(const void* args);
struct lf_dim {
  unsigned x, y, z;
};
enum lf_order { lf_ascending, lf_descending, lf_random };

// The skip-th barrier of every thread is left out, as a mistake that tests must find; 0 for none. An empty result is success; anything else says what the kernel did wrong.
std::string lf_run(lf_kernel k, const void* args, lf_dim grid, unsigned threads, unsigned shared, int order, int skip);
