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

// smooth is an exponential moving average over about 20 points.
func smooth(ps []Point) []Point {
	out := make([]Point, len(ps))
	avg := ps[0].Y
	for i, p := range ps {
		if !math.IsNaN(p.Y) && !math.IsInf(p.Y, 0) {
			avg += (p.Y - avg) / float64(min(i+1, 20))
		}
		out[i] = Point{p.X, avg}
	}
	return out
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

// Curve draws training and evaluation losses over the steps as an SVG drawing; unit stands at their axis.
func Curve(title, unit string, train, eval []Point) []byte {
	const w, h, left, bottom, top = 900.0, 440.0, 76.0, 56.0, 30.0
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, p := range append(append([]Point(nil), train...), eval...) {
		if !math.IsNaN(p.Y) && !math.IsInf(p.Y, 0) {
			lo, hi = min(lo, p.Y), max(hi, p.Y)
		}
	}
	if !(lo < hi) {
		lo, hi = lo-0.5, lo+0.5
	}
	if math.IsInf(lo, 0) || math.IsNaN(lo) { // no number at all
		lo, hi = 0, 1
	}
	x0, x1 := train[0].X, train[len(train)-1].X
	px := func(x float64) float64 { return left + (x-x0)/max(1, x1-x0)*(w-left-20) }
	py := func(y float64) float64 { return h - bottom - (y-lo)/(hi-lo)*(h-bottom-top) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="12"><rect width="100%%" height="100%%" fill="#fff"/>`, w, h)
	fmt.Fprintf(&b, `<text x="%g" y="18" font-size="14">%s</text>`, left, title)
	for _, y := range ticks(lo, hi, 6) {
		fmt.Fprintf(&b, `<line x1="%g" x2="%g" y1="%.1f" y2="%.1f" stroke="#ddd"/><text class="y" x="%g" y="%.1f" text-anchor="end">%s</text>`, left, w-20, py(y), py(y), left-6, py(y)+4, number(y))
	}
	for _, x := range ticks(x0, max(x1, x0+1), 8) {
		if x == math.Trunc(x) { // there are no half steps
			fmt.Fprintf(&b, `<line x1="%.1f" x2="%.1f" y1="%g" y2="%g" stroke="#ddd"/><text class="x" x="%.1f" y="%g" text-anchor="middle">%s</text>`, px(x), px(x), top, h-bottom, px(x), h-bottom+18, number(x))
		}
	}
	line := func(ps []Point, color string, width float64) {
		fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" stroke-width="%g" points="`, color, width)
		for _, p := range ps {
			if !math.IsNaN(p.Y) && !math.IsInf(p.Y, 0) {
				fmt.Fprintf(&b, "%.1f,%.1f ", px(p.X), py(p.Y))
			}
		}
		b.WriteString(`"/>`)
	}
	line(train, "#b0c8e8", 1)
	line(smooth(train), "#2060c0", 1.6)
	if len(eval) > 0 {
		line(eval, "#d06020", 2)
		for _, p := range eval {
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="#d06020"/>`, px(p.X), py(p.Y))
		}
		fmt.Fprintf(&b, `<text x="%g" y="18" fill="#d06020">evaluation</text>`, left+120)
	}
	fmt.Fprintf(&b, `<text x="%g" y="18" fill="#2060c0">training</text><text x="%g" y="%g" text-anchor="middle">step</text>`, left+50, w/2, h-10)
	fmt.Fprintf(&b, `<text transform="translate(18 %g) rotate(-90)" text-anchor="middle">%s</text></svg>`, h/2, unit)
	return []byte(b.String())
}
