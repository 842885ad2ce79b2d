package kernels

import (
	"fmt"
	"math"
)

// The operations of a choice; their specifications say what they compute.
const (
	LowError  Op = "low_error"
	LowChoice Op = "low_choice"
)

// The numbers of a choice [1, ChoiceLen]: whether the products with a weight are of operands of few bits now,
// and what is known of their error. It is state of a run: what LowChoice makes of one step's errors holds for the next.
const (
	ChoiceStay    = iota // steps for which the products are still in the model's own type; 0 is in few bits
	ChoiceNext           // steps until errors are looked at again; 0 is now
	ChoiceError          // that was found last: of the three products the greatest, of which the next
	ChoiceProduct        // says which one it was
	ChoiceFlushed        // share of the numbers looked at that became 0
	ChoiceCut            // share that was beyond the greatest number of the format
	ChoiceFalls          // times that the products went back to the model's own type
	ChoiceLen     = 16
)

// The numbers of errors [1, ChoiceLen], for each of the three products one behind the other: the squared
// difference to the product of operands as they are, the square of that, numbers that became 0, and numbers
// beyond the greatest; and behind those of the three how many numbers but 0 were rounded.
const (
	ErrorSquares = iota
	ErrorOf
	ErrorFlushed
	ErrorCut
	errorEach
	ErrorSeen = 3 * errorEach
)

// ErrorAt is the place of a number of a product among errors.
func ErrorAt(product, of int) int { return product*errorEach + of }

// What of operands is looked at: the first rows and columns of each product, with all that is summed.
const (
	WatchRows    = 32
	WatchColumns = 128
)

// Beyond is what a number is of the greatest of a format at least to count as cut: the scale itself is rounded.
const Beyond = 1 + 1e-6

// Watch says when products that should be of operands of few bits are in the model's own type. The zero value is never.
type Watch struct {
	Limit float64 // of the relative error of products; 0 for none
	Lost  float64 // of the share of numbers that become 0 or are beyond the greatest; 0 for none
	Every int     // steps from one look at errors to the next
	Stay  int     // steps without an error above the limit behind which a weight goes back to few bits
}

// On reports whether errors are looked at.
func (w Watch) On() bool { return w.Limit > 0 || w.Lost > 0 }

// Attr is that of LowChoice.
func (w Watch) Attr() Attr { return Attr{F: [2]float64{w.Limit, w.Lost}, I: [4]int{w.Every, w.Stay}} }

// ChoiceOperand is the place of the choice among the operands of an operation of few bits.
func ChoiceOperand(op Op) int {
	if op == LowLinear {
		return 3
	}
	return 2
}

// Plainly reports whether the operands of a call are taken as they are, because of the choice that is operand i.
func Plainly(c *Call, i int) bool {
	t := optional(c.In, i)
	return t != nil && t.F32()[ChoiceStay] > 0
}

// WatchOf reads what Attr has written.
func WatchOf(at Attr) Watch {
	return Watch{Limit: at.F[0], Lost: at.F[1], Every: at.I[0], Stay: at.I[1]}
}

// Choose makes of the choice of a step that of the next.
func (w Watch) Choose(choice, errors []float32) {
	if choice[ChoiceStay] > 0 {
		choice[ChoiceStay]--
	}
	if choice[ChoiceNext] > 0 {
		choice[ChoiceNext]--
		return
	}
	choice[ChoiceNext] = float32(w.Every - 1)
	worst, product, flushed, cut := 0.0, 0, 0.0, 0.0
	for p := range 3 {
		of := errors[ErrorAt(p, 0):]
		e := math.Sqrt(float64(of[ErrorSquares]) / float64(of[ErrorOf]))
		if of[ErrorOf] == 0 {
			e = math.Sqrt(float64(of[ErrorSquares])) // 0, or of products that are all lost
		}
		if worst == worst && !(e <= worst) { // a NaN stays the worst
			worst, product = e, p
		}
		flushed, cut = flushed+float64(of[ErrorFlushed]), cut+float64(of[ErrorCut])
	}
	seen := max(1, float64(errors[ErrorSeen]))
	choice[ChoiceError], choice[ChoiceProduct] = float32(worst), float32(product)
	choice[ChoiceFlushed], choice[ChoiceCut] = float32(flushed/seen), float32(cut/seen)
	if w.Limit > 0 && !(worst <= w.Limit) || w.Lost > 0 && flushed+cut > w.Lost*seen || worst != worst {
		if choice[ChoiceStay] == 0 {
			choice[ChoiceFalls]++
		}
		choice[ChoiceStay] = float32(w.Stay)
	}
}

