package configs

// Objective says what a run of post-training learns in place of the next token.
type Objective struct {
	Kind        string  `key:"kind" default:"none" oneof:"none|@losses" class:"fixed" doc:"Loss of pairs of answers, which data of the format preference holds, of single answers that are good or bad (judged), or of answers that the run draws itself to prompts; none is the loss of a language model. Sources and formulas: docs/post-training.md."`
	Beta        float64 `key:"beta" default:"0.1" min:"0" class:"fixed" doc:"Strength of the preference, β; simpo is usual with 2 to 2.5."`
	Gamma       float64 `key:"gamma" default:"0.5" min:"0" class:"fixed" doc:"simpo: margin by which the chosen answer is to win, γ."`
	Smoothing   float64 `key:"smoothing" default:"0" min:"0" max:"0.5" class:"fixed" doc:"Share of pairs whose order is taken to be wrong, ε."`
	Text        float64 `key:"sft_weight" default:"0" min:"0" class:"fixed" doc:"Weight of the loss of a language model on chosen answers, which is added: a mean over their tokens."`
	Center      float64 `key:"center" default:"0" min:"0" class:"fixed" doc:"reward: how strongly scores are held around 0 (arXiv:2312.09244 has 0.01)."`
	ClipLow     float64 `key:"clip_low" default:"-1" class:"fixed" doc:"Losses of policies: how far below 1 the ratio of a token's probability to that when it was drawn may go; -1 takes the kind's own."`
	ClipHigh    float64 `key:"clip_high" default:"-1" class:"fixed" doc:"Losses of policies: how far above 1 it may go (cispo: the ratio itself); -1 takes the kind's own."`
	KL          float64 `key:"kl" default:"0" min:"0" class:"fixed" doc:"Losses of policies: weight of the distance to the reference policy, the estimator k3 of each token (ppo: k1, taken off the rewards); 0 needs no reference."`
	Desirable   float64 `key:"desirable" default:"1" min:"0" class:"fixed" doc:"kto: weight of good answers."`
	Undesirable float64 `key:"undesirable" default:"1" min:"0" class:"fixed" doc:"kto: weight of bad answers; with n_good good answers and n_bad bad ones, n_good·desirable / (n_bad·undesirable) of 1 to 4/3 is advised."`
	Discount    float64 `key:"discount" default:"1" min:"0" max:"1" class:"fixed" doc:"ppo: discount of later rewards a token, γ."`
	Lambda      float64 `key:"gae_lambda" default:"0.95" min:"0" max:"1" class:"fixed" doc:"ppo: λ of generalised advantage estimation; 1 takes what came, 0 trusts the values."`
	Value       float64 `key:"value_weight" default:"0.1" min:"0" class:"fixed" doc:"ppo: weight of the loss of values, whose head is on the same model."`
	ClipValue   float64 `key:"clip_value" default:"0.5" min:"0" class:"fixed" doc:"ppo: how far a value may move from that when drawn before its loss stops falling."`
	Mix         float64 `key:"mix" default:"0.5" min:"0" max:"1" class:"fixed" doc:"gkd: share of the teacher in what both are compared with, β; 0 is the distance KL(teacher‖student), 1 is KL(student‖teacher)."`
	Temperature float64 `key:"temperature" default:"0.05" min:"0" class:"fixed" doc:"infonce: what similarities are divided by, above 0; 0.05 is the scale 20 of sentence-transformers."`
	Pooling     string  `key:"pooling" default:"mean" oneof:"mean|last" class:"fixed" doc:"infonce: the vector of a text is the mean of those of its tokens, or that of its last token."`
	Reference   string  `key:"reference" default:"" class:"fixed" doc:"Directory of the reference policy: a checkpoint of lfactor, or a Hugging Face directory. Empty takes the weights that the run begins with, without adapters."`
	Cache       string  `key:"cache" default:"" class:"free" doc:"Directory of log-probabilities under the reference by the answers that they are of, which runs may share; empty is reference below log.dir, off keeps none."`
}

// Check implements section.
func (o *Objective) Check(at faults) {
	if o.Kind == "ipo" && o.Beta == 0 {
		at.fault("objective.beta", "1/(2β) has no value at 0", "try 0.1")
	}
	if o.Kind == "infonce" && o.Temperature == 0 {
		at.fault("objective.temperature", "nothing is divided by 0", "try 0.05")
	}
	if o.Kind == "dpo_robust" && o.Smoothing == 0.5 {
		at.fault("objective.smoothing", "with half of the labels wrong nothing can be learnt", "try 0.1")
	}
}
