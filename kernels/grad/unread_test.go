package grad

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestUnreadPort: the giver of a port waits for its gradient whether the stage that takes it reads it or not, and one
// that reads it by numbers that nothing learns by sends zeros.
func TestUnreadPort(t *testing.T) {
	for _, read := range []bool{true, false} {
		tp := NewTape(Options{DType: tensor.F32})
		tp.Block(0, func() {
			x, other := tp.Input("x", tensor.F32, 6, 8), tp.Input("other", tensor.F32, 6, 8)
			if read {
				x = tp.Add(x, other)
			}
			tp.Loss(tp.LinearCrossEntropy(x, tp.Table("head", 9, 8), tp.Data("target", tensor.I32, 6), tp.Data("weight", tensor.F32, 6), 0))
		})
		var sent []string
		for _, n := range tp.Finish().nodes {
			if n.Op.Role == sendGrad {
				sent = append(sent, n.Attr.Name)
				require.Len(t, n.In, 1)
			}
		}
		require.ElementsMatch(t, []string{"x", "other"}, sent, "read: %v", read)
	}
}
