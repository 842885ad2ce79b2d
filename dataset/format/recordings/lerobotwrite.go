package recordings

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/parquet-go/parquet-go"
)

// RobotEpisode is a recording that WriteRobot writes.
type RobotEpisode struct {
	Task   string
	Frames []RobotStep
}

// RobotStep is a frame of it: what each camera saw, as PNG, the robot's state, and what it did.
type RobotStep struct {
	Images        [][]byte
	State, Action []float32
	Task          string // "" for the recording's
}

// RobotSet is what recordings have in common.
type RobotSet struct {
	FPS     float64
	Cameras []RobotCamera
	// Like is the folder of a data set of this version whose statistics are taken in the place of the
	// recordings' own, so that a policy of that one reads both alike.
	Like string
}

// RobotCamera is a camera: its column, and the pixels of its images.
type RobotCamera struct {
	Column        string
	Height, Width int
}

// RobotTop is a set with one camera of square images, called top.
func RobotTop(fps float64, side int) RobotSet {
	return RobotSet{FPS: fps, Cameras: []RobotCamera{{"observation.images.top", side, side}}}
}

// robotImage is a column of images, as LeRobot has them.
type robotImage struct {
	Bytes []byte `parquet:"bytes,optional"`
	Path  string `parquet:"path,optional"`
}

// robotRow is a frame in a table of version 3.
type robotRow struct {
	State     []float32 `parquet:"observation.state,list"`
	Action    []float32 `parquet:"action,list"`
	Timestamp float32   `parquet:"timestamp"`
	Frame     int64     `parquet:"frame_index"`
	Episode   int64     `parquet:"episode_index"`
	Index     int64     `parquet:"index"`
	Task      int64     `parquet:"task_index"`
}

// seen is the type of a frame's row with a column for each camera.
func (s RobotSet) seen() reflect.Type {
	row := reflect.TypeFor[robotRow]()
	var fields []reflect.StructField
	for i := range row.NumField() {
		fields = append(fields, row.Field(i))
	}
	for i, c := range s.Cameras {
		fields = append(fields, reflect.StructField{Name: fmt.Sprintf("Camera%d", i),
			Type: reflect.TypeFor[robotImage](), Tag: reflect.StructTag(fmt.Sprintf("parquet:%q", c.Column))})
	}
	return reflect.StructOf(fields)
}

