package configs

// Adafactor is the section optimizer.adafactor.
type Adafactor struct {
	Decay float64 `key:"decay" default:"0.8" min:"0" max:"1" class:"free" doc:"Adafactor's second moment takes in t^-decay of the square of update t."`
	Clip  float64 `key:"clip" default:"1" min:"0.001" class:"free" doc:"Root mean square that Adafactor's update of a matrix has at most, before the rate."`
	Floor float64 `key:"floor" default:"0.001" min:"0" class:"free" doc:"Least root mean square of a matrix that Adafactor's steps are measured by."`
	Fixed bool    `key:"fixed" default:"false" class:"free" doc:"Steps are of the rate alone: not multiplied with a matrix's root mean square, and not held to 1/√t (transformers' scale_parameter and relative_step of False)."`
}

// check holds the section to the optimizer.
func (a *Adafactor) check(o *Optimizer, at faults) {
	if *a != (Adafactor{0.8, 1, 0.001, false}) && o.Kind != "adafactor" && !o.grouped("adafactor") {
		at.fault("optimizer.adafactor", "is not read: optimizer.kind is "+o.Kind, "remove it, or set optimizer.kind to adafactor")
	}
}

// grouped reports whether a group of parameters has an optimizer of a kind.
func (o *Optimizer) grouped(kind string) bool {
	for _, text := range o.Groups {
		if g, err := ParseGroup(text); err == nil && g.Kind == kind {
			return true
		}
	}
	return false
}
