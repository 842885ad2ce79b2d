package recordings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format/formattest"
	"github.com/lfactor/lfactor/dataset/media"
)

// framesOf makes the rows of an episode.
func framesOf(episode, n, first int) (out []lerobotFrame) {
	for k := range n {
		out = append(out, lerobotFrame{Action: []float64{float64(episode) + .5, -float64(k) - .25},
			Timestamp: float64(k) / 8, Frame: int64(k), Episode: int64(episode), Index: int64(first + k)})
	}
	return out
}

// EpisodeOf is what an episode without videos reads as.
func episodeOf(i int) dataset.Document {
	e := lerobotEpisode{Index: int64(i), Length: int64(2 + i%5), FPS: 10,
		Tasks: []string{fmt.Sprintf("pick up %d", i)}, Videos: map[string]LeRobotVideo{}}
	for _, f := range framesOf(i, 2+i%5, 100*i) {
		b, _ := json.Marshal(f)
		e.Frames = append(e.Frames, bytes.ReplaceAll(b, []byte(`"timestamp":0,`), []byte(`"timestamp":0.0,`)))
	}
	b, _ := json.Marshal(e)
	return dataset.Document{Key: fmt.Sprintf("episode_%06d", i),
		Parts: []dataset.Part{{Name: "json", Bytes: b}}}
}

// lerobot3 is a row of the episodes of version 3.
type lerobot3 struct {
	Index     int64    `parquet:"episode_index"`
	Tasks     []string `parquet:"tasks,list"`
	Length    int64    `parquet:"length"`
	DataChunk int64    `parquet:"data/chunk_index"`
	DataFile  int64    `parquet:"data/file_index"`
	From      int64    `parquet:"dataset_from_index"`
	VChunk    int64    `parquet:"videos/observation.images.top/chunk_index"`
	VFile     int64    `parquet:"videos/observation.images.top/file_index"`
	VFrom     float64  `parquet:"videos/observation.images.top/from_timestamp"`
	VTo       float64  `parquet:"videos/observation.images.top/to_timestamp"`
}

// writeLeRobot3 writes five episodes of four frames in two tables, and one video of them all.
func writeLeRobot3(t *testing.T, dir string) {
	for _, d := range []string{"meta/episodes/chunk-000", "data/chunk-000",
		"videos/observation.images.top/chunk-000"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, d), 0o700))
	}
	info := `{"codebase_version":"v3.0","fps":8,"data_path":"data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
		"video_path":"videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4","features":{"observation.images.top":{"dtype":"video"},"action":{"dtype":"float32"}}}`
	require.NoError(t, os.WriteFile(filepath.Join(dir, "meta/info.json"), []byte(info), 0o600))
	var episodes []lerobot3
	tables := make([][]lerobotFrame, 2)
	for i := range 5 {
		episodes = append(episodes, lerobot3{Index: int64(i), Tasks: []string{"stack"}, Length: 4,
			DataFile: int64(i / 3), From: int64(4 * i), VFrom: float64(i) / 2, VTo: float64(i+1) / 2})
		tables[i/3] = append(tables[i/3], framesOf(i, 4, 4*i)...)
	}
	require.NoError(t, parquet.WriteFile(filepath.Join(dir, "meta/episodes/chunk-000/file-000.parquet"),
		episodes))
	for k, rows := range tables {
		require.NoError(t, parquet.WriteFile(filepath.Join(dir,
			fmt.Sprintf("data/chunk-000/file-%03d.parquet", k)), rows))
	}
}

