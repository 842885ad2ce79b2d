//go:build cuda

package source

import _ "embed" // the image

// Image is the kernels as nvcc made them for sm_80 and sm_90a, with PTX for other devices. TestImage
// holds it to the source.
//
//go:embed kernels.fatbin
var Image string
