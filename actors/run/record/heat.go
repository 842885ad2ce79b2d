package record

import (
	"fmt"
	"math"
	"strings"
)

// HeatRow is a row of a map of experts: what is counted, and how often it went to each expert.
type HeatRow struct {
	Name string
	Rows []float64
}

// HeatMap draws how experts were used as SVG: a column an expert, white for even use, red for more and blue for less.
func HeatMap(rows []HeatRow, title string) string {
	const cell, left, top = 14.0, 150.0, 34.0
	most := 0
	for _, r := range rows {
		most = max(most, len(r.Rows))
	}
	w, h := left+cell*float64(max(30, most))+20, top+cell*float64(len(rows))+30
	var b strings.Builder
	fmt.Fprintf(&b,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="11">`, w, h)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/><text x="%g" y="18">%s</text>`, left, title)
	for i, r := range rows {
		sum := 0.0
		for _, n := range r.Rows {
			sum += n
		}
		y := top + cell*float64(i)
		fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="end">%s</text>`, left-6, y+cell-3, r.Name)
		for e, n := range r.Rows {
			share := n * float64(len(r.Rows)) / math.Max(1, sum)
			fmt.Fprintf(&b, `<rect x="%g" y="%g" width="%g" height="%g" fill="%s">`, left+cell*float64(e),
				y, cell-1, cell-1, colour(share))
			fmt.Fprintf(&b, `<title>%s, expert %d: %.0f rows, %.2f of even use</title></rect>`, r.Name, e, n, share)
		}
	}
	fmt.Fprintf(&b, `<text x="%g" y="%g">expert 0 to %d · white: even use · red: more, up to 4 times · blue: less</text></svg>`, left, h-10, most-1)
	return b.String()
}

// colour is that of so many times even use.
func colour(share float64) string {
	x := math.Max(-1, math.Min(1, math.Log2(math.Max(share, 1e-3))/2))
	fade := int(math.Round(255 * (1 - math.Abs(x))))
	if x > 0 {
		return fmt.Sprintf("#ff%02x%02x", fade, fade)
	}
	return fmt.Sprintf("#%02x%02xff", fade, fade)
}
