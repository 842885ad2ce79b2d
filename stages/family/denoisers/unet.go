package denoisers

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/family"
)

// unetKeys are the keys that U-Nets alone have. A list has an entry a level of resolution, the finest first.
type unetKeys struct {
	Channels  []int    `key:"block_out_channels" class:"fixed" doc:"Channels of each level of a U-Net, the finest first."`
	Down      []string `key:"down_block_types" class:"fixed" doc:"Blocks of each level on the way down: CrossAttnDownBlock2D reads the caption, DownBlock2D does not. The way up mirrors them."`
	Depths    []int    `key:"transformer_layers_per_block" class:"fixed" doc:"Layers of each attention of a level; the middle has the last level's."`
	LevelHead []int    `key:"heads_per_block" class:"fixed" doc:"Heads of each level's attention."`
	Residuals int      `key:"layers_per_block" default:"2" min:"1" max:"64" class:"fixed" doc:"Residual blocks of a level on the way down; on the way up there is one more."`
	Groups    int      `key:"norm_num_groups" default:"32" min:"1" max:"65536" class:"fixed" doc:"Groups of channels that are normed together."`
	Linear    bool     `key:"use_linear_projection" default:"false" class:"fixed" doc:"Attention is entered and left by linear layers; else by convolutions of one place."`
	Frame     int      `key:"addition_time_embed_dim" default:"0" min:"0" max:"65536" class:"fixed" doc:"Sinusoids of each of six numbers of an image's size and cut that the model is told; 0 for a model that is told none."`
	Added     int      `key:"projection_class_embeddings_input_dim" default:"0" min:"0" max:"1048576" class:"fixed" doc:"Width of the pooled row of a caption and of those sinusoids together."`
	Side      int      `key:"sample_size" default:"0" min:"0" max:"65536" class:"fixed" doc:"Height and width of latents that pipelines draw if they are not told; 0 for none."`
}

// pooled is the width of a caption's pooled row.
func (k unetKeys) pooled() int { return max(0, k.Added-6*k.Frame) }

// The kinds of a level on the way down.
const (
	crossDown = "CrossAttnDownBlock2D"
	plainDown = "DownBlock2D"
)

var unetPart = configs.Declare("unet", configs.Rules[unetKeys]{Check: checkUNet})

// checkUNet reports levels that no plan can run.
func checkUNet(m configs.Model, k unetKeys, at configs.Report) {
	if !m.Has("block_out_channels") {
		return
	}
	n := len(k.Channels)
	if n == 0 {
		at("block_out_channels", "is not given", "write the channels of each level, as [320, 640, 1280]")
		return
	}
	for key, have := range map[string]int{"down_block_types": len(k.Down), "heads_per_block": len(k.LevelHead),
		"transformer_layers_per_block": len(k.Depths)} {
		if have != n {
			at(key, fmt.Sprintf("%d entries for %d levels of block_out_channels", have, n), "write one a level")
			return
		}
	}
	for i, c := range k.Channels {
		switch {
		case k.Groups > 0 && c%k.Groups != 0:
			at("block_out_channels", fmt.Sprintf("%d are no multiple of norm_num_groups = %d", c, k.Groups), "")
		case k.LevelHead[i] < 1 || c%k.LevelHead[i] != 0:
			at("heads_per_block", fmt.Sprintf("%d heads of %d channels", k.LevelHead[i], c),
				"take a divisor of the level's channels")
		case k.Depths[i] < 1:
			at("transformer_layers_per_block", fmt.Sprintf("%d layers, want 1 or more", k.Depths[i]), "")
		case k.Down[i] != crossDown && k.Down[i] != plainDown:
			at("down_block_types", fmt.Sprintf("%s is not known", k.Down[i]), "want "+crossDown+" or "+plainDown)
		}
	}
	if want := blocksOf(k.Down, k.Residuals); m.Layers != 0 && m.Layers != want {
		at("num_hidden_layers", fmt.Sprintf("%d, but the levels have %d blocks", m.Layers, want),
			fmt.Sprintf("write %d", want))
	}
	if k.Added < 6*k.Frame || k.Frame%2 != 0 || (k.Frame == 0) != (k.Added == 0) {
		at("projection_class_embeddings_input_dim", fmt.Sprintf("%d for six numbers of addition_time_embed_dim "+
			"= %d and a pooled row", k.Added, k.Frame), "want more than six times an even number, or 0 for both")
	}
}

// blocksOf counts the blocks between the first and the last convolution, which a pipeline may be cut behind.
func blocksOf(down []string, residuals int) int {
	n := 3 + 2*(len(down)-1) // the middle, and changes of resolution
	for _, kind := range down {
		each := 1
		if kind == crossDown {
			each = 2
		}
		n += each * (2*residuals + 1)
	}
	return n
}

