package fit

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/noise"
)

// losses are the kinds of diffusion.loss.
var losses = map[string]int{"squared": kernels.SquaredLoss, "absolute": kernels.AbsoluteLoss,
	"huber": kernels.HuberLoss}

// Scheduler is the one of diffusion.scheduler, or that beside the model, or flow matching without a shift.
func Scheduler(c *configs.Config) (noise.Scheduler, error) {
	path := Beside(c, c.Run.Diffusion.Scheduler, "scheduler")
	if path == "" {
		return noise.Shifted(c.Run.Diffusion.Raise), nil
	}
	if !c.Usual("diffusion.shift") {
		return nil, c.Fault("diffusion.shift", "the scheduler's file has one: "+path, "remove it, or change the file")
	}
	s, err := readScheduler(path)
	if err != nil {
		return nil, c.Fault("diffusion.scheduler", err.Error(), "")
	}
	own := Beside(c, "", "scheduler")
	if c.Run.Diffusion.Scheduler == "" || own == "" || c.Run.Model.Init == "random" {
		return s, nil
	}
	if was, err := readScheduler(own); err == nil && was.Predicts() != s.Predicts() {
		return nil,
			c.Fault("diffusion.scheduler", fmt.Sprintf("the model learnt to say %s under %s, and here it is to say %s",
				was.Predicts(), own, s.Predicts()), "name one that predicts the same, or set model.init: random")
	}
	return s, nil
}

// readScheduler reads a scheduler's file, or that of a folder.
func readScheduler(path string) (noise.Scheduler, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "scheduler_config.json")
	}
	return noise.ReadFile(path)
}

// Beside is a path that is given, or the folder of a name beside the model in a pipeline's folder of
// diffusers; "" for neither.
func Beside(c *configs.Config, given, name string) string {
	if given != "" || c.Run.Model.Path == "" {
		return given
	}
	root := hf.PipelineDir(c.Run.Model.Path)
	if root == "" { // of an export, which has no index
		switch dir := filepath.Clean(c.Run.Model.Path); filepath.Base(dir) {
		case "transformer", "transformer_2", "unet":
			root = filepath.Dir(dir)
		}
	}
	if root != "" {
		if _, err := os.Stat(filepath.Join(root, name)); err == nil {
			return filepath.Join(root, name)
		}
	}
	return ""
}

// Process is what a run does to latents.
func Process(c *configs.Config) (p family.Process, err error) {
	d := &c.Run.Diffusion
	s, err := Scheduler(c)
	if err != nil {
		return p, err
	}
	if p.Levels, err = s.Levels(); err != nil {
		return p, c.Fault("diffusion.scheduler", err.Error(), "")
	}
	target, ok := noise.Lookup(s.Predicts())
	if !ok {
		return p, c.Fault("diffusion.scheduler", fmt.Sprintf("prediction %s is unknown", s.Predicts()), "")
	}
	p.Target = target
	p.Times = noise.Times{Kind: d.Times, Mean: d.Mean, Std: d.Std, Scale: d.Mode, Shift: d.Shift, Alpha: d.Alpha,
		Beta: d.Beta}
	p.Weight, err = noise.Weighting{Kind: d.Weight, Gamma: d.Gamma}.For(s.Predicts(), p.Levels)
	if err != nil {
		return p, c.Fault("diffusion.weight", err.Error(), "")
	}
	p.Loss, p.Border, p.Drop, p.Guide, p.First = losses[d.Loss], d.Border, d.Drop, d.Guide, d.First
	const steps = 1000 // that schedulers count times in
	if from, to := noiseRange(c); from > 0 || to > 0 {
		p.From, p.To = float32(from*steps), float32(math.Inf(1))
		if to > 0 {
			p.To = float32(to * steps)
		}
		if !p.Reaches() {
			return p, c.Fault("diffusion.noise_from",
				fmt.Sprintf("no draw of %s has a time from %g to %g", d.Times, p.From, p.To), "widen the range")
		}
	}
	return p, nil
}

// noiseRange is that of noise_from and noise_to, or of the expert that the model's folder is in its pipeline.
func noiseRange(c *configs.Config) (from, to float64) {
	d := &c.Run.Diffusion
	if d.From > 0 || d.To > 0 || c.Run.Model.Path == "" || d.Experts == "both" {
		return d.From, d.To
	}
	high, low, boundary, ok := hf.Experts(hf.PipelineDir(c.Run.Model.Path))
	switch filepath.Clean(c.Run.Model.Path) {
	case high:
		if ok {
			return boundary, 0
		}
	case low:
		return 0, boundary
	}
	return 0, 0
}

