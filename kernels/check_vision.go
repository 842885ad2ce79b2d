package kernels

import (
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// checkTake wants table and rows to differ in their first axis alone, which idx counts for rows.
func checkTake(table, rows, idx *tensor.Tensor) error {
	if len(table.Shape) == 0 || len(rows.Shape) == 0 || !slices.Equal(table.Shape[1:], rows.Shape[1:]) {
		return fmt.Errorf("rows of %v and %v differ", table, rows)
	}
	if rows.Shape[0] != idx.Shape[0] {
		return fmt.Errorf("%d indices for %v", idx.Shape[0], rows)
	}
	return nil
}

// checkAct checks that the activation is one of those that are known.
func checkAct(kind int) error {
	if kind < GELU || kind > Exp {
		return fmt.Errorf("activation I[0] is %d, want %d to %d", kind, GELU, Exp)
	}
	return nil
}

// checkTurn wants an angle for each pair of a head's numbers.
func checkTurn(x, angle *tensor.Tensor) error {
	if d, r := x.Shape[2], angle.Shape[0]; d != 2*r {
		return fmt.Errorf("%d angles for heads of width %d, want %d", r, d, d/2)
	}
	return nil
}
