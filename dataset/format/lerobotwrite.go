package format

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/parquet-go/parquet-go"
)

// RobotEpisode is a recording that WriteRobot writes.
type RobotEpisode struct {
	Task   string
	Frames []RobotStep
}

// RobotStep is a frame of it: what the robot saw, as PNG, its state, and what it did.
type RobotStep struct {
	Image         []byte
	State, Action []float32
}

// robotImage is a column of images, as LeRobot has them.
type robotImage struct {
	Bytes []byte `parquet:"bytes,optional"`
	Path  string `parquet:"path,optional"`
}

// robotRow is a frame in a table of version 3.
type robotRow struct {
	State     []float32  `parquet:"observation.state,list"`
	Action    []float32  `parquet:"action,list"`
	Image     robotImage `parquet:"observation.images.top"`
	Timestamp float32    `parquet:"timestamp"`
	Frame     int64      `parquet:"frame_index"`
	Episode   int64      `parquet:"episode_index"`
	Index     int64      `parquet:"index"`
	Task      int64      `parquet:"task_index"`
}

// robotPlace is an episode in the tables of episodes.
type robotPlace struct {
	Episode int64    `parquet:"episode_index"`
	Tasks   []string `parquet:"tasks,list"`
	Length  int64    `parquet:"length"`
	Chunk   int64    `parquet:"data/chunk_index"`
	File    int64    `parquet:"data/file_index"`
	From    int64    `parquet:"dataset_from_index"`
	To      int64    `parquet:"dataset_to_index"`
	MetaC   int64    `parquet:"meta/episodes/chunk_index"`
	MetaF   int64    `parquet:"meta/episodes/file_index"`
}

// robotTask is a row of the table of tasks.
type robotTask struct {
	Index int64  `parquet:"task_index"`
	Task  string `parquet:"__index_level_0__"`
}

// robotTasksIndex says to pandas that tasks are the index of their table, as LeRobot reads them.
const robotTasksIndex = `{"index_columns": ["__index_level_0__"], "column_indexes": [{"name": null, "field_name": null,
 "pandas_type": "unicode", "numpy_type": "object", "metadata": {"encoding": "UTF-8"}}], "columns": [{"name":
 "task_index", "field_name": "task_index", "pandas_type": "int64", "numpy_type": "int64", "metadata": null}, {"name":
 null, "field_name": "__index_level_0__", "pandas_type": "unicode", "numpy_type": "object", "metadata": null}],
 "pandas_version": "2.2.0"}`

// WriteRobot writes recordings as a data set of LeRobot of version 3.0, with images of one camera of a
// height and a width in the table, a row group an episode, and statistics of all frames.
func WriteRobot(dir string, fps float64, side [2]int, episodes []RobotEpisode) (err error) {
	if len(episodes) == 0 || len(episodes[0].Frames) == 0 {
		return errors.New("format: a robot's recordings without a frame")
	}
	for _, d := range []string{"meta/episodes/chunk-000", "data/chunk-000"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	file, err := os.Create(filepath.Join(dir, "data/chunk-000/file-000.parquet"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w := parquet.NewGenericWriter[robotRow](file, parquet.Compression(&parquet.Snappy))
	var places []robotPlace
	var tasks []string
	var states, actions [][]float32
	for k, e := range episodes {
		task := slices.Index(tasks, e.Task)
		if task < 0 {
			task, tasks = len(tasks), append(tasks, e.Task)
		}
		first := len(states)
		var rows []robotRow
		for i, f := range e.Frames {
			rows = append(rows, robotRow{State: f.State, Action: f.Action, Image: robotImage{Bytes: f.Image,
				Path: fmt.Sprintf("frame-%06d.png", i)}, Timestamp: float32(float64(i) / fps), Frame: int64(i),
				Episode: int64(k), Index: int64(len(states)), Task: int64(task)})
			states, actions = append(states, f.State), append(actions, f.Action)
		}
		if _, err := w.Write(rows); err != nil {
			return err
		}
		if err := w.Flush(); err != nil {
			return err
		}
		places = append(places, robotPlace{Episode: int64(k), Tasks: []string{e.Task}, Length: int64(len(rows)),
			From: int64(first), To: int64(len(states))})
	}
	if err := w.Close(); err != nil {
		return err
	}
	return writeRobotMeta(dir, fps, side, places, tasks, states, actions)
}

// writeRobotMeta writes what lies beside the frames.
func writeRobotMeta(dir string, fps float64, side [2]int, places []robotPlace, tasks []string,
	states, actions [][]float32) error {
	feature := func(kind string, shape ...int) map[string]any {
		return map[string]any{"dtype": kind, "shape": shape, "names": nil}
	}
	features := map[string]any{"observation.state": feature("float32", len(states[0])),
		"action": feature("float32", len(actions[0])),
		"observation.images.top": map[string]any{"dtype": "image", "shape": []int{side[0], side[1], 3},
			"names": []string{"height", "width", "channels"}},
		"timestamp": feature("float32", 1)}
	for _, name := range []string{"frame_index", "episode_index", "index", "task_index"} {
		features[name] = feature("int64", 1)
	}
	info := map[string]any{"codebase_version": "v3.0", "robot_type": "drawn", "total_episodes": len(places),
		"total_frames": len(states), "total_tasks": len(tasks), "chunks_size": 1000, "data_files_size_in_mb": 100,
		"video_files_size_in_mb": 200, "fps": fps, "splits": map[string]string{"train": fmt.Sprintf("0:%d",
			len(places))}, "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
		"video_path": nil, "features": features}
	stats := map[string]any{"observation.state": robotStats(states), "action": robotStats(actions)}
	for name, v := range map[string]any{"info.json": info, "stats.json": stats} {
		b, err := json.MarshalIndent(v, "", "    ")
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "meta", name), append(b, '\n'), 0o644)
		}
		if err != nil {
			return err
		}
	}
	var rows []robotTask
	for i, t := range tasks {
		rows = append(rows, robotTask{int64(i), t})
	}
	return errors.Join(parquet.WriteFile(filepath.Join(dir, "meta", "tasks.parquet"), rows,
		parquet.KeyValueMetadata("pandas", robotTasksIndex)),
		parquet.WriteFile(filepath.Join(dir, "meta/episodes/chunk-000/file-000.parquet"), places))
}

// robotStats are the statistics of vectors, of each number by itself.
func robotStats(v [][]float32) map[string]any {
	n := len(v[0])
	out := map[string][]float64{}
	for i := range n {
		var column []float64
		sum := 0.0
		for _, row := range v {
			column, sum = append(column, float64(row[i])), sum+float64(row[i])
		}
		slices.Sort(column)
		mean, square := sum/float64(len(v)), 0.0
		for _, x := range column {
			square += (x - mean) * (x - mean)
		}
		at := func(q float64) float64 { return column[int(q*float64(len(column)-1)+0.5)] }
		for name, x := range map[string]float64{"min": column[0], "max": column[len(column)-1], "mean": mean,
			"std": math.Sqrt(square / float64(len(v))), "q01": at(0.01), "q10": at(0.1), "q50": at(0.5),
			"q90": at(0.9), "q99": at(0.99)} {
			out[name] = append(out[name], x)
		}
	}
	all := map[string]any{"count": []int{len(v)}}
	for name, x := range out {
		all[name] = x
	}
	return all
}
