package recordings

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/media"
)

const mcapDir = "testdata/mcap/"

// mcapKeys are those of the bags of bench/golden/bags.py.
var mcapKeys = dataset.RobotKeys{Action: "arm.command", State: "joint_states+tf.hand+gripper"}

// mcapFrame is what the Python packages read of a frame.
type mcapFrame struct {
	Action, State []float64
	Task, File    string
	Pixels        []int
}

func mcapGolden(t *testing.T) (out map[string]map[string][]mcapFrame) {
	t.Helper()
	b, err := os.ReadFile(mcapDir + "golden.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &out))
	return out
}

// TestMCAP: bags that the Python packages wrote, in chunks of all compressions and with messages out of
// order, are frames at equal distances with what each topic said last, which is what the packages read.
func TestMCAP(t *testing.T) {
	for name, rates := range mcapGolden(t) {
		for rate, want := range rates {
			keys := mcapKeys
			keys.FPS = map[string]float64{"10": 0, "17": 17}[rate] // 10 is what it is where nothing is said
			s, err := OpenRobots(mcapDir+name+".mcap", dataset.Options{Horizon: 3, Past: 1, Robot: keys})
			require.NoError(t, err)
			require.EqualValues(t, len(want), s.Len())
			require.Equal(t, []string{"observation.images.camera.top.image_raw",
				"observation.images.wrist.compressed"},
				s.Cameras())
			for k, w := range want {
				f := frame(t, s, int64(k))
				require.Equal(t, w.State, f.State)
				require.Equal(t, want[max(0, k-1)].State, f.Before[0].State)
				require.Equal(t, w.Task, f.Task)
				for n, a := range f.Actions {
					require.Equal(t, want[min(max(0, k-1+n), len(want)-1)].Action, a)
				}
				p, err := media.Decode(f.Images["observation.images.camera.top.image_raw"], media.Options{})
				require.NoError(t, err)
				require.Equal(t, [2]int{5, 4}, [2]int{p.W, p.H})
				for i, v := range w.Pixels {
					require.Equal(t, byte(v), p.Pix[i])
				}
				sum := sha256.Sum256(f.Images["observation.images.wrist.compressed"])
				require.Equal(t, w.File, hex.EncodeToString(sum[:]))
			}
			stats, err := s.Stats()
			require.NoError(t, err)
			require.Len(t, stats["joint_states+tf.hand+gripper"].Mean, 10)
			require.NoError(t, s.Close())
		}
	}
}

// TestMCAPSets: a folder of bags is a data set whose damaged files are set aside, each by itself, and a
// topic or a field that is not there is named with those that are.
func TestMCAPSets(t *testing.T) {
	dir := t.TempDir()
	whole, err := os.ReadFile(mcapDir + "zstd.mcap")
	require.NoError(t, err)
	broken := append([]byte(nil), whole...)
	broken[len(broken)/2] ^= 0xff
	for name, b := range map[string][]byte{"a.mcap": whole, "b.mcap": whole[:len(whole)/2], "c.mcap": broken,
		"d.mcap": []byte("no bag"), "e_red_disc.mcap": whole} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o644))
	}
	s, err := dataset.Open(dir, dataset.Options{Horizon: 2, Robot: mcapKeys})
	require.NoError(t, err)
	defer s.Close()
	require.EqualValues(t, 14+3+14, s.Len())
	require.Equal(t, frame(t, s, 0).State, frame(t, s, 17).State)
	for k, want := range []string{"b.mcap), step 0: the record at byte",
		"c.mcap), step 0: the record at byte",
		"d.mcap), step 0: it is too short"} {
		_, err := s.Read(int64(14 + k))
		var bad *dataset.BadSample
		require.ErrorAs(t, err, &bad)
		require.Contains(t, bad.Reason, want)
	}
	field := mcapKeys
	field.State = "joint_states.velocity+mixed.f.y"
	one, err := OpenRobots(mcapDir+"none.mcap", dataset.Options{Horizon: 1, Robot: field})
	require.NoError(t, err)
	defer one.Close()
	state := frame(t, one, 3).State
	require.Equal(t, []float64{0.25, -8, 3, 4}, state[2:])
	require.NotEqual(t, s.Fingerprint(), one.Fingerprint())
	field.State = "arm"
	other, err := OpenRobots(mcapDir+"none.mcap", dataset.Options{Horizon: 1, Robot: field})
	require.NoError(t, err)
	defer other.Close()
	_, err = other.Read(0)
	require.ErrorContains(t, err, `it has no topic of numbers "arm"; there are arm.command`)
	require.ErrorContains(t, err, "name one by policy.action_key and policy.state_key")
}

