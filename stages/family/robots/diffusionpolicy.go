package robots

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/noise"
)

// netKeys are the keys that Diffusion Policy alone has.
type netKeys struct {
	Dims      []int `key:"action_channels" class:"fixed" doc:"Channels of each level of a U-Net over the steps of a chunk; each level has half of the steps of the one before."`
	Kernel    int   `key:"action_kernel" default:"5" min:"1" max:"255" class:"fixed" unit:"steps" doc:"Steps that a convolution over a chunk reads."`
	Groups    int   `key:"action_groups" default:"8" min:"1" max:"65536" class:"fixed" doc:"Groups of channels that are normed together in a U-Net over a chunk."`
	Scaled    bool  `key:"film_scale" default:"true" class:"fixed" doc:"What is observed scales the channels of a U-Net over a chunk, beside being added to them (FiLM)."`
	Keypoints int   `key:"keypoints" default:"32" min:"1" max:"65536" class:"fixed" doc:"Places of an image that a spatial softmax makes of a map of features."`

	CropHigh int  `key:"crop_height" default:"0" min:"0" max:"4096" class:"fixed" unit:"pixels" doc:"Height of the part of a view that the policy reads; 0 for all of it."`
	CropWide int  `key:"crop_width" default:"0" min:"0" max:"4096" class:"fixed" unit:"pixels" doc:"Width of that part."`
	Jumps    bool `key:"crop_random" default:"true" class:"fixed" doc:"Samples are trained on parts from places of their own; else on the middle, on which a policy acts."`

	Observed int `key:"observation_steps" default:"1" min:"1" max:"64" class:"fixed" unit:"steps" doc:"Steps whose state and views a policy reads, with the present one."`
	Executed int `key:"executed_steps" default:"1" min:"1" max:"65536" class:"fixed" unit:"steps" doc:"Actions of a chunk that a policy gives, from the present step on."`

	Scheduler string  `key:"action_scheduler" default:"DDPM" oneof:"DDPM|DDIM" class:"fixed" doc:"How actions are drawn out of noise."`
	Noises    int     `key:"noise_steps" default:"100" min:"1" max:"1000000" class:"fixed" unit:"steps" doc:"Levels of noise that a policy is trained on."`
	Curve     string  `key:"noise_schedule" default:"squaredcos_cap_v2" class:"fixed" doc:"Schedule of the levels of noise, by diffusers' name."`
	From      float64 `key:"noise_start" default:"0.0001" min:"0" max:"1" class:"fixed" doc:"Share of noise that the first level adds, where the schedule reads it."`
	To        float64 `key:"noise_end" default:"0.02" min:"0" max:"1" class:"fixed" doc:"Share of noise that the last level adds, where the schedule reads it."`
	Target    string  `key:"noise_target" default:"epsilon" oneof:"epsilon|sample" class:"fixed" doc:"What a policy gives of noisy actions: the noise, or the actions."`
	Clips     bool    `key:"noise_clip" default:"true" class:"fixed" doc:"Actions are held to a range in every step out of noise."`
	Range     float64 `key:"noise_range" default:"1" min:"0" max:"1000000" class:"fixed" doc:"That range, on both sides of 0."`
	Steps     int     `key:"inference_steps" default:"0" min:"0" max:"1000000" class:"fixed" unit:"steps" doc:"Steps out of noise when a policy acts; 0 for all levels of training."`
}

var netPart = configs.Declare("diffusion_policy", configs.Rules[netKeys]{Check: checkNet})

// checkNet reports sizes that the policy cannot have.
func checkNet(m configs.Model, k netKeys, at configs.Report) {
	if m.ModelType != "diffusion" {
		return
	}
	chunkFits(m, at)
	o := policyPart.Of(m)
	if len(k.Dims) < 2 {
		at("action_channels", fmt.Sprintf("%v, want two levels or more", k.Dims), "try [512, 1024, 2048]")
		return
	}
	if n := 1 << len(k.Dims); o.Chunk%n != 0 {
		at("chunk_size", fmt.Sprintf("%d is no multiple of %d: each of %d levels halves the steps", o.Chunk, n,
			len(k.Dims)), "")
	}
	for _, c := range k.Dims {
		if c < 1 || c%k.Groups != 0 || k.Dims[0]%finalGroups != 0 {
			at("action_channels", fmt.Sprintf("%v are no multiples of action_groups = %d, and the first of %d",
				k.Dims, k.Groups, finalGroups), "")
			break
		}
	}
	checkCrop(k, o, at)
	if k.Kernel%2 == 0 {
		at("action_kernel", fmt.Sprintf("%d is even", k.Kernel), fmt.Sprintf("try %d", k.Kernel+1))
	}
	if k.Executed > o.Chunk-k.Observed+1 {
		at("executed_steps", fmt.Sprintf("%d, and a chunk of %d has %d from the present step on", k.Executed,
			o.Chunk, o.Chunk-k.Observed+1), "take fewer")
	}
	if k.Steps > k.Noises {
		at("inference_steps", fmt.Sprintf("%d, and there are %d levels of noise", k.Steps, k.Noises), "take fewer")
	}
	if !slices.Contains(noise.Curves(), k.Curve) {
		at("noise_schedule", fmt.Sprintf("%q is not known", k.Curve),
			"take one of "+strings.Join(noise.Curves(), ", "))
	}
	if m.Layers != 0 && m.Layers != netBlocks(len(k.Dims)) {
		at("num_hidden_layers", fmt.Sprintf("%d, but %d levels have %d blocks", m.Layers, len(k.Dims),
			netBlocks(len(k.Dims))), fmt.Sprintf("write %d", netBlocks(len(k.Dims))))
	}
}

