package recordings

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
)

// LeRobot's data sets, versions 2.0, 2.1 and 3.0: tables of frames in Parquet, and videos beside them. A document is an
// episode: one part "json" with its length, rate, tasks, where its videos lie, and the rows of its frames. Paths come
// from meta/info.json. Source: huggingface/lerobot, "LeRobotDataset v3.0". In the words of the field: embodiment.
var _ = dataset.Register(dataset.Format{
	Name: "lerobot",
	Doc:  "LeRobot data sets of versions 2 and 3: a folder with meta/info.json",
	Kind: dataset.KindEpisodes,
	Match: func(path string, _ []byte) bool {
		info, err := os.Stat(filepath.Join(path, "meta", "info.json"))
		return err == nil && info.Mode().IsRegular()
	},
	Open: func(path string, o dataset.Options) (dataset.Source, error) {
		l, err := OpenLeRobot(path, o)
		if err != nil || o.Horizon == 0 {
			return l, err
		}
		return newRobotFrames(l), nil
	},
	Write: writeLeRobot,
})

// lerobotInfo is meta/info.json.
type lerobotInfo struct {
	Version  string  `json:"codebase_version"`
	FPS      float64 `json:"fps"`
	Chunk    int64   `json:"chunks_size"`
	Data     string  `json:"data_path"`
	Video    string  `json:"video_path"`
	Features map[string]struct {
		Type  string          `json:"dtype"`
		Shape json.RawMessage `json:"shape"`
		Names json.RawMessage `json:"names"`
	} `json:"features"`
}

// LeRobotVideo is where the frames of one camera of an episode lie.
type LeRobotVideo struct {
	File string  `json:"file"` // relative to the data set
	From float64 `json:"from"` // seconds into the file
	To   float64 `json:"to"`
}

// lerobotEpisode is an episode's place.
type lerobotEpisode struct {
	Index  int64                   `json:"episode_index"`
	Length int64                   `json:"length"`
	FPS    float64                 `json:"fps"`
	Tasks  []string                `json:"tasks"`
	Videos map[string]LeRobotVideo `json:"videos"`
	Frames []json.RawMessage       `json:"frames"`

	file string // with the rows, relative
	row  int64  // of the first
}

// LeRobot is an open data set.
type LeRobot struct {
	dir      string
	o        dataset.Options
	info     lerobotInfo
	episodes []lerobotEpisode
	tables   *tables
	tasks    []string // by task_index; nil where episodes alone say
	print    string
}

// lerobotFilesMax bounds the list of episodes, in bytes.
const lerobotFilesMax = 1 << 30

// Rate is how many steps the data set has a second.
func (l *LeRobot) Rate() float64 { return l.info.FPS }

// OpenLeRobot opens the data set in dir.
func OpenLeRobot(dir string, o dataset.Options) (*LeRobot, error) {
	if err := format.OnDisk(dir, "a LeRobot data set"); err != nil {
		return nil, err
	}
	l := &LeRobot{dir: dir, o: o, tables: &tables{o: o}}
	b, err := os.ReadFile(filepath.Join(dir, "meta", "info.json"))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &l.info); err != nil {
		return nil, fmt.Errorf("meta/info.json: %w", err)
	}
	if l.info.Chunk <= 0 {
		l.info.Chunk = 1000
	}
	switch {
	case strings.HasPrefix(l.info.Version, "v2."):
		err = l.load2()
	case strings.HasPrefix(l.info.Version, "v3."):
		err = l.load3()
	default:
		err = fmt.Errorf("meta/info.json: version %q; v2 and v3 are read", format.Clip(l.info.Version))
	}
	if err == nil {
		err = l.loadTasks()
	}
	if err == nil && !(l.info.FPS > 0) {
		err = fmt.Errorf("meta/info.json: %g frames a second", l.info.FPS)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	places := make([]any, 0, len(l.episodes)+2)
	places = append(places, "lerobot 1", string(b))
	for _, e := range l.episodes {
		places = append(places, fmt.Sprint(e.Index, e.Length, e.Tasks, e.Videos, e.file, e.row))
	}
	l.print = format.HashOf(places...)
	return l, nil
}

