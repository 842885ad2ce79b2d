package grad

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// constant is a constant of the model where the backend can use it: a device gets it once.
func (r *Runner) constant(c *tensor.Tensor) *tensor.Tensor {
	if _, device := r.Backend.(kernels.Device); !device {
		return c
	}
	if r.consts == nil {
		r.consts = map[*tensor.Tensor]*tensor.Tensor{}
	}
	t := r.consts[c]
	if t == nil {
		t = r.allocShape("a constant of the model", c.DType, c.Shape)
		kernels.Write(t, c.Bytes())
		r.consts[c] = t
	}
	return t
}

// Close gives back what the runner keeps on a device.
func (r *Runner) Close() {
	for k, t := range r.consts {
		t.Release()
		delete(r.consts, k)
	}
}

// NewRunner runs on a backend, in whose memory the tensors of a pool lie from now on; it has no parameters yet.
func NewRunner(b kernels.Backend, pool *tensor.Pool) *Runner {
	if d, ok := b.(kernels.Device); ok {
		pool.In(d)
	}
	return &Runner{Backend: b, Pool: pool, Host: pool, Params: map[string]*tensor.Tensor{}, Grads: map[string]*tensor.Tensor{}}
}
