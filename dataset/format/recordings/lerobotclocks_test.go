package recordings

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/media"
)

// clockSet is a set whose clocks bench/golden/lerobot_times.py drew, and what lerobot gives of it.
type clockSet struct {
	Version, Gap                string
	FPS                         float64
	Past, Horizon, Later, Every int
	Lengths                     []int
	Stamps                      [][]float32
	Cameras                     map[string]struct {
		From  []float64
		Files [][]float64 // when the frames of each file are shown
	}
	Items  []int64
	Raises string // why it opens none of it
	Said   []struct {
		Raises        string
		Pictures      map[string][]int
		State, Action [][]float64
		Pad           []int
	}
	decoded map[string]map[int]*media.Image // frames of each file
}

func (s *clockSet) old() bool { return s.Version == "v2.1" }

// TestLeRobotTimes: of sets whose tables and videos have drawn rates, beginnings and gaps, each item has the states,
// actions, padding and frames of its videos that lerobot 0.4.4 and 0.3.3 give. What lerobot raises at is refused here;
// windows over a gap in a table's clock are too, where 0.3.3 refuses the whole set and 0.4.4 looks no more. With
// LFACTOR_LEROBOT_TIMES the sets are those that the script wrote, and frames are decoded.
func TestLeRobotTimes(t *testing.T) {
	t.Parallel()
	counts := map[string]int{}
	if root := os.Getenv("LFACTOR_LEROBOT_TIMES"); root != "" {
		files, err := filepath.Glob(filepath.Join(root, "*", "times.json"))
		require.NoError(t, err)
		for _, file := range files {
			var s clockSet
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(b, &s))
			s.hold(t, filepath.Dir(file), shownThere(), counts)
		}
		t.Log(len(files), "sets as lerobot's script wrote them:", counts)
		return
	}
	var sets []clockSet
	f, err := os.Open("testdata/lerobot_times.json.gz")
	require.NoError(t, err)
	defer f.Close() //nolint:errcheck // it was read only
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	require.NoError(t, json.NewDecoder(z).Decode(&sets))
	for i := range sets {
		dir := filepath.Join(t.TempDir(), fmt.Sprint(i))
		sets[i].write(t, dir)
		sets[i].hold(t, dir, sets[i].shownBy, counts)
	}
	t.Log(len(sets), "sets:", counts)
	require.GreaterOrEqual(t, len(sets), 60)
	require.Greater(t, min(counts["equal"], counts["refused by both"], counts["frames"]), 200)
	require.Greater(t, counts["refused over a gap"], 20)
}

// shownThere are the frames that videos that lie there show, each asked once.
func shownThere() func(*testing.T, string) (media.Times, error) {
	known := map[string]media.Times{}
	return func(t *testing.T, file string) (media.Times, error) {
		t.Helper()
		if times, ok := known[file]; ok {
			return times, nil
		}
		_, times, err := media.FFmpeg{}.Timed(t.Context(), file)
		known[file] = times
		return times, err
	}
}

// shownBy are those that the set says of a file.
func (s *clockSet) shownBy(t *testing.T, file string) (media.Times, error) {
	t.Helper()
	for name, c := range s.Cameras {
		if strings.Contains(file, name+"/") {
			var n int
			_, err := fmt.Sscanf(file[strings.LastIndex(file, "_")+1:], "%06d", &n)
			if !s.old() {
				n, err = 0, nil
			}
			return c.Files[n], err
		}
	}
	return nil, fmt.Errorf("%s is of no camera", file)
}

