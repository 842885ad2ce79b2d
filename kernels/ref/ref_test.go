package ref_test

import (
	"bytes"
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/kernelstest"
	"github.com/lfactor/lfactor/kernels/ref"
)

var long = flag.Bool("long", false, "run the long tier as well")

// TestConformance: the definition agrees with PyTorch's golden tensors and keeps to its contracts. Compared with
// itself it shows only that it writes where it may, for which a part of the cases is enough.
func TestConformance(t *testing.T) {
	n := 5
	if *long {
		n = 1
	} else {
		t.Log("one case of five, and one of each operation: add -long")
	}
	kernelstest.RunEvery(t, ref.New(), n)
}

// TestTorch holds the definition to PyTorch on 300 random shapes of each operation on places.
func TestTorch(t *testing.T) {
	if !*long {
		t.Skip("skipped: -long makes results of PyTorch for 300 random shapes of each operation")
	}
	seen := kernelstest.Golden(t, ref.New(), bytes.NewReader(kernelstest.Torch(t)))
	t.Log(seen)
	require.GreaterOrEqual(t, seen[kernels.Conv], 900)
}
