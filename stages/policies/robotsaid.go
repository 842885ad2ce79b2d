package policies

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/dataset/format/recordings"
)

// What is to be known of recordings before a policy learns from them, and is no fault: lerobot does the same
// without a word.

// shaped are data sets that say how large their cameras' pictures are.
type shaped interface {
	// Shape is a camera's height and width, 0 where they are not known.
	Shape(camera string) [2]int
}

// of takes a data set's rate and its cameras' shapes.
func (set *robotSet) of(l recordings.Robots) {
	if own, ok := l.(recordings.Rated); ok {
		set.rate = own.Rate()
	}
	if own, ok := l.(shaped); ok {
		set.shapes = map[string][2]int{}
		for _, c := range l.Cameras() {
			set.shapes[c] = own.Shape(c)
		}
	}
}

// farMost is from where on a scaled number is far from those about 1 that a policy learns.
const farMost = 1e3

// far names the numbers of a column that a scale brings far from 1, though its statistics say that they occur: a
// quantile of 1 % that is that of 99 %, or nearly, beside rare other values, makes losses of 1e14.
func far(column string, s recordings.RobotStats, a Affine, how string) []string {
	var numbers []string
	most := 0.0
	for i := range a.Mid {
		if i >= len(s.Min) || i >= len(s.Max) || s.Min[i] == s.Max[i] {
			continue
		}
		size := max(math.Abs((s.Min[i]-a.Mid[i])*a.By[i]), math.Abs((s.Max[i]-a.Mid[i])*a.By[i]))
		if size > farMost {
			numbers, most = append(numbers, fmt.Sprint(i)), max(most, size)
		}
	}
	if numbers == nil {
		return nil
	}
	return []string{fmt.Sprintf("%s: numbers %s (from 0) differ rarely, and policy.normalize = %s brings what differs to "+
		"%.2g, as lerobot does, which swamps the loss: set policy.normalize to min_max or mean_std, or leave these "+
		"frames out", column, strings.Join(numbers, ", "), how, most)}
}

// Said are notes on the recordings of data.paths.
func (x *Robots) Said() (out []string) {
	for _, set := range x.sets {
		for _, text := range set.said {
			out = append(out, set.name+": "+text)
		}
	}
	out = append(out, x.allUnlike()...)
	for _, set := range x.sets {
		if a := x.sets[0]; set.rate != a.rate && set.rate > 0 && a.rate > 0 {
			out = append(out, fmt.Sprintf("%s has %g steps a second and %s %g: the %d actions of a chunk cover %.3g and "+
				"%.3g s", a.name, a.rate, set.name, set.rate, x.Chunk, float64(x.Chunk)/a.rate, float64(x.Chunk)/set.rate))
		}
	}
	return out
}

// allUnlike names the data sets whose cameras are unlike.
func (x *Robots) allUnlike() (out []string) {
	for _, set := range x.sets {
		if text := x.unlike(set); text != "" {
			out = append(out, set.name+": "+text)
		}
	}
	return out
}

// unlike says that the cameras of a data set have pictures of different shapes, which the model sees in one.
func (x *Robots) unlike(set *robotSet) string {
	var shapes [][2]int
	var names []string
	for _, c := range x.Policy.Cameras {
		if s := set.shapes[c]; s[0] > 0 && s[1] > 0 {
			names = append(names, fmt.Sprintf("%s (%d×%d)", c, s[0], s[1]))
			if !slices.Contains(shapes, s) {
				shapes = append(shapes, s)
			}
		}
	}
	if len(shapes) < 2 {
		return ""
	}
	return fmt.Sprintf("cameras have different heights and widths, %s: all are scaled to the model's one size, and an "+
		"export names that size for each, so that lerobot wants pictures of that size and actions from others differ",
		strings.Join(names, ", "))
}
