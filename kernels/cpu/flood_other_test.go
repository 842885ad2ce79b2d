//go:build !linux

package cpu

import "sync/atomic"

const floods = false

// flood sends no signals here: only garbage collection and profiling interrupt.
func flood(*atomic.Bool, *atomic.Int64) {}
