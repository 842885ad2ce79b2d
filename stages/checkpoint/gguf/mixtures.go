package gguf

import (
	"fmt"
	"strings"
)

// mixture is one of llama.cpp's: matrices of values, down projections and outputs of attention have more bits in
// some layers or in all. A rule gives the type in layer i of n, or 0 for that of most matrices. llama-quant.cpp of
// https://github.com/ggml-org/llama.cpp chooses so where no importance of columns is given.
type mixture struct {
	values, down, output func(i, n int) Type
	sharp                bool // outputs of attention have five bits beside eight experts
}

var mixtures = map[string]mixture{
	"q3_k_s": {sharp: true},
	"q3_k_m": {values: leading(func(int) int { return 2 }, Q5_K, Q4_K), sharp: true, output: always(Q4_K),
		down: leading(func(n int) int { return n / 16 }, Q5_K, Q4_K)},
	"q3_k_l": {values: always(Q5_K), down: always(Q5_K), output: always(Q5_K)},
	"q4_k_s": {values: leading(func(int) int { return 4 }, Q5_K, 0), sharp: true,
		down: leading(func(n int) int { return n / 8 }, Q5_K, 0)},
	"q4_k_m": {values: outer, down: outer, sharp: true},
	"q5_k_s": {},
	"q5_k_m": {values: outer, down: outer},
}

func always(t Type) func(i, n int) Type { return func(int, int) Type { return t } }

// leading gives one type to the first layers and another to the rest.
func leading(layers func(n int) int, first, rest Type) func(i, n int) Type {
	return func(i, n int) Type {
		if i < layers(n) {
			return first
		}
		return rest
	}
}

// outer gives six bits to the first and the last eighth of the layers and to every third between them.
func outer(i, n int) Type {
	if i < n/8 || i >= 7*n/8 || (i-n/8)%3 == 2 {
		return Q6_K
	}
	return 0
}

// kind is the type of a matrix of a model before its shape is looked at.
func (m *mixture) kind(name string, most Type, c *config) Type {
	var i int
	if _, err := fmt.Sscanf(name, "blk.%d.", &i); err != nil {
		return most
	}
	var rule func(i, n int) Type
	switch _, part, _ := strings.Cut(strings.TrimPrefix(name, "blk."), "."); {
	case part == "attn_v.weight" || part == "attn_k.weight":
		if c.experts == 8 {
			return Q8_0
		}
		if part == "attn_v.weight" {
			rule = m.values
		}
	case part == "attn_output.weight" && c.experts == 8:
		if m.sharp {
			return Q5_K
		}
	case part == "attn_output.weight":
		rule = m.output
	case strings.HasPrefix(part, "ffn_down"):
		rule = m.down
	}
	if rule != nil {
		if t := rule(i, c.layers); t != 0 {
			most = t
		}
	}
	if seventy := c.layers == 80 && c.heads != c.kvHeads; seventy && strings.HasSuffix(name, ".attn_v.weight") &&
		(most == Q3_K || most == Q4_K) { // few rows beside those of queries
		return Q5_K
	}
	return most
}
