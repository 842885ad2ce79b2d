package profiler

import (
	"bufio"
	"fmt"
	"html"
	"strings"

	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/profile"
)

// phaseColours are those of the simulator's drawings for the same jobs.
var phaseColours = map[string]string{"forward": "#4e79a7", "backward": "#59a14f", "optimizer": "#e15759",
	"save": "#9c755f", "loader": "#bab0ac"}

// kernelColour groups kernels: products, attention, the loss, the optimizer, and everything that memory bounds.
func kernelColour(name string) string {
	op, _, _ := strings.Cut(name, " ")
	switch {
	case strings.HasPrefix(op, string(kernels.Attention)):
		return "#f28e2b"
	case strings.HasPrefix(op, "linear_ce"), op == string(kernels.LinearLSE):
		return "#b07aa1"
	case strings.HasPrefix(op, string(kernels.Linear)):
		return "#4e79a7"
	case op == string(kernels.AdamW), op == string(kernels.SGD), op == string(kernels.SumSquares),
		op == string(kernels.Average), op == string(kernels.Lion):
		return "#e15759"
	}
	return "#76b7b2"
}

// Sizes of the drawing, in pixels.
const (
	profileWidth = 1400.0
	profileLeft  = 190.0
	ProfileRow   = 18
	profileBars  = 24 // kernels with a bar of their own
	thinnest     = 0.05
)

// Draw draws the last step that was recorded, two rows a rank: its jobs, and the kernels in them, white
// where none runs. Below are the kernels of all steps by their share.
func (p *Profiler) Draw(w *bufio.Writer, r ProfileReport) {
	events, length := p.Rec.LastStep()
	rows := 2*len(r.Lanes) + 1
	bars := min(profileBars, len(r.Table))
	fmt.Fprintf(w, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%d\" "+
		"font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
		profileLeft+profileWidth+10, (rows+bars+6)*ProfileRow)
	text := func(x float64, row int, s string) {
		fmt.Fprintf(w, "<text x=\"%.1f\" y=\"%d\">%s</text>\n", x, row*ProfileRow+13, html.EscapeString(s))
	}
	bar := func(x, width float64, row int, colour, title string) {
		if width < thinnest {
			return
		}
		fmt.Fprintf(w, "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\"><title>%s</title></rect>\n",
			x, row*ProfileRow+1, width, ProfileRow-3, colour, html.EscapeString(title))
	}
	text(4, 0, fmt.Sprintf("the last of %d steps, %s; outside kernels %s of the time of all", r.Steps,
		unit.Seconds(length), unit.Percent(r.Share)))
	for i, l := range r.Lanes {
		text(4, 2*i+1, l.Name)
		text(14, 2*i+2, "kernels")
	}
	text(4, rows, "loader")
	scale := profileWidth / max(length, 1e-9)
	for _, e := range events {
		row, colour := 2*e.Lane+1, phaseColours[e.Name]
		if e.Kernel {
			row, colour = row+1, kernelColour(e.Name)
		}
		bar(profileLeft+e.Start*scale, (e.End-e.Start)*scale, row, colour, e.Name+": "+unit.Seconds(e.End-e.Start))
	}
	shares(r.Table[:bars], rows+2, text, bar)
	text(4, rows+bars+3, "jobs: forward blue, backward green, optimizer red. Kernels: products blue, "+
		"attention orange, loss violet, optimizer red, the rest teal.")
	fmt.Fprint(w, "</svg>\n")
}

// shares draws a bar a kernel, the longest first.
func shares(ks []profile.KernelSum, row int, text func(x float64, row int, s string),
	bar func(x, width float64, row int, colour, title string)) {
	for i, k := range ks {
		text(4, row+i, k.Name)
		x := 2 * profileLeft
		width := k.Share / ks[0].Share * (profileWidth - profileLeft - 200)
		bar(x, max(width, 1), row+i, kernelColour(k.Name), k.Name)
		text(x+max(width, 1)+4, row+i, fmt.Sprintf("%s, %s of peak", unit.Percent(k.Share), unit.Percent(k.OfPeak)))
	}
}
