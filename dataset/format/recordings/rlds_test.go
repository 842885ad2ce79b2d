package recordings

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
)

// rldsGolden is what bench/golden/rlds.py wrote.
type rldsGolden struct {
	Stats    map[string]RobotStats
	Episodes []struct {
		Task          string
		Action, State [][]float64
		Gripper       []float64
		Image, Wrist  []string
	}
}

func openGolden(t *testing.T) (g rldsGolden) {
	b, err := os.ReadFile("testdata/rlds/golden.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &g))
	return g
}

// TestRLDS: steps of a data set that a Python package wrote come with their pictures, states, tasks and the
// actions that follow, and its statistics are NumPy's.
func TestRLDS(t *testing.T) {
	g := openGolden(t)
	s, err := dataset.Open("testdata/rlds", dataset.Options{Horizon: 4, Past: 1})
	require.NoError(t, err)
	defer s.Close()
	require.EqualValues(t, 12, s.Len())
	at := int64(0)
	for i, e := range g.Episodes {
		last := len(e.Action) - 1
		for k := range e.Action {
			f := frame(t, s, at)
			require.Equal(t, [2]int64{int64(i), int64(k)}, [2]int64{f.Episode, f.Frame})
			require.Equal(t, e.Task, f.Task)
			require.Equal(t, e.State[k], f.State)
			require.Equal(t, e.State[max(0, k-1)], f.Before[0].State)
			require.Equal(t, [2]int{max(0, k+2-last), max(0, 1-k)}, [2]int{f.Pad, f.Lead})
			for n, a := range f.Actions {
				require.Equal(t, e.Action[min(max(0, k-1+n), last)], a)
			}
			for name, want := range map[string]string{"observation.image": e.Image[k],
				"observation.wrist_image": e.Wrist[k]} {
				sum := sha256.Sum256(f.Images[name])
				require.Equal(t, want, hex.EncodeToString(sum[:]))
			}
			at++
		}
	}
	r := s.(*RLDS)
	require.Equal(t, []string{"observation.image", "observation.wrist_image"}, r.Cameras())
	stats, err := r.Stats()
	require.NoError(t, err)
	for ours, theirs := range map[string]string{"action": "action", "observation.state": "state"} {
		got, want := stats[ours], g.Stats[theirs]
		for _, p := range [][2][]float64{{want.Min, got.Min}, {want.Max, got.Max}, {want.Mean, got.Mean},
			{want.Std, got.Std}, {want.Q01, got.Q01}, {want.Q99, got.Q99}} {
			require.InDeltaSlice(t, p[0], p[1], 1e-12)
		}
	}
	other, err := OpenRobots("testdata/rlds", dataset.Options{Horizon: 1,
		Robot: dataset.RobotKeys{State: "observation.gripper"}})
	require.NoError(t, err)
	defer other.Close()
	require.Equal(t, []float64{g.Episodes[0].Gripper[2]}, frame(t, other, 2).State)
	require.NotEqual(t, s.Fingerprint(), other.Fingerprint())
	whole, err := dataset.Open("testdata/rlds", dataset.Options{})
	require.NoError(t, err)
	defer whole.Close()
	require.EqualValues(t, 3, whole.Len())
}

// TestRLDSBad: damaged files are refused, and damaged episodes quarantined.
func TestRLDSBad(t *testing.T) {
	const name = "toy-train.tfrecord-00000-of-00002"
	records, err := os.ReadFile(filepath.Join("testdata/rlds", name))
	require.NoError(t, err)
	features, err := os.ReadFile("testdata/rlds/features.json")
	require.NoError(t, err)
	open := func(features, records []byte) (dataset.Source, error) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "features.json"), features, 0o600))
		if records != nil {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), records, 0o600))
		}
		return dataset.Open(dir, dataset.Options{Horizon: 2})
	}
	for want, c := range map[string][2][]byte{"there are no steps": {[]byte("{}"), records},
		"features.json": {[]byte("{"), records}, "no files of records": {features, nil},
		"is cut off": {features, records[:len(records)-3]}} {
		_, err := open(c[0], c[1])
		require.ErrorContains(t, err, want)
	}
	damaged := append([]byte(nil), records...)
	damaged[0]++
	_, err = open(features, damaged)
	require.ErrorContains(t, err, "the sum of its length is another")
	damaged[0]--
	damaged[100]++
	s, err := open(features, damaged)
	require.NoError(t, err)
	defer s.Close()
	require.EqualValues(t, 1+3, s.Len()) // a damaged episode is one sample
	_, err = s.Read(0)
	var bad *dataset.BadSample
	require.ErrorAs(t, err, &bad)
	require.Contains(t, bad.Reason, "episode 0, step 0: its sum is another")
	_, err = s.Read(1)
	require.NoError(t, err)
}

// FuzzExample: no bytes crash the reader of examples, or have it take more than they are.
func FuzzExample(f *testing.F) {
	b, err := os.ReadFile("testdata/rlds/toy-train.tfrecord-00001-of-00002")
	require.NoError(f, err)
	n := binary.LittleEndian.Uint64(b)
	f.Add(b[12 : 12+n])
	f.Add([]byte{10, 5, 10, 3, 10, 1, 'a'})
	f.Fuzz(func(t *testing.T, b []byte) {
		features, err := format.ParseExample(b)
		if err != nil {
			return
		}
		total := 0
		for _, v := range features {
			for _, x := range v.Bytes {
				total += len(x)
			}
			total += len(v.Floats) + len(v.Ints)
		}
		require.LessOrEqual(t, total, 2*len(b))
	})
}