// FuzzMCAP: whatever a file holds, it is read or set aside.
func FuzzMCAP(f *testing.F) {
	for _, name := range []string{"zstd", "lz4", "none"} {
		b, err := os.ReadFile(mcapDir + name + ".mcap")
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "a.mcap")
		require.NoError(t, os.WriteFile(path, b, 0o644))
		s, err := OpenRobots(path, dataset.Options{Horizon: 2, Robot: mcapKeys})
		require.NoError(t, err)
		defer s.Close()
		for i := range min(3, s.Len()) {
			_, _ = s.Read(i) // it may be bad
		}
	})
}

// TestConvertRobots: bags become a data set of LeRobot with the same states, actions, tasks and pixels,
// without the ones that are damaged; what is there already stays.
func TestConvertRobots(t *testing.T) {
	dir := t.TempDir()
	whole, err := os.ReadFile(mcapDir + "zstd.mcap")
	require.NoError(t, err)
	bags, to := filepath.Join(dir, "bags"), filepath.Join(dir, "made")
	require.NoError(t, os.Mkdir(bags, 0o755))
	for name, b := range map[string][]byte{"a.mcap": whole[:300], "b.mcap": whole, "c.mcap": whole[:9000],
		"d.mcap": whole} {
		require.NoError(t, os.WriteFile(filepath.Join(bags, name), b, 0o644))
	}
	r, err := ConvertRobots(t.Context(), bags, to, mcapKeys, 10)
	require.NoError(t, err)
	require.Equal(t, [2]int64{2, 28}, [2]int64{r.Episodes, r.Frames})
	require.Len(t, r.Aside, 2)
	require.Contains(t, r.Aside[1], "c.mcap")
	from, err := OpenRobots(mcapDir+"zstd.mcap", dataset.Options{Horizon: 2, Robot: mcapKeys})
	require.NoError(t, err)
	defer from.Close()
	made, err := OpenRobots(to, dataset.Options{Horizon: 2})
	require.NoError(t, err)
	defer made.Close()
	source, err := dataset.Open(to, dataset.Options{Horizon: 2})
	require.NoError(t, err)
	defer source.Close()
	require.EqualValues(t, 28, source.Len())
	for i := range source.Len() {
		want, got := frame(t, from, i%14), frame(t, source, i)
		require.InDeltaSlice(t, want.State, got.State, 1e-6)
		require.InDeltaSlice(t, want.Actions[1], got.Actions[1], 1e-6)
		require.Equal(t, [3]any{want.Task, want.Frame, want.Pad}, [3]any{got.Task, got.Frame, got.Pad})
		for name, b := range want.Images {
			p, err := media.Decode(b, media.Options{})
			require.NoError(t, err)
			q, err := media.Decode(got.Images[name], media.Options{})
			require.NoError(t, err)
			require.Equal(t, p.Pix, q.Pix)
		}
	}
	_, err = ConvertRobots(t.Context(), bags, to, mcapKeys, 10)
	require.ErrorContains(t, err, "is there already")
	_, err = ConvertRobots(t.Context(), to, filepath.Join(dir, "other"), mcapKeys, 10)
	require.ErrorContains(t, err, "is a data set of LeRobot already")
	_, err = ConvertRobots(t.Context(), filepath.Join(bags, "a.mcap"), filepath.Join(dir, "other"), mcapKeys,
		10)
	require.ErrorIs(t, err, dataset.ErrNoTokens)
	require.NoDirExists(t, filepath.Join(dir, "other"))
	require.NoDirExists(t, filepath.Join(dir, "other.part"))
}
