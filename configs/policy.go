package configs

// Policy says how a policy of a robot is trained on recordings. It has no meaning for other models.
type Policy struct {
	Action    string   `key:"action_key" default:"action" class:"fixed" doc:"Column of a recording that has the actions."`
	State     string   `key:"state_key" default:"observation.state" class:"fixed" doc:"Column that has the state of the robot."`
	Cameras   []string `key:"cameras" class:"fixed" doc:"Cameras that the policy sees, in order; by default all, in order of their names. One that a recording lacks is left out of what the policy reads."`
	Normalize string   `key:"normalize" default:"quantiles" oneof:"quantiles|min_max|mean_std" class:"fixed" doc:"What brings actions and states to numbers about 1, by the statistics of the data: the 1st and the 99th hundredth at -1 and 1, least and most at -1 and 1, or mean 0 and deviation 1."`
	Padding   bool     `key:"learn_padding" default:"true" class:"fixed" doc:"Actions behind the end of an episode are learnt too: the last one, held, as lerobot trains Pi0.5; false leaves them out of the loss."`
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
