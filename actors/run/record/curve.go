// Package record has what a run writes for those who look at it: the curve of its loss, TensorBoard's
// events, the trace of what each actor's device did when, and the map of how experts were used.
package record

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Point is a value at a step.
type Point struct{ X, Y float64 }

// smoothWidth is the width of the smoothed line, in steps.
const smoothWidth = 20.0

// smooth fits a straight line around each point, by weights exp(-distance / width) to both sides, and takes its value
// there; distance and width are in steps. A mean of what came before lies above a falling curve; this gives a straight
// line back as it is, at both ends too. A curve falls fastest at its start, so the width is at most a third of what came
// before. At an end a line overshoots what is there, so that a value stays within the least and the greatest of those it
// is made of. Values that are no numbers have no part in it, and no point of their own. Source: local linear regression,
// W. S. Cleveland, JASA 74 (1979), with an exponential kernel.
func smooth(ps []Point, width float64) (out []Point) {
	ps = finite(ps)
	for i, p := range ps {
		gap := 1.0
		if i > 0 {
			gap = p.X - ps[i-1].X
		}
		h := min(width, max((p.X-ps[0].X)/3, gap/4))
		var s0, s1, s2, t0, t1 float64
		lo, hi := p.Y, p.Y
		add := func(q Point) bool {
			d := q.X - p.X
			w := math.Exp(-math.Abs(d) / h)
			if w < 1e-3 {
				return false
			}
			s0, s1, s2, t0, t1 = s0+w, s1+w*d, s2+w*d*d, t0+w*q.Y, t1+w*d*q.Y
			lo, hi = min(lo, q.Y), max(hi, q.Y)
			return true
		}
		for k := i; k >= 0 && add(ps[k]); k-- {
		}
		for k := i + 1; k < len(ps) && add(ps[k]); k++ {
		}
		y := t0 / s0
		if det := s0*s2 - s1*s1; det > 1e-9*s0*s2 {
			y = (s2*t0 - s1*t1) / det
		}
		out = append(out, Point{p.X, min(hi, max(lo, y))})
	}
	return out
}

// finite leaves out values that are no numbers.
func finite(ps []Point) (out []Point) {
	for _, p := range ps {
		if !math.IsNaN(p.Y) && !math.IsInf(p.Y, 0) {
			out = append(out, p)
		}
	}
	return out
}

// thinned are at most n points, each the mean of neighbours, with the least and the greatest value of each.
func thinned(ps []Point, n int) (mean, least, most []Point) {
	width := max(1, (len(ps)+n-1)/n)
	for i := 0; i < len(ps); i += width {
		part := ps[i:min(i+width, len(ps))]
		m, lo, hi := Point{}, Point{Y: math.Inf(1)}, Point{Y: math.Inf(-1)}
		for _, p := range part {
			m.X += p.X / float64(len(part))
			m.Y += p.Y / float64(len(part))
			lo.Y, hi.Y = min(lo.Y, p.Y), max(hi.Y, p.Y)
		}
		lo.X, hi.X = m.X, m.X
		mean, least, most = append(mean, m), append(least, lo), append(most, hi)
	}
	return mean, least, most
}

// ticks are round numbers (1, 2 or 5 times a power of ten apart) that cover lo to hi with about n steps.
func ticks(lo, hi float64, n int) []float64 {
	raw := (hi - lo) / float64(n)
	unit := math.Pow(10, math.Floor(math.Log10(raw)))
	step := 10 * unit
	for _, m := range []float64{1, 2, 5} {
		if m*unit >= raw*0.999 {
			step = m * unit
			break
		}
	}
	var out []float64
	for k := math.Ceil(lo/step - 1e-9); k*step <= hi+1e-9*step; k++ {
		out = append(out, k*step)
	}
	return out
}

// number writes a tick without needless digits.
func number(v float64) string { return strconv.FormatFloat(math.Round(v*1e9)/1e9, 'f', -1, 64) }

// curvePoints bounds the points of a drawn line: the drawing is some 800 wide.
const curvePoints = 1600

// chart is the frame of a drawing of values over steps.
type chart struct {
	strings.Builder
	x0, x1, lo, hi float64
}

const chartWide, chartHigh, chartLeft, chartRight, chartTop, chartBottom = 900.0, 440.0, 76.0, 64.0, 40.0, 56.0

func (c *chart) px(x float64) float64 {
	return chartLeft + (x-c.x0)/max(1, c.x1-c.x0)*(chartWide-chartLeft-chartRight)
}

func (c *chart) py(y float64) float64 {
	return chartHigh - chartBottom - (y-c.lo)/(c.hi-c.lo)*(chartHigh-chartBottom-chartTop)
}

// rangeOf is what values span, with a margin, so that the least and the greatest are not on the frame.
func rangeOf(all ...[]Point) (lo, hi float64) {
	lo, hi = math.Inf(1), math.Inf(-1)
	for _, ps := range all {
		for _, p := range ps {
			lo, hi = min(lo, p.Y), max(hi, p.Y)
		}
	}
	switch {
	case lo > hi: // no number at all
		return 0, 1
	case lo == hi:
		return lo - 0.5, lo + 0.5
	}
	margin := 0.05 * (hi - lo)
	return lo - margin, hi + margin
}

