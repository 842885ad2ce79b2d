package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

// sinkRun gives a sink the figures of a run: so many steps with a loss, a figure of every tenth, and odd numbers.
func sinkRun(t *testing.T, name, dir string, steps int) {
	now := time.Unix(1_700_000_000, 0)
	config := map[string]string{"model.path": "a\nb", "train.steps": "9", "log.name": ""}
	for i := range 40 { // so that a record is longer than a block
		config[fmt.Sprint("long.", i)] = strings.Repeat("é", 500)
	}
	s, err := OpenSink(name, SinkOptions{Dir: dir, First: 1, Project: "a project", Name: "a \"run\"",
		ID: "0123abcd", Config: config, Now: func() time.Time { now = now.Add(time.Second); return now }})
	require.NoError(t, err)
	for i := range steps {
		s.Scalar("train/loss", int64(i+1), 5-float64(i)/100)
		if i%10 == 9 {
			s.Scalar("eval/loss", int64(i+1), math.Inf(1))
		}
	}
	s.Scalar("train/loss", int64(steps+1), math.NaN())
	require.NoError(t, s.Close(true))
}

// TestSinks: every sink takes a run, and says when its directory cannot be written.
func TestSinks(t *testing.T) {
	require.GreaterOrEqual(t, len(sinks), 2)
	for _, k := range sinks {
		require.NotEmpty(t, k.Source)
		dir := t.TempDir()
		sinkRun(t, k.Name, dir, 25)
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.NotEmpty(t, entries, k.Name)
		file := filepath.Join(dir, "file")
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		_, err = OpenSink(k.Name, SinkOptions{Dir: file, Now: time.Now, ID: "x"})
		require.ErrorContains(t, err, "log.trackers: "+k.Name)
	}
	_, err := OpenSink("nowhere", SinkOptions{})
	require.ErrorContains(t, err, "nowhere")
}

// TestWandbLog: the log's pieces have their checksums, none crosses a block, and together they are records that count
// up, with every step's figures once. bench/golden/trackers.py reads such a log with wandb's own package.
func TestWandbLog(t *testing.T) {
	dir := t.TempDir()
	sinkRun(t, "wandb", dir, 300)
	files, err := filepath.Glob(filepath.Join(dir, "wandb", "offline-run-*-0123abcd", "run-0123abcd.wandb"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	b, err := os.ReadFile(files[0])
	require.NoError(t, err)
	require.Equal(t, ":W&B\xe1\xbe\x00", string(b[:7]))
	var records [][]byte
	var open []byte
	for at := 7; at < len(b); {
		if room := wandbBlock - at%wandbBlock; room < 7 {
			at += room
			continue
		}
		n, kind := int(binary.LittleEndian.Uint16(b[at+4:])), b[at+6]
		piece := b[at+7 : at+7+n]
		require.LessOrEqual(t, at%wandbBlock+7+n, wandbBlock)
		require.Equal(t, binary.LittleEndian.Uint32(b[at:]),
			crc32.ChecksumIEEE(append([]byte{kind}, piece...)))
		open = append(open, piece...)
		if kind == wandbFull || kind == wandbLast {
			records, open = append(records, open), nil
		}
		at += 7 + n
	}
	require.Nil(t, open)
	history := 0
	for i, r := range records {
		_, _, n := protowire.ConsumeTag(r)
		num, m := protowire.ConsumeVarint(r[n:])
		require.EqualValues(t, i+1, num)
		field, _, _ := protowire.ConsumeTag(r[n+m:])
		if field == wandbHistory {
			history++
		}
	}
	require.Equal(t, 301, history)
	require.Greater(t, len(b), 2*wandbBlock)
}

// TestMLflowFiles: lines of figures and files of settings are as MLflow's store has them.
func TestMLflowFiles(t *testing.T) {
	dir := t.TempDir()
	sinkRun(t, "mlflow", dir, 12)
	runs, err := filepath.Glob(filepath.Join(dir, "mlruns", "*", "*", "meta.yaml"))
	require.NoError(t, err)
	require.Len(t, runs, 1)
	run := filepath.Dir(runs[0])
	text := func(path string) string {
		b, err := os.ReadFile(filepath.Join(run, path))
		require.NoError(t, err)
		return string(b)
	}
	lines := strings.Split(text("metrics/train/loss"), "\n")
	require.Len(t, lines, 14)
	require.Regexp(t, `^17000000\d+ 5 1$`, lines[0])
	require.Regexp(t, `^17000000\d+ nan 13$`, lines[12])
	require.Regexp(t, `^17000000\d+ inf 10\n$`, text("metrics/eval/loss"))
	require.Equal(t, "a b", text("params/model.path"))
	require.Contains(t, text("meta.yaml"), "status: 3")
}
