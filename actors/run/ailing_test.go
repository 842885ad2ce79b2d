package run

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
)

// sick is a backend whose device has faults.
type sick struct {
	kernels.Backend
	news chan []string
}

func (s sick) Ails() []string {
	select {
	case n := <-s.news:
		return n
	default:
		return nil
	}
}

// TestAiling: faults of devices are said at every look and at the end; backends without any are not asked.
func TestAiling(t *testing.T) {
	s := sick{news: make(chan []string, 2)}
	well, err := kernels.Open(kernels.CPU, kernels.Options{Threads: 1})
	require.NoError(t, err)
	defer kernels.Close(well)
	a := (&Run{}).watchAiling(func(rank int) kernels.Backend {
		return []kernels.Backend{well, s}[rank]
	}, []int{0, 1})
	require.Len(t, a.devices, 1)
	var said []string
	a.say = func(text string) { said = append(said, text) }
	tick := make(chan time.Time)
	var wg sync.WaitGroup
	wg.Go(func() { a.watch(tick) })
	s.news <- []string{"cuda:0 has 1 uncorrected ECC errors more"}
	tick <- time.Time{}
	s.news <- []string{"cuda:0: the driver reports Xid 48", "x"}
	a.end()
	wg.Wait()
	require.Equal(t, []string{"! device cuda:0 has 1 uncorrected ECC errors more",
		"! device cuda:0: the driver reports Xid 48", "! device x"}, said)
}
