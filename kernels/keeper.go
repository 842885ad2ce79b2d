package kernels

import "github.com/lfactor/lfactor/kernels/tensor"

// Keeper is a backend that may keep what it makes of operands that many calls read and none changes, as the
// weights of a model that draws: results have the same bits, and come sooner.
type Keeper interface {
	Backend
	// Keep says that nobody writes to a tensor before Changed or Forget is called.
	Keep(t *tensor.Tensor)
	// Changed says that what is kept may have other contents from now on.
	Changed()
	// Forget ends Keep. It comes before the tensor's memory is given back.
	Forget(t *tensor.Tensor)
}
