//go:build cuda

package cuda

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cuda/emulate"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestTimedAlgorithms: of the algorithms that the library proposes the fastest is kept, where timing is asked
// for; a run that goes on has it though another would be faster by now; a call that is watched is not timed;
// and a sum that is there already is added to once.
func TestTimedAlgorithms(t *testing.T) {
	e := emulate.New(t)
	l, err := LoadFrom(e.Path)
	require.NoError(t, err)
	products, err := LoadProducts(e.Path)
	require.NoError(t, err)
	e.Set(t, "algorithms", 5, 1)
	run := func(dir string, timed, fast int, watched bool) (y []float32, algorithm byte) {
		chosenIn.files = nil // as a process that starts
		e.Set(t, "fast", int64(fast), -1)
		d, err := l.New(0, Settings{Absent: strict, Products: products, Dir: dir, Timed: timed})
		require.NoError(t, err)
		defer d.Close()
		if watched {
			d.Watch(func(*kernels.Call) func(start, end time.Time) { return nil })
		}
		p := tensor.NewPool("device", 0).In(d)
		dy, x := place(t, d, p, numbers(40, 16)), place(t, d, p, numbers(40, 8))
		dw := place(t, d, p, numbers(16, 8))
		d.Run(&kernels.Call{Op: kernels.LinearDW, In: []*tensor.Tensor{dy, x}, Out: []*tensor.Tensor{dw},
			Attr: kernels.Attr{I: [4]int{kernels.Accumulate}}})
		h := tensor.Make(tensor.F32, 16, 8)
		d.Read(h.Bytes(), dw)
		text, err := os.ReadFile(filepath.Join(dir, chosenProducts))
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(text), "\n"))
		_, text2, _ := strings.Cut(string(text), `"algorithm":"`)
		a, err := hex.DecodeString(text2[:32])
		require.NoError(t, err)
		return h.F32(), a[8]
	}
	dir := t.TempDir()
	plain, first := run(t.TempDir(), 1, 2, false)
	require.Zero(t, first, "untimed, the first")
	got, a := run(dir, 8, 2, false)
	require.EqualValues(t, 2, a)
	require.Equal(t, plain, got, "an even one has the same bits, added once")
	_, a = run(dir, 8, 4, false)
	require.EqualValues(t, 2, a, "as the run began")
	_, a = run(t.TempDir(), 3, 4, false)
	require.NotEqualValues(t, 4, a, "three are asked for")
	_, a = run(t.TempDir(), 8, 2, true)
	require.Zero(t, a, "watched")
}

// TestTimedVariable: how many are timed is a number up to eight.
func TestTimedVariable(t *testing.T) {
	for text, want := range map[string]int{"": 1, "1": 1, "8": 8} {
		t.Setenv(TimedVariable, text)
		n, err := timedProposals()
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
	for _, text := range []string{"0", "9", "yes"} {
		t.Setenv(TimedVariable, text)
		_, err := timedProposals()
		require.EqualError(t, err, "LFACTOR_CUBLASLT_TIMED="+text+": want a number of algorithms from 1, which "+
			"times none, to 8")
	}
}

// TestFirstChosen: of two processes that chose for a shape at once, both have what stands first in the file.
func TestFirstChosen(t *testing.T) {
	dir := t.TempDir()
	valid := func(string) bool { return true }
	c, err := OpenChosen(dir, "x.jsonl", valid)
	require.NoError(t, err)
	text, err := c.algorithm("d", 1, "s", func() (string, error) {
		return "own", os.WriteFile(filepath.Join(dir, "x.jsonl"),
			[]byte(`{"device":"d","library":1,"shape":"s","algorithm":"another's"}`+"\n"), 0o600)
	})
	require.NoError(t, err)
	require.Equal(t, "another's", text)
	text, err = c.algorithm("d", 1, "s", nil)
	require.NoError(t, err)
	require.Equal(t, "another's", text)
}
