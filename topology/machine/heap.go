package machine

import (
	"os"
	"runtime"
	"runtime/debug"
)

const (
	// heapGrowth is how much a small Go heap of a process that trains may grow between two collections, in
	// percent of what is in use. Tensors lie outside it; with 100, the runtime's default, what is let go would
	// add a tenth to the memory of a small model, and a collection takes a few milliseconds.
	heapGrowth = 40
	heapSmall  = 64 << 20 // bytes of the heap up to which a collection is as short as that
)

// TightHeap has the Go heap of this process collected early if it is small, for commands whose memory is that
// of tensors. The variable GOGC, where it is set, is obeyed instead.
func TightHeap() {
	var m runtime.MemStats
	debug.FreeOSMemory() // what was needed to begin
	if runtime.ReadMemStats(&m); os.Getenv("GOGC") == "" && m.HeapAlloc < heapSmall {
		debug.SetGCPercent(heapGrowth)
	}
}
