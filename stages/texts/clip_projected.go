package texts

var _ = register(Class{Name: "CLIPTextModelWithProjection", Type: "clip_text_model", Paper: "2103.00020",
	Idle: clipIdle,
	Sizes: []Size{{"OpenCLIP ViT-bigG/14 text", `"hidden_size": 1280, "intermediate_size": 5120,
		"num_hidden_layers": 32, "num_attention_heads": 20, "hidden_act": "gelu", "projection_dim": 1280`,
		694_659_840}, {"CLIP ViT-B/32 text", `"hidden_act": "quick_gelu"`, 63_428_096}},
	fresh: func() config { return &clipProjected{clip: clipDefaults(), Projected: 512} }})

// clipProjected is CLIPTextModelWithProjection: a matrix makes pooled rows of what CLIPTextModel pools.
type clipProjected struct {
	clip
	Projected int `json:"projection_dim"`
}

func (c *clipProjected) check(f *faults) {
	c.clip.check(f)
	f.within(size{"projection_dim", c.Projected, 1 << 16})
}

func (c *clipProjected) model() *Model {
	m := c.clip.encoder(c.Projected)
	m.logical = clipTensor
	return m
}
