package host

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/opaque"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology"
)

// trainChanged is train under a job that change has altered.
func (v variant) trainChanged(t *testing.T, m *family.Model, steps int64, backend func(int) kernels.Backend,
	change func(j *layout.Design)) (losses []float64, l *layout.Layout) {
	l, o := v.run(t, m, steps, backend, &losses)
	j := *l.Design
	change(&j)
	l, err := layout.New(&j)
	require.NoError(t, err)
	require.NoError(t, Run(l, o))
	return losses, l
}

// TestStateOnHost: optimizer state that waits on the host, all or half of it, beside a processor or a
// device, changes no bit under any ZeRO, with master copies and without.
func TestStateOnHost(t *testing.T) {
	m := tiny(false)
	for zero := range 4 {
		for _, dtype := range []tensor.DType{tensor.F32, tensor.BF16} {
			t.Run(fmt.Sprintf("zero%d %v", zero, dtype), func(t *testing.T) {
				t.Parallel()
				v := variant{pp: 1, dp: 2, tp: 1, zero: zero, schedule: "1f1b"}
				plain := func(j *layout.Design) { j.DType = dtype }
				want, _ := v.trainChanged(t, m, 4, refBackend, plain)
				away := func(share float64) func(*layout.Design) {
					return func(j *layout.Design) { j.DType, j.OffloadState, j.Piece = dtype, share, 256 }
				}
				got, l := v.trainChanged(t, m, 4, refBackend, away(1))
				require.Equal(t, want, got)
				require.Zero(t, l.Memory(0).State)
				require.Greater(t, len(l.Pieces(&l.Ranks[0])), len(l.Ranks[0].Params),
					"some parameters come in several pieces")
				got, l = v.trainChanged(t, m, 4, opaques(t), away(0.5))
				require.Equal(t, want, got)
				require.Positive(t, l.Memory(0).State)
				require.Positive(t, l.Memory(0).Away)
			})
		}
	}
}

// TestStateOnHostMemory: what a rank holds while its state waits on the host, and while it updates, lies
// within the bound of all predictions, and far below what it holds otherwise.
func TestStateOnHostMemory(t *testing.T) {
	for _, j := range []*layout.Design{{Mesh: topology.Grid(2, 1, 1), DType: tensor.BF16},
		{Mesh: topology.Grid(1, 2, 1), DType: tensor.BF16, Zero: 1}, {Mesh: topology.Grid(1, 2, 1), Zero: 0},
		{Mesh: topology.Grid(1, 2, 1), Zero: 3, DType: tensor.BF16}} {
		for _, share := range []float64{0, 0.6, 1} {
			x := *j
			x.Model, x.Rows, x.Micro, x.Schedule = memoryModel(), 8, 2, "1f1b"
			x.Optim = optim.Config{Name: "adamw", Beta1: 0.9, Beta2: 0.95, Eps: 1e-8}
			x.OffloadState, x.Piece = share, 2048
			real, planned := peaksOf(t, &x)
			for again := 0; again < mostRuns-1 && apart(planned, real,
				peakBound); again++ { // one run shows one order
				more, _ := peaksOf(t, &x)
				for r := range real {
					real[r] = max(real[r], more[r])
				}
			}
			for r := range real {
				off := float64(planned[r])/float64(real[r]) - 1
				require.LessOrEqual(t, math.Abs(off), peakBound,
					"%v zero%d share %g rank %d: planned %d, real %d",
					x.Mesh, x.Zero, share, r, planned[r], real[r])
			}
			if share == 1 {
				x.OffloadState = 0
				all, _ := peaksOf(t, &x)
				require.Less(t, float64(real[0]), 0.8*float64(all[0]))
			}
		}
	}
}

// TestStateOnHostKept: copies for recovery and checkpoints of state that waits on the host have the bytes of
// state that does not, and are taken back to where they came from.
func TestStateOnHostKept(t *testing.T) {
	d := opaque.New(1)
	defer d.Close()
	for name, b := range map[string]kernels.Backend{"processor": cpu.New(1), "device": d} {
		t.Run(name, func(t *testing.T) { keptAway(t, b) })
	}
}

