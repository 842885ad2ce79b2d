package host

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// planted is a fault that stops a run for good, and what `why` must say of it.
type planted struct {
	kind, says string
	plant      func(l *layout.Layout, o *RunOptions, r *rand.Rand)
}

// stuckDevice blocks in one job until the test is over.
type stuckDevice struct {
	Device
	at   int64
	hold chan struct{}
}

func (d stuckDevice) Run(j actors.Job) (Result, error) {
	if j.Step == d.at && j.Action.Kind == plan.B {
		<-d.hold
	}
	return d.Device.Run(j)
}

func plantedFaults(hold chan struct{}) []planted {
	return []planted{
		{"credit", "edge activation 0→1", func(l *layout.Layout, o *RunOptions, r *rand.Rand) {
			left := 2 + r.IntN(3) // the edge has two credits: both leak, from some message on
			o.Filter = func(to actors.Ref, m actors.Message) bool {
				if m.Kind == actors.Credit && m.Comm == 0 {
					left--
				}
				return m.Kind != actors.Credit || m.Comm != 0 || left > 0
			}
		}},
		{"cycle", "waits for gradient 0B0", func(l *layout.Layout, o *RunOptions, r *rand.Rand) {
			// stage 1 wants microbatch 1 first, which stage 0 sends only after the gradient of microbatch 0
			rows := l.Program.Rows
			rows[1][0], rows[1][2] = rows[1][2], rows[1][0]
			rows[0] = []plan.Entry{rows[0][0], rows[0][2], rows[0][1], rows[0][3]}
		}},
		{"busy", "1B", func(l *layout.Layout, o *RunOptions, r *rand.Rand) {
			at := int64(1 + r.IntN(3))
			o.WrapDevice = func(rank int, d Device) Device {
				if rank == 1 {
					return stuckDevice{d, at, hold}
				}
				return d
			}
		}},
	}
}

// TestWhy plants each kind of culprit 20 times over and asks, through the socket, until the answer is stable.
func TestWhy(t *testing.T) {
	for i := range 20 {
		hold := make(chan struct{})
		for _, f := range plantedFaults(hold) {
			t.Run(fmt.Sprintf("%s %d", f.kind, i), func(t *testing.T) { f.check(t, uint64(i)) })
		}
		close(hold)
	}
}

func (f planted) check(t *testing.T, seed uint64) {
	v := variant{pp: 2, dp: 1, tp: 1, schedule: "gpipe"}
	if f.kind == "cycle" {
		v = variant{pp: 2, dp: 2, tp: 1, schedule: "1f1b"}
	}
	l, o := v.run(t, tiny(false), 5, refBackend, nil)
	f.plant(l, &o, rand.New(rand.NewPCG(seed, 1)))
	dir, err := os.MkdirTemp("", "lf")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	stop, up := make(chan error, 1), make(chan struct{})
	o.Orphaned = stop
	o.OnSystem = func(s *System) {
		end, err := s.ServeWhy(dir, 0)
		require.NoError(t, err)
		t.Cleanup(end)
		close(up)
	}
	ended := make(chan error, 1)
	go func() { ended <- Run(l, o) }()
	<-up
	began := time.Now()
	require.Eventually(t, func() bool {
		all, _, err := AskWhy(dir, 2*time.Second)
		if err != nil {
			return false
		}
		d := Diagnose(all)
		return d.Kind == f.kind && strings.Contains(d.Root, f.says)
	}, 2*time.Minute, 20*time.Millisecond, "why does not name the culprit of %s", f.kind)
	t.Logf("named after %v", time.Since(began))
	if f.kind == "busy" {
		return // its device is held; the run is given up with the test
	}
	stop <- fmt.Errorf("test over")
	require.Error(t, <-ended)
}
