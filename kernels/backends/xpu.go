//go:build xpu || cuda

package backends

import _ "github.com/lfactor/lfactor/kernels/xpu" // registers itself in builds that have it
