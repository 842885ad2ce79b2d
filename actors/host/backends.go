package host

import (
	"github.com/lfactor/lfactor/kernels"
	_ "github.com/lfactor/lfactor/kernels/backends" // every program that runs actors has the processor
)

// OpenBackends opens a backend of the named device for each of this process's ranks, with the same options but for
// whose turn it is: processes of one machine go on where the one before has ended. The second result closes them.
func OpenBackends(device string, ranks []int, o kernels.Options) (of func(rank int) kernels.Backend,
	closeAll func(), err error) {
	return OpenEach(func(int) string { return device }, ranks, o)
}

// OpenError is a device that cannot be opened for a rank.
type OpenError struct {
	Rank int
	Err  error
}

// Error says why.
func (e *OpenError) Error() string { return e.Err.Error() }

// Unwrap is the cause.
func (e *OpenError) Unwrap() error { return e.Err }

// OpenEach is OpenBackends with a device for each rank.
func OpenEach(device func(rank int) string, ranks []int, o kernels.Options) (of func(int) kernels.Backend,
	closeAll func(), err error) {
	made := map[int]kernels.Backend{}
	closeAll = func() {
		for _, b := range made {
			kernels.Close(b)
		}
	}
	for _, r := range ranks {
		o.Rank = r
		if made[r], err = kernels.Open(device(r), o); err != nil {
			delete(made, r)
			closeAll()
			return nil, nil, &OpenError{r, err}
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
