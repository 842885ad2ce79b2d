package decide

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/control"
)

// TestTail: a head gets what it lacks of each process's output, in order and once; what waits for it anyway
// is not among that, nor is a process that this one has taken the place of. What is kept is bounded.
func TestTail(t *testing.T) {
	a := &Agent{tails: map[key]*tail{}}
	write := func(job string, gen int, text string) control.Message {
		m := control.Message{Kind: control.Output, Job: job, Gen: gen, Data: []byte(text)}
		a.keep(&m)
		return m
	}
	has := func(job string, gen int, n int64) []control.Proc {
		return []control.Proc{{Job: job, Gen: gen, Wrote: n}}
	}
	texts := func(all []control.Message) (out []string) {
		for _, m := range all {
			out = append(out, m.Job+string(m.Data))
		}
		return out
	}
	write("2", 1, "x")
	for i, s := range []string{"a", "b", "c"} {
		require.Equal(t, int64(i+1), write("1", 1, s).At)
	}
	require.Equal(t, []string{"1a", "1b", "1c", "2x"}, texts(a.unheard(nil)))
	require.Equal(t, []string{"1b", "1c", "2x"}, texts(a.unheard(has("1", 1, 1))))
	require.Equal(t, []string{"1a", "1b", "1c"}, texts(a.unheard(has("2", 1, 1))))
	require.Equal(t, []string{"1a", "1b", "1c", "2x"}, texts(a.unheard(has("1", 7, 2))), "of another life")
	late := write("1", 1, "d")
	a.late = []control.Message{{Kind: control.Exited, Job: "2"}, late, write("1", 1, "e")}
	require.Equal(t, []string{"1b", "1c", "2x"}, texts(a.unheard(has("1", 1, 1))))
	a.late = nil
	require.Equal(t, int64(1), write("1", 2, "z").At, "a new life counts anew")
	require.Equal(t, []string{"1z", "2x"}, texts(a.unheard(nil)))
	big := string(make([]byte, tailMost/2))
	for range 4 {
		write("3", 1, big)
	}
	require.Len(t, a.tails[key{"3", 0}].last, 2)
	require.Equal(t, int64(4), a.tails[key{"3", 0}].last[1].At)
}
