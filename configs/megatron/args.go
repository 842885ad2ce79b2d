package megatron

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/configs/source"
	"go.yaml.in/yaml/v3"
)

// Weighted reads Megatron's --data-path: prefixes, or weights and prefixes in turn.
func Weighted(values []string) *yaml.Node {
	if len(values) == 1 {
		values = strings.Fields(values[0])
	}
	n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	weighted := len(values)%2 == 0
	for i := 0; i < len(values) && weighted; i += 2 {
		_, err := strconv.ParseFloat(values[i], 64)
		weighted = err == nil
	}
	if !weighted {
		return source.ListNode(values)
	}
	for i := 0; i < len(values); i += 2 {
		n.Content = append(n.Content, &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: []*yaml.Node{
			source.ScalarNode("weight"), source.ScalarNode(values[i]), source.ScalarNode("path"),
			source.ScalarNode(values[i+1])}})
	}
	return n
}

// Layout reads Megatron's pipeline layout, and gives the layers of each stage: stages are separated by |,
// each a row of E (embedding), t (layer), m (multi-token prediction) and L (loss), a symbol repeated by *N.
// The embedding opens the first stage; what comes after the layers closes the last.
func Layout(text string) (layers []string, err error) {
	stages := strings.Split(text, "|")
	for i, s := range stages {
		n, err := layoutLayers(s, i == 0, i == len(stages)-1)
		if err != nil {
			return nil, fmt.Errorf("stage %d, %s: %w", i+1, source.Quoted(s), err)
		}
		layers = append(layers, strconv.Itoa(n))
	}
	return layers, nil
}

var layoutPattern = regexp.MustCompile(`^(E?)((?:t(?:\*\d+)?)*)((?:m(?:\*\d+)?)*)(L?)$`)
var layoutRepeat = regexp.MustCompile(`t(?:\*(\d+))?`)

// layoutLayers counts the layers of one stage of a layout.
func layoutLayers(stage string, first, last bool) (int, error) {
	match := layoutPattern.FindStringSubmatch(stage)
	if match == nil {
		return 0, fmt.Errorf("want E, t, m and L in this order")
	}
	if (match[1] != "") != first || (match[4] != "") != last || match[3] != "" && !last {
		return 0, fmt.Errorf("the embedding stands in the first stage, and m and L in the last")
	}
	n := 0
	for _, t := range layoutRepeat.FindAllStringSubmatch(match[2], -1) {
		times := 1
		if t[1] != "" {
			var err error
			if times, err = strconv.Atoi(t[1]); err != nil {
				return 0, err
			}
		}
		n += times
	}
	return n, nil
}
