package decoders

import (
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/family"
)

// hybridEvery is how many layers there are to one of attention, where a configuration does not say.
const hybridEvery = 4

// hybridLayers are linear but for each one in so many.
func hybridLayers(n, every int) (kinds []string) {
	for i := range n {
		kind := family.LinearAttention
		if (i+1)%every == 0 {
			kind = "full_attention"
		}
		kinds = append(kinds, kind)
	}
	return kinds
}

// hybridPlaces finds the tensors of both kinds of layers; rows gives those of a projection of linear attention.
func hybridPlaces(c configs.Model, source func(string) family.Source,
	rows func(part string) (tensor string, rows [][2]int)) func(string) family.Source {
	own := family.Linear.Of(c)
	d, e := own.LinearKeys*own.LinearKeyDim, own.LinearValues*own.LinearDim
	kinds := c.LayerTypes
	if len(kinds) == 0 {
		kinds = hybridLayers(c.Layers, hybridEvery)
	}
	return func(name string) family.Source {
		before, part, ok := strings.Cut(name, ".self_attn.")
		if !ok {
			return source(name)
		}
		if strings.HasPrefix(name, family.FurtherName) || kinds[layerNumber(before)] != family.LinearAttention {
			return gatedQuery(c, name, part)
		}
		s := family.Source{Name: before + ".linear_attn." + part}
		place := func(tensor string) { s.Name = before + ".linear_attn." + tensor }
		switch part {
		case "q_conv.weight", "k_conv.weight", "v_conv.weight":
			place("conv1d.weight")
			from := map[byte]int{'q': 0, 'k': d, 'v': 2 * d}[part[0]]
			to := from + map[bool]int{true: e, false: d}[part[0] == 'v']
			s.Rows, s.Tail = [][2]int{{from, to}}, []int{1, own.LinearTaps}
		case "decay":
			place("A_log")
		case "o_proj.weight":
			place("out_proj.weight")
		case "q_proj.weight", "k_proj.weight", "v_proj.weight", "z_proj.weight", "a_proj.weight", "b_proj.weight":
			tensor, at := rows(part[:1])
			place(tensor + ".weight")
			s.Rows = at
		}
		return s
	}
}

// layerNumber is that of model.layers.N.
func layerNumber(name string) (n int) {
	// checkpoints name layers by numbers; another name is none
	n, _ = strconv.Atoi(name[strings.LastIndexByte(name, '.')+1:])
	return n
}

// gatedQuery finds attention's query and gate, which lie head by head in one matrix.
func gatedQuery(c configs.Model, name, part string) family.Source {
	s := family.Source{Name: name}
	for i, p := range []string{"q_proj.", "gate_proj."} {
		if !strings.HasPrefix(part, p) {
			continue
		}
		s.Name = strings.Replace(name, p, "q_proj.", 1)
		for h := range c.Heads {
			s.Rows = append(s.Rows, [2]int{(2*h + i) * c.HeadDim, (2*h + i + 1) * c.HeadDim})
		}
	}
	return s
}

// grouped finds the projections of linear attention key head by key head: query, key, values, gates; and
// what is written and kept of each value head.
func grouped(c configs.Model, source func(string) family.Source) func(string) family.Source {
	own := family.Linear.Of(c)
	each := own.LinearValues / max(1, own.LinearKeys)
	k, v := own.LinearKeyDim, each*own.LinearDim
	return hybridPlaces(c, source, func(part string) (string, [][2]int) {
		tensor, width := "in_proj_qkvz", 2*k+2*v
		at, ok := map[string][2]int{"q": {0, k}, "k": {k, 2 * k}, "v": {2 * k, 2*k + v}, "z": {2*k + v,
			2*k + 2*v}}[part]
		if !ok {
			tensor, width = "in_proj_ba", 2*each
			at = map[string][2]int{"b": {0, each}, "a": {each, 2 * each}}[part]
		}
		var rows [][2]int
		for h := range own.LinearKeys {
			rows = append(rows, [2]int{h*width + at[0], h*width + at[1]})
		}
		return tensor, rows
	})
}

// InOrder finds them as query, key and value in one tensor, and the others by themselves.
func InOrder(c configs.Model) func(string) family.Source {
	return InOrderBeside(c, func(name string) family.Source { return family.Source{Name: name} })
}

// InOrderBeside is InOrder for layers whose other tensors another function finds.
func InOrderBeside(c configs.Model, source func(string) family.Source) func(string) family.Source {
	return family.BesideLayers(inOrder(c, source))
}

// inOrder is the same without layers for further tokens.
func inOrder(c configs.Model, source func(string) family.Source) func(string) family.Source {
	k := family.Linear.Of(c)
	d, e := k.LinearKeys*k.LinearKeyDim, k.LinearValues*k.LinearDim
	return hybridPlaces(c, source, func(part string) (string, [][2]int) {
		at, ok := map[string][2]int{"q": {0, d}, "k": {d, 2 * d}, "v": {2 * d, 2*d + e}}[part]
		if !ok {
			return "in_proj_" + part, nil
		}
		return "in_proj_qkv", [][2]int{at}
	})
}
