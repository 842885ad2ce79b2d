package machine

import (
	"os"
	"runtime/debug"
)

// heapGrowth is how much the Go heap of a process that trains may grow between two collections, in percent of
// what is in use. Tensors lie outside it; with 100, the runtime's default, what is let go would add a tenth to
// the memory of a small model, and a collection of so small a heap takes a few milliseconds.
const heapGrowth = 40

// TightHeap has the Go heap of this process collected early, for commands whose memory is that of tensors. The
// variable GOGC, where it is set, is obeyed instead.
func TightHeap() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
}
