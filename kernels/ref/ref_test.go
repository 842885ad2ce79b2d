package ref_test

import (
	"flag"
	"testing"

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
