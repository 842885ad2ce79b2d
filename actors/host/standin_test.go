package host

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// twofold is a Saver that writes a rank's part and has it written once more by a stand-in, from a copy in
// memory: both say the same of it, hashes included.
type twofold struct {
	CheckpointSaver
	t *testing.T
}

func (s *twofold) Snapshot(step int64, r *Rank, text string) error {
	kept, err := r.keep()
	require.NoError(s.t, err)
	require.NoError(s.t, s.CheckpointSaver.Snapshot(step, r, text))
	own, err := s.CheckpointSaver.Write(step)
	require.NoError(s.t, err)
	res, err := r.standFor(actors.Job{Step: step, In: []actors.Input{{Comm: -1, Port: -1,
		Member: int32(layout.RankRef(s.Rank)), Payload: kept.Out[0].Payload}}})
	require.NoError(s.t, err)
	require.Equal(s.t, own, res.Text)
	require.Contains(s.t, own, `"Pieces":[{`)
	return nil
}

func (s *twofold) Write(int64) (string, error) { return "", nil }

// TestStandIn: the part of a rank that a stand-in writes from a copy in memory is the one that the rank itself
// writes, byte for byte, with every level of ZeRO, master copies, and beside a processor or a device.
func TestStandIn(t *testing.T) {
	m := tiny(false)
	for zero := range 4 {
		for _, dtype := range []tensor.DType{tensor.F32, tensor.BF16} {
			for name, backend := range map[string]func(int) kernels.Backend{"ref": refBackend,
				"device": opaques(t)} {
				t.Run(fmt.Sprintf("zero%d %v %s", zero, dtype, name), func(t *testing.T) {
					t.Parallel()
					v := variant{pp: 2, dp: 2, tp: 1, zero: zero, schedule: "1f1b"}
					l, o := v.run(t, m, 2, backend, nil)
					j := *l.Design
					j.DType = dtype
					l, err := layout.New(&j)
					require.NoError(t, err)
					o.Coord.SaveAtEnd = true
					var mu sync.Mutex
					own, roots := map[int]bool{}, [2]string{t.TempDir(), t.TempDir()}
					for _, root := range roots {
						_, err := checkpoint.Begin(checkpoint.OS, root, 2)
						require.NoError(t, err)
					}
					o.Save = func(rank int) Saver {
						mu.Lock()
						defer mu.Unlock()
						s := CheckpointSaver{FS: checkpoint.OS, Root: roots[0], Rank: rank}
						if own[rank] {
							s.Root = roots[1]
							return &s
						}
						own[rank] = true
						if zero == 0 && l.Ranks[rank].Coord.DP > 0 { // it saves nothing
							return nil
						}
						return &twofold{s, t}
					}
					require.NoError(t, Run(l, o))
					require.Len(t, own, 4)
				})
			}
		}
	}
}
