package cpu

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

func TestShareRunsEveryTaskOnce(t *testing.T) {
	for _, threads := range []int{1, 2, 5} {
		team := newWorkerPool(&portable, threads)
		for n := range 200 {
			seen := make([]atomic.Int32, n)
			team.share(n, func(_ *worker, i int) { seen[i].Add(1) })
			for i := range seen {
				require.EqualValues(t, 1, seen[i].Load(), "%d threads, task %d of %d", threads, i, n)
			}
		}
		team.close()
	}
}

// Several backends at once, with more threads than cores: each rank of a process has its own.
func TestManyTeams(t *testing.T) {
	var wg sync.WaitGroup
	for r := range 8 {
		wg.Go(func() {
			team := newWorkerPool(&portable, 3)
			defer team.close()
			for n := range 300 {
				var sum atomic.Int64
				team.share(n, func(_ *worker, i int) { sum.Add(int64(i)) })
				if sum.Load() != int64(n*(n-1)/2) {
					panic(fmt.Sprintf("team %d: %d tasks add up to %d", r, n, sum.Load()))
				}
			}
		})
	}
	wg.Wait()
}

// A panic in a task reaches the caller, on whatever thread it was, and the team works on.
func TestPanicReachesCaller(t *testing.T) {
	team := newWorkerPool(&portable, 3)
	defer team.close()
	for i := range 100 {
		require.PanicsWithValue(t, "task", func() {
			team.share(50, func(_ *worker, j int) {
				if j == i%50 {
					panic("task")
				}
			})
		})
		var n atomic.Int32
		team.share(20, func(*worker, int) { n.Add(1) })
		require.EqualValues(t, 20, n.Load())
	}
}

func TestCloseEndsThreads(t *testing.T) {
	before := runtime.NumGoroutine()
	b := New(4)
	require.Equal(t, 4, b.Threads())
	b.Close()
	b.Close()
	// one that has said that it ends may be counted for a moment
	for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > before && time.Now().Before(end); {
		runtime.Gosched()
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), before)
}

func TestLevelFromEnvironment(t *testing.T) {
	for _, l := range Levels() {
		t.Setenv("LFACTOR_CPU", l)
		b := New(1)
		require.Equal(t, "cpu-"+l, b.Name())
		b.Close()
	}
	t.Setenv("LFACTOR_CPU", "abacus")
	require.PanicsWithValue(t, fmt.Sprintf("cpu: LFACTOR_CPU=abacus: this machine has %s", joined(Levels())),
		func() { New(1) })
}

func joined(l []string) string {
	s := l[0]
	for _, x := range l[1:] {
		s += ", " + x
	}
	return s
}

// Calls on one backend from several goroutines take turns.
func TestConcurrentCalls(t *testing.T) {
	b := New(2)
	defer b.Close()
	var wg sync.WaitGroup
	var bad atomic.Int32
	for i := range 4 {
		wg.Go(func() {
			x := filled(tensor.F32, 40000)
			y := tensor.Make(tensor.F32, 40000)
			for range 20 {
				b.Run(&kernels.Call{Op: kernels.Scale, In: []*tensor.Tensor{x}, Out: []*tensor.Tensor{y},
					Attr: kernels.Attr{F: [2]float64{float64(i)}}})
				for j, v := range y.F32() {
					if v != float32(i)*x.F32()[j] {
						bad.Add(1)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	require.Zero(t, bad.Load())
}

// Calls leave no garbage to speak of: scratch is kept. A closure or two a call may remain.
func TestScratchIsKept(t *testing.T) {
	b := New(1)
	defer b.Close()
	x, w, y := filled(tensor.F32, 200, 300), filled(tensor.F32, 100, 300), tensor.Make(tensor.F32, 200, 100)
	c := &kernels.Call{Op: kernels.Linear, In: []*tensor.Tensor{x, w}, Out: []*tensor.Tensor{y}}
	b.Run(c)
	b.Run(c)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 20 {
		b.Run(c)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, (after.TotalAlloc-before.TotalAlloc)/20, uint64(4096), "bytes a call")
}

func TestPeaks(t *testing.T) {
	for _, k := range tested() {
		b := newBackend(k, 2)
		p := b.Peaks()
		b.Close()
		require.Greater(t, p.MultiplyAdd, 1e8, k.name)
		require.Greater(t, p.Memory, 1e8, k.name)
		require.Equal(t, k.amx, p.Tiles > 0, k.name)
		require.Greater(t, p.TeamMultiplyAdd, p.MultiplyAdd/4, k.name)
		require.Equal(t, k.amx, p.TeamTiles > 0, k.name)
	}
}
