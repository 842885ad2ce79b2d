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

func checkAct(kind int) error {
	if kind < GELU || kind > ReLU {
		return fmt.Errorf("activation I[0] is %d, want %d to %d", kind, GELU, ReLU)
	}
	return nil
}
