package loong

import (
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs/hydra"
	"github.com/lfactor/lfactor/configs/source"
)

// Policy is a policy of robots that LoongForge has a file of: the keys of the file below model and data.
type Policy struct {
	Name  string // model.model_type
	Model string // the published model that it is here
	// Keys are keys of ours that a key of the file sets, none for one that says nothing here.
	Keys map[string][]string
	// Values are what a value of a key, in small letters, stands for here: others are refused.
	Values map[string]map[string]string
	// Sets are what a value of a key stands for here where that is several keys of ours, each with its
	// value: other values are refused.
	Sets map[string]map[string]map[string]string
	// By is a key, "" for none, whose value says which of several published models it is.
	By     string
	Models map[string]string
	// Same are pairs of keys that say one thing in two places.
	Same [][2]string
	// Only are values, as text, of keys that it has one way alone.
	Only map[string][]string
	// Needs are keys that a file has to have, since LoongForge's value where it has none is another than
	// here: what that is.
	Needs map[string]string
}

// policies are the registered ones by name.
var policies = map[string]Policy{}

// RegisterPolicy enters a policy of robots.
func RegisterPolicy(p Policy) {
	if _, dup := policies[p.Name]; dup {
		panic("loong: " + p.Name + " registered twice")
	}
	policies[p.Name] = p
}

// policy enters the file of a policy of robots.
func (l *Reader) policy(root *hydra.Node, p Policy) {
	l.Model, l.ModelAt = p.Model, root.At("model", "model_type").O
	if n := root.At(strings.Split(p.By, ".")...); p.By != "" && n != nil {
		if l.Model = p.Models[n.Text()]; l.Model == "" {
			l.Sink.Fail(n.O, p.By, n.Kind()+", want "+strings.Join(source.SortedKeys(p.Models), " or "), "")
		}
	}
	for _, pair := range p.Same {
		a, b := root.At(strings.Split(pair[0], ".")...), root.At(strings.Split(pair[1], ".")...)
		if a != nil && b != nil && a.Text() != b.Text() {
			l.Sink.Fail(b.O, pair[1], b.Text()+", and "+pair[0]+" is "+a.Text(), "say the same in both")
		}
	}
	for _, part := range root.Keys {
		n := root.Kids[part]
		if part != "model" && part != "data" || n.Kids == nil {
			l.Sink.Fail(n.O, part, "is none of the mappings model and data of a policy's file", "")
			continue
		}
		for _, name := range n.Keys {
			if key := part + "." + name; key != "model.model_type" && key != p.By {
				l.policyKey(p, key, n.Kids[name])
			}
		}
	}
	for _, key := range source.SortedKeys(p.Needs) {
		if root.At(strings.Split(key, ".")...) == nil {
			l.Sink.Fail(l.ModelAt, key, "is not given, which to LoongForge is "+p.Needs[key], "say it")
		}
	}
}

// policyKey enters one key of it.
func (l *Reader) policyKey(p Policy, key string, kid *hydra.Node) {
	to, known := p.Keys[key]
	switch {
	case !known && kid.Kids != nil && slices.ContainsFunc(slices.Concat(source.SortedKeys(p.Keys),
		source.SortedKeys(p.Only)), func(k string) bool { return strings.HasPrefix(k, key+".") }):
		for _, name := range kid.Keys {
			l.policyKey(p, key+"."+name, kid.Kids[name])
		}
	case p.Sets[key] != nil:
		sets, ok := p.Sets[key][strings.ToLower(kid.Text())]
		if !ok {
			l.Sink.Fail(kid.O, key, kid.Kind()+", want "+strings.Join(source.SortedKeys(p.Sets[key]), " or "), "")
		}
		for _, k := range source.SortedKeys(sets) {
			l.Sink.Add(k, source.ScalarNode(sets[k]), kid.O)
		}
	case p.Only[key] != nil:
		(&vlm{l: l}).fixed(key, kid, p.Only[key])
	case !known:
		all := slices.Concat(source.SortedKeys(p.Keys), source.SortedKeys(p.Only), source.SortedKeys(p.Sets))
		l.Sink.Fail(kid.O, key, "unknown key of a LoongForge policy file", source.DidYouMean(key, all))
	case known && kid.Kids != nil:
		l.Sink.Fail(kid.O, key, "a mapping, want a value", "")
	case kid.Null():
	case len(to) == 0:
		l.without(key)
	default:
		value := kid.Value
		if values := p.Values[key]; values != nil {
			v, ok := values[strings.ToLower(kid.Text())]
			if !ok {
				l.Sink.Fail(kid.O, key, kid.Kind()+", want "+strings.Join(source.SortedKeys(values), " or "), "")
				return
			}
			value = source.ScalarNode(v)
		}
		for _, k := range to {
			l.Sink.Add(k, value, kid.O)
		}
	}
}
