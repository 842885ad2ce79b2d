package noise

import "github.com/lfactor/lfactor/stages/diffusers"

// faults collects what is wrong with a file of settings.
type faults = diffusers.Faults
