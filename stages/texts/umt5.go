package texts

import "slices"

var _ = register(Class{Name: "UMT5EncoderModel", Type: "umt5", Paper: "2304.09151",
	Idle: slices.Concat(t5Idle, []string{"scalable_attention"}),
	Sizes: []Size{{"umT5-XXL encoder", `"vocab_size": 256384, "d_model": 4096, "d_ff": 10240,
		"num_layers": 24, "num_heads": 64`, 5_680_910_336},
		{"umT5 of transformers' defaults", `"num_layers": 8`, 146_941_952}},
	fresh: func() config { return &umt5Encoder{umt5Defaults()} }})

// umt5Encoder is UMT5EncoderModel: every layer has biases of its own.
type umt5Encoder struct{ t5 }

func umt5Defaults() t5 {
	c := t5Defaults("gated-gelu")
	c.Vocab, c.Inter, c.Layers, c.Heads = 250112, 1024, 8, 6
	return c
}

func (c *umt5Encoder) model() *Model { return c.t5.encoder(true) }
