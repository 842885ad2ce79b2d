package setup

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
)

// long decodes ids into as many bytes as their first one says.
type long struct{}

func (long) Decode(ids []int32, _ bool) string { return strings.Repeat("x", int(ids[0])) }

// A page takes steps, samples and dropped documents until it has enough, and says what it leaves out.
func TestViewFull(t *testing.T) {
	v := &View{}
	batch := dataset.Batch{Rows: 1, SeqLen: 2, Tokens: []int32{viewTextMax / 4, 1}, Labels: []int32{-100,
		-100},
		SampleIDs: []int64{0}, CuSeqlens: []int32{0, 2}}
	steps := int64(0)
	for ; steps < 100 && !v.Full("what follows is"); steps++ {
		v.AddStep(steps, []dataset.Batch{batch}, long{})
	}
	require.EqualValues(t, 4, steps)
	require.Equal(t, []string{"what follows is not shown: the page has enough"}, v.Notes)
	var page bytes.Buffer
	v.Steps = nil
	require.NoError(t, v.Write(&page))
	require.Contains(t, page.String(), v.Notes[0])

	v = &View{}
	var lines strings.Builder
	for i := range 102 {
		fmt.Fprintf(&lines, `{"input":"a","step":"s","reason":"r%d","head":%q}`+"\n", i, strings.Repeat("y", viewTextMax/100))
	}
	path := filepath.Join(t.TempDir(), "dropped.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(lines.String()), 0o600))
	require.NoError(t, v.AddDropped(path))
	require.Len(t, v.Drops, 100)
	require.Len(t, v.Notes, 1)
	require.Contains(t, v.Notes[0], "line 101 and those behind it are not shown")
}
