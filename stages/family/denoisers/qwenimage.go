package denoisers

import (
	"fmt"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// Qwen-Image (arXiv:2508.02324): captions are a stream of their own, with weights of its own; both streams
// attend to both. Places are counted from the middle of the image.
var _ = family.Register(family.Family{ModelType: "QwenImageTransformer2DModel", Paper: "2508.02324", HF: hf.Family{
	Class: "QwenImageTransformer2DModel", Diffusers: true, Has: []string{"latent_patch", "in_channels", "out_channels",
		"text_dim", "axes_dims_rope", "zero_cond_t"}, Fixed: map[string]string{"hidden_act": `"gelu_pytorch_tanh"`},
	Absent: map[string]string{"out_channels": "16", "num_attention_heads": "24", "head_dim": "128",
		"num_hidden_layers": "60", "text_dim": "3584", "axes_dims_rope": "[16, 56, 56]", "rms_norm_eps": "1e-6"},
	Alias: map[string]string{"attention_head_dim": "head_dim", "num_layers": "num_hidden_layers",
		"joint_attention_dim": "text_dim"}, Only: map[string]string{"guidance_embeds": "false",
		"use_additional_t_cond": "false", "use_layer3d_rope": "false"}, Omit: []string{"latent_patch",
		"rms_norm_eps", "text_rows"}, Own: []hf.Own{hf.Keys(Heads{Heads: 24, Dim: 128}, Heads.Enter),
		hf.Keys(packed{In: 64, Patch: 2, Heads: 24, Dim: 128}, packed.enter)}, Write: packed{}.write},
	Build: func(c configs.Model) *family.Model { return newQwenImage(c).model() }})

// qwenKeys are the keys that Qwen-Image alone has.
type qwenKeys struct {
	ZeroWith bool `key:"zero_cond_t" default:"false" class:"fixed" doc:"Images that are given behind the one that is drawn are told time 0 (Qwen-Image-Edit 2511); else its time."`
}

var qwenPart = configs.Declare("qwen image", configs.Rules[qwenKeys]{})

// newQwenImage is a model of the family.
func newQwenImage(c configs.Model) mmdit {
	k := Shared.Of(c)
	return mmdit{c: c, k: k, axes: [3]int(turning.Of(c).Axes), last: true,
		names: qwenNames, x: "img_in", text: "txt_in", textNorm: "txt_norm",
		d: &family.Denoiser{Patch: [3]int(k.Patch), Channels: k.In, Texts: k.Text, Joint: true, TextStep: 1,
			Pipeline: "QwenImagePipeline", Edit: "QwenImageEditPlusPipeline", ZeroWith: qwenPart.Of(c).ZeroWith,
			Times: 1000, At: centred, Even: true, TextAt: func(g [3]int) int32 { return int32(max(g[1]/2, g[2]/2)) }},
		time: func(r *block.Rec, q *mmdit, _ map[string]*grad.Value) *grad.Value {
			return TimeMLP(r, "time_text_embed.timestep_embedder", q.d.Features(r, features/2, 1000), c.Hidden,
				features)
		}}
}

// qwenNames are the parameters of both streams of block i, latents first.
func qwenNames(i int) [2]stream {
	name := fmt.Sprintf("transformer_blocks.%d.", i)
	return [2]stream{{mod: name + "img_mod.1", q: name + "attn.to_q", k: name + "attn.to_k", v: name + "attn.to_v",
		normQ: name + "attn.norm_q", normK: name + "attn.norm_k", out: name + "attn.to_out.0",
		mlp: name + "img_mlp"}, {mod: name + "txt_mod.1", q: name + "attn.add_q_proj", k: name + "attn.add_k_proj",
		v: name + "attn.add_v_proj", normQ: name + "attn.norm_added_q", normK: name + "attn.norm_added_k",
		out: name + "attn.to_add_out", mlp: name + "txt_mlp"}}
}

// centred are the places of an image's tokens, counted from its middle.
func centred(g [3]int) []int32 {
	var out []int32
	for t := range g[0] {
		for y := range g[1] {
			for x := range g[2] {
				out = append(out, int32(t), int32(y-(g[1]-g[1]/2)), int32(x-(g[2]-g[2]/2)))
			}
		}
	}
	return out
}

// packed are the keys of denoisers whose channels are those of a patch.
type packed struct {
	In    int `key:"in_channels" min:"1"`
	Patch int `key:"patch_size" min:"1" max:"64"`
	Heads int `key:"num_attention_heads" min:"1"`
	Dim   int `key:"attention_head_dim" min:"1"`
}

// enter counts channels of latents, not of patches, and gives the MLP its width.
func (k packed) enter(d *hf.Decoder) {
	if k.In%(k.Patch*k.Patch) != 0 {
		d.Fail("in_channels", fmt.Sprintf("%d are no channels of patches of %d×%[2]d", k.In, k.Patch), "")
		return
	}
	d.Set("in_channels", fmt.Sprint(k.In/(k.Patch*k.Patch)))
	d.Set("intermediate_size", fmt.Sprint(4*k.Heads*k.Dim))
	d.Set("latent_patch", fmt.Sprintf("[1, %d, %d]", k.Patch, k.Patch))
}

// write is the inverse of enter.
func (packed) write(m hf.Values, out map[string]any) {
	patch := m["latent_patch"].([]int)
	out["in_channels"], out["patch_size"] = m.Int("in_channels")*patch[1]*patch[2], patch[1]
	out["guidance_embeds"] = false
}

// ropeKeys are those of denoisers that say how many numbers of a head turn with each axis.
type ropeKeys struct {
	Axes []int `key:"axes_dims_rope" class:"fixed" doc:"Numbers of a head that turn with time, height and width."`
}

var turning = configs.Declare("axes of a denoiser", configs.Rules[ropeKeys]{
	Check: func(m configs.Model, k ropeKeys, at configs.Report) {
		sum := 0
		for _, n := range k.Axes {
			sum += n
			if n%2 != 0 {
				at("axes_dims_rope", fmt.Sprintf("%v: %d is odd, and numbers turn in pairs", k.Axes, n), "")
			}
		}
		if m.Has("axes_dims_rope") && (len(k.Axes) != 3 || sum != m.HeadDim) {
			at("axes_dims_rope", fmt.Sprintf("%v, want three numbers that add up to head_dim = %d", k.Axes,
				m.HeadDim), "")
		}
	}})