// hold compares each item with what lerobot says of it.
func (s *clockSet) hold(t *testing.T, dir string, shown func(*testing.T, string) (media.Times, error),
	counts map[string]int) {
	t.Helper()
	set, err := dataset.Open(dir, dataset.Options{Horizon: s.Horizon, Past: s.Past, Later: s.Later, Every: s.Every})
	require.NoError(t, err, dir)
	defer set.Close() //nolint:errcheck // it was read only
	if s.Raises != "" {
		require.NotEqual(t, "none", s.Gap, "%s: %s", dir, s.Raises)
		refused := 0
		for i := range set.Len() {
			if _, err := set.Read(i); err != nil {
				require.ErrorContains(t, err, "apart by their timestamps")
				refused++
			}
		}
		require.True(t, refused > 0 || s.Horizon == 1 && s.Later*s.Every < 1, "%s: %s", dir, s.Raises)
		counts["sets refused whole, of which windows are"]++
		counts["refused over a gap"] += refused
		return
	}
	for k, i := range s.Items {
		at, want := fmt.Sprintf("%s (%s), item %d", dir, s.Gap, i), s.Said[k]
		f, frames, err := s.item(t, set, i, shown)
		switch {
		case want.Raises != "":
			require.Error(t, err, "%s: lerobot raises %s", at, want.Raises)
			counts["refused by both"]++
			continue
		case err != nil:
			require.ErrorContains(t, err, "apart by their timestamps", at)
			require.NotEqual(t, "none", s.Gap, at)
			counts["refused over a gap"]++
			continue
		}
		counts["equal"]++
		require.Equal(t, want.Pictures, frames, at)
		for k, look := range f.looks() {
			require.Equal(t, want.State[k], look.State, at)
		}
		require.Equal(t, want.Action, f.Actions, at)
		require.Equal(t, want.Pad, padded(s.Horizon, f.Lead, f.Pad), at)
		counts["frames"] += len(s.Cameras) * len(f.looks())
	}
}

// looks are those before, at and behind the frame, in order.
func (f *RobotFrame) looks() []RobotLook {
	return append(append(append([]RobotLook{}, f.Before...), f.RobotLook), f.Later...)
}

func padded(n, lead, pad int) []int {
	out := make([]int, n)
	for i := range out {
		if i < lead || i >= n-pad {
			out[i] = 1
		}
	}
	return out
}

// item reads an item and the numbers of its frames: decoded ones by what they show.
func (s *clockSet) item(t *testing.T, set dataset.Source, i int64,
	shown func(*testing.T, string) (media.Times, error)) (f RobotFrame, frames map[string][]int, err error) {
	t.Helper()
	d, err := set.Read(i)
	if err != nil {
		return f, nil, err
	}
	b, _ := d.Part("json")
	require.NoError(t, json.Unmarshal(b, &f))
	frames = map[string][]int{}
	for _, look := range f.looks() {
		require.Len(t, look.Videos, len(s.Cameras))
		for name, v := range look.Videos {
			times, err := shown(t, v.File)
			if err != nil {
				return f, nil, err
			}
			at, err := At(v.File, times, []float64{v.Seconds})
			if err != nil {
				return f, nil, err
			}
			if _, there := os.Stat(v.File); there == nil {
				at[0] = s.pictured(t, v.File, at[0])
			}
			frames[name] = append(frames[name], at[0])
		}
	}
	return f, frames, nil
}

// pictured is the number that a decoded frame shows: its left half has the low four bits, the right one the rest.
func (s *clockSet) pictured(t *testing.T, file string, n int) int {
	t.Helper()
	if s.decoded[file] == nil {
		if s.decoded == nil {
			s.decoded = map[string]map[int]*media.Image{}
		}
		s.decoded[file] = allFrames(t, file)
	}
	pix := s.decoded[file][n].Pix
	grey := func(x int) int { return int(math.Round((float64(pix[3*(16*32+x)]) - 24) / 13)) }
	return grey(8) + 16*grey(24)
}

