package rehearsal

import (
	"bufio"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"strings"

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

// span is one bar of the timeline: a rank did something of a kind from start to end, in nanoseconds.
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
		t.spans = append(t.spans, span{rank: rank, name: fmt.Sprintf("%v.%d", j.Action, j.Segment),
			kind: j.Action.Kind, start: start, end: end})
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
			fmt.Fprintf(w, "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":0,\"tid\":%d,\"args\":{\"name\":%q}},\n",
				r, t.Layout.Design.Mesh.Name(r))
		}
		for i, s := range t.spans {
			comma := ",\n"
			if i == len(t.spans)-1 {
				comma = "\n"
			}
			fmt.Fprintf(
				w,
				"{\"ph\":\"X\",\"name\":%q,\"cat\":%q,\"pid\":0,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"step\":%d}}%s",
				s.name,
				s.kind,
				s.rank,
				float64(s.start)/1e3,
				float64(s.end-s.start)/1e3,
				t.Last,
				comma,
			)
		}
		fmt.Fprint(w, "]\n")
	})
}

// kindsDrawn are the kinds of actions with their colours and what the legend calls them.
var kindsDrawn = []struct {
	kind         plan.Kind
	colour, name string
}{
	{plan.F, "#4e79a7", "F: forward"}, {plan.B, "#59a14f", "B: backward"},
	{plan.I, "#76b7b2", "I: gradients of inputs"}, {plan.W, "#edc948", "W: gradients of weights"},
	{plan.Step, "#e15759", "optimizer step"},
}

// colours are those of kindsDrawn.
var colours = func() map[plan.Kind]string {
	out := map[plan.Kind]string{}
	for _, k := range kindsDrawn {
		out[k.kind] = k.colour
	}
	return out
}()

const drawnWide, drawnLeft, drawnTop, drawnLetter = 1400.0, 110.0, 50.0, 6.2

// Draw draws the timeline: a row a rank, with the time below, a legend above, and in each bar that has room
// the name of its action. What is white is idle or waits for others.
func (t *Timeline) Draw(w *bufio.Writer) {
	if len(t.spans) == 0 {
		fmt.Fprint(w, `<svg xmlns="http://www.w3.org/2000/svg" width="10" height="10"></svg>`)
		return
	}
	first, last, rows := t.spans[0].start, t.spans[0].end, 0
	used := map[plan.Kind]bool{}
	for _, s := range t.spans {
		first, last, rows = min(first, s.start), max(last, s.end), max(rows, s.rank+1)
		used[s.kind] = true
	}
	row := 24.0
	if rows > 64 {
		row = 6
	}
	scale := drawnWide / float64(max(1, last-first))
	fmt.Fprintf(w, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" "+
		"font-size=\"11\"><rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n", drawnWide+drawnLeft+20,
		drawnTop+float64(rows)*row+46)
	legend(w, used)
	timeAxis(w, last-first, drawnTop+float64(rows)*row)
	for r := range rows {
		if row > 10 || r%8 == 0 {
			fmt.Fprintf(w, "<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">rank %d</text>\n", drawnLeft-8,
				drawnTop+float64(r)*row+row/2+4, r)
		}
	}
	for _, s := range t.spans {
		x, y, wide := drawnLeft+float64(s.start-first)*scale, drawnTop+float64(s.rank)*row, float64(s.end-s.start)*scale
		fmt.Fprintf(w, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\" stroke=\"white\" "+
			"stroke-width=\".3\"><title>%s: %s</title></rect>\n", x, y+row/12, wide, row*5/6, colours[s.kind],
			html.EscapeString(s.name), unit.Seconds(unit.OfNanoseconds(s.end-s.start)))
		name, _, _ := strings.Cut(s.name, ".")
		if row > 10 && wide > drawnLetter*float64(len(name))+4 {
			ink := "#fff"
			if s.kind == plan.W {
				ink = "#333"
			}
			fmt.Fprintf(w,
				"<text x=\"%.2f\" y=\"%.1f\" text-anchor=\"middle\" font-size=\"10\" fill=\"%s\">%s</text>\n", x+wide/2,
				y+row/2+4, ink, html.EscapeString(name))
		}
	}
	fmt.Fprint(w, "</svg>\n")
}

// legend says what colours mean, of the kinds that are used, and how names are read.
func legend(w *bufio.Writer, used map[plan.Kind]bool) {
	x := drawnLeft
	for _, k := range kindsDrawn {
		if !used[k.kind] {
			continue
		}
		fmt.Fprintf(w,
			"<rect x=\"%.0f\" y=\"10\" width=\"12\" height=\"12\" fill=\"%s\"/><text x=\"%.0f\" y=\"20\">%s</text>\n",
			x, k.colour, x+17, k.name)
		x += 36 + drawnLetter*float64(len(k.name))
	}
	fmt.Fprintf(w,
		"<text x=\"%.0f\" y=\"20\" fill=\"#666\">white: waits · 2F0: stage 2, forward, microbatch 0</text>\n", x)
}

// timeAxis draws lines at round times since the beginning of the step, with their values below the rows.
func timeAxis(w *bufio.Writer, long int64, bottom float64) {
	scale := drawnWide / float64(max(1, long))
	step := int64(1)
	for _, m := range []int64{2, 5, 10} { // nanoseconds, 1, 2 or 5 times a power of ten
		for base := int64(1); base <= long; base *= 10 {
			if v := m * base; long/v <= 14 && (step == 1 || v < step) {
				step = v
			}
		}
	}
	for at := int64(0); at <= long; at += step {
		x := drawnLeft + float64(at)*scale
		fmt.Fprintf(w, "<line x1=\"%.2f\" x2=\"%.2f\" y1=\"%.0f\" y2=\"%.1f\" stroke=\"#ddd\"/><text "+
			"x=\"%.2f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", x, x, drawnTop-6, bottom+4, x, bottom+18,
			unit.Seconds(unit.OfNanoseconds(at)))
	}
	fmt.Fprintf(w, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" fill=\"#666\">time since the step began; "+
		"it takes %s</text>\n", drawnLeft+drawnWide/2, bottom+36, unit.Seconds(unit.OfNanoseconds(long)))
}

// SVG writes the drawing.
func (t *Timeline) SVG(name string) error { return machine.Create(name, t.Draw) }