// checkCrop reports a part that no view has.
func checkCrop(k netKeys, o policyKeys, at configs.Report) {
	if (k.CropHigh == 0) != (k.CropWide == 0) || k.CropHigh > o.Height || k.CropWide > o.Width {
		at("crop_height", fmt.Sprintf("a part of %d by %d pixels, of views of %d by %d", k.CropHigh, k.CropWide,
			o.Height, o.Width), "set both within the view, or none")
	}
}

// finalGroups are those of the norm before the last convolution, which lerobot does not set.
const finalGroups = 8

// netBlocks counts the residual blocks and changes of resolution of so many levels.
func netBlocks(levels int) int { return 2*levels + levels - 1 + 2 + 3*(levels-1) }

// Diffusion Policy (arXiv:2303.04137), as lerobot has it: a U-Net over the steps of a chunk of actions,
// told of the level of noise, of states and of what a ResNet and a spatial softmax make of views, of several steps.
var _ = family.Register(family.Family{ModelType: "diffusion", Paper: "2303.04137", HF: hf.Family{Class: "diffusion",
	Diffusers: true, Has: []string{"latent_patch", "in_channels", "chunk_size", "views", "state_size",
		"view_height", "view_width", "backbone_width", "action_channels", "action_kernel", "action_groups",
		"film_scale", "keypoints", "crop_height", "crop_width", "crop_random", "observation_steps", "executed_steps",
		"action_scheduler", "noise_steps", "noise_schedule", "noise_start", "noise_end", "noise_target", "noise_clip",
		"noise_range", "inference_steps", "freq_dim"}, Usual: map[string]string{"latent_patch": "[1, 1, 1]"},
	Absent: map[string]string{"latent_patch": "[1, 1, 1]", "chunk_size": "16", "observation_steps": "2",
		"executed_steps": "8", "freq_dim": "128"}, Null: []string{"inference_steps"}, Alias: map[string]string{
		"horizon": "chunk_size", "n_obs_steps": "observation_steps", "n_action_steps": "executed_steps",
		"down_dims": "action_channels", "kernel_size": "action_kernel", "n_groups": "action_groups",
		"use_film_scale_modulation": "film_scale", "spatial_softmax_num_keypoints": "keypoints",
		"diffusion_step_embed_dim": "freq_dim", "noise_scheduler_type": "action_scheduler",
		"num_train_timesteps": "noise_steps", "beta_schedule": "noise_schedule", "beta_start": "noise_start",
		"beta_end": "noise_end", "prediction_type": "noise_target", "clip_sample": "noise_clip",
		"clip_sample_range": "noise_range", "num_inference_steps": "inference_steps", "crop_is_random": "crop_random"},
	Only: map[string]string{"vision_backbone": `"resnet18"`, "use_group_norm": "true",
		"use_separate_rgb_encoder_per_camera": "false", "resize_shape": "null", "crop_ratio": "1",
		"do_mask_loss_for_padding": "false"}, Idle: append([]string{"crop_shape"}, lerobotIdle...), Omit: []string{
		"latent_patch", "hidden_size", "num_hidden_layers", "intermediate_size"}, Prepare: func(raw hf.Raw) {
		viewed(raw)
		if raw["down_dims"] == nil && raw["action_channels"] == nil {
			raw["down_dims"] = []byte("[512, 1024, 2048]")
		}
		delete(raw, "crop_ratio") // it has an effect with resize_shape alone
		cropShape(raw)
	},
	Own: []hf.Own{hf.Keys(netFile{Groups: 8}, netFile.enter)}, Write: writeNet},
	Build: func(c configs.Model) *family.Model { return newNet(c).model() }})

// cropShape makes keys of the two numbers of lerobot's crop_shape; another value is refused with them.
func cropShape(raw hf.Raw) {
	text := raw["crop_shape"]
	var size []json.RawMessage
	if text == nil || string(text) == "null" {
		return
	}
	if json.Unmarshal(text, &size) != nil || len(size) != 2 {
		size = []json.RawMessage{text, text}
	}
	raw["crop_height"], raw["crop_width"] = size[0], size[1]
}

// netFile are keys that settings follow from.
type netFile struct {
	Dims   []int `key:"action_channels"`
	Groups int   `key:"action_groups"`
}

// enter sets what every model has: the width and the number of its blocks.
func (k netFile) enter(d *hf.Decoder) {
	if n := len(k.Dims); n > 0 {
		d.Set("hidden_size", fmt.Sprint(k.Dims[n-1]))
		d.Set("intermediate_size", fmt.Sprint(k.Dims[n-1]))
		d.Set("num_hidden_layers", fmt.Sprint(netBlocks(n)))
		d.Set("num_attention_heads", fmt.Sprint(k.Groups)) // what plan.tp shares out are groups
	}
}

// writeNet makes lerobot's file.
func writeNet(m hf.Values, out map[string]any) {
	writeLeRobot(m, out)
	writeCrop(m, out)
	if m.Int("inference_steps") == 0 {
		out["num_inference_steps"] = nil
	}
}

// writeCrop makes lerobot's crop_shape.
func writeCrop(m hf.Values, out map[string]any) {
	out["crop_shape"] = nil
	if h := m.Int("crop_height"); h > 0 {
		out["crop_shape"] = []int{h, m.Int("crop_width")}
	}
	delete(out, "crop_height")
	delete(out, "crop_width")
}
