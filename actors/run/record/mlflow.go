package record

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

var _ = RegisterSink(SinkKind{Name: "mlflow", Source: "mlflow 3.17: store/tracking/file_store.py",
	Open: func(o SinkOptions) (Sink, error) { return newMLflow(o) }})

// mlflow writes a run as MLflow's store of files has it: mlruns/EXPERIMENT/RUN with a file of lines for each
// figure, one of text for each setting, and a description. A run that is resumed goes on in its files;
// steps that are taken again are there twice, of which MLflow shows the later.
type mlflow struct {
	dir, experiment, id, name string
	began                     time.Time
	now                       func() time.Time
	files                     map[string]*os.File
	err                       error
}

// Numbers of MLflow's RunStatus and SourceType.
const (
	mlflowRunning  = 1
	mlflowFinished = 3
	mlflowFailed   = 4
	mlflowLocal    = 4
)

func newMLflow(o SinkOptions) (*mlflow, error) {
	root := filepath.Join(o.Dir, "mlruns")
	sum := sha256.Sum256([]byte(o.Project))
	experiment := fmt.Sprint(uint64(sum[0])<<40 | uint64(sum[1])<<32 | uint64(sum[2])<<24 | uint64(sum[3])<<16 |
		uint64(sum[4])<<8 | uint64(sum[5]))
	run := fmt.Sprintf("%x", sha256.Sum256([]byte(o.ID)))[:32]
	m := &mlflow{dir: filepath.Join(root, experiment, run), experiment: experiment, id: run, name: o.Name,
		began: o.Now(), now: o.Now, files: map[string]*os.File{}}
	for _, sub := range []string{"metrics", "params", "tags", "artifacts"} {
		if err := os.MkdirAll(filepath.Join(m.dir, sub), 0o700); err != nil {
			return nil, err
		}
	}
	at := fmt.Sprint(m.began.UnixMilli())
	m.text(filepath.Join(root, experiment, "meta.yaml"), "artifact_location: "+
		quoted("file://"+filepath.Join(absolute(root), experiment))+"\ncreation_time: "+at+"\nexperiment_id: '"+
		experiment+"'\nlast_update_time: "+at+"\nlifecycle_stage: active\nname: "+quoted(o.Project)+"\n")
	m.text(filepath.Join(m.dir, "tags", "mlflow.runName"), o.Name)
	for _, key := range slices.Sorted(maps.Keys(o.Config)) {
		m.text(filepath.Join(m.dir, "params", key), strings.ReplaceAll(o.Config[key], "\n", " "))
	}
	m.meta(mlflowRunning, "null")
	return m, m.err
}

// absolute is a path from the root on, or as it is where the system does not say.
func absolute(path string) string {
	if p, err := filepath.Abs(path); err == nil {
		return p
	}
	return path
}

// text writes a file.
func (m *mlflow) text(path, s string) {
	m.err = errors.Join(m.err, os.WriteFile(path, []byte(s), 0o600))
}

// meta describes the run.
func (m *mlflow) meta(status int, end string) {
	m.text(filepath.Join(m.dir, "meta.yaml"), fmt.Sprintf("artifact_uri: %s\nend_time: %s\nentry_point_name: "+
		"''\nexperiment_id: '%s'\nlifecycle_stage: active\nrun_id: %s\nrun_name: %s\nrun_uuid: %s\nsource_name: "+
		"''\nsource_type: %d\nsource_version: ''\nstart_time: %d\nstatus: %d\ntags: []\nuser_id: lfactor\n",
		quoted("file://"+filepath.Join(absolute(m.dir), "artifacts")), end, m.experiment, m.id, quoted(m.name), m.id,
		mlflowLocal, m.began.UnixMilli(), status))
}

// Scalar implements Sink.
func (m *mlflow) Scalar(tag string, step int64, v float64) {
	f := m.files[tag]
	if f == nil {
		path := filepath.Join(m.dir, "metrics", filepath.FromSlash(tag))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			m.err = errors.Join(m.err, err)
			return
		}
		var err error
		if f, err = os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
			m.err = errors.Join(m.err, err)
			return
		}
		m.files[tag] = f
	}
	if _, err := fmt.Fprintf(f, "%d %s %d\n", m.now().UnixMilli(), mlflowNumber(v), step); err != nil {
		m.err = errors.Join(m.err, err)
	}
}

// mlflowNumber is a number as Python reads it.
func mlflowNumber(v float64) string {
	return strings.NewReplacer("+Inf", "inf", "-Inf", "-inf", "NaN", "nan").Replace(fmt.Sprint(v))
}

// Close implements Sink.
func (m *mlflow) Close(whole bool) error {
	status := mlflowFinished
	if !whole {
		status = mlflowFailed
	}
	m.meta(status, fmt.Sprint(m.now().UnixMilli()))
	for _, tag := range slices.Sorted(maps.Keys(m.files)) {
		m.err = errors.Join(m.err, m.files[tag].Close())
	}
	return m.err
}
