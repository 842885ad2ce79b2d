package recordings

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/mcap"
	"github.com/lfactor/lfactor/topology/machine"
)

// depthDefinition is that of sensor_msgs/Image without its header, and depthMessage one of a pixel of 16 bits.
const depthDefinition = "uint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\nuint32 step\nuint8[] data\n"

var depthMessage = []byte("\x00\x01\x00\x00" + "\x01\x00\x00\x00" + "\x01\x00\x00\x00" + "\x06\x00\x00\x0016UC1\x00" +
	"\x00\x00" + "\x02\x00\x00\x00" + "\x02\x00\x00\x00\x07\x07")

// withTopic puts a topic with a message before those that a file of MCAP has.
func withTopic(b []byte, id uint16, topic, kind, how, encoding, text string, message []byte) []byte {
	out := append([]byte(nil), b[:8]...)
	record := func(op byte, parts ...any) {
		var body []byte
		for _, p := range parts {
			switch v := p.(type) {
			case uint16:
				body = binary.LittleEndian.AppendUint16(body, v)
			case string:
				body = append(binary.LittleEndian.AppendUint32(body, uint32(len(v))), v...)
			case []byte:
				body = append(body, v...)
			}
		}
		out = append(out, op)
		out = append(binary.LittleEndian.AppendUint64(out, uint64(len(body))), body...)
	}
	record(3, id, kind, how, text)
	record(4, id, id, topic, encoding, "")
	record(5, id, make([]byte, 20), message) // at time 0
	return append(out, b[8:]...)
}

// bagOf writes a bag with a depth camera and one in protobuf to a folder.
func bagOf(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(mcapDir + "zstd.mcap")
	require.NoError(t, err)
	b = withTopic(b, 900, "/depth/image", "sensor_msgs/msg/Image", "ros2msg", "cdr", depthDefinition,
		depthMessage)
	b = withTopic(b, 901, "/cam", "foxglove.CompressedImage", "protobuf", "protobuf", "x", []byte("y"))
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, b, 0o644))
	return path
}

// TestMCAPCameras: of topics of pictures those that are named are read; where none are, one that cannot be
// decoded is left out, and said, as are topics of other encodings.
func TestMCAPCameras(t *testing.T) {
	dir := t.TempDir()
	bagOf(t, dir, "a.mcap")
	bagOf(t, dir, "b.mcap")
	keys := mcapKeys
	open := func() Robots {
		s, err := OpenRobots(dir, dataset.Options{Horizon: 1, Robot: keys})
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	const top, wrist = "observation.images.camera.top.image_raw", "observation.images.wrist.compressed"
	all := open()
	require.Equal(t, []string{top, wrist}, all.Cameras())
	require.Len(t, frame(t, all, 3).Images, 2)
	require.Equal(t, []string{`topic /depth/image of sensor_msgs/msg/Image: pixels in "16UC1", and rgb8, bgr8, rgba8, ` +
		`bgra8 and mono8 are read (in 2 files)`, `topic /cam of foxglove.CompressedImage: its messages are in "protobuf" ` +
		`by "protobuf", and cdr by ros2msg is read (in 2 files)`}, all.Left())
	keys.Cameras = []string{wrist}
	one := open()
	require.Equal(t, keys.Cameras, one.Cameras())
	require.Len(t, frame(t, one, 3).Images, 1)
	require.Len(t, one.Left(), 1)
	require.NotEqual(t, all.Fingerprint(), one.Fingerprint())
	keys.Cameras = []string{"observation.images.depth.image"}
	_, err := open().Read(0)
	require.ErrorContains(t, err, `observation.images.depth.image: pixels in "16UC1"`)
	keys = mcapKeys
	keys.State = "cam"
	_, err = open().Read(0)
	require.ErrorContains(t, err, "not read: topic /depth/image of")
}

// TestMCAPNames: two topics that give one column name are an error where it is named, and no choice between them.
func TestMCAPNames(t *testing.T) {
	w := mcap.NewWriter()
	for time := range int64(3) {
		for _, topic := range []string{"/a.b", "/a/b", "/c"} {
			w.Floats(topic, time, []float64{float64(time)})
		}
	}
	path := filepath.Join(t.TempDir(), "a.mcap")
	require.NoError(t, os.WriteFile(path, w.Close(), 0o644))
	for action, want := range map[string]string{"c": "",
		"a.b": "a.b is the name of columns of two topics, /a.b of " +
			"std_msgs/msg/Float64MultiArray and /a/b of std_msgs/msg/Float64MultiArray"} {
		s, err := OpenRobots(path, dataset.Options{Horizon: 1, Robot: dataset.RobotKeys{Action: action,
			State: "c"}})
		require.NoError(t, err)
		defer s.Close()
		if _, err = s.Read(0); want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
}

// TestRecordingLinks: links to files in a folder are files of its data set, and one that leads nowhere is
// none; what recordings of frames are does not change with the rate of messages.
func TestRecordingLinks(t *testing.T) {
	dir := t.TempDir()
	from, err := filepath.Abs("../../hdf5/testdata/robomimic.hdf5")
	require.NoError(t, err)
	require.NoError(t, os.Symlink(from, filepath.Join(dir, "a.hdf5")))
	require.NoError(t, os.Symlink(filepath.Join(dir, "none"), filepath.Join(dir, "b.hdf5")))
	var prints []string
	for _, fps := range []float64{0, 17} {
		s, err := dataset.Open(dir, dataset.Options{Horizon: 1, Robot: dataset.RobotKeys{Action: "action",
			State: "observation.arm", FPS: fps}})
		require.NoError(t, err)
		defer s.Close()
		require.Positive(t, s.Len())
		prints = append(prints, s.Fingerprint())
	}
	require.Equal(t, prints[0], prints[1])
}

// TestConvertRobotsFolder: a slash at the end of a folder's name means nothing, what lies beside it stays,
// another process that writes it is waited for, and cameras are those that are named.
func TestConvertRobotsFolder(t *testing.T) {
	dir := t.TempDir()
	bag, to := bagOf(t, dir, "a.mcap"), filepath.Join(dir, "made")
	mine := filepath.Join(to+".part", "mine")
	require.NoError(t, os.MkdirAll(mine, 0o755))
	keys := mcapKeys
	keys.Cameras = []string{"observation.images.wrist.compressed"}
	release, err := machine.HoldFolder(to)
	require.NoError(t, err)
	_, err = ConvertRobots(t.Context(), bag, to, keys, 10)
	require.ErrorContains(t, err, "is being written by another process")
	release()
	r, err := ConvertRobots(t.Context(), bag, to+"/", keys, 10)
	require.NoError(t, err)
	require.Equal(t, to, r.Folder)
	require.Equal(t, keys.Cameras, r.Cameras)
	require.Len(t, r.Left, 1)
	require.FileExists(t, filepath.Join(to, "meta", "info.json"))
	require.DirExists(t, mine)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 3) // the bag, the data set and what is another's
	keys.Cameras = []string{"observation.images.none"}
	_, err = ConvertRobots(t.Context(), bag, filepath.Join(dir, "other"), keys, 10)
	require.ErrorContains(t, err, `it has no camera "observation.images.none"`)
}
