//go:build cuda

package host

import _ "github.com/lfactor/lfactor/kernels/cuda" // registers itself in builds that have it
