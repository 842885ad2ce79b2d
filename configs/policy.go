package configs

// Policy says how a policy of a robot is trained on recordings. It has no meaning for other models.
type Policy struct {
	Action    string   `key:"action_key" default:"action" class:"fixed" doc:"Column of a recording that has the actions."`
	State     string   `key:"state_key" default:"observation.state" class:"fixed" doc:"Column that has the state of the robot."`
	Cameras   []string `key:"cameras" class:"fixed" doc:"Cameras that the policy sees, in order; by default all, in order of their names. One that a recording lacks is left out of what the policy reads."`
	Normalize string   `key:"normalize" default:"quantiles" oneof:"quantiles|min_max|mean_std" class:"fixed" doc:"What brings actions and states to numbers about 1, by the statistics of the data: the 1st and the 99th hundredth at -1 and 1, least and most at -1 and 1, or mean 0 and deviation 1."`
	Padding   bool     `key:"learn_padding" default:"true" class:"fixed" doc:"Actions behind the end of an episode are learnt too: the last one, held, as lerobot trains Pi0.5; false leaves them out of the loss."`

	Crop       float64 `key:"crop" default:"1" min:"0.1" max:"1" class:"fixed" doc:"Share of a view's height and width that a sample is trained on, from a place of its own, brought to the whole size again; 1 is the view as it is. A policy acts on whole views."`
	Brightness float64 `key:"brightness" default:"0" min:"0" max:"1" class:"fixed" doc:"What a sample's views are made brighter or darker by at most."`
	Contrast   float64 `key:"contrast" default:"0" min:"0" max:"1" class:"fixed" doc:"What the contrast of a sample's views is changed by at most."`
	Saturation float64 `key:"saturation" default:"0" min:"0" max:"1" class:"fixed" doc:"What the colours of a sample's views are made stronger or weaker by at most."`
	Stateless  float64 `key:"state_dropout" default:"0" min:"0" max:"1" class:"fixed" doc:"Share of the samples that are trained without the robot's state: the middle of its range stands for it, or nothing where it is told in words."`
}

// Changes reports whether samples are changed when they are learnt.
func (p *Policy) Changes() bool {
	return p.Crop < 1 || max(p.Brightness, p.Contrast, p.Saturation, p.Stateless) > 0
}

// Check implements section.
func (p *Policy) Check(at faults) {
	seen := map[string]bool{}
	for _, c := range p.Cameras {
		if seen[c] {
			at.fault("policy.cameras", c+" is named twice", "name each once")
		}
		seen[c] = true
	}
}
