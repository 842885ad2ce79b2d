package diffusion

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/texts"
)

// sineEncoder writes an encoder of bench/golden/texts_uses.py with its tokenizer, and opens it as a run does.
func sineEncoder(t *testing.T, class, config, tokenizer, name string, d *family.Denoiser) *captionPart {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	m, err := texts.Read("config.json", []byte(`{"architectures": ["`+class+`"], `+config+`}`))
	require.NoError(t, err)
	require.NoError(t, m.Write(dir, tensor.F32, func(p *grad.Param, dst []float32) error {
		at := float64(crc32.ChecksumIEEE([]byte(p.Name)) % 1000)
		for i := range dst {
			v := 0.35 * math.Sin(0.37*float64(i)+at)
			if strings.Contains(p.Name, "norm") && strings.HasSuffix(p.Name, "weight") {
				v++
			}
			dst[i] = float32(v)
		}
		return nil
	}))
	files, err := filepath.Glob(filepath.Join("../../dataset/token/testdata/encoders", tokenizer, "*.gz"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		r, err := gzip.NewReader(bytes.NewReader(b))
		require.NoError(t, err)
		out, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, strings.TrimSuffix(filepath.Base(f), ".gz")), out, 0o600))
	}
	p, err := newCaptionPart(dir, name, d)
	require.NoError(t, err)
	return p
}

// TestThreeEncoders: states of captions by three encoders are StableDiffusion3Pipeline's: those of two stand side by
// side with zeros behind them, the third's rows stand behind, or zeros where it is left out.
func TestThreeEncoders(t *testing.T) {
	t.Parallel()
	var want struct {
		Text  string
		Cases []struct {
			Rows   []int
			Length int
			States [][]float32
			Pooled []float32
		}
	}
	text, err := os.ReadFile("testdata/sd3.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &want))
	d := &family.Denoiser{Pipeline: "StableDiffusion3Pipeline", Texts: 16, Pooled: 11}
	const clip = `"model_type": "clip_text_model", "vocab_size": 1700, "hidden_size": 8, "intermediate_size": 12,
		"num_hidden_layers": 3, "num_attention_heads": 2, "bos_token_id": 1698, "eos_token_id": 1699, `
	parts := []*captionPart{
		sineEncoder(t, "CLIPTextModelWithProjection", clip+`"projection_dim": 6`, "clip", "text_encoder", d),
		sineEncoder(t, "CLIPTextModelWithProjection", clip+`"hidden_act": "gelu", "projection_dim": 5`, "clip-pad",
			"text_encoder_2", d),
		sineEncoder(t, "T5EncoderModel", `"model_type": "t5", "vocab_size": 2000, "d_model": 16, "d_kv": 4, "d_ff": 12,
			"num_layers": 2, "num_heads": 2, "feed_forward_proj": "gated-gelu"`, "t5-hf", "text_encoder_3", d)}
	for i, c := range want.Cases {
		x := &CaptionEncoder{d: d, parts: parts[:3-i], zeros: 256 * i, open: func(p *captionPart) (err error) {
			p.encoder, err = texts.Open(p.dir, ref.New(), tensor.F32)
			return err
		}}
		require.NoError(t, x.fits())
		for range 2 { // the second time with open encoders
			states, pooled, err := x.States(want.Text)
			require.NoError(t, err)
			require.Len(t, states, c.Length*d.Texts)
			for k, r := range c.Rows {
				r = (r + c.Length) % c.Length
				require.InDeltaSlice(t, c.States[k], states[r*d.Texts:][:d.Texts], 2e-5, "case %d, row %d", i, r)
			}
			require.InDeltaSlice(t, c.Pooled, pooled, 2e-5)
		}
	}
	for _, bad := range [][]*captionPart{parts[:1], parts[1:2], {parts[0], parts[2]}} {
		require.Error(t, (&CaptionEncoder{d: d, parts: bad}).fits())
	}
}
