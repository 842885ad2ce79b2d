package ref_test

import (
	"testing"

	"github.com/lfactor/lfactor/kernels/kernelstest"
	"github.com/lfactor/lfactor/kernels/ref"
)

// Against itself the suite checks determinism, operands, aliasing and, what matters here, PyTorch's results.
func TestConformance(t *testing.T) { kernelstest.Run(t, ref.New()) }