// keptAway compares a rank whose state waits on the host with one whose state does not.
func keptAway(t *testing.T, b kernels.Backend) {
	var ranks []*Rank
	for _, share := range []float64{0, 1, 1} {
		v := variant{pp: 1, dp: 1, tp: 1, schedule: "1f1b"}
		j := *v.layout(t, tiny(true)).Design
		j.DType, j.OffloadState = tensor.BF16, share
		l, err := layout.New(&j)
		require.NoError(t, err)
		r, err := NewDevice(l, 0, b, nil, t.TempDir())
		require.NoError(t, err)
		defer r.Free()
		ranks = append(ranks, r)
	}
	plain, away, fresh := ranks[0], ranks[1], ranks[2]
	seeded := func(kind string, p *grad.Param, _ family.Region, dst []float32) (bool, error) {
		for i := range dst {
			dst[i] = float32(len(kind)*100+i) / float32(len(p.Name))
		}
		return kind != "master", nil // which is then the parameter's values
	}
	require.NoError(t, plain.Load(seeded))
	require.NoError(t, away.Load(seeded))
	require.NoError(t, fresh.Load(func(kind string, _ *grad.Param, _ family.Region, _ []float32) (bool,
		error) {
		return kind == "param", nil // zeros
	}))
	require.Less(t, away.c.Pool.Live(), plain.c.Pool.Live()/3, "7 of 8 bytes wait on the host")
	kept := func(r *Rank) *links.Pack {
		res, err := r.keep()
		require.NoError(t, err)
		return res.Out[0].Payload.(*links.Pack)
	}
	want, got := kept(plain), kept(away)
	same := func(got *links.Pack) {
		require.Equal(t, want.Names, got.Names)
		for i := range want.Tensors {
			require.Equal(t, want.Tensors[i].Bytes(), got.Tensors[i].Bytes(), want.Names[i])
		}
	}
	same(got)
	live := fresh.c.Pool.Live()
	require.NoError(t, fresh.take(got))
	again := kept(fresh)
	same(again)
	require.Equal(t, live, fresh.c.Pool.Live(), "state went back to the host")
	var saved [2]CheckpointSaver
	require.NoError(t, saved[0].Snapshot(1, plain, ""))
	require.NoError(t, saved[1].Snapshot(1, away, ""))
	require.Equal(t, saved[0].pieces, saved[1].pieces)
	for i := range saved[0].copies {
		require.Equal(t, saved[0].copies[i].Bytes(), saved[1].copies[i].Bytes(), saved[0].pieces[i].Name)
	}
	for i := range saved {
		saved[i].release()
	}
	for _, p := range []*links.Pack{want, got, again} {
		p.Release()
	}
}

// TestStateInFiles: large tensors that wait beside a processor lie in files, if a folder is given, and
// change no bit; a folder that takes no files ends the run with an error that names it.
func TestStateInFiles(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("skipped: files are mapped into memory on Linux alone")
	}
	m := family.Decoder("llama", family.Spec{Layers: 1, Hidden: 64, Inter: 64, Heads: 2, KV: 1, HeadDim: 32,
		Vocab: 512, Eps: 1e-6, Rope: block.Rope{Dim: 32, Theta: 1e4}, InitStd: 0.1})
	v, backend := variant{pp: 1, dp: 1, tp: 1, schedule: "1f1b"},
		func(int) kernels.Backend { return cpu.New(1) }
	want, _ := v.train(t, m, 3, backend)
	var losses []float64
	l, o := v.run(t, m, 3, backend, &losses)
	j := *l.Design
	j.OffloadState, j.Piece, j.Offload, o.Files = 1, 20000, 1, t.TempDir()
	l, err := layout.New(&j)
	require.NoError(t, err)
	see, mapped := o.Observe, 0
	o.Observe = func(m actors.Message) {
		maps, _ := os.ReadFile("/proc/self/maps")
		mapped += strings.Count(string(maps), o.Files)
		see(m)
	}
	require.NoError(t, Run(l, o))
	require.Equal(t, want, losses)
	require.Positive(t, mapped)
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	require.NotContains(t, string(maps), o.Files, "what was freed is unmapped")
	o.Files = filepath.Join(o.Files, "none")
	require.ErrorContains(t, Run(l, o), "a file of 64.0 MiB in "+o.Files+": open ")
}