// readBy are the keys that only one value of another key reads.
var readBy = []struct {
	key, by string
	has     func(d *configs.Diffusion) bool
}{
	{"times_mean", "times: logit_normal", draws("Mean")}, {"times_std", "times: logit_normal", draws("Std")},
	{"times_mode", "times: mode", draws("Scale")}, {"times_shift", "times: shifted", draws("Shift")},
	{"times_alpha", "times: beta", draws("Alpha")}, {"times_beta", "times: beta", draws("Beta")},
	{"min_snr_gamma", "weight: min_snr", func(d *configs.Diffusion) bool { return d.Weight == "min_snr" }},
	{"huber_border", "loss: huber", func(d *configs.Diffusion) bool { return d.Loss == "huber" }},
}

func draws(field string) func(*configs.Diffusion) bool {
	return func(d *configs.Diffusion) bool { return slices.Contains(noise.Reads(d.Times), field) }
}

// diffusion holds the section diffusion to models of diffusion, and what such models cannot have.
func (r rules) diffusion() {
	const section = "diffusion."
	r.policy()
	if r.m.Denoiser == nil { //lfvet:kind these are the rules of the section diffusion
		for _, k := range configs.Keys() {
			if strings.HasPrefix(k.Name, section) && !r.c.Usual(k.Name) {
				r.at(k.Name, "the model is none of diffusion", "remove it")
			}
		}
		return
	}
	if r.m.Denoiser.Takes != nil { //lfvet:kind these are the rules of the section diffusion
		r.autoencoder()
		return
	}
	for _, key := range []string{"kl_weight", "perceptual", "perceptual_weight"} {
		if !r.c.Usual(section + key) {
			r.at(section+key, "only autoencoders have it", "remove it")
		}
	}
	d := &r.c.Run.Diffusion
	for _, k := range readBy {
		if !k.has(d) && !r.c.Usual(section+k.key) {
			r.at(section+k.key, "is not read: only with diffusion."+k.by, "remove it")
		}
	}
	if d.Experts != "both" && !r.c.Usual(section+"boundary") {
		r.at(section+"boundary", "is not read: only with diffusion.experts: both", "remove it")
	}
	if !r.m.Denoiser.Guided && !r.c.Usual(section+"guidance") {
		r.at(section+"guidance", "the model is told none", "remove it")
	}
	if r.m.Denoiser.Images == 0 && d.Image != "" {
		r.at(section+"image_encoder", "the model reads no features of an image", "remove it")
	}
	if r.m.Denoiser.Edit == "" && d.Changes > 0 {
		r.at(section+"condition_images", "the model changes no images", "remove it, or take qwen-image/edit-2511")
	}
	if d.Changes == 0 && !r.c.Usual(section+"condition_area") {
		r.at(section+"condition_area", "is not read: only with diffusion.condition_images", "remove it")
	}
	if r.m.Denoiser.Given > 0 && d.First > 0 {
		r.at(section+"first_frame", "the model has channels of its own for given frames, in every clip", "remove it")
	}
	for key, given := range map[string]string{"text_encoder_2": d.Text2, "text_encoder_3": d.Text3} {
		if given != "" && (r.m.Denoiser.Pooled == 0 || d.Encoders == "live") {
			r.at(section+key, "the model reads one encoder of captions, or has one among its blocks", "remove it")
		}
	}
	//lfvet:kind it names the models whose rows no rank shares
	if r.m.Denoiser.Canvas && !r.m.Denoiser.Lines && !r.m.Denoiser.Hosted && r.c.Run.Plan.CP > 1 {
		r.at("plan.cp", "the model computes every image whole, so that nothing is shared out",
			"use plan.dp, plan.tp or plan.pp")
	}
	if r.c.Run.Plan.ChunkSize > 0 {
		r.at("plan.chunk_size", "rows of latents see each other both ways, and a chunk's border would cut "+
			"between them", "remove it; plan.cp shares a long clip out")
	}
	if _, err := Process(r.c); err != nil {
		for _, f := range configs.Faults(err) {
			r.at(f.Key, f.Why, f.Try)
		}
	}
}

// ofPictures are the keys of diffusion that policies do not read.
var ofPictures = []string{"scheduler", "shift", "autoencoder", "text_encoder", "text_encoder_2", "text_encoder_3",
	"train_text_encoder",
	"encoders", "latents", "cache", "posterior", "sizes", "fps", "upscale", "caption_key", "caption_dropout",
	"first_frame", "condition_images", "encode_frames", "experts", "boundary", "image_encoder"}

// ofClips are those of them that policies with a clip read.
var ofClips = []string{"autoencoder", "text_encoder", "cache"}

