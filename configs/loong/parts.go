package loong

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs/hydra"
	"github.com/lfactor/lfactor/configs/source"
	"go.yaml.in/yaml/v3"
)

// Overrides of the parts of a model that no LoongForge file describes: launch scripts
// give --model-name with +model.image_encoder.freeze=True.

// partNames are the parts of composed models.
var partNames = []string{"foundation", "image_encoder", "image_projector"}

// IsPart reports whether a key lies in one of them.
func IsPart(key string) bool {
	words := strings.SplitN(key, ".", 3)
	return len(words) == 3 && words[0] == "model" && slices.Contains(partNames, strings.ReplaceAll(words[1], "-", "_"))
}

// Overrides enters source.ModelKeys of parts where the model is not one of LoongForge's files.
func (l *Reader) Overrides() {
	if l.Path != "" || len(l.Args) == 0 {
		return
	}
	h := hydra.Overrides(l.Sink, l.Getenv, l.Args)
	h.Resolve()
	v := &vlm{l: l, m: h.Tree.At("model")}
	for _, part := range partNames {
		n := v.m.At(part)
		switch {
		case n == nil:
		case part == "foundation":
			l.decoder(n, "model.foundation.", "model.*", "lm_head.*")
		default:
			v.partKeys(part, n)
		}
	}
	l.noteIdle()
	if len(l.frozen) > 0 {
		l.Sink.Add("freeze", source.ListNode(l.frozen), l.frozenAt)
	}
}

// partKeys enters keys of an encoder or a projector whose class is not known.
func (v *vlm) partKeys(part string, n *hydra.Node) {
	pattern := map[string]string{"image_encoder": "visual.*", "image_projector": "projector.*"}[part]
	for _, name := range n.Keys {
		kid, key := n.Kids[name], "model."+part+"."+name
		switch {
		case v.shared(part, name, kid, pattern):
		case part == "image_encoder" && name == "tensor_model_parallel_size" && kid.Kids == nil:
			v.set("plan.encoder.tp", kid.Value, kid.O)
			v.l.EncoderTP = kid.O
		case part == "image_encoder" && visionKeys[name] != "" && kid.Kids == nil:
			v.set(visionKey+visionKeys[name], kid.Value, kid.O)
		case v.idle(part, name):
		default:
			known := append(source.SortedKeys(visionKeys), "freeze", "tensor_model_parallel_size",
				"recompute_granularity", "lr")
			if part == "image_projector" {
				known = []string{"freeze", "recompute_granularity", "lr"}
			}
			try := source.DidYouMean(name, known)
			if try == "" {
				try = "give the model as a file, --config-file, to change what it is made of"
			}
			v.l.Sink.Fail(kid.O, key, "unknown key of a published model's part", try)
		}
	}
}

// fixed holds a key to the values that its class is built for, if it is a word, a number or a list.
func (v *vlm) fixed(key string, kid *hydra.Node, want []string) {
	have := kid.Text()
	if kid.Value != nil && kid.Value.Kind == yaml.SequenceNode {
		var words []string
		for _, n := range kid.Value.Content {
			words = append(words, n.Value)
		}
		have = strings.Join(words, " ")
	}
	if !slices.Contains(want, have) {
		v.l.Sink.Fail(kid.O, key, fmt.Sprintf("%s, only %s is built", source.Quoted(have), want[0]), "")
	}
}

// size enters the side of square images.
func (v *vlm) size(key string, kid *hydra.Node) {
	value := kid.Value
	if value.Kind == yaml.SequenceNode {
		if len(value.Content) != 2 || value.Content[0].Value != value.Content[1].Value {
			v.l.Sink.Fail(kid.O, key, "want one side, or two equal ones", "")
			return
		}
		value = value.Content[0]
	}
	v.set(visionKey+"image_size", value, kid.O)
}

// width is the encoder's.
func (v *vlm) width() string {
	for name, to := range v.encoder.Keys { // at most one
		if to == "hidden_size" {
			return v.enc.Text(name)
		}
	}
	return v.enc.Text("hidden_size")
}