// axes draws the grid with its numbers, and what stands at both axes.
func (c *chart) axes(title, unit string) {
	fmt.Fprintf(c, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" `+
		`font-size="12"><rect width="100%%" height="100%%" fill="#fff"/>`, chartWide, chartHigh)
	fmt.Fprintf(c, `<text x="%g" y="22" font-size="14" font-weight="bold">%s</text>`, chartLeft, title)
	for _, y := range ticks(c.lo, c.hi, 6) {
		fmt.Fprintf(c, `<line x1="%g" x2="%g" y1="%.1f" y2="%.1f" stroke="#ddd"/><text class="y" x="%g" y="%.1f" `+
			`text-anchor="end">%s</text>`, chartLeft, chartWide-chartRight, c.py(y), c.py(y), chartLeft-6, c.py(y)+4,
			number(y))
	}
	for _, x := range ticks(c.x0, max(c.x1, c.x0+1), 8) {
		if x == math.Trunc(x) { // there are no half steps
			fmt.Fprintf(c, `<line x1="%.1f" x2="%.1f" y1="%g" y2="%g" stroke="#ddd"/>`+
				`<text class="x" x="%.1f" y="%g" text-anchor="middle">%s</text>`, c.px(x), c.px(x), chartTop,
				chartHigh-chartBottom, c.px(x), chartHigh-chartBottom+18, number(x))
		}
	}
	fmt.Fprintf(c, `<text x="%g" y="%g" text-anchor="middle">step</text>`, chartWide/2, chartHigh-10)
	fmt.Fprintf(c, `<text transform="translate(18 %g) rotate(-90)" text-anchor="middle">%s</text>`, chartHigh/2, unit)
}

func (c *chart) line(ps []Point, style string) {
	fmt.Fprintf(c, `<polyline fill="none" %s points="`, style)
	for _, p := range ps {
		fmt.Fprintf(c, "%.1f,%.1f ", c.px(p.X), c.py(p.Y))
	}
	c.WriteString(`"/>`)
}

// legend says what a line is, from x on at the top, and gives the place behind it.
func (c *chart) legend(x float64, style, text string) float64 {
	fmt.Fprintf(c, `<line x1="%g" x2="%g" y1="18" y2="18" %s/><text x="%g" y="22">%s</text>`, x, x+22, style, x+28,
		text)
	return x + 44 + 6.4*float64(len(text))
}

// newest writes the last value of a line beside its end.
func (c *chart) newest(ps []Point, colour string, off float64) {
	p := ps[len(ps)-1]
	fmt.Fprintf(c, `<text x="%.1f" y="%.1f" fill="%s" font-weight="bold">%.4g</text>`, c.px(p.X)+5, c.py(p.Y)+4+off,
		colour, p.Y)
}

// Curve draws training and evaluation losses over the steps as an SVG drawing; unit stands at their axis. Of more steps
// than the drawing is wide, a point is the mean of neighbours, and a band has their least and greatest values.
func Curve(title, unit string, train, eval []Point) []byte {
	train, eval = finite(train), finite(eval)
	mean, least, most := thinned(train, curvePoints)
	c := &chart{x0: 1, x1: 2}
	if len(train) > 0 {
		c.x0, c.x1 = train[0].X, train[len(train)-1].X
	}
	c.lo, c.hi = rangeOf(train, eval)
	c.axes(title, unit)
	const raw, line, evals = `stroke="#9bbbe3" stroke-width="1"`, `stroke="#2060c0" stroke-width="1.8"`,
		`stroke="#d06020" stroke-width="2" stroke-dasharray="5 3"`
	x := chartLeft + 16 + 9*float64(len(title))
	if len(train) > len(mean) {
		c.WriteString(`<polygon fill="#9bbbe3" fill-opacity=".35" points="`)
		for i := range most {
			fmt.Fprintf(c, "%.1f,%.1f ", c.px(most[i].X), c.py(most[i].Y))
		}
		for i := len(least) - 1; i >= 0; i-- {
			fmt.Fprintf(c, "%.1f,%.1f ", c.px(least[i].X), c.py(least[i].Y))
		}
		c.WriteString(`"/>`)
		x = c.legend(x, `stroke="#9bbbe3" stroke-opacity=".5" stroke-width="9"`,
			fmt.Sprintf("training, least and greatest of %d steps", (len(train)+len(mean)-1)/len(mean)))
	} else {
		c.line(train, raw)
		x = c.legend(x, raw, "training, each step")
	}
	if len(mean) > 0 {
		smoothed := smooth(mean, max(smoothWidth, 4*(c.x1-c.x0)/curvePoints))
		c.line(smoothed, line)
		x = c.legend(x, line, "training, smoothed over about 20 steps")
		c.newest(train, "#2060c0", 8)
	}
	if len(eval) > 0 {
		c.line(eval, evals)
		for _, p := range eval {
			fmt.Fprintf(c, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="#d06020"/>`, c.px(p.X), c.py(p.Y))
		}
		c.legend(x, evals, "evaluation")
		c.newest(eval, "#d06020", -6)
	}
	c.WriteString("</svg>")
	return []byte(c.String())
}