// cameras are the features that are videos.
func (l *LeRobot) cameras() (out []string) {
	for name, f := range l.info.Features {
		if f.Type == "video" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// pathField matches a field of a path, as in {episode_index:06d}.
var pathField = regexp.MustCompile(`\{([a-z_]+)(?::0(\d{1,2})d)?\}`)

// Fill writes a path of info.json, which may not lead out of the data set.
func (l *LeRobot) fill(pattern string, values map[string]any) (string, error) {
	missing := ""
	out := pathField.ReplaceAllStringFunc(pattern, func(f string) string {
		m := pathField.FindStringSubmatch(f)
		v, ok := values[m[1]]
		if !ok {
			missing = m[1]
		}
		if n, ok := v.(int64); ok {
			width, _ := strconv.Atoi(m[2]) // "" is none
			return fmt.Sprintf("%0*d", width, n)
		}
		return fmt.Sprint(v)
	})
	if missing != "" {
		return "", fmt.Errorf("meta/info.json: the path %q has a field %q that is not known", format.Clip(pattern),
			missing)
	}
	if !filepath.IsLocal(out) {
		return "", fmt.Errorf("meta/info.json: the path %q leads out of the data set", format.Clip(out))
	}
	return out, nil
}

// loadTasks reads the list of tasks, of whichever version there is.
func (l *LeRobot) loadTasks() error {
	type task struct {
		Index int64  `json:"task_index"`
		Task  string `json:"task"`
		Other string `json:"__index_level_0__"` // pandas' name of what has none
	}
	var rows format.Records
	var err error
	for name, open := range map[string]func(string, dataset.Options) (format.Records, error){
		"tasks.jsonl":   func(p string, o dataset.Options) (format.Records, error) { return format.OpenJSON(p, o) },
		"tasks.parquet": format.OpenRows} { // one of them is there
		path := filepath.Join(l.dir, "meta", name)
		if _, there := os.Stat(path); there != nil {
			continue
		}
		if rows, err = open(path, l.o); err != nil {
			return fmt.Errorf("meta/%s: %w", name, err)
		}
	}
	if rows == nil {
		return nil
	}
	defer rows.Close() //nolint:errcheck // it was read only
	for i := range rows.Len() {
		b, _, err := rows.Record(i)
		var t task
		if err == nil {
			err = json.Unmarshal(b, &t)
		}
		if err != nil || t.Index < 0 || t.Index > 1<<20 {
			return errors.Join(fmt.Errorf("meta: task %d has the index %d", i, t.Index), err)
		}
		for int64(len(l.tasks)) <= t.Index {
			l.tasks = append(l.tasks, "")
		}
		l.tasks[t.Index] = cmp.Or(t.Task, t.Other)
	}
	return nil
}

// load2 reads the episodes of version 2: a line, a table and a video a camera each.
func (l *LeRobot) load2() error {
	lines, err := format.OpenJSON(filepath.Join(l.dir, "meta", "episodes.jsonl"), l.o)
	if err != nil {
		return err
	}
	defer lines.Close()
	for i := range lines.Len() {
		b, _, err := lines.Record(i)
		if err != nil {
			return err
		}
		var e lerobotEpisode
		if err := json.Unmarshal(b, &e); err != nil {
			return fmt.Errorf("meta/episodes.jsonl: line %d: %w", i+1, err)
		}
		at := map[string]any{"episode_chunk": e.Index / l.info.Chunk, "episode_index": e.Index}
		if e.file, err = l.fill(l.info.Data, at); err != nil {
			return err
		}
		e.Videos = map[string]LeRobotVideo{}
		for _, camera := range l.cameras() {
			at["video_key"] = camera
			file, err := l.fill(l.info.Video, at)
			if err != nil {
				return err
			}
			e.Videos[camera] = LeRobotVideo{file, 0, float64(e.Length) / l.info.FPS}
		}
		l.episodes = append(l.episodes, e)
	}
	return nil
}

// load3 reads the episodes of version 3: rows of tables, which say where in larger files they lie.
func (l *LeRobot) load3() error {
	files, err := filepath.Glob(filepath.Join(l.dir, "meta", "episodes", "chunk-*", "file-*.parquet"))
	if err != nil || len(files) == 0 {
		return errors.Join(errors.New("meta/episodes has no tables"), err)
	}
	slices.Sort(files)
	size := 0
	first := map[string]int64{} // frame that a table begins with
	for _, f := range files {
		r, err := format.OpenRows(f, l.o)
		if err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
		for i := range r.Len() {
			b, _, err := r.Record(i)
			if size += len(b); err == nil && size > lerobotFilesMax {
				err = fmt.Errorf("the episodes take over %d bytes", lerobotFilesMax)
			}
			if err == nil {
				err = l.episode3(b, first)
			}
			if err != nil {
				return errors.Join(fmt.Errorf("%s: row %d: %w", f, i, err), r.Close())
			}
		}
		if err := r.Close(); err != nil {
			return err
		}
	}
	for i := range l.episodes {
		l.episodes[i].row -= first[l.episodes[i].file]
	}
	return nil
}

// episode3 reads a row of the episodes of version 3.
func (l *LeRobot) episode3(b []byte, first map[string]int64) error {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	get := func(key string) (out float64, err error) {
		if err = json.Unmarshal(m[key], &out); err != nil {
			err = fmt.Errorf("%q: %w", key, err)
		}
		return out, err
	}
	var all []float64
	for _, key := range []string{"episode_index", "length", "data/chunk_index", "data/file_index",
		"dataset_from_index"} {
		x, err := get(key)
		if err != nil || x < 0 || x > 1<<50 {
			return errors.Join(fmt.Errorf("%q is %g", key, x), err)
		}
		all = append(all, x)
	}
	e := lerobotEpisode{Index: int64(all[0]), Length: int64(all[1]), row: int64(all[4]),
		Videos: map[string]LeRobotVideo{}}
	var err error
	if e.file, err = l.fill(l.info.Data, map[string]any{"chunk_index": int64(all[2]),
		"file_index": int64(all[3])}); err != nil {
		return err
	}
	if have, ok := first[e.file]; !ok || e.row < have {
		first[e.file] = e.row
	}
	_ = json.Unmarshal(m["tasks"], &e.Tasks) // an episode may have none
	for _, camera := range l.cameras() {
		var at [4]float64
		for k, key := range []string{"chunk_index", "file_index", "from_timestamp", "to_timestamp"} {
			if at[k], err = get("videos/" + camera + "/" + key); err != nil {
				return err
			}
		}
		file, err := l.fill(l.info.Video, map[string]any{"video_key": camera, "chunk_index": int64(at[0]),
			"file_index": int64(at[1])})
		if err != nil {
			return err
		}
		e.Videos[camera] = LeRobotVideo{file, at[2], at[3]}
	}
	l.episodes = append(l.episodes, e)
	return nil
}

// Name implements dataset.Source.
func (l *LeRobot) Name() string { return l.dir }

// Kind implements dataset.Source.
func (l *LeRobot) Kind() dataset.Kind { return dataset.KindEpisodes }

// Len implements dataset.Source: the number of episodes.
func (l *LeRobot) Len() int64 { return int64(len(l.episodes)) }

// Fingerprint implements dataset.Source.
func (l *LeRobot) Fingerprint() string { return l.print }

// Close implements dataset.Source.
func (l *LeRobot) Close() error { return l.tables.close() }

// Read implements dataset.Source.
func (l *LeRobot) Read(i int64) (dataset.Document, error) {
	e := l.episodes[i]
	d := dataset.Document{Key: fmt.Sprintf("episode_%06d", e.Index),
		Place: dataset.Place{File: filepath.Join(l.dir, e.file), Offset: e.row}}
	bad := func(format string, args ...any) error {
		return &dataset.BadSample{Place: d.Place, Reason: fmt.Sprintf("episode %d: ", e.Index) +
			fmt.Sprintf(format, args...)}
	}
	t, err := l.tables.get(filepath.Join(l.dir, e.file))
	if errors.Is(err, os.ErrNotExist) {
		return d, bad("its table is missing")
	}
	if err != nil {
		return d, err
	}
	if e.row+e.Length > t.Len() {
		return d, bad("it has %d frames from row %d on, and the table has %d rows", e.Length, e.row, t.Len())
	}
	size := int64(0)
	for k := range e.Length {
		b, _, err := t.Record(e.row + k)
		if err != nil {
			return d, err
		}
		if size += int64(len(b)); size > l.o.Limit() {
			return d, bad("its frames take over %d bytes", l.o.Limit())
		}
		e.Frames = append(e.Frames, bytes.Clone(b))
	}
	e.FPS = l.info.FPS
	b, err := json.Marshal(e)
	d.Parts = []dataset.Part{{Name: "json", Bytes: b}}
	return d, err
}
