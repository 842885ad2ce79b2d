package host

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
)

// tapping captures all edges of a run over processes; a dir of "" captures none.
type tapping struct {
	t     *testing.T
	dir   string
	mu    sync.Mutex
	edges []Edge
}

func (x *tapping) join(l *layout.Layout, o *RunOptions) {
	if x.dir == "" {
		return
	}
	var err error
	o.Capture, err = NewCapture("*", x.dir, l.ActorNames(o.Procs), func(err error) { x.t.Error(err) })
	if err != nil {
		x.t.Error(err)
	}
	o.Edges = func(all []Edge) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.edges = append(x.edges, all...)
	}
}

// check holds what was counted to what was captured.
func (x *tapping) check() {
	x.t.Helper()
	if x.dir == "" {
		return
	}
	got := captures(x.t, x.dir)
	require.Len(x.t, got, len(x.edges))
	for _, e := range x.edges {
		require.Equal(x.t, e.Messages, got[e.Name].messages, e.Name)
		require.Equal(x.t, e.Bytes, got[e.Name].bytes, e.Name)
		require.NotEmpty(x.t, e.Kinds)
	}
}

// kept is what a stock reader finds in the files of an edge.
type kept struct {
	messages, bytes int64
	tensors         []string // hashes of the messages with tensors, sorted
}

var captureFile = regexp.MustCompile(`^(.+)-\d+\.arrows$`)

// captures reads a folder of captured edges with the stock reader.
func captures(t *testing.T, dir string) map[string]kept {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	out := map[string]kept{}
	for _, e := range entries {
		m := captureFile.FindStringSubmatch(e.Name())
		require.NotNil(t, m, e.Name())
		f, err := os.Open(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		r, err := ipc.NewReader(f)
		require.NoError(t, err, e.Name())
		k := out[m[1]]
		for r.Next() {
			k.read(r.Record())
		}
		require.NoError(t, r.Err(), e.Name())
		r.Release()
		require.NoError(t, f.Close())
		slices.Sort(k.tensors)
		out[m[1]] = k
	}
	return out
}

// read takes in a batch: columns of tensors are lists beside the messages' own columns.
func (k *kept) read(r arrow.Record) {
	k.messages += r.NumRows()
	sum := sha256.New()
	n := int64(0)
	for i, f := range r.Schema().Fields() {
		list, ok := r.Column(i).(*array.List)
		if !ok || f.Name == "values" || strings.HasSuffix(f.Name, ".shape") {
			continue
		}
		data := list.ListValues().Data()
		width := int64(data.DataType().(arrow.FixedWidthDataType).BitWidth() / 8)
		n += int64(data.Len()) * width
		fmt.Fprintln(sum, f.Name, data.Len())
		sum.Write(data.Buffers()[1].Bytes()[:int64(data.Len())*width])
	}
	if k.bytes += n; n > 0 {
		k.tensors = append(k.tensors, fmt.Sprintf("%x", sum.Sum(nil)[:8]))
	}
}

// TestCapture: patterns that can match no edge are refused by name; files that cannot be written are told of
// once, and the run goes on.
func TestCapture(t *testing.T) {
	names := []string{"coordinator", "rank0", "rank1"}
	for glob, want := range map[string]string{"rank0-rank9": "its actors are coordinator, rank0, rank1",
		"[": "not a pattern", "": "no edge"} {
		_, err := NewCapture(glob, t.TempDir(), names, nil)
		require.ErrorContains(t, err, want, glob)
	}
	v := variant{pp: 2, dp: 1, tp: 1, schedule: "1f1b"}
	want, _ := v.train(t, tiny(true), 4, refBackend)
	dir := filepath.Join(t.TempDir(), "gone")
	var faults []error
	var got []float64
	l, o := v.run(t, tiny(true), 4, refBackend, &got)
	var err error
	o.Capture, err = NewCapture("rank*-rank*", dir, l.ActorNames(1),
		func(err error) { faults = append(faults, err) })
	require.NoError(t, err)
	require.NoError(t, os.Remove(dir))
	require.NoError(t, Run(l, o))
	require.Equal(t, want, got)
	require.Len(t, faults, 1)
	require.True(t, errors.Is(faults[0], os.ErrNotExist), "%v", faults[0])

	got = nil
	l, o = v.run(t, tiny(true), 4, refBackend, &got)
	dir = t.TempDir()
	o.Capture, err = NewCapture("rank0-rank1", dir, l.ActorNames(1), func(err error) { t.Error(err) })
	require.NoError(t, err)
	require.NoError(t, Run(l, o))
	files := captures(t, dir)
	require.Len(t, files, 1)
	require.Positive(t, files["rank0-rank1"].bytes)
}
