package dashboard

import (
	"maps"
	"math"
	"slices"
	"sort"
	"strconv"

	"github.com/lfactor/lfactor/actors/run"
)

// curves are the columns of a series, by the names that the page knows.
var curves = []struct {
	name string
	of   func(*run.Metrics) float64
}{
	{"loss", func(m *run.Metrics) float64 { return m.Loss }},
	{"grad_norm", func(m *run.Metrics) float64 { return m.GradNorm }},
	{"lr", func(m *run.Metrics) float64 { return m.LR }},
	{"tokens", func(m *run.Metrics) float64 { return m.TokensSec }},
	{"mfu", func(m *run.Metrics) float64 { return m.MFU }},
	{"wait", func(m *run.Metrics) float64 { return m.DataWait / m.Seconds }},
	{"seconds", func(m *run.Metrics) float64 { return m.Seconds }},
	{"memory", func(m *run.Metrics) float64 { return m.PeakBytes }},
	{"slowest", func(m *run.Metrics) float64 { return float64(m.Slowest) }},
	{"drawn_gap", drawnGap},
	{"seen", nil}, {"elapsed", nil}, // tokens and seconds so far
}

// sums are the columns that add up what steps say.
var sums = map[string]func(*run.Metrics) float64{
	"seen":    func(m *run.Metrics) float64 { return max(0, m.TokensSec*m.Seconds) },
	"elapsed": func(m *run.Metrics) float64 { return m.Seconds },
}

// drawnGap is how far the sampler is from the trainer, NaN where nothing is compared.
func drawnGap(m *run.Metrics) float64 {
	if m.Drawn == nil || m.Drawn.Tokens == 0 || m.Drawn.Gap == -1 {
		return math.NaN()
	}
	return m.Drawn.Gap
}

// series are a run's metrics by column: eight bytes a step, and four a value. Curves are drawn from them,
// for which float32 is enough.
type series struct {
	step []int64
	cols [][]float32
	sums [][]summed // of each full block of a column
	name []string   // of a column: those of curves, and of figures as they came
	life int        // how often it began anew
}

// block is how many steps are summed up, so that a window of many is drawn from few.
const block = 64

// namesMost bounds the columns of a run.
const namesMost = 256

// summed is a stretch of a column without its NaNs.
type summed struct {
	sum    float64
	n      int
	lo, hi float32
}

func (a *summed) take(b summed) {
	a.sum, a.n, a.lo, a.hi = a.sum+b.sum, a.n+b.n, min(a.lo, b.lo), max(a.hi, b.hi)
}

// sumOf sums values up.
func sumOf(v []float32) summed {
	s := summed{lo: float32(math.Inf(1)), hi: float32(math.Inf(-1))}
	for _, x := range v {
		if x == x { // no NaN
			s.take(summed{float64(x), 1, x, x})
		}
	}
	return s
}

// over sums a column up between two places, by its blocks where they are full.
func (s *series) over(c, from, to int) summed {
	v := s.cols[c]
	first, last := (from+block-1)/block, to/block
	if first >= last {
		return sumOf(v[from:to])
	}
	out := sumOf(v[from : first*block])
	for _, b := range s.sums[c][first:last] {
		out.take(b)
	}
	out.take(sumOf(v[last*block : to]))
	return out
}

func newSeries() *series {
	s := &series{cols: make([][]float32, len(curves)), sums: make([][]summed, len(curves))}
	for _, c := range curves {
		s.name = append(s.name, c.name)
	}
	return s
}

// reset begins anew, as after steps that are taken again.
func (s *series) reset() {
	life := s.life + 1
	*s = *newSeries()
	s.life = life
}

