package host

import (
	"github.com/lfactor/lfactor/kernels"
	_ "github.com/lfactor/lfactor/kernels/cpu" // registers itself: every program that runs actors has the processor
)

// OpenBackends opens a backend of the named device for each of this process's ranks, with the same number of threads each; the
// second result closes them.
func OpenBackends(device string, ranks []int, threads int) (of func(rank int) kernels.Backend, closeAll func(), err error) {
	made := map[int]kernels.Backend{}
	closeAll = func() {
		for _, b := range made {
			kernels.Close(b)
		}
	}
	for i, r := range ranks {
		if made[r], err = kernels.Open(device, kernels.Options{Threads: threads, Rank: i}); err != nil {
			delete(made, r)
			closeAll()
			return nil, nil, err
		}
	}
	return func(rank int) kernels.Backend { return made[rank] }, closeAll, nil
}

// Ranks are the numbers below n: all ranks of a run of one process.
func Ranks(n int) []int {
	all := make([]int, n)
	for r := range all {
		all[r] = r
	}
	return all
}
