package main

import (
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// picturePath is where the picture of the house lies: what -picture prints, which a test holds it to.
const picturePath = "docs/house.svg"

// dataWay is the way of a sample through the house, and of what comes of it: packages, and what each does with it.
var dataWay = [][2]string{
	{"dataset/store", "reads bytes by their offset, on disk or in a store"},
	{"dataset/format", "finds the document, of whatever format"},
	{"dataset/token", "makes tokens of texts; dataset/media makes patches of pictures"},
	{"dataset", "orders, packs and batches samples"},
	{"actors/core", "the loader hands microbatches to ranks; ranks and the coordinator decide what runs next"},
	{"actors/host", "runs it on devices"},
	{"actors/host/links", "carries messages between processes"},
	{"kernels/grad", "the recorded forward and backward of the stage's blocks"},
	{"kernels/cpu", "computes"},
	{"stages/checkpoint", "keeps parameters and state"},
	{"actors/run", "reports steps, and keeps the run's records"},
}

// Measures of the picture, in pixels.
const (
	pictureWide = 1380
	chipsLeft   = 150
	chipsRight  = 830
	chipHigh    = 22
	floorGap    = 26
	laneFirst   = chipsRight + 30
)

// floorBox is a floor of the house as it is drawn: its folders, their packages, and where it lies.
type floorBox struct {
	folders     []string
	packages    []string
	top, bottom int
}

// picture draws the house as SVG: floors as the line "order" has them, the highest on top, with their
// packages; on the right how many packages of one folder import another; and the data's way in numbers.
func picture(m *module, p *layerPolicy, w io.Writer) {
	floors := pictureFloors(m, p)
	y := 40
	for i := range floors {
		floors[i].top = y
		y = placeChips(&floors[i], func(int, int, int, string) {})
		floors[i].bottom = y
		y += floorGap
	}
	high := y + 24*len(dataWay) + 50
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" `+
		`font-size="12"><rect width="100%%" height="100%%" fill="#fff"/>`+"\n", pictureWide, high)
	fmt.Fprintf(w, `<text x="20" y="24" font-size="15">The house: a folder imports those on lower floors only</text>`+"\n")
	for i := range floors {
		drawFloor(w, &floors[i])
	}
	drawArrows(w, m, floors)
	fmt.Fprintf(w, `<text x="20" y="%d" font-size="14">The way of the data</text>`+"\n", y+16)
	for i, s := range dataWay {
		at := y + 40 + 24*i
		drawNumber(w, 30, at-4, i+1)
		fmt.Fprintf(w, `<text x="48" y="%d"><tspan font-weight="bold">%s</tspan> %s</text>`+"\n", at, s[0],
			html.EscapeString(s[1]))
	}
	fmt.Fprintln(w, "</svg>")
}

// pictureFloors are the floors, the highest first.
func pictureFloors(m *module, p *layerPolicy) []floorBox {
	floors := []floorBox{{}}
	for _, word := range p.order {
		if word == "<" {
			floors = append(floors, floorBox{})
			continue
		}
		f := &floors[len(floors)-1]
		f.folders = append(f.folders, word)
	}
	seen := map[string]bool{}
	for _, f := range m.files {
		if n := p.floor(f.dir); n >= 0 && !f.test && !f.ignored && !seen[f.dir] && !strings.Contains(f.dir,
			"testdata") {
			seen[f.dir] = true
			floors[n].packages = append(floors[n].packages, f.dir)
		}
	}
	for i := range floors {
		slices.Sort(floors[i].packages)
	}
	slices.Reverse(floors)
	return floors
}

// placeChips lays the packages of a floor out in rows and hands each to put; the result is the floor's lower end.
func placeChips(f *floorBox, put func(x, y, wide int, name string)) int {
	x, y := chipsLeft, f.top+8
	for _, name := range f.packages {
		wide := 14 + 6*len(name)
		if x+wide > chipsRight-8 {
			x, y = chipsLeft, y+chipHigh+6
		}
		put(x, y, wide, name)
		x += wide + 6
	}
	return y + chipHigh + 8
}

func drawFloor(w io.Writer, f *floorBox) {
	fmt.Fprintf(w, `<rect x="20" y="%d" width="%d" height="%d" rx="6" fill="#f3f5f9" stroke="#9aa5b8"/>`+"\n", f.top,
		chipsRight-20, f.bottom-f.top)
	for i, name := range f.folders {
		fmt.Fprintf(w, `<text x="30" y="%d" font-size="14" font-weight="bold">%s</text>`+"\n", f.top+24+18*i, name)
	}
	placeChips(f, func(x, y, wide int, name string) {
		fmt.Fprintf(w, `<rect x="%d" y="%d" width="%d" height="%d" rx="4" fill="#fff" stroke="#c5ccd8"/>`, x, y, wide,
			chipHigh)
		fmt.Fprintf(w, `<text x="%d" y="%d" font-size="11">%s</text>`+"\n", x+6, y+15, name)
		for i, s := range dataWay {
			if s[0] == name {
				drawNumber(w, x+wide-4, y+2, i+1)
			}
		}
	})
}

func drawNumber(w io.Writer, x, y, n int) {
	fmt.Fprintf(w, `<circle cx="%d" cy="%d" r="9" fill="#c2410c"/><text x="%d" y="%d" font-size="10" fill="#fff" `+
		`text-anchor="middle">%d</text>`+"\n", x, y, x, y+4, n)
}

// drawArrows draws an arrow for each pair of floors, as broad as the logarithm of the number of packages
// that import, with that number.
func drawArrows(w io.Writer, m *module, floors []floorBox) {
	at := map[string]int{} // floors by folder
	for i, f := range floors {
		for _, name := range f.folders {
			at[name] = i
		}
	}
	importers := map[[2]int]map[string]bool{} // packages, so that a file more or less changes nothing
	for _, f := range m.files {
		from, known := at[topOf(f.dir)]
		if !known || f.test || f.ignored || strings.Contains(f.dir, "testdata") {
			continue
		}
		for _, s := range f.ast.Imports {
			imp, err := strconv.Unquote(s.Path.Value)
			short, ours := strings.CutPrefix(imp, m.name+"/")
			if to, known := at[topOf(short)]; err == nil && ours && known && to != from {
				pair := [2]int{from, to}
				if importers[pair] == nil {
					importers[pair] = map[string]bool{}
				}
				importers[pair][f.dir] = true
			}
		}
	}
	lane := 0
	for from := range floors {
		for to := from + 1; to < len(floors); to++ {
			n := len(importers[[2]int{from, to}])
			if n == 0 {
				continue
			}
			x := laneFirst + 20*lane
			top, bottom := floors[from].bottom-6, floors[to].top+6
			fmt.Fprintf(w, `<path d="M%d %dH%dV%dH%d" fill="none" stroke="#4a6fa5" stroke-width="%.1f"/>`, chipsRight, top, x,
				bottom, chipsRight+6, 0.6+math.Log10(float64(n)))
			fmt.Fprintf(w, `<path d="M%d %dl8 -4v8z" fill="#4a6fa5"/>`, chipsRight, bottom)
			fmt.Fprintf(w, `<text x="%d" y="%d" font-size="9" fill="#333">%d</text>`+"\n", x+1, top-3, n)
			lane++
		}
	}
}

// topOf is the top-level folder of a package.
func topOf(dir string) string {
	top, _, _ := strings.Cut(dir, "/")
	return top
}