// The U-Nets of Stable Diffusion 1, 2 and XL (arXiv:2112.10752, arXiv:2307.01952): convolutions and
// attention at falling and rising resolution, with long skips between them.
var _ = family.Register(family.Family{ModelType: "UNet2DConditionModel", Paper: "2307.01952",
	HF: hf.Family{Class: "UNet2DConditionModel", Diffusers: true, Unturned: true, Has: []string{"latent_patch", "in_channels",
		"out_channels", "text_dim", "block_out_channels", "down_block_types", "transformer_layers_per_block",
		"heads_per_block", "layers_per_block", "norm_num_groups", "use_linear_projection", "addition_time_embed_dim",
		"projection_class_embeddings_input_dim", "sample_size"}, Absent: map[string]string{"in_channels": "4",
		"out_channels": "4", "text_dim": "1280", "rms_norm_eps": "1e-5"}, Alias: map[string]string{
		"cross_attention_dim": "text_dim", "norm_eps": "rms_norm_eps"}, Only: map[string]string{"act_fn": `"silu"`,
		"center_input_sample": "false", "flip_sin_to_cos": "true", "freq_shift": "0", "downsample_padding": "1",
		"mid_block_scale_factor": "1", "dropout": "0", "only_cross_attention": "false", "dual_cross_attention": "false",
		"class_embeddings_concat": "false", "resnet_time_scale_shift": `"default"`, "resnet_skip_time_act": "false",
		"resnet_out_scale_factor": "1", "time_embedding_type": `"positional"`, "conv_in_kernel": "3",
		"conv_out_kernel": "3", "attention_type": `"default"`, "mid_block_type": `"UNetMidBlock2DCrossAttn"`},
		Idle: []string{"addition_embed_type_num_heads", "upcast_attention"}, Omit: []string{"latent_patch",
			"heads_per_block"}, Prepare: listed, Own: []hf.Own{hf.Keys(unetUsual, unetFile.enter)}, Write: writeUNet},
	Build: func(c configs.Model) *family.Model { return newUNet(c).model() }})

// unetFile are keys of files that settings follow from.
type unetFile struct {
	Channels []int    `key:"block_out_channels"`
	Down     []string `key:"down_block_types"`
	Up       []string `key:"up_block_types"`
	Depths   []int    `key:"transformer_layers_per_block"`
	Heads    []int    `key:"attention_head_dim"`
	Count    []int    `key:"num_attention_heads"`
	Added    string   `key:"addition_embed_type"`
	Each     int      `key:"layers_per_block" min:"1"`
}

// unetUsual is what diffusers' class has where a file says nothing.
var unetUsual = unetFile{Channels: []int{320, 640, 1280, 1280},
	Down: []string{crossDown, crossDown, crossDown, plainDown}, Depths: []int{1}, Heads: []int{8}, Each: 2,
	Up: []string{"UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"}}

// listed makes lists of keys that a file may have as one number for all levels.
func listed(raw hf.Raw) {
	for _, key := range []string{"transformer_layers_per_block", "attention_head_dim", "num_attention_heads"} {
		var n int
		if json.Unmarshal(raw[key], &n) == nil && raw[key] != nil && string(raw[key]) != "null" {
			raw[key] = json.RawMessage(fmt.Sprintf("[%d]", n))
		}
	}
}

// enter takes the levels of a file. What it calls attention_head_dim are numbers of heads.
func (k unetFile) enter(d *hf.Decoder) {
	heads, n := k.Heads, len(k.Channels)
	if len(k.Count) > 0 {
		heads = k.Count
	}
	each := func(key string, v []int) string {
		if len(v) == 1 {
			v = slices.Repeat(v, max(1, n))
		}
		if len(v) != n || n == 0 {
			d.Fail(key, fmt.Sprintf("%d entries for %d levels", len(v), n), "")
			v = make([]int, max(1, n))
		}
		return family.JSONOf(v)
	}
	d.Set("block_out_channels", family.JSONOf(k.Channels))
	d.Set("down_block_types", family.JSONOf(k.Down))
	d.Set("transformer_layers_per_block", each("transformer_layers_per_block", k.Depths))
	d.Set("heads_per_block", each("attention_head_dim", heads))
	d.Set("latent_patch", "[1, 1, 1]")
	if !slices.Equal(k.Up, upOf(k.Down)) {
		d.Fail("up_block_types", fmt.Sprintf("%v, want the mirror of down_block_types %v", k.Up, k.Down), "")
	}
	if k.Added != "" && k.Added != "text_time" {
		d.Fail("addition_embed_type", fmt.Sprintf("%q, only text_time can be trained", k.Added), "")
	}
	if n == 0 || len(heads) == 0 || heads[len(heads)-1] < 1 {
		return
	}
	width := k.Channels[n-1]
	for key, v := range map[string]int{"hidden_size": width, "num_hidden_layers": blocksOf(k.Down, k.Each),
		"num_attention_heads": heads[len(heads)-1], "intermediate_size": 4 * width} {
		d.Set(key, fmt.Sprint(v))
	}
}

// upOf are the blocks of the way up.
func upOf(down []string) (up []string) {
	for _, kind := range slices.Backward(down) {
		up = append(up, map[string]string{crossDown: "CrossAttnUpBlock2D", plainDown: "UpBlock2D"}[kind])
	}
	return up
}

// writeUNet is the inverse of enter.
func writeUNet(m hf.Values, out map[string]any) {
	out["num_attention_heads"] = nil
	out["attention_head_dim"] = m["heads_per_block"]
	out["up_block_types"] = upOf(m["down_block_types"].([]string))
	if m.Int("addition_time_embed_dim") == 0 {
		out["addition_time_embed_dim"], out["projection_class_embeddings_input_dim"] = nil, nil
	} else {
		out["addition_embed_type"] = "text_time"
	}
	if m.Int("sample_size") == 0 {
		out["sample_size"] = nil
	}
}
