package recordings

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/media"
)

// hdf5Golden is what h5py reads of the files of bench/golden/hdf5.py.
type hdf5Golden map[string]struct {
	Data map[string]struct {
		Shape  []int
		Values []float64
	}
}

const hdf5Dir = "../../hdf5/testdata/"

// at is row k of a data set of a file.
func (g hdf5Golden) at(file, path string, k int) []float64 {
	d := g[file].Data[path]
	w := len(d.Values) / d.Shape[0]
	return d.Values[k*w : (k+1)*w]
}

// TestHDF5: steps of robomimic's, LIBERO's and ALOHA's layouts come with their pictures, states, tasks and the actions
// that follow, of files that h5py wrote.
func TestHDF5(t *testing.T) {
	b, err := os.ReadFile(hdf5Dir + "golden.json")
	require.NoError(t, err)
	var g hdf5Golden
	require.NoError(t, json.Unmarshal(b, &g))
	for _, v := range []struct {
		file, task, camera, action, picture string
		states, steps                       []string
		lengths                             []int
	}{
		{"robomimic", "robomimic", "observation.images.agentview_image", "/actions", "/obs/agentview_image",
			[]string{"/obs/robot0_eef_pos", "/obs/robot0_eef_quat", "/obs/robot0_gripper_qpos"},
			[]string{"data/demo_0", "data/demo_1", "data/demo_2"}, []int{4, 1, 3}},
		{"put_the_bowl_demo", "put the bowl on the plate", "observation.images.eye_in_hand_rgb", "/actions",
			"/obs/eye_in_hand_rgb", []string{"/obs/ee_pos", "/obs/ee_ori", "/obs/gripper_states"},
			[]string{"data/demo_0", "data/demo_1"}, []int{3, 2}},
		{"episode_0", "episode 0", "observation.images.cam_high", "action", "observations/images/cam_high",
			[]string{"observations/qpos"}, []string{""}, []int{5}}} {
		s, err := OpenRobots(hdf5Dir+v.file+".hdf5", dataset.Options{Horizon: 4, Past: 1})
		require.NoError(t, err)
		require.Contains(t, s.Cameras(), v.camera)
		at := int64(0)
		for i, name := range v.steps {
			for k := range v.lengths[i] {
				f := frame(t, s, at)
				require.Equal(t, [2]int64{int64(i), int64(k)}, [2]int64{f.Episode, f.Frame})
				require.Equal(t, v.task, f.Task)
				for n, before := range []int{k, max(0, k-1)} {
					var state []float64
					for _, path := range v.states {
						state = append(state, g.at(v.file, name+path, before)...)
					}
					require.Equal(t, state, [][]float64{f.State, f.Before[0].State}[n])
				}
				for n, a := range f.Actions {
					require.Equal(t, g.at(v.file, name+v.action, min(max(0, k-1+n), v.lengths[i]-1)), a)
				}
				require.Equal(t, [2]int{max(0, k+3-v.lengths[i]), max(0, 1-k)}, [2]int{f.Pad, f.Lead})
				picture, err := media.Decode(f.Images[v.camera], media.Options{})
				require.NoError(t, err)
				shape := g[v.file].Data[name+v.picture].Shape
				require.Equal(t, shape[1:3], []int{picture.H, picture.W})
				for p, want := range g.at(v.file, name+v.picture, k) {
					require.Equal(t, byte(want), picture.Pix[p])
				}
				at++
			}
		}
		require.Equal(t, at, s.Len())
		require.NoError(t, s.Close())
	}
}

// TestHDF5Sets: a folder of files is a data set, of which columns can be chosen; a column that is missing sets its
// episode aside, and a folder without recordings is refused.
func TestHDF5Sets(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"episode_0.hdf5", "episode_1.hdf5"} {
		b, err := os.ReadFile(hdf5Dir + name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o644))
	}
	s, err := dataset.Open(dir, dataset.Options{Horizon: 2, Robot: dataset.RobotKeys{
		State: "observation.qpos+observation.qvel"}})
	require.NoError(t, err)
	defer s.Close()
	require.EqualValues(t, 10, s.Len())
	require.Len(t, frame(t, s, 7).State, 8)
	stats, err := s.(*HDF5).Stats()
	require.NoError(t, err)
	require.Len(t, stats["observation.qpos+observation.qvel"].Mean, 8)
	other, err := dataset.Open(dir, dataset.Options{Horizon: 2,
		Robot: dataset.RobotKeys{State: "observation.arm"}})
	require.NoError(t, err)
	defer other.Close()
	require.NotEqual(t, s.Fingerprint(), other.Fingerprint())
	_, err = other.Read(0)
	var bad *dataset.BadSample
	require.ErrorAs(t, err, &bad)
	require.Contains(t, bad.Reason,
		"it has no observation.arm; there are action, observation.images.cam_high")
	_, err = OpenRobots(hdf5Dir+"whole.hdf5", dataset.Options{Horizon: 2})
	require.ErrorContains(t, err, "no recordings")
}