// write makes the set's folder without its videos.
func (s *clockSet) write(t *testing.T, dir string) {
	t.Helper()
	features, rows, first := `"action":{"dtype":"float32"}`, [][]clockRow{nil}, 0
	for name := range s.Cameras {
		features += fmt.Sprintf(`,%q:{"dtype":"video"}`, name)
	}
	data, video := "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
		"videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
	if s.old() {
		data, video = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
			"videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
		rows = make([][]clockRow, len(s.Lengths))
	}
	for _, d := range []string{"meta/episodes/chunk-000", "data/chunk-000"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, d), 0o700))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "meta/info.json"), fmt.Appendf(nil,
		`{"codebase_version":%q,"fps":%g,"data_path":%q,"video_path":%q,"features":{%s}}`, s.Version, s.FPS, data, video,
		features), 0o600))
	var episodes []map[string]any
	lines := ""
	for e, stamps := range s.Stamps {
		file := min(e, len(rows)-1)
		for k, at := range stamps {
			rows[file] = append(rows[file], clockRow{State: []float32{float32(e), float32(k) + 0.25},
				Action: []float32{float32(100*e + k), 0.5}, Timestamp: at, Frame: int64(k), Episode: int64(e),
				Index: int64(first + k)})
		}
		row := map[string]any{"episode_index": e, "length": len(stamps), "data/chunk_index": 0, "data/file_index": 0,
			"dataset_from_index": first}
		for name, c := range s.Cameras {
			for key, v := range map[string]float64{"chunk_index": 0, "file_index": 0, "from_timestamp": c.From[e],
				"to_timestamp": c.From[e] + 1} {
				row["videos/"+name+"/"+key] = v
			}
		}
		episodes, first = append(episodes, row), first+len(stamps)
		lines += fmt.Sprintf(`{"episode_index":%d,"tasks":["wipe"],"length":%d}`+"\n", e, len(stamps))
	}
	for k, r := range rows {
		name := fmt.Sprintf("data/chunk-000/file-%03d.parquet", k)
		if s.old() {
			name = fmt.Sprintf("data/chunk-000/episode_%06d.parquet", k)
		}
		require.NoError(t, parquet.WriteFile(filepath.Join(dir, name), r))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "meta/episodes.jsonl"), []byte(lines), 0o600))
	if !s.old() {
		writeEpisodes(t, filepath.Join(dir, "meta/episodes/chunk-000/file-000.parquet"), episodes)
	}
}

// clockRow is a row of a table.
type clockRow struct {
	State     []float32 `parquet:"observation.state,list"`
	Action    []float32 `parquet:"action,list"`
	Timestamp float32   `parquet:"timestamp"`
	Frame     int64     `parquet:"frame_index"`
	Episode   int64     `parquet:"episode_index"`
	Index     int64     `parquet:"index"`
}

// writeEpisodes writes rows of numbers whose columns are those of the first.
func writeEpisodes(t *testing.T, file string, rows []map[string]any) {
	t.Helper()
	group := parquet.Group{}
	for key, v := range rows[0] {
		if group[key] = parquet.Int(64); fmt.Sprintf("%T", v) == "float64" {
			group[key] = parquet.Leaf(parquet.DoubleType)
		}
	}
	for _, row := range rows {
		for key, v := range row {
			if n, ok := v.(int); ok {
				row[key] = int64(n)
			}
		}
	}
	f, err := os.Create(file)
	require.NoError(t, err)
	w := parquet.NewGenericWriter[map[string]any](f, parquet.NewSchema("episodes", group))
	_, err = w.Write(rows)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, f.Close())
}

// TestLaterGap: what is seen several steps behind a frame is refused where the table's clock has a gap between them,
// though no row of the gap is read.
func TestLaterGap(t *testing.T) {
	t.Parallel()
	s := clockSet{Version: "v3.0", FPS: 10, Lengths: []int{8}, Stamps: [][]float32{{0, .1, .2, .3, .6, .7, .8, .9}}}
	dir := t.TempDir()
	s.write(t, dir)
	set, err := dataset.Open(dir, dataset.Options{Horizon: 1, Later: 1, Every: 3})
	require.NoError(t, err)
	defer set.Close() //nolint:errcheck // it was read only
	for i := range int64(8) {
		_, err := set.Read(i)
		if i < 1 || i > 3 {
			require.NoError(t, err, "%d", i)
			continue
		}
		require.ErrorContains(t, err, fmt.Sprintf("frames %d and %d are 0.5 s apart by their timestamps", i, i+3))
	}
}
