//go:build cuda

package backends

import _ "github.com/lfactor/lfactor/kernels/cuda" // registers itself in builds that have it
