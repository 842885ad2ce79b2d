package fidelity

import (
	"fmt"
	"strings"
)

// DenoiserSVG draws the shares of all devices' time in each layout as bars, with a legend.
func DenoiserSVG(all []DenoiserLayout) string {
	const left, width, row, top = 210, 560, 34, 46
	parts := []struct {
		name, colour string
		of           func(l *DenoiserLayout) float64
	}{{"denoiser", "#4e79a7", func(l *DenoiserLayout) float64 { return l.Denoiser }},
		{"VAE", "#f28e2b", func(l *DenoiserLayout) float64 { return l.VAE }},
		{"text", "#e15759", func(l *DenoiserLayout) float64 { return l.Text }},
		{"waiting", "#d0d0d0", func(l *DenoiserLayout) float64 { return l.Rest }}}
	var b strings.Builder
	h := top + row*len(all) + 30
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "+
		"font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n", left+width+110, h)
	fmt.Fprintf(&b, "<text x=\"%d\" y=\"16\" font-weight=\"bold\">share of all devices' time, and samples a second</text>\n", 10)
	for i, p := range parts {
		x := left + 110*i
		fmt.Fprintf(&b, "<rect x=\"%d\" y=\"24\" width=\"12\" height=\"12\" fill=\"%s\"/><text x=\"%d\" y=\"34\">%s</text>\n",
			x, p.colour, x+17, p.name)
	}
	for i := range all {
		l := &all[i]
		y := top + row*i
		name := fmt.Sprintf("%d devices, %s", l.Devices, l.Layout)
		if l.Encoding > 0 {
			name += fmt.Sprintf(" (%d)", l.Encoding)
		}
		fmt.Fprintf(&b, "<text x=\"10\" y=\"%d\">%s</text>\n", y+16, name)
		x := float64(left)
		for _, p := range parts {
			w := p.of(l) * width
			fmt.Fprintf(&b, "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"22\" fill=\"%s\"><title>%s: %s %.1f %%</title></rect>\n",
				x, y, w, p.colour, name, p.name, 100*p.of(l))
			if w > 46 {
				fmt.Fprintf(&b, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" fill=\"#ffffff\">%.1f %%</text>\n", x+w/2, y+15,
					100*p.of(l))
			}
			x += w
		}
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\">%.3f/s</text>\n", left+width+10, y+16, l.Samples)
	}
	fmt.Fprintf(&b, "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%[2]d\" stroke=\"#888888\"/>\n", left, h-24, left+width)
	for i := range 5 {
		x := left + width*i/4
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" fill=\"#555555\">%d %%</text>\n", x, h-8, 25*i)
	}
	b.WriteString("</svg>\n")
	return b.String()
}
