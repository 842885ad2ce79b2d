package recipe

import (
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs/unit"
)

var page = template.Must(template.New("report").Funcs(template.FuncMap{
	"graph": func(r *Report) template.HTML { return template.HTML(r.Graph()) },
	"share": func(part, all int64) string {
		if all == 0 {
			return ""
		}
		return unit.Percent(float64(part) / float64(all))
	},
	"reasons": func(s StepReport) []string { return slices.Sorted(maps.Keys(s.Dropped)) },
	"examples": func(r *Report, step, reason string) (out []Drop) {
		for _, d := range r.Examples {
			if d.Step == step && d.Reason == reason {
				out = append(out, d)
			}
		}
		return out
	},
}).Parse(`<!doctype html><html lang="en"><meta charset="utf-8"><title>{{.Recipe}}</title>
<style>body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em}
table{border-collapse:collapse}td,th{padding:.2em .8em;text-align:left;border-bottom:1px solid #ddd;vertical-align:top}
td.n{text-align:right;font-variant-numeric:tabular-nums}pre{white-space:pre-wrap;margin:0;background:#f6f6f6;padding:.3em}
details{margin:.2em 0}</style>
<h1>{{.Recipe}}</h1>{{graph .}}
<h2>Inputs</h2><table><tr><th>name<th>files<th>documents<th>bytes of text<th>unreadable
{{range .Inputs}}<tr><td>{{.Name}}<td class=n>{{.Files}}<td class=n>{{.Documents}}<td class=n>{{.Bytes}}<td class=n>{{.Unreadable}}
{{end}}</table>
<h2>Steps</h2><table><tr><th>name<th>step<th>in<th>out<th>kept<th>dropped
{{$r := .}}{{range .Steps}}{{$s := .}}<tr><td>{{.Name}}<td>{{.Step}}<td class=n>{{.In}}<td class=n>{{.Out}}<td class=n>{{share .Out .In}}<td>
{{range reasons .}}<details><summary>{{.}}: {{index $s.Dropped .}}</summary>
{{range examples $r $s.Name .}}<div>{{.Input}} {{.Document}}{{if .File}}, {{.File}} at {{.Offset}}{{end}}{{with .Of}}, like {{.Input}} {{.Document}}{{end}}
<pre>{{.Head}}</pre></div>{{end}}</details>{{end}}
{{end}}</table>
<h2>Outputs</h2><table><tr><th>name<th>format<th>files<th>documents<th>bytes of text<th>not written
{{range .Outputs}}{{$o := .}}<tr><td>{{.Name}}<td>{{.Format}}<td class=n>{{len .Files}}<td class=n>{{.Documents}}<td class=n>{{.Bytes}}<td>{{with .LeftOut}}{{.}} files of samples, which the format does not keep{{end}}
{{range $why, $n := .Dropped}}<details><summary>{{$why}}: {{$n}}</summary>{{range examples $r (printf "output %s" $o.Name) $why}}<div>{{.Input}} {{.Document}}: {{.Detail}}</div>{{end}}</details>{{end}}
{{end}}</table></html>
`))

// Page writes the report as one page without scripts, with the flow as a picture.
func (r *Report) Page(w io.Writer) error { return page.Execute(w, r) }

// Sizes of the picture, in pixels.
const (
	boxWide, boxHigh = 190, 44
	gapWide, gapHigh = 60, 22
)

// Graph draws the flow as SVG: inputs on the left, each step to the right of what it reads, with the numbers
// of documents on the arrows.
func (r *Report) Graph() string {
	d := &drawing{boxes: map[string]*box{}, rows: map[int]int{}}
	for _, in := range r.Inputs {
		d.put(in.Name, in.Name, "input", in.Documents-in.Unreadable, nil)
	}
	for placed := 0; placed < len(r.Steps); { // steps may stand in front of those that they read
		before := placed
		for _, s := range r.Steps {
			if d.boxes[s.Name] == nil && d.has(s.From) {
				d.put(s.Name, s.Name, s.Step, s.Out, s.From)
				placed++
			}
		}
		if placed == before { // no recipe that was checked has a circle
			break
		}
	}
	for _, o := range r.Outputs {
		d.put("output "+o.Name, o.Name, o.Format, o.Documents, o.From)
	}
	return d.String()
}

// box is a part of the flow in the picture.
type box struct {
	name, label  string
	out          int64
	x, y, column int
}

// drawing is a picture of a flow.
type drawing struct {
	boxes      map[string]*box
	list       []*box
	rows       map[int]int // boxes of each column
	arrows     strings.Builder
	wide, high int
}

// has says whether all of these are drawn.
func (d *drawing) has(names []string) bool {
	return !slices.ContainsFunc(names, func(n string) bool { return d.boxes[n] == nil })
}

// put draws a box, and arrows to it from those that it reads.
func (d *drawing) put(key, name, label string, out int64, from []string) {
	b := &box{name: name, label: label, out: out}
	for _, f := range from {
		b.column = max(b.column, d.boxes[f].column+1)
	}
	b.x, b.y = 10+b.column*(boxWide+gapWide), 10+d.rows[b.column]*(boxHigh+gapHigh)
	d.rows[b.column]++
	d.wide, d.high = max(d.wide, b.x+boxWide+10), max(d.high, b.y+boxHigh+10)
	d.boxes[key] = b
	d.list = append(d.list, b)
	for _, f := range from {
		a := d.boxes[f]
		x, y, end := a.x+boxWide, a.y+boxHigh/2, b.y+boxHigh/2
		fmt.Fprintf(&d.arrows, `<path d="M%d %d C%d %d %d %d %d %d" fill="none" stroke="#888"/>`, x, y,
			x+gapWide/2, y, b.x-gapWide/2, end, b.x, end)
		fmt.Fprintf(&d.arrows, `<text x="%d" y="%d" font-size="11" fill="#555">%d</text>`, x+4, y-5, a.out)
	}
}

// String is the picture.
func (d *drawing) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" `+
		`font-family="system-ui,sans-serif">`, d.wide, d.high)
	b.WriteString(d.arrows.String())
	for _, x := range d.list {
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" rx="6" fill="#eef" stroke="#99c"/>`, x.x, x.y,
			boxWide, boxHigh)
		for i, text := range []string{x.name, x.label} {
			fmt.Fprintf(&b, `<text x="%d" y="%d" font-size="%d">%s</text>`, x.x+10, x.y+19+16*i, 13-2*i,
				template.HTMLEscapeString(text))
		}
	}
	return b.String() + "</svg>"
}