// Episodes of version 3 are found in the files that hold several, with where their videos lie.
func TestLeRobot3(t *testing.T) {
	dir := t.TempDir()
	writeLeRobot3(t, dir)
	s := formattest.Open(t, dir, dataset.Options{})
	require.EqualValues(t, 5, s.Len())
	for i := range s.Len() {
		d, err := s.Read(i)
		require.NoError(t, err)
		b, _ := d.Part("json")
		var e lerobotEpisode
		require.NoError(t, json.Unmarshal(b, &e))
		require.Len(t, e.Frames, 4)
		var f lerobotFrame
		require.NoError(t, json.Unmarshal(e.Frames[2], &f))
		require.Equal(t, framesOf(int(i), 4, 4*int(i))[2], f)
		require.Equal(t, LeRobotVideo{"videos/observation.images.top/chunk-000/file-000.mp4", float64(i) / 2,
			float64(i+1) / 2}, e.Videos["observation.images.top"])
	}
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Log("no ffmpeg: frames are not decoded")
		return
	}
	video := filepath.Join(dir, "videos/observation.images.top/chunk-000/file-000.mp4")
	out, err := exec.Command("ffmpeg", "-v", "error", "-f", "lavfi", "-i",
		"color=black:s=32x32:r=8:d=2.5,geq=lum='10*N':cb=128:cr=128", "-pix_fmt", "yuv420p", "-c:v", "mpeg4",
		"-q:v", "1", video).CombinedOutput()
	require.NoError(t, err, string(out))
	// frame n of the file has the brightness 10·n, from 16 to 235 stretched to 0 to 255
	each := formattest.Open(t, dir, dataset.Options{Horizon: 1, Robot: dataset.RobotKeys{State: "action"}})
	for _, n := range []int64{12, 14} {
		v := frame(t, each, n).Videos["observation.images.top"]
		got, err := FramesAt(t.Context(), media.FFmpeg{}, v.File, []float64{v.Seconds})
		require.NoError(t, err)
		require.InDelta(t, (10*float64(n)-16)*255/219, float64(got[0].Pix[3*(16*32+16)]), 4)
	}
}

// Data sets that are broken are refused or give bad episodes, and no path leads out.
func TestLeRobotBad(t *testing.T) {
	for info, want := range map[string]string{
		`{"codebase_version":"v1.6","fps":1}`:                                          "v2 and v3 are read",
		`{"codebase_version":"v2.0","fps":1,"data_path":"../{episode_index}.parquet"}`: "leads out of the data set",
		`{"codebase_version":"v2.0","fps":1,"data_path":"{secret}"}`:                   "not known",
		`{"codebase_version":"v2.0","fps":0,"data_path":"x"}`:                          "frames a second",
		`{"codebase_version":"v3.0","fps":1,"data_path":"x"}`:                          "no tables",
		`{`: "meta/info.json",
	} {
		dir := t.TempDir()
		require.NoError(t, os.Mkdir(dir+"/meta", 0o700))
		require.NoError(t, os.WriteFile(dir+"/meta/info.json", []byte(info), 0o600))
		require.NoError(t, os.WriteFile(dir+"/meta/episodes.jsonl",
			[]byte(`{"episode_index":0,"length":3}`), 0o600))
		_, err := dataset.Open(dir, dataset.Options{})
		require.ErrorContains(t, err, want, info)
	}
	dir := t.TempDir()
	writeLeRobot3(t, dir)
	require.NoError(t, os.Remove(dir+"/data/chunk-000/file-001.parquet"))
	s := formattest.Open(t, dir, dataset.Options{})
	_, err := s.Read(0)
	require.NoError(t, err)
	_, err = s.Read(4)
	var bad *dataset.BadSample
	require.ErrorAs(t, err, &bad)
	require.Contains(t, bad.Reason, "episode 4: its table is missing")
}

// TestRoundTripClaims holds LeRobot to formattest.RoundTrip, and FuzzPaths its patterns of paths to what lies
// below a folder.
func TestRoundTripClaims(t *testing.T) {
	n := 0
	for _, f := range dataset.Formats() {
		if f.Kind == dataset.KindEpisodes {
			var docs []dataset.Document
			for i := range 23 {
				docs = append(docs, episodeOf(i))
			}
			formattest.RoundTrip(t, f, docs)
			n++
		}
	}
	require.NotZero(t, n)
}

func FuzzPaths(f *testing.F) {
	for _, pattern := range []string{"data/{episode_index:06d}", "{x", "../{episode_index}"} {
		f.Add(pattern)
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		if p, err := (&LeRobot{}).fill(pattern, map[string]any{"episode_index": int64(7)}); err == nil {
			require.True(t, filepath.IsLocal(p))
		}
	})
}

// TestDiskAlone: a URL of recordings, which are read from disk alone, is refused by that reason.
func TestDiskAlone(t *testing.T) {
	t.Setenv("LFACTOR_CACHE", t.TempDir())
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader("a text"))
	}))
	defer s.Close()
	_, err := dataset.Open(strings.Replace(s.URL, "http://", "http://me:secret@", 1)+"/a", dataset.Options{Format: "lerobot"})
	require.ErrorContains(t, err, "is read from disk alone, not from "+s.URL+"/a")
	require.NotContains(t, err.Error(), "secret")
}
