package kernelstest

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// codeCases are rows in eight bits, and the same rows back.
func codeCases() (l []Case) {
	for p, recipe := range kernels.Precisions {
		if p == 0 || !recipe.Encodes() {
			continue
		}
		at := kernels.Attr{I: [4]int{0, p}}
		for _, s := range [][2]int{{0, 5}, {1, 1}, {3, 128}, {7, 300}} {
			m, name := kernels.CodesLen(s[1], recipe.Act.Columns), fmt.Sprint(recipe.Name, s)
			l = append(l, Case{Op: kernels.EncodeRows, Name: name, Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.uneven(s[0], s[1])}, Out: tensors{tensor.Make(tensor.U8, s[0], m)}, Attr: at}
			}}, Case{Op: kernels.DecodeRows, Name: name, Tol: 1e-6, Why: "one product", Call: func(g *gen) *kernels.Call {
				x, codes := g.uneven(s[0], s[1]), tensor.Make(tensor.U8, s[0], m)
				row, act := make([]float32, s[1]), recipe.Act
				v := values(x)
				for i := range s[0] {
					for j := range row {
						row[j] = float32(v[i*s[1]+j])
					}
					act.Encode(row, codes.Bytes()[i*m:(i+1)*m])
				}
				return &kernels.Call{In: tensors{codes}, Out: tensors{g.raw(g.a, s[0], s[1])}, Attr: at}
			}})
		}
	}
	return l
}

var _ = add(codeCases()...)
