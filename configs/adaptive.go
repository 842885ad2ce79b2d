package configs

// Adaptive is the section train.adaptive: which of the weights that train.low_precision rounds are multiplied in
// the model's own type all the same.
type Adaptive struct {
	Limit  float64 `key:"limit" default:"0" min:"0" max:"10" class:"fixed" doc:"Relative error of a weight's products above which they are of operands as they are; 0 never looks."`
	Lost   float64 `key:"lost" default:"0" min:"0" max:"1" class:"fixed" doc:"Share of operands' numbers that become 0 or are beyond the format's greatest, above which they are taken as they are; 0 never looks."`
	Every  int     `key:"every" default:"1" min:"1" max:"1000000" class:"fixed" unit:"steps" doc:"From one look at errors to the next."`
	Stay   int     `key:"stay" default:"100" min:"1" max:"1000000" class:"fixed" unit:"steps" doc:"Without an error above the limit, behind which a weight is rounded again."`
	Policy string  `key:"policy" default:"" class:"fixed" flag:"fp8-dynamic-policy-path" doc:"JSON table of how many tokens a product needs for few bits to be faster, of LoongForge or of lfactor calibrate --precision; a kind of weight that is not in it is not rounded. Empty rounds all."`
	Tokens int     `key:"tokens" default:"0" min:"0" class:"fixed" flag:"fp8-dynamic-num-tokens" doc:"Of a microbatch, that train.adaptive.policy is asked with; 0 is how many it has."`
}

// Check implements section.
func (a *Adaptive) Check(at faults) {
	if a.Limit > 0 || a.Lost > 0 {
		return
	}
	if a.Every != 1 {
		at.fault("train.adaptive.every", "is not read: train.adaptive.limit and lost are 0", "remove it, or set one")
	}
	if a.Stay != 100 {
		at.fault("train.adaptive.stay", "is not read: train.adaptive.limit and lost are 0", "remove it, or set one")
	}
	if a.Tokens > 0 && a.Policy == "" {
		at.fault("train.adaptive.tokens", "is not read: train.adaptive.policy is not given",
			"remove it, or name a table")
	}
}