var _ = register(Spec{Op: LowError, Sig: "x[...,k]A w[*]A dy[...,n]A choice[1,c]f32 off[o]i32? -> e[1,c]f32",
	Doc: "How far the products of low_linear, low_linear_dx and low_linear_dw are from those of operands as they " +
		"are: for the product p of 0, 1, 2, e[0, 4p] is the sum of squared differences and e[0, 4p+1] that of squares, " +
		"e[0, 4p+2] how many numbers became 0 and e[0, 4p+3] how many were beyond the format's greatest; e[0, 12] is how " +
		"many numbers but 0 were rounded. Of x and dy the first 32 rows are taken, of the weight's rows and columns 128 " +
		"(of dw 32 rows), with all that is summed; scales of a whole matrix are of its numbers before they are turned. " +
		"With off, of the group that has most rows, the first of several. Sums of products in float32. All is 0 where " +
		"choice[0, 1] > 0. I[1] is the precision. The last operand of low_linear and its kin is such a choice: where " +
		"choice[0, 0] > 0 operands are not rounded."}, Spec{Op: LowChoice, Sig: "e[1,c]f32 clip[3]f64 -> choice[1,c]f32",
	Doc: "Watch.Choose in place, with the limits F[0] and F[1], every I[0] and for I[1] steps; with overflow = " +
		"1 nothing changes but for errors that are not finite."})

func init() {
	extra[LowError] = func(c *Call) error {
		w, off := c.In[1], optional(c.In, 4)
		if c.In[3].Len() != ChoiceLen {
			return fmt.Errorf("a choice of %d numbers, want %d", c.In[3].Len(), ChoiceLen)
		}
		if p := c.Attr.I[1]; p < 1 || p >= len(Precisions) {
			return fmt.Errorf("precision %d", p)
		}
		if c.In[0].Rows() != c.In[2].Rows() {
			return fmt.Errorf("x has %d rows and dy %d", c.In[0].Rows(), c.In[2].Rows())
		}
		switch {
		case off == nil && len(w.Shape) != 2:
			return fmt.Errorf("weights %v without groups", w.Shape)
		case off != nil && (len(w.Shape) != 3 || off.Len() != w.Shape[0]+1):
			return fmt.Errorf("%d offsets of groups for weights %v", off.Len(), w.Shape)
		case off != nil:
			return checkCu("off", off, c.In[0].Rows())
		}
		return nil
	}
	extra[LowChoice] = func(c *Call) error {
		if c.Out[0].Len() != ChoiceLen {
			return fmt.Errorf("a choice of %d numbers, want %d", c.Out[0].Len(), ChoiceLen)
		}
		if c.Attr.F[0] < 0 || c.Attr.F[1] < 0 || c.Attr.I[0] < 1 || c.Attr.I[1] < 1 {
			return fmt.Errorf("limits %g, every %d, for %d", c.Attr.F, c.Attr.I[0], c.Attr.I[1])
		}
		return nil
	}
}

// Watched are the rows of the group that a call of LowError looks at, [from, to), and the group; all rows
// where there are no groups.
func Watched(c *Call) (from, to, group int) {
	off := optional(c.In, 4)
	if off == nil {
		return 0, c.In[0].Rows(), 0
	}
	at := off.I32()
	for g := range len(at) - 1 {
		if int(at[g+1]-at[g]) > to-from || g == 0 {
			from, to, group = int(at[g]), int(at[g+1]), g
		}
	}
	return
}