// add appends a step. Steps that come again replace what there was from them on.
func (s *series) add(m *run.Metrics) {
	if n := len(s.step); n > 0 && m.Step <= s.step[n-1] {
		keep := s.index(m.Step)
		s.life++
		s.step = s.step[:keep]
		for i := range s.cols {
			s.cols[i], s.sums[i] = s.cols[i][:keep], s.sums[i][:keep/block]
		}
	}
	s.step = append(s.step, m.Step)
	for _, name := range slices.Sorted(maps.Keys(m.Figures)) {
		if n := len(s.step) - 1; !slices.Contains(s.name, name) && strconv.Quote(name) == `"`+name+`"` && len(s.name) < namesMost {
			s.name, s.life = append(s.name, name), s.life+1 // the steps before have none
			s.cols = append(s.cols, slices.Repeat([]float32{float32(math.NaN())}, n))
			s.sums = append(s.sums, slices.Repeat([]summed{sumOf(nil)}, n/block))
		}
	}
	for i, name := range s.name {
		v, has := m.Figures[name]
		if of := sums[name]; of != nil {
			v, has = of(m), true
			if n := len(s.cols[i]); n > 0 {
				v += float64(s.cols[i][n-1])
			}
		} else if i < len(curves) {
			v = curves[i].of(m)
			has = v != -1 || i >= 5 // what JSON cannot hold
		}
		if !has {
			v = math.NaN()
		}
		s.cols[i] = append(s.cols[i], float32(v))
		if n := len(s.cols[i]); n%block == 0 {
			s.sums[i] = append(s.sums[i], sumOf(s.cols[i][n-block:]))
		}
	}
}

// index is the place of the first step from one on.
func (s *series) index(step int64) int {
	return sort.Search(len(s.step), func(i int) bool { return s.step[i] >= step })
}

// window writes the steps from and to, both included, as JSON of at most n points a curve. Where there are
// more steps, a point is the mean of neighbours, with their least and greatest value.
func (s *series) window(b []byte, from, to int64, n int) []byte {
	i, j := s.index(from), s.index(to+1)
	width := max(1, (j-i+n-1)/max(1, n))
	b = append(b, `{"life":`...)
	b = strconv.AppendInt(b, int64(s.life), 10)
	b = append(b, `,"total":`...)
	b = strconv.AppendInt(b, int64(len(s.step)), 10)
	b = append(b, `,"width":`...)
	b = strconv.AppendInt(b, int64(width), 10)
	b = append(b, `,"step":[`...)
	for k := i; k < j; k += width {
		if k > i {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, s.step[min(k+width, j)-1], 10)
	}
	b = append(b, ']')
	for c := range s.cols {
		b = append(b, `,"`...)
		b = append(b, s.name[c]...)
		b = append(b, `":[`...)
		b = s.points(b, c, i, j, width)
		b = append(b, ']')
	}
	return append(s.newest(append(b, `,"newest":`...), j-1), '}')
}

// newest writes the values of one step as they are, null for none: what stands in figures is no mean.
func (s *series) newest(b []byte, k int) []byte {
	if k < 0 {
		return append(b, "null"...)
	}
	b = strconv.AppendInt(append(b, `{"step":`...), s.step[k], 10)
	for c := range s.cols {
		b = append(append(append(b, `,"`...), s.name[c]...), `":`...)
		b = number(b, s.cols[c][k])
	}
	return append(b, '}')
}

// points writes a curve: values where width is 1, and else [mean, least, greatest] of each so many.
func (s *series) points(b []byte, c, from, to, width int) []byte {
	for k := from; k < to; k += width {
		if k > from {
			b = append(b, ',')
		}
		if width == 1 {
			b = number(b, s.cols[c][k])
			continue
		}
		x := s.over(c, k, min(k+width, to))
		if x.n == 0 {
			b = append(b, "null"...)
			continue
		}
		b = append(b, '[')
		b = number(b, float32(x.sum/float64(x.n)))
		b = append(b, ',')
		b = number(b, x.lo)
		b = append(b, ',')
		b = number(b, x.hi)
		b = append(b, ']')
	}
	return b
}

// number writes six digits, and null for what JSON cannot hold.
func number(b []byte, v float32) []byte {
	if x := float64(v); math.IsNaN(x) || math.IsInf(x, 0) {
		return append(b, "null"...)
	} else {
		return strconv.AppendFloat(b, x, 'g', 6, 32)
	}
}
