// Package all has all families of models: a program that reads configurations imports it. A family that is
// added to decoders, towers, denoisers or robots is among them without an edit here.
package all

import (
	_ "github.com/lfactor/lfactor/stages/family/autoencoders" // autoencoders of models of diffusion
	_ "github.com/lfactor/lfactor/stages/family/decoders"     // decoders by themselves
	_ "github.com/lfactor/lfactor/stages/family/denoisers"    // models of diffusion
	_ "github.com/lfactor/lfactor/stages/family/robots"       // policies of robots
	_ "github.com/lfactor/lfactor/stages/family/towers"       // vision towers, and families that have one
)