// policy holds the section policy to policies, and those to what they read.
func (r rules) policy() {
	if r.m.Denoiser != nil && r.m.Denoiser.Sight != nil { //lfvet:kind these are the rules of the section policy
		r.hosted()
		for _, key := range ofPictures {
			//lfvet:kind a policy with a clip reads keys of diffusion
			read := r.m.Denoiser.Clip != nil && slices.Contains(ofClips, key) &&
				(key != "text_encoder" || !r.m.Denoiser.Worded()) || r.m.Denoiser.Images > 0 && key == "image_encoder"
			if !r.c.Usual("diffusion."+key) && !read {
				r.at("diffusion."+key, "policies of robots do not read it", "remove it")
			}
		}
		for _, k := range configs.Keys() {
			if key, ok := strings.CutPrefix(k.Name, "diffusion."); ok && r.m.Denoiser.Learns != nil &&
				!slices.Contains(ofPictures, key) && !r.c.Usual(k.Name) {
				r.at(k.Name, "the policy says itself what it is trained by", "remove it")
			}
		}
		for _, key := range ofWriters {
			//lfvet:kind a policy behind a language model reads keys of its texts
			if !r.c.Usual("policy."+key) && !(r.m.Denoiser.Hosted && slices.Contains(ofHosted, key)) {
				r.at("policy."+key, "the model gives actions as numbers", "remove it")
			}
		}
		r.expert()
		r.films()
		return
	}
	if r.c.Run.Policy.Tokens != "none" {
		r.writer()
		return
	}
	for _, k := range configs.Keys() {
		if strings.HasPrefix(k.Name, "policy.") && !r.c.Usual(k.Name) {
			r.at(k.Name, "the model is no policy of a robot", "remove it, or have a vision-language model write "+
				"actions, or an expert behind it give them: policy.tokens, policy.expert")
		}
	}
}

// ofWriters are the keys of policy that only vision-language models which write actions read, and ofHosted
// those of them that such models with an expert of actions read too.
var (
	ofWriters = []string{"tokens", "horizon", "fast", "token_end", "question", "answer", "view_size"}
	ofHosted  = []string{"horizon", "question", "view_size"}
)

// films holds a policy with a clip to views as they are.
func (r rules) films() {
	for _, key := range []string{"crop", "brightness", "contrast", "saturation", "state_dropout"} {
		//lfvet:kind the latents of a clip are made of views as they are
		if r.m.Denoiser.Clip != nil && !r.c.Usual("policy."+key) {
			r.at("policy."+key, "the model reads a clip, whose latents are made of views as they are", "remove it")
		}
	}
}

// hosted holds what a model says itself of its questions and its chunks.
func (r rules) hosted() {
	d := r.m.Denoiser
	if !d.Hosted { //lfvet:kind a model that hosts a policy says itself what it asks
		return
	}
	if d.Prompt != nil && !r.c.Usual("policy.question") {
		r.at("policy.question", "the model has a question of its own", "remove it")
	}
	if r.c.Run.Policy.Expert == "none" && !r.c.Usual("policy.horizon") {
		r.at("policy.horizon", "the model says itself how many actions it gives",
			"remove it, and set model.overrides.chunk_size")
	}
}

// expert holds the keys of policy.expert to models that have one.
func (r rules) expert() {
	// an export without lora.merge has adapters beside the base's weights, and who acts reads the weights alone
	if l := &r.c.Run.LoRA; l.Rank > 0 && !l.Merge && r.c.Run.Policy.Expert != "none" {
		r.at("lora.merge", "adapters are no place for policy.expert, which is trained too, and who acts reads none",
			"set lora.merge: true")
	} else if l.Rank > 0 && !l.Merge && !l.AdaptersOnly {
		r.at("lora.merge", "who acts by an export reads no adapters beside it",
			"set lora.merge: true, or have lora.adapters_only: true save them alone")
	}
	if p := &r.c.Run.Policy; p.Expert == "diffusion" && p.Normalize == "identity" {
		r.at("policy.normalize", "policy.expert: diffusion gives numbers from -5 to 5, and identity leaves actions "+
			"as they are, however large", "take mean_std, min_max or quantiles, or policy.expert: flow or l1")
	}
	for _, k := range configs.Keys() {
		if strings.HasPrefix(k.Name, "policy.expert_") && r.c.Run.Policy.Expert == "none" && !r.c.Usual(k.Name) {
			r.at(k.Name, "there is no expert", "set policy.expert, or remove it")
		}
	}
}

// writer holds the section policy to a model that writes actions as tokens.
func (r rules) writer() {
	r.expert()
	p := &r.c.Run.Policy
	if !r.m.Task().Writes || r.m.Vision == nil || r.m.Scores() {
		r.at("policy.tokens", "the model is no vision-language model, and no other sees and writes",
			"take one that sees, such as qwen-vl/2.5-3b")
	}
	if len(p.Robots) > 0 {
		r.at("policy.embodiments", "the model has weights of one kind for all robots", "leave it out")
	}
	const bins = 256 // that policy.tokens: bins has tokens for
	if end := p.TokenEnd; end > r.c.Model.Vocab || end > 0 && end < bins {
		r.at("policy.token_end", fmt.Sprintf("%d, and the vocabulary has %d tokens, of which %d stand for steps",
			end, r.c.Model.Vocab, bins), "")
	}
	if r.c.Model.Vocab < bins {
		r.at("policy.tokens", fmt.Sprintf("%d tokens are too few for the %d of actions", r.c.Model.Vocab, bins), "")
	}
}

