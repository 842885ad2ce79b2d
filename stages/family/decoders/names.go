package decoders

import (
	"cmp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/family"
)

// Names says where checkpoints keep tensors. Parts are looked for in this order: experts, joined tensors, other names.
type Names struct {
	Experts *struct {
		Each    bool `yaml:"each"`     // one by one, else all in one tensor, gate and up in one
		Lead    bool `yaml:"lead"`     // the correction has an axis of length 1 before its own
		Turned  bool `yaml:"turned"`   // matrices are [in out]
		InTurns bool `yaml:"in_turns"` // gate and up lie in turns, else one behind the other
	} `yaml:"experts"`
	Joined  []Joined `yaml:"joined"`
	Rename  Renames  `yaml:"rename"`         // parts of names, ours: theirs
	Turned  string   `yaml:"turned"`         // ending of matrices that are [in out]
	Linear  string   `yaml:"linear"`         // projections of linear attention lie by_head or in_order
	Flat    string   `yaml:"flat"`           // ending of tensors without an axis of length 1
	Latent  bool     `yaml:"latent"`         // the heads of latent attention lie as DeepSeek's do
	Further string   `yaml:"further_tokens"` // layers for further tokens lie behind_last, or beside the layers
}

// Joined is a tensor that has several of ours one behind the other.
type Joined struct {
	Tensor string   `yaml:"tensor"`
	Parts  []string `yaml:"parts"`
	// one key head's rows after another's: its queries, its key, its value
	ByHead bool `yaml:"by_head"`
}

// Renames are pairs of parts of names in their order, of which the first that fits counts.
type Renames []string

// UnmarshalYAML keeps the order of a mapping.
func (r *Renames) UnmarshalYAML(n *yaml.Node) error {
	for _, x := range n.Content {
		*r = append(*r, x.Value)
	}
	return nil
}

// source finds tensors; nil for names that are ours.
func (n *Names) source() func(c configs.Model) func(name string) family.Source {
	if n == nil {
		return nil
	}
	return func(c configs.Model) func(string) family.Source {
		rename := strings.NewReplacer(n.Rename...)
		find := func(name string) family.Source {
			s := family.Source{Name: name}
			if e := n.Experts; e != nil {
				s = family.ExpertPlaces{Stack: e.Each, Lead: e.Lead, Turned: e.Turned, InTurns: e.InTurns,
					Width: cmp.Or(family.Mixture.Of(c).ExpertWidth, c.Intermediate)}.Source(name)
			}
			for _, j := range n.Joined {
				j.place(c, &s)
			}
			s.Name = rename.Replace(s.Name)
			s.Turned = s.Turned || n.Turned != "" && strings.HasSuffix(name, n.Turned)
			s.Flat = n.Flat != "" && strings.HasSuffix(name, n.Flat)
			return s
		}
		if n.Latent {
			find = family.LatentPlaces(c, find)
		}
		switch n.Linear {
		case "by_head":
			find = grouped(c, find)
		case "in_order":
			find = inOrder(c, find)
		}
		switch n.Further {
		case "behind_last":
			find = family.BehindLast(c, find)
		case "beside":
			find = family.BesideLayers(find)
		}
		return find
	}
}

// place finds the rows of a part.
func (j Joined) place(c configs.Model, s *family.Source) {
	before, last, ok := cutLast(s.Name)
	i := slices.Index(j.Parts, before[strings.LastIndexByte(before, '.')+1:])
	if !ok || i < 0 || strings.Contains(s.Name, ".experts.") {
		return
	}
	width := func(part string) int {
		switch part {
		case "q_proj":
			return c.Heads * c.HeadDim
		case "k_proj", "v_proj":
			return c.KVHeads * c.HeadDim
		}
		if x := family.Mixture.Of(c); x.SharedWidth > 0 && !strings.HasSuffix(before, ".mlp."+part) {
			return x.SharedWidth
		}
		return c.Intermediate
	}
	from := 0
	for _, part := range j.Parts[:i] {
		from += width(part)
	}
	to := from + width(j.Parts[i])
	s.Name = strings.TrimSuffix(before, j.Parts[i]) + j.Tensor + "." + last
	if !j.ByHead {
		s.Rows = [][2]int{{from, to}}
		return
	}
	n := max(1, c.KVHeads)
	group := 0
	for _, part := range j.Parts {
		group += width(part) / n
	}
	for g := range c.KVHeads {
		s.Rows = append(s.Rows, [2]int{g*group + from/n, g*group + to/n})
	}
}

// cutLast parts a name at its last dot.
func cutLast(name string) (before, last string, ok bool) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return name, "", false
	}
	return name[:i], name[i+1:], true
}
