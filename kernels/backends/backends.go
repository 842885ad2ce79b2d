// Package backends links the backends of a build: the processor always, and devices by build tags. Whoever runs
// actors or asks a trained model imports it for that alone.
package backends

import _ "github.com/lfactor/lfactor/kernels/cpu" // registers itself