// acts puts an expert of actions behind a vision-language model, where the run has one.
func acts(c *configs.Config, m *family.Model) error {
	if c.Run.Policy.Expert == "none" {
		return nil
	}
	if err := m.ActBy(&c.Run.Policy); err != nil {
		return c.Fault("policy.expert", err.Error(), "take one that sees, such as qwen-vl/2.5-3b")
	}
	return nil
}

// Build makes the model of a configuration, with what the run sets of it beside the architecture: what is
// done to latents, and encoders of captions among its blocks.
func Build(c *configs.Config) (*family.Model, error) {
	m, err := family.Build(c.Model, c.Run.Data.SeqLen)
	if err != nil {
		return m, err
	}
	if err := acts(c, m); err != nil {
		return nil, err
	}
	if m.Low, m.Fake = Low(c, m), Fake(c, m); m.Denoiser == nil { //lfvet:kind here a model gets what its task sets
		aims(c, m)
		return m, nil
	}
	if m.Denoiser.Takes != nil { //lfvet:kind here a model gets what its task sets
		m.Denoiser.Process = reconstruction(&c.Run.Diffusion)
		return m, look(c, m)
	}
	if m.Denoiser.Process, err = Process(c); err != nil {
		return nil, err
	}
	if m.Denoiser.Sight != nil { //lfvet:kind here a model gets what its task sets
		act(c, m.Denoiser)
	}
	if n := c.Run.Diffusion.Changes; n > 0 && m.Denoiser.Edit != "" {
		m.Denoiser.Further, m.Denoiser.Pipeline = n, m.Denoiser.Edit
	}
	return m, compose(c, m)
}

// compose puts a second model of diffusion beside m and encoders of captions before it, where the run has them.
func compose(c *configs.Config, m *family.Model) error {
	if m.Denoiser == nil { //lfvet:kind here a model gets what its task sets
		return nil
	}
	if err := both(c, m); err != nil {
		return err
	}
	if err := live(c, m); err != nil {
		return err
	}
	err := seen(c, m)
	m.Denoiser.Follow()
	return err
}

// both makes one model of two that share out the levels of noise, where the run trains both.
func both(c *configs.Config, m *family.Model) error {
	if c.Run.Diffusion.Experts != "both" {
		return nil
	}
	border, path := c.Run.Diffusion.Boundary, c.Run.Model.Path
	_, second, b, ok := hf.Experts(hf.PipelineDir(path))
	if ok && filepath.Clean(path) == second {
		return c.Fault("model.path", "is the second of two models, and diffusion.experts is both",
			"name the pipeline's folder")
	}
	if ok && border == 0 {
		border = b
	}
	if border == 0 {
		return c.Fault("diffusion.boundary", "is not given, and no model_index.json beside the model says it",
			"set it: Wan 2.2 has 0.875 for videos of a text and 0.9 for those of an image")
	}
	low, err := family.Build(c.Model, c.Run.Data.SeqLen)
	if err != nil {
		return err
	}
	if err := family.Halved(m, low, float32(border*1000)); err != nil {
		return c.Fault("diffusion.experts", err.Error(), "leave it out")
	}
	return nil
}

// Acts reports whether a configuration's model is a policy of a robot.
func Acts(c *configs.Config) bool { return c.Model.Has("chunk_size") }

// policyLevels are those of Pi's policies: flow matching at times that are never quite 0.
type policyLevels struct{ noise.Flow }

// At is the level at u.
func (p policyLevels) At(u float64) noise.Level {
	s := 0.999*(1-u) + 0.001
	return noise.Level{Alpha: float32(1 - s), Sigma: float32(s), Time: float32(1000 * s)}
}

// act sets what policies train by where the run does not say otherwise: what they say themselves, or times
// of Beta(1.5, 1).
func act(c *configs.Config, d *family.Denoiser) {
	//lfvet:kind here a policy gets what its task sets
	if d.Hosted { // views are brought to this size before the model's own processor sees them
		d.Sight.Patches = c.Run.Policy.ViewSize * c.Run.Policy.ViewSize
	}
	if d.Process.Drop = 0; d.Learns != nil {
		d.Learns(&d.Process)
		return
	}
	d.Process.Levels = policyLevels{noise.Flow{Shift: 1, Times: 1000}}
	if c.Usual("diffusion.times") {
		d.Process.Times = noise.Times{Kind: "beta", Alpha: 1.5, Beta: 1}
	}
}