// row is a frame's, of that type.
func (s RobotSet) row(t reflect.Type, r robotRow, frame RobotStep) any {
	v, from := reflect.New(t), reflect.ValueOf(r)
	for i := range from.NumField() {
		v.Elem().Field(i).Set(from.Field(i))
	}
	for i, b := range frame.Images {
		v.Elem().Field(from.NumField() + i).Set(reflect.ValueOf(robotImage{Bytes: b,
			Path: fmt.Sprintf("frame-%06d.png", r.Frame)}))
	}
	return v.Interface()
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

// WriteRobot writes recordings as a data set of LeRobot of version 3.0, with images in the table, a row
// group an episode, and statistics of all frames.
func WriteRobot(dir string, set RobotSet, episodes []RobotEpisode) error {
	if len(episodes) == 0 || len(episodes[0].Frames) == 0 {
		return errors.New("format: a robot's recordings without a frame")
	}
	return writeRobots(dir, set, func(write func(RobotEpisode) error) error {
		for _, e := range episodes {
			if err := write(e); err != nil {
				return err
			}
		}
		return nil
	})
}

// writeRobots is WriteRobot of recordings that come one after the other: one with a frame at least.
func writeRobots(dir string, set RobotSet, episodes func(write func(RobotEpisode) error) error) (err error) {
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
	x := &robotWriter{dir: dir, set: set, row: set.seen()}
	x.w = parquet.NewWriter(file, parquet.SchemaOf(reflect.New(x.row).Interface()),
		parquet.Compression(&parquet.Snappy))
	if err := episodes(x.episode); err != nil {
		return err
	}
	if err := x.w.Close(); err != nil {
		return err
	}
	return x.meta()
}

// robotWriter is a data set that is being written.
type robotWriter struct {
	dir             string
	set             RobotSet
	row             reflect.Type
	w               *parquet.Writer //lint:ignore SA1019 a row's columns are known when the program runs
	places          []robotPlace
	tasks           []string
	states, actions [][]float32
}

// episode writes a recording as a row group.
func (x *robotWriter) episode(e RobotEpisode) error {
	var tasks []string
	first, k := len(x.states), int64(len(x.places))
	for i, f := range e.Frames {
		if len(f.Images) != len(x.set.Cameras) {
			return fmt.Errorf("format: frame %d of recording %d has %d images, and there are %d cameras", i, k,
				len(f.Images), len(x.set.Cameras))
		}
		text := cmp.Or(f.Task, e.Task)
		task := slices.Index(x.tasks, text)
		if task < 0 {
			task, x.tasks = len(x.tasks), append(x.tasks, text)
		}
		if !slices.Contains(tasks, text) {
			tasks = append(tasks, text)
		}
		r := robotRow{State: f.State, Action: f.Action, Timestamp: float32(float64(i) / x.set.FPS), Frame: int64(i),
			Episode: k, Index: int64(len(x.states)), Task: int64(task)}
		if err := x.w.Write(x.set.row(x.row, r, f)); err != nil {
			return err
		}
		x.states, x.actions = append(x.states, f.State), append(x.actions, f.Action)
	}
	x.places = append(x.places, robotPlace{Episode: k, Tasks: tasks, Length: int64(len(e.Frames)),
		From: int64(first), To: int64(len(x.states))})
	return x.w.Flush()
}

// meta writes what lies beside the frames.
func (x *robotWriter) meta() error {
	feature := func(kind string, shape ...int) map[string]any {
		return map[string]any{"dtype": kind, "shape": shape, "names": nil}
	}
	features := map[string]any{"observation.state": feature("float32", len(x.states[0])),
		"action": feature("float32", len(x.actions[0])), "timestamp": feature("float32", 1)}
	for _, c := range x.set.Cameras {
		features[c.Column] = map[string]any{"dtype": "image", "shape": []int{c.Height, c.Width, 3},
			"names": []string{"height", "width", "channels"}}
	}
	for _, name := range []string{"frame_index", "episode_index", "index", "task_index"} {
		features[name] = feature("int64", 1)
	}
	info := map[string]any{"codebase_version": "v3.0", "robot_type": "drawn",
		"total_episodes": len(x.places), "total_frames": len(x.states), "total_tasks": len(x.tasks),
		"chunks_size": 1000, "data_files_size_in_mb": 100, "video_files_size_in_mb": 200,
		"fps": x.set.FPS, "splits": map[string]string{"train": fmt.Sprintf("0:%d", len(x.places))},
		"data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet", "video_path": nil,
		"features": features}
	if err := x.json("info.json", info); err != nil {
		return err
	}
	if err := x.stats(); err != nil {
		return err
	}
	var rows []robotTask
	for i, t := range x.tasks {
		rows = append(rows, robotTask{int64(i), t})
	}
	return errors.Join(parquet.WriteFile(filepath.Join(x.dir, "meta", "tasks.parquet"), rows,
		parquet.KeyValueMetadata("pandas", robotTasksIndex)),
		parquet.WriteFile(filepath.Join(x.dir, "meta/episodes/chunk-000/file-000.parquet"), x.places))
}

// stats writes the statistics of states and actions, or those of another data set.
func (x *robotWriter) stats() error {
	const name = "stats.json"
	if x.set.Like == "" {
		return x.json(name, map[string]any{"observation.state": robotStats(x.states),
			"action": robotStats(x.actions)})
	}
	b, err := os.ReadFile(filepath.Join(x.set.Like, "meta", name))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(x.dir, "meta", name), b, 0o644)
}

func (x *robotWriter) json(name string, v any) error {
	b, err := json.MarshalIndent(v, "", "    ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(x.dir, "meta", name), append(b, '\n'), 0o644)
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
