package robots

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/family/denoisers"
)

// policyKeys are the keys that policies of robots have in common. State, Height and Width are of those that
// read views whole, and states as numbers.
type policyKeys struct {
	Chunk  int `key:"chunk_size" default:"50" min:"1" max:"65536" class:"fixed" unit:"steps" doc:"Actions that the model gives at once."`
	Views  int `key:"views" default:"3" min:"1" max:"64" class:"fixed" doc:"Cameras at most that a robot has."`
	State  int `key:"state_size" default:"1" min:"1" max:"65536" class:"fixed" doc:"Numbers of a robot's state."`
	Height int `key:"view_height" default:"480" min:"1" max:"4096" class:"fixed" unit:"pixels" doc:"Height of what a camera sees."`
	Width  int `key:"view_width" default:"640" min:"1" max:"4096" class:"fixed" unit:"pixels" doc:"Width of what a camera sees."`
	Robots int `key:"embodiments" default:"30" min:"1" max:"65536" class:"fixed" doc:"Robots that the model has weights of their own for."`
	Stem   int `key:"backbone_width" default:"64" min:"1" max:"4096" class:"fixed" doc:"Channels of the first layer of a ResNet; later ones have twice, four and eight times as many."`
}

var policyPart = configs.Declare("policy", configs.Rules[policyKeys]{})

// chunkFits reports a chunk of more actions than there are columns of an image that is read whole, which
// chunks are to most policies: family.Denoiser.Check holds them to it.
func chunkFits(m configs.Model, at configs.Report) {
	const most = 255
	if c := policyPart.Of(m).Chunk; c > most {
		at("chunk_size", fmt.Sprintf("%d actions, and the model gives %d at most", c, most), "")
	}
}

// feature is an entry of input_features or output_features of lerobot's files.
type feature struct {
	Type  string `json:"type"`
	Shape []int  `json:"shape"`
}

// viewed derives sizes from the features of lerobot's file: the numbers of actions and states, and how many
// cameras see how much. What cannot be derived is left out, and then missed by the check of the model.
func viewed(raw hf.Raw) {
	var in, out map[string]feature
	if json.Unmarshal(raw["input_features"], &in) != nil || json.Unmarshal(raw["output_features"], &out) != nil {
		return
	}
	set := func(key string, n int) {
		if raw[key] == nil && n > 0 {
			raw[key] = json.RawMessage(fmt.Sprint(n))
		}
	}
	if a := out["action"]; len(a.Shape) == 1 {
		set("in_channels", a.Shape[0])
	}
	if s := in["observation.state"]; len(s.Shape) == 1 {
		set("state_size", s.Shape[0])
	}
	views, shape := 0, []int(nil)
	for _, f := range in {
		if f.Type != "VISUAL" || len(f.Shape) != 3 {
			continue
		}
		if views++; shape != nil && !slices.Equal(shape, f.Shape) {
			return // views of unequal sizes are read by none of these models
		}
		shape = f.Shape
	}
	set("views", views)
	if shape != nil {
		set("view_height", shape[1])
		set("view_width", shape[2])
	}
}

// whole is what policies have that read views whole, chunks of actions as rows of one size, and states as numbers.
func whole(c configs.Model) *family.Denoiser {
	k, o := denoisers.Shared.Of(c), policyPart.Of(c)
	return &family.Denoiser{Patch: [3]int{1, 1, 1}, Channels: k.In, Canvas: true,
		Policy: family.Policy{Chunk: o.Chunk, Masked: true, Sight: &family.Sight{Views: o.Views,
			Patches: o.Height * o.Width, Pixels: 3, Size: [2]int{o.Height, o.Width}, State: o.State}}}
}

// projected is a projection of rows to heads, normed over all heads together where norm is not "".
func projected(r *block.Rec, c configs.Model, name string, of *grad.Value, part, norm string) *grad.Value {
	d, n := c.Hidden, c.HeadDim
	h := r.Linear(name+part, of, d, d, block.LinearOpts{Bias: true, Unit: n})
	if norm != "" {
		h = r.T.Like(r.Norm(name+norm, h, d, c.NormEps), h)
	}
	return r.T.Heads(h, n)
}

// lerobotIdle are keys of lerobot's files that say nothing about the arithmetic of training.
var lerobotIdle = []string{"input_features", "output_features", "normalization_mapping", "device", "use_amp",
	"push_to_hub", "repo_id", "private", "tags", "license", "use_peft", "pretrained_path", "n_action_steps",
	"pretrained_backbone_weights", "temporal_ensemble_coeff", "optimizer_lr", "optimizer_weight_decay",
	"optimizer_lr_backbone", "optimizer_betas", "optimizer_eps", "scheduler_name", "scheduler_warmup_steps",
	"drop_n_last_frames", "gradient_checkpointing", "compile_model", "compile_mode", "pretrained_revision", "dtype",
	"max_state_dim", "memory_frames", "memory_stride", "memory_temporal_attention_every", "num_inference_steps",
	"relative_exclude_joints", "action_feature_names", "rtc_config", "empty_cameras", "freeze_vision_encoder",
	"train_expert_only", "optimizer_grad_clip_norm", "scheduler_decay_steps", "scheduler_decay_lr"}
