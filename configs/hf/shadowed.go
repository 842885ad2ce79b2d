package hf

import (
	"encoding/json"
	"fmt"

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
	if key == "rope_theta" || key == "partial_rotary_factor" {
		var nested map[string]json.RawMessage
		if json.Unmarshal(raw["rope_parameters"], &nested) == nil && given(nested[key]) {
			by, with = "rope_parameters."+key, nested[key]
		}
	}
	if by == "" {
		return false
	}
	if !source.SameValue(Compact(with), value) {
		d.Sink.Note(fmt.Sprintf("%s: %s = %s is not read: this family reads %s = %s", d.O, key, value, by,
			Compact(with)))
	}
	return true
}

// given tells whether a key has a value.
func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }
