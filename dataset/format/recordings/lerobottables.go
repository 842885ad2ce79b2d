package recordings

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/parquet-go/parquet-go"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
)

// tablesMax is how many tables of a data set are open at once.
const tablesMax = 32

// tables are Parquet files of rows, those used last.
type tables struct {
	o    dataset.Options
	mu   sync.Mutex
	open []openTable // used last in front
}

type openTable struct {
	path string
	rows format.Records
}

// get opens a table, or finds it open.
func (t *tables) get(path string) (format.Records, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := slices.IndexFunc(t.open, func(o openTable) bool { return o.path == path })
	if at >= 0 {
		o := t.open[at]
		t.open = append([]openTable{o}, slices.Delete(t.open, at, at+1)...)
		return o.rows, nil
	}
	r, err := format.OpenRows(path, t.o)
	if err != nil {
		return nil, err
	}
	// A table that falls out is not closed, since others may be reading it; the pool of open files bounds those.
	t.open = append([]openTable{{path, r}}, t.open[:min(len(t.open), tablesMax-1)]...)
	return r, nil
}

// close closes the tables that are open now.
func (t *tables) close() (err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range t.open {
		err = errors.Join(err, o.rows.Close())
	}
	t.open = nil
	return err
}

// lerobotFrame is a row that writeLeRobot writes.
type lerobotFrame struct {
	Action    []float64 `parquet:"action,list" json:"action"`
	Timestamp float64   `parquet:"timestamp" json:"timestamp"`
	Frame     int64     `parquet:"frame_index" json:"frame_index"`
	Episode   int64     `parquet:"episode_index" json:"episode_index"`
	Index     int64     `parquet:"index" json:"index"`
	Task      int64     `parquet:"task_index" json:"task_index"`
}

// writeLeRobot writes episodes whose frames are lerobotFrames as a data set of version 2.1, without videos.
func writeLeRobot(dir string, docs []dataset.Document) (path string, o dataset.Options, err error) {
	info := `{"codebase_version": "v2.1", "fps": 10, "chunks_size": 1000, "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet", "video_path": null, "features": {}}`
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "meta"), 0o755),
		os.MkdirAll(filepath.Join(dir, "data", "chunk-000"), 0o755),
		os.WriteFile(filepath.Join(dir, "meta", "info.json"), []byte(info), 0o644)); err != nil {
		return dir, o, err
	}
	var lines []map[string]any
	for _, d := range docs {
		b, _ := d.Part("json")
		var e struct {
			Index  int64          `json:"episode_index"`
			Tasks  []string       `json:"tasks"`
			Frames []lerobotFrame `json:"frames"`
		}
		if err := json.Unmarshal(b, &e); err != nil {
			return dir, o, err
		}
		file := filepath.Join(dir, fmt.Sprintf("data/chunk-000/episode_%06d.parquet", e.Index))
		if err := parquet.WriteFile(file, e.Frames); err != nil {
			return dir, o, err
		}
		lines = append(lines, map[string]any{"episode_index": e.Index, "tasks": e.Tasks, "length": len(e.Frames)})
	}
	return dir, o, format.WriteLines(filepath.Join(dir, "meta", "episodes.jsonl"), lines)
}
