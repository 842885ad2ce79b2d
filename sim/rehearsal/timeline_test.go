package rehearsal

import (
	"bufio"
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// TestTimelineExplains: a drawing says what its colours mean, of those that are in it, when things were,
// and which action a bar is, where there is room; a name is text.
func TestTimelineExplains(t *testing.T) {
	draw := func(ranks int) string {
		tl := Timeline{Last: 1}
		for r := range ranks {
			at := int64(r) * 1000
			for m, k := range []plan.Kind{plan.F, plan.W} {
				tl.Add(
					r,
					actors.Job{Step: 1, Action: plan.Action{Stage: int16(r), Kind: k, Micro: 3}},
					at+int64(m)*500,
					at+int64(m)*500+400,
				)
			}
			tl.Add(r, actors.Job{Step: 2, Action: plan.Action{Kind: plan.B}}, 0, 1) // of another step
		}
		var b bytes.Buffer
		w := bufio.NewWriter(&b)
		tl.Draw(w)
		require.NoError(t, w.Flush())
		return b.String()
	}
	few := draw(2)
	for _, want := range []string{"F: forward", "W: gradients of weights", ">1F3<", ">rank 1<", "time since the step began", "1.9 µs",
		"2F0: stage 2, forward, microbatch 0"} {
		require.Contains(t, few, want)
	}
	require.NotContains(t, few, "B: backward")
	many := draw(200)
	require.NotContains(t, many, ">1F3<")
	require.Contains(t, many, ">rank 8<")
	require.Equal(t, 400, strings.Count(many, "<title>"))
	empty := Timeline{}
	var b bytes.Buffer
	w := bufio.NewWriter(&b)
	empty.Draw(w)
	require.NoError(t, w.Flush())
	require.Contains(t, b.String(), "<svg")
}
