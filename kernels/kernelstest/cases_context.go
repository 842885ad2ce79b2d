package kernelstest

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// contextCases cuts sequences of several lengths, empty ones among them, at every border and between them;
// keys may be more than queries.
func contextCases() (l []Case) {
	for _, cu := range [][2][]int32{
		{{0, 12}, {0, 12}}, {{0, 4, 8, 12}, {0, 4, 8, 12}}, {{0, 1, 1, 7, 11}, {0, 1, 1, 7, 11}},
		{{2, 5, 9}, {2, 5, 9}}, {{0, 6}, {0, 20}}, {{0, 0}, {0, 0}},
	} {
		for _, part := range [][2]int{{0, 12}, {0, 4}, {4, 4}, {8, 4}, {0, 3}, {3, 3}, {6, 3}, {9, 3},
			{11, 1}, {12, 4}} {
			l = append(l, Case{Op: kernels.CutSequences, Name: fmt.Sprint(cu[0], cu[1], part),
				Types: onlyF32, Why: "integers", Call: func(g *gen) *kernels.Call {
					n := len(cu[0])
					return &kernels.Call{In: tensors{g.i32(cu[0]...), g.i32(cu[1]...)},
						Attr: kernels.Attr{I: [4]int{part[0], part[1]}},
						Out:  tensors{g.raw(tensor.I32, n), g.raw(tensor.I32, n)}}
				}})
		}
	}
	return l
}

var _ = add(contextCases()...)
