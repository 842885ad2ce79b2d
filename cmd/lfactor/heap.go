package main

import (
	"os"
	"runtime/debug"

	"github.com/lfactor/lfactor/actors/host"
)

// heapSlack is the garbage that a small run may gather between collections; a large one gathers a tenth of what it holds.
const heapSlack = 64 << 20

// heapPercent is the share of the live heap that may be added to it before a collection. Go's default of 100 suits a heap of many
// small objects. A run's is a few thousand large ones without pointers, quickly marked, and a share of gigabytes is memory that a model
// could have had.
func heapPercent(live int64) int { return int(min(100, max(10, heapSlack*100/max(1, live)))) }

// tightHeap sets the collector for the ranks of this process, unless the user has with GOGC; the result undoes it.
func tightHeap(l *host.Layout, proc, procs int) (undo func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	var live int64
	for rank := range l.Ranks {
		if l.Owner(rank, procs) == proc {
			m := l.Memory(rank)
			live += m.Total()
		}
	}
	before := debug.SetGCPercent(heapPercent(live))
	return func() { debug.SetGCPercent(before) }
}
