package source

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// Bounds on what a configuration file may ask of us.
const (
	fileBytesMax = 4 << 20
	nodesMax     = 100_000
	depthMax     = 64
)

// ReadFile reads a text file of bounded size.
func ReadFile(path string) ([]byte, error) {
	info, err := os.Stat(path) // before opening: a pipe would block
	if err == nil && !info.Mode().IsRegular() {
		return nil, &Error{File: path, Why: "is not a regular file"}
	}
	var f *os.File
	if err == nil {
		f, err = os.Open(path)
	}
	if err != nil {
		var why *os.PathError
		if errors.As(err, &why) {
			err = why.Err
		}
		return nil, &Error{File: path, Why: err.Error()}
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, fileBytesMax+1))
	if err != nil {
		return nil, &Error{File: path, Why: "reading: " + err.Error()}
	}
	if len(text) > fileBytesMax {
		return nil, &Error{File: path, Why: fmt.Sprintf("more than %dMiB", fileBytesMax>>20)}
	}
	return text, nil
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// ParseYAML parses one document whose root is a mapping. What could blow up or run code is refused: aliases,
// explicit tags, further documents, duplicate keys, and more than the bounds above.
func ParseYAML(file string, text []byte) (*yaml.Node, error) {
	if len(text) > fileBytesMax {
		return nil, &Error{File: file, Why: fmt.Sprintf("more than %dMiB", fileBytesMax>>20)}
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	var doc, second yaml.Node
	switch err := d.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return &yaml.Node{Kind: yaml.MappingNode, Line: 1}, nil
	case err != nil:
		return nil, syntaxError(file, err)
	}
	if err := d.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, &Error{File: file, Line: second.Line, Why: "a second document begins here",
			Try: "keep one document a file"}
	}
	w := &yamlWalk{file: file}
	if w.walk(&doc, 0); w.err != nil {
		return nil, w.err
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return &yaml.Node{Kind: yaml.MappingNode, Line: 1}, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, &Error{File: file, Line: root.Line, Why: "is not a mapping of keys to values"}
	}
	return root, nil
}

// syntaxError turns an error of the YAML parser into one with file and line.
func syntaxError(file string, err error) error {
	text := err.Error()
	match := yamlLine.FindStringSubmatch(text)
	line := 0
	if match != nil {
		line, _ = strconv.Atoi(match[1]) // the pattern takes digits alone
		text = text[len(match[0]):]
	}
	return &Error{File: file, Line: line, Why: "is no YAML: " + text}
}

type yamlWalk struct {
	file  string
	nodes int
	err   error
}

func (w *yamlWalk) fail(n *yaml.Node, why, try string) {
	if w.err == nil {
		w.err = &Error{File: w.file, Line: n.Line, Why: why, Try: try}
	}
}

// walk refuses what run files must not have: too many or too deep values, aliases, and tags.
func (w *yamlWalk) walk(n *yaml.Node, depth int) {
	w.nodes++
	switch {
	case w.nodes > nodesMax:
		w.fail(n, fmt.Sprintf("more than %d values", nodesMax), "")
	case depth > depthMax:
		w.fail(n, fmt.Sprintf("more than %d levels", depthMax), "")
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		w.fail(n, "anchors and aliases are not read", "write the value where it is used")
	case n.Style&yaml.TaggedStyle != 0 || n.Tag == "!!merge" || n.Tag == "!!binary":
		w.fail(n, fmt.Sprintf("tag %s is not read", Quoted(n.Tag)), "write a plain value")
	case n.Kind == yaml.MappingNode:
		w.mapping(n)
	}
	for _, child := range n.Content {
		if w.err != nil {
			return
		}
		w.walk(child, depth+1)
	}
}

// mapping refuses keys that are there twice, of which YAML would silently take one.
func (w *yamlWalk) mapping(n *yaml.Node) {
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode {
			w.fail(key, "a key is no plain word", "")
			return
		}
		if first := seen[key.Value]; first > 0 {
			w.fail(key, fmt.Sprintf("key %s is there twice, first in line %d", Quoted(key.Value), first),
				"keep one of them")
			return
		}
		seen[key.Value] = key.Line
	}
}

// ScalarNode is a value that did not come from a file.
func ScalarNode(value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}
}

// ListNode is a list of such values.
func ListNode(values []string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	for _, v := range values {
		n.Content = append(n.Content, ScalarNode(v))
	}
	return n
}

// ParseValue reads the value of an override or a default, in YAML's flow form.
func ParseValue(text string) (*yaml.Node, error) {
	root, err := ParseYAML("", []byte("v: "+text))
	if err != nil {
		return nil, err
	}
	if len(root.Content) != 2 {
		return nil, &Error{Why: "is more than one value"}
	}
	return root.Content[1], nil
}
