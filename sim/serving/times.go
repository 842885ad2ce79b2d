package serving

import (
	"cmp"
	"errors"
	"slices"

	"github.com/lfactor/lfactor/stages/sample"
)

// Measured is a step that an engine took.
type Measured struct {
	sample.Load
	Seconds float64
}

// Times are those of steps on one machine: of each class of rows a time, and beside it times of a key that is seen and
// of a row that is drawn from, which are the same for all.
type Times struct {
	rows      []int // ascending
	base      []float64
	key, head float64
}

// Fit finds the times that are nearest to measured steps, by least squares of shares: a step of twice the time may be
// off by twice as much.
func Fit(steps []Measured) (*Times, error) {
	of := map[int][]Measured{}
	for _, m := range steps {
		if m.Rows > 0 && m.Seconds > 0 {
			m.Load = m.Class()
			of[m.Rows] = append(of[m.Rows], m)
		}
	}
	if len(of) == 0 {
		return nil, errors.New("serving: no step was measured")
	}
	t := &Times{}
	for rows := range of { //lfvet:order sorted below
		t.rows = append(t.rows, rows)
	}
	slices.Sort(t.rows)
	t.base = make([]float64, len(t.rows))
	for range 200 {
		var kk, kh, hh, ky, hy float64
		for i, rows := range t.rows {
			num, den := 0.0, 0.0
			for _, m := range of[rows] {
				w := 1 / (m.Seconds * m.Seconds)
				num, den = num+w*(m.Seconds-t.key*float64(m.Keys)-t.head*float64(m.Heads)), den+w
			}
			t.base[i] = max(0, num/den)
			for _, m := range of[rows] {
				w, k, h, y := 1/(m.Seconds*m.Seconds), float64(m.Keys), float64(m.Heads), m.Seconds-t.base[i]
				kk, kh, hh, ky, hy = kk+w*k*k, kh+w*k*h, hh+w*h*h, ky+w*k*y, hy+w*h*y
			}
		}
		if d := kk*hh - kh*kh; d > 1e-9*kk*hh {
			t.key, t.head = max(0, (ky*hh-hy*kh)/d), max(0, (hy*kk-ky*kh)/d)
		}
	}
	return t, nil
}

// Step is the time of a load in seconds. Rows between classes that were measured, and beyond them, lie on lines.
func (t *Times) Step(l sample.Load) float64 {
	l = l.Class()
	i, found := slices.BinarySearch(t.rows, l.Rows)
	base := t.base[min(i, len(t.base)-1)]
	if !found && len(t.rows) > 1 {
		i = min(max(i, 1), len(t.rows)-1)
		share := float64(l.Rows-t.rows[i-1]) / float64(t.rows[i]-t.rows[i-1])
		base = max(0, t.base[i-1]+share*(t.base[i]-t.base[i-1]))
	}
	return cmp.Or(base+t.key*float64(l.Keys)+t.head*float64(l.Heads), 1e-9)
}
