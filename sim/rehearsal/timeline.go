package rehearsal

import (
	"bufio"
	"fmt"
	"html"
	"os"
	"path/filepath"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/topology/machine"
)

// timelineMax bounds the spans that are kept for drawings.
const timelineMax = 200_000

// Timeline keeps the spans of a run's last step.
type Timeline struct {
	Layout *layout.Layout
	Last   int64
	spans  []span
}

// span is one bar of the timeline: a rank did something of a kind from start to end, in
// nanoseconds.
type span struct {
	rank       int
	name       string
	kind       plan.Kind
	start, end int64
}

// See keeps a span of a simulation if it belongs to the last step.
func (t *Timeline) See(s sim.Span) {
	if s.Rank >= 0 && s.End != s.Start {
		t.Add(s.Rank, *s.Job, int64(s.Start), int64(s.End))
	}
}

// Add keeps a rank's job from start to end, in nanoseconds, if it belongs to the last step.
func (t *Timeline) Add(rank int, j actors.Job, start, end int64) {
	if j.Step == t.Last && len(t.spans) < timelineMax {
		t.spans = append(t.spans, span{rank, fmt.Sprintf("%v.%d", j.Action, j.Segment), j.Action.Kind,
			start, end})
	}
}

// Files writes drawing and trace into a folder.
func (t *Timeline) Files(dir, name string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := t.SVG(filepath.Join(dir, name+".svg")); err != nil {
		return err
	}
	return t.Chrome(filepath.Join(dir, name+".json"))
}

// Chrome writes Chrome's trace format, for Perfetto.
func (t *Timeline) Chrome(name string) error {
	return machine.Create(name, func(w *bufio.Writer) {
		fmt.Fprint(w, "[")
		for r := range t.Layout.Ranks {
			fmt.Fprintf(w,
				"{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":0,\"tid\":%d,\"args\":{\"name\":%q}},\n",
				r, t.Layout.Design.Mesh.Name(r))
		}
		for i, s := range t.spans {
			comma := ",\n"
			if i == len(t.spans)-1 {
				comma = "\n"
			}
			fmt.Fprintf(w,
				"{\"ph\":\"X\",\"name\":%q,\"cat\":%q,\"pid\":0,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"step\":%d}}%s", s.name, s.kind, s.rank, float64(s.start)/1e3,
				float64(s.end-s.start)/1e3, t.Last, comma)
		}
		fmt.Fprint(w, "]\n")
	})
}

var colours = map[plan.Kind]string{plan.F: "#4e79a7", plan.B: "#59a14f", plan.I: "#76b7b2",
	plan.W: "#edc948", plan.Step: "#e15759"}

// Draw draws the timeline: a row a rank, forwards blue, backwards green, input gradients teal, weight
// gradients yellow, the optimizer step red; white is idle or communication.
func (t *Timeline) Draw(w *bufio.Writer) {
	const width, height, left = 1400.0, 22, 90
	if len(t.spans) == 0 {
		fmt.Fprint(w, `<svg xmlns="http://www.w3.org/2000/svg" width="10" height="10"></svg>`)
		return
	}
	first, last, rows := t.spans[0].start, t.spans[0].end, 0
	for _, s := range t.spans {
		first, last, rows = min(first, s.start), max(last, s.end), max(rows, s.rank+1)
	}
	scale := width / float64(max(1, last-first))
	fmt.Fprintf(w, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%d\" "+
		"font-family=\"sans-serif\" font-size=\"11\">\n", width+left+10, rows*height+24)
	for r := range rows {
		fmt.Fprintf(w, "<text x=\"4\" y=\"%d\">rank %d</text>\n", r*height+15, r)
	}
	for _, s := range t.spans {
		fmt.Fprintf(w, "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\" "+
			"stroke=\"white\" stroke-width=\".3\"><title>%s: %s</title></rect>\n",
			left+float64(s.start-first)*scale, s.rank*height+2, float64(s.end-s.start)*scale, height-4,
			colours[s.kind], html.EscapeString(s.name), unit.Seconds(unit.OfNanoseconds(s.end-s.start)))
	}
	fmt.Fprintf(w, "<text x=\"%d\" y=\"%d\">0 to %s</text>\n</svg>\n", left, rows*height+16,
		unit.Seconds(unit.OfNanoseconds(last-first)))
}

// SVG writes the drawing.
func (t *Timeline) SVG(name string) error { return machine.Create(name, t.Draw) }
