package cost

import (
	"fmt"
	"math/bits"
	"slices"
	"sync"
)

// Split deals rows to folds. Rows of one fold are predicted by constants that were fitted to all others.
type Split struct {
	Name string
	Of   func(r *Measured) string // the fold of a row
	// Only, unless it is nil, says of a fold whether it is predicted; the others serve to fit alone
	Only func(fold string, all []string) bool
}

// Splits are the ways in which a calibration is held to rows that it has not seen. Random folds leave neighbours
// of each row behind, so that they say how well a table is filled in. The others leave out everything of one kind:
// they say how well constants carry over to a model, a degree, a size or a number of devices that nobody measured.
func Splits(folds int) []Split {
	last := func(fold string, all []string) bool { return fold == all[len(all)-1] }
	scale := func(r *Measured) string { return fmt.Sprintf("%6d GPUs", r.GPUs) }
	return []Split{
		{Name: "rows at random", Of: func(r *Measured) string { return fmt.Sprint(r.Fold(folds)) }},
		{Name: "model", Of: func(r *Measured) string {
			return fmt.Sprintf("%d layers of %d, %d heads, sequences of %d", r.Layers, r.Hidden, r.Heads, r.Seq)
		}},
		{Name: "tp", Of: func(r *Measured) string { return fmt.Sprintf("tp %2d", r.TP) }},
		{Name: "size", Of: func(r *Measured) string {
			return fmt.Sprintf("2^%2d weights", bits.Len64(uint64(12*r.Layers*r.Hidden*r.Hidden)))
		}},
		{Name: "GPUs", Of: scale},
		{Name: "most GPUs", Of: scale, Only: last},
	}
}

// Fold deals a row to one of n folds by its columns, so that folds do not depend on the order of rows.
func (r *Measured) Fold(n int) int {
	h := uint64(14695981039346656037)
	for _, v := range []int{r.GPUs, r.Batch, r.Micro, r.Hidden, r.Heads, r.Layers, r.Seq, r.TP, r.DP, r.PP} {
		h = (h ^ uint64(v)) * 1099511628211
	}
	return int((h >> 32) % uint64(n))
}

// Held is what a split's folds came out as.
type Held struct {
	Split string
	Folds []string // in rising order of their names
	// Rows are those that were predicted, with the fold of each and the seconds by constants that were
	// fitted without it.
	Rows    []Measured
	Of      []int
	Seconds []float64
}

// CrossValidate predicts rows by constants that were fitted without their fold. Rows beside them, of the same devices,
// are of the same folds and serve to fit alone. A table of one fold has nothing to fit to, and no rows come back.
func CrossValidate(rows, beside []Measured, split Split, slots Slots) (*Held, error) {
	out := &Held{Split: split.Name}
	all := slices.Concat(rows, beside)
	byFold, asked := map[string][]Measured{}, map[string][]Measured{}
	for i := range all {
		f := split.Of(&all[i])
		if byFold[f] == nil {
			out.Folds = append(out.Folds, f)
		}
		if byFold[f] = append(byFold[f], all[i]); i < len(rows) {
			asked[f] = append(asked[f], all[i])
		}
	}
	slices.Sort(out.Folds)
	if len(out.Folds) < 2 {
		return out, nil
	}
	fits, faults := make([]*Constants, len(out.Folds)), make([]error, len(out.Folds))
	var group sync.WaitGroup
	long, err := slotsOf(all, slots) // asked for by one goroutine, before the fits run beside each other
	if err != nil {
		return nil, err
	}
	for i, f := range out.Folds {
		if len(asked[f]) == 0 || split.Only != nil && !split.Only(f, out.Folds) {
			continue
		}
		group.Go(func() {
			var train []Measured
			for _, g := range out.Folds {
				if g != f {
					train = append(train, byFold[g]...)
				}
			}
			fits[i], faults[i] = Calibrate(train, long)
		})
	}
	group.Wait()
	for i, f := range out.Folds {
		if faults[i] != nil {
			return nil, faults[i]
		}
		if fits[i] == nil {
			continue
		}
		for _, r := range asked[f] {
			n, err := long(r.PP, r.Microbatches())
			if err != nil {
				return nil, err
			}
			out.Rows, out.Of = append(out.Rows, r), append(out.Of, i)
			out.Seconds = append(out.Seconds, fits[i].Predict(&r, n).Sum())
		}
	}
	return out, nil
}

// slotsOf asks for the lengths of all rows' programs and answers from what it was told.
func slotsOf(rows []Measured, slots Slots) (Slots, error) {
	type key struct{ p, m int }
	known := map[key]float64{}
	for i := range rows {
		k := key{rows[i].PP, rows[i].Microbatches()}
		if _, ok := known[k]; ok {
			continue
		}
		n, err := slots(k.p, k.m)
		if err != nil {
			return nil, err
		}
		known[k] = n
	}
	return func(p, m int) (float64, error) { return known[key{p, m}], nil }, nil
}
