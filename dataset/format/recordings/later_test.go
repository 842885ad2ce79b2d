package recordings

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
)

// TestLaterFrames: frames that come later are read with a frame, every second step, with their pictures;
// the last one of an episode stands for those behind it, which are counted. The task stays that of the present step.
func TestLaterFrames(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, WriteRobot(dir, RobotTop(10, 1), recorded()))
	plain, err := dataset.Open(dir, dataset.Options{Horizon: 2})
	require.NoError(t, err)
	defer plain.Close()
	s, err := dataset.Open(dir, dataset.Options{Horizon: 2, Later: 2, Every: 2})
	require.NoError(t, err)
	defer s.Close()
	require.NotEqual(t, plain.Fingerprint(), s.Fingerprint())
	at := int64(0)
	for _, e := range recorded() {
		for k := range e.Frames {
			f, pad := frame(t, s, at), 0
			require.Len(t, f.Later, 2)
			for i, l := range f.Later {
				n := k + 2*(i+1)
				if n >= len(e.Frames) {
					pad, n = pad+1, len(e.Frames)-1
				}
				require.Equal(t, e.Frames[n].Images[0], l.Images["observation.images.top"])
			}
			require.Equal(t, pad, f.LaterPad)
			require.Equal(t, e.Task, f.Task)
			at++
		}
	}
}

// TestLaterPictures: other recordings come with the pictures of later frames too, which are those of
// the frames themselves.
func TestLaterPictures(t *testing.T) {
	for path, keys := range map[string]dataset.RobotKeys{hdf5Dir + "robomimic.hdf5": {},
		mcapDir + "zstd.mcap": mcapKeys} {
		plain, err := OpenRobots(path, dataset.Options{Horizon: 2, Robot: keys})
		require.NoError(t, err)
		defer plain.Close()
		s, err := OpenRobots(path, dataset.Options{Horizon: 2, Later: 1, Every: 2, Robot: keys})
		require.NoError(t, err)
		defer s.Close()
		require.NotEqual(t, plain.Fingerprint(), s.Fingerprint(), path)
		seen := 0
		for i := range s.Len() - 2 {
			f, then := frame(t, s, i), frame(t, plain, i+2)
			if f.Episode == then.Episode {
				require.Equal(t, then.Images, f.Later[0].Images, path)
				require.Zero(t, f.LaterPad)
				seen++
			}
		}
		require.NotZero(t, seen, path)
		last := frame(t, s, s.Len()-1)
		require.Equal(t, 1, last.LaterPad)
		require.Equal(t, last.Images, last.Later[0].Images)
	}
}
