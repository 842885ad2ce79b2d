package media

import "math"

// ResizeTorch returns the image at another size, bit for bit as torchvision resizes 8-bit tensors with antialias on:
// rows, then columns, with weights of 16 bits. Hugging Face's video processors and qwen-vl-utils use it.
func (p *Image) ResizeTorch(w, h int, f *Filter) *Image {
	return p.resizeWith(w, p.H, f, newTorchTaps).then(p, w, h, f, newTorchTaps)
}

// newTorchTaps gives weights as many bits as the largest leaves in an int16. Source:
// PyTorch, UpSampleKernel.cpp, compute_index_ranges_int16_weights.
func newTorchTaps(from, to int, f *Filter) *taps {
	t, weights := place(from, to, f)
	most := 0.0
	for _, w := range weights {
		most = max(most, w)
	}
	for t.bits < weightBits && int(0.5+most*float64(int(2)<<t.bits)) < 1<<15 {
		t.bits++
	}
	for i, w := range weights {
		t.w[i] = int32(w*float64(int(1)<<t.bits) + math.Copysign(0.5, w))
	}
	return t
}
