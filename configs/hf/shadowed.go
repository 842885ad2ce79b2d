package hf

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/lfactor/lfactor/configs/source"
)

// shadowed tells whether a key stands beside the one that the family reads in its place: its own name of it,
// or for rotary settings the one in rope_parameters, as transformers reads them. A value that differs is
// noted. Two own names of one setting that differ are a fault.
func (d *Decoder) shadowed(key string, raw Raw) bool {
	value := Compact(raw[key])
	if value == "null" {
		return false
	}
	if to, own := d.f.Alias[key]; own {
		for _, other := range source.SortedKeys(d.f.Alias) {
			if d.f.Alias[other] == to && other < key && given(raw[other]) &&
				!source.SameValue(Compact(raw[other]), value) {
				d.Fail(key, fmt.Sprintf("%s, and %s = %s: both are names of one setting", value, other,
					Compact(raw[other])), "keep one of them")
			}
		}
		return false
	}
	by, with := "", json.RawMessage(nil)
	for _, other := range source.SortedKeys(d.f.Alias) {
		if d.f.Alias[other] == key && given(raw[other]) {
			by, with = other, raw[other]
		}
	}
	from := "rope_parameters" // which transformers replaces by a rope_scaling that says something
	if old := raw["rope_scaling"]; given(old) && Compact(old) != "{}" {
		from = "rope_scaling"
	}
	if key == "rope_theta" || key == "partial_rotary_factor" {
		var nested map[string]json.RawMessage
		if json.Unmarshal(raw[from], &nested) == nil && given(nested[key]) {
			by, with = from+"."+key, nested[key]
		}
	}
	if key == "rope_parameters" && from != key {
		by, with = from, raw[from]
	}
	if by == "" {
		return value == "{}" && key == "rope_scaling"
	}
	if !source.SameValue(Compact(with), value) {
		d.Sink.Note(fmt.Sprintf("%s: %s = %s is not read: this family reads %s = %s", d.O, key, value, by,
			Compact(with)))
	}
	return true
}

// given tells whether a key has a value.
func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// nearest says which family is most like one that is not known, and which keys of the file it does not take: by
// its name, by how it begins, or else the decoder that takes most keys.
func nearest(sink Sink, family string, raw Raw) string {
	try, most := "", 3
	for _, name := range Names() {
		n := 0
		for n < min(len(name), len(family)) && name[n] == family[n] {
			n++
		}
		if n == len(name) && n > 3 { // the name goes on: qwen3_omni is a qwen3
			n += len(family)
		}
		if n > most {
			try, most = name, n
		}
	}
	text := " is the nearest by name: set model_type to it if the layers are the same (docs/families.md lists all)"
	if try == "" && given(raw["num_hidden_layers"]) && source.DidYouMean(family, Names()) == "" {
		text = " takes most of its keys, but layers may differ all the same (docs/families.md lists all families)"
		most = len(raw)
		for _, name := range append([]string{"llama"}, source.SortedKeys(Families())...) { // the plainest wins a tie
			if n := len(others(sink, name, raw)); !Families()[name].Diffusers && n < most {
				try, most = name, n
			}
		}
	}
	if try == "" {
		return source.Nearest(family, Names())
	}
	if keys := others(sink, try, raw); len(keys) > 0 {
		text += "; it does not take " + strings.Join(keys, ", ")
	}
	return try + text
}

// others are the keys of a file that a decoder's family does not have, or not with these values; nil if the
// family is no decoder.
func others(sink Sink, family string, raw Raw) []string {
	f, ok := Families()[family]
	if !ok {
		return nil
	}
	raw = maps.Clone(raw)
	delete(raw, "model_type")
	if f.Prepare != nil {
		f.Prepare(raw)
	}
	q := quiet{source.Quiet{Sink: sink, Wrong: map[string]bool{}}, sink}
	d := &Decoder{Sink: q, f: f}
	for _, key := range d.keys(raw) {
		q.Wrong[key] = true
	}
	return source.SortedKeys(q.Wrong)
}

// quiet knows what a sink does of keys, and takes nothing.
type quiet struct {
	source.Quiet
	keys Sink
}

func (q quiet) Optional(key string) (string, bool) { return q.keys.Optional(key) }
func (q quiet) Type(key string) string             { return q.keys.Type(key) }

// noteLogits says where logits are not those of transformers: its classes of composed models leave out the
// factors and caps that a decoder's own class has.
func (d *Decoder) noteLogits(text Raw, class string) {
	nothing := map[string]string{"logits_scaling": "1", "logit_scale": "1", "final_logit_softcapping": "0"}
	for _, key := range source.SortedKeys(nothing) {
		none := nothing[key]
		if v := Compact(orNull(text[key])); v != "null" && !source.SameValue(v, none) {
			d.Sink.Note(fmt.Sprintf("%s: text_config.%s = %s changes logits here, as in the decoder's own class; "+
				"transformers' %s leaves it out", d.O, key, v, class))
		}
	}
}

// orNull is a value, null where there is none.
func orNull(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return json.RawMessage("null")
	}
	return raw
}
