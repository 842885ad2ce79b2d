package hydra

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/configs/source"
	"go.yaml.in/yaml/v3"
)

// Interpolations: ${a.b} takes over another value, ${.b} one beside it, ${name:argument} asks a resolver.
// The names of functions stand for themselves: ${act:gelu} is gelu.

// functions are the functions that LoongForge's resolvers know.
var functions = map[string][]string{
	"act":           {"relu", "gelu", "silu", "gelu_tanh", "quick_gelu"},
	"position_func": {"position_ids", "mrope_ids", "rope_ids_internvl", "rope_ids_qwen3vl"},
	"loss_func":     {"default", "loss_func_internvl"},
}

const (
	interpolationDepth = 32      // of values that take over values
	interpolationMax   = 1 << 16 // bytes of a value, entries of a list
)

// Functions are the names of functions that a resolver knows, such as act.
func Functions(resolver string) []string { return functions[resolver] }

// Resolve replaces the interpolations in the tree. What has no value is a fault, and left as it was.
func (h *Composition) Resolve() { h.resolve(h.Tree, nil) }

// resolve does that below n, which stands at path.
func (h *Composition) resolve(n *Node, path []string) {
	for _, name := range n.Keys {
		h.resolve(n.Kids[name], append(path[:len(path):len(path)], name))
	}
	if n.Value == nil {
		return
	}
	if why, try := h.settle(n, path, 0); why != "" {
		h.sink.Fail(n.O, strings.Join(path, "."), why, try)
	}
}

// settle resolves one value in place.
func (h *Composition) settle(n *Node, path []string, depth int) (why, try string) {
	if n.busy || depth > interpolationDepth {
		return "the values take each other over in a circle", "write the value in one of them"
	}
	n.busy = true
	defer func() { n.busy = false }()
	if n.Value.Kind == yaml.SequenceNode {
		return h.settleList(n.Value, path, depth)
	}
	if !strings.Contains(n.Value.Value, "${") {
		return "", ""
	}
	got, why, try := h.expand(n.Value.Value, path, depth)
	if why == "" {
		n.Value, n.Keys, n.Kids = got.Value, got.Keys, got.Kids
	}
	return why, try
}

func (h *Composition) settleList(list *yaml.Node, path []string, depth int) (why, try string) {
	for i, item := range list.Content {
		kid := &Node{Value: item}
		if item.Kind != yaml.ScalarNode && item.Kind != yaml.SequenceNode {
			continue
		}
		if why, try := h.settle(kid, path, depth+1); why != "" {
			return fmt.Sprintf("entry %d: %s", i+1, why), try
		}
		if kid.Value != nil {
			list.Content[i] = kid.Value
		}
	}
	return "", ""
}

// expand resolves the interpolations in a text. A text that is one interpolation becomes whatever that is.
func (h *Composition) expand(text string, path []string, depth int) (out *Node, why, try string) {
	var b strings.Builder
	for rest := text; ; {
		i := strings.Index(rest, "${")
		if i < 0 {
			b.WriteString(rest)
			return &Node{Value: source.ScalarNode(b.String())}, "", ""
		}
		end := closing(rest[i:])
		if end < 0 {
			return nil, source.Quoted(text) + " has a ${ that does not end", "close it with }"
		}
		got, why, try := h.interpolate(rest[i+2:i+end], path, depth+1)
		if why != "" {
			return nil, why, try
		}
		if i == 0 && end+1 == len(rest) && b.Len() == 0 {
			return got, "", ""
		}
		if !got.Scalar() {
			return nil, source.Quoted(text) + ": a list or mapping does not fit into a text", ""
		}
		b.WriteString(rest[:i])
		b.WriteString(got.Value.Value)
		if b.Len() > interpolationMax {
			return nil, fmt.Sprintf("more than %d bytes", interpolationMax), ""
		}
		rest = rest[i+end+1:]
	}
}

// closing is the index of the brace that ends the interpolation at the beginning of s, -1 if none does.
func closing(s string) int {
	depth := 0
	for i := range len(s) {
		switch {
		case s[i] == '{' && i > 0 && s[i-1] == '$':
			depth++
		case s[i] == '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

var resolverPattern = regexp.MustCompile(`^\s*([A-Za-z_][A-Za-z0-9_.]*)\s*:(?s:(.*))$`)

// interpolate gives the value of what stands between ${ and }.
func (h *Composition) interpolate(inner string, path []string, depth int) (out *Node, why, try string) {
	if depth > interpolationDepth {
		return nil, "the values take each other over in a circle", "write the value in one of them"
	}
	if strings.Contains(inner, "${") {
		got, why, try := h.expand(inner, path, depth)
		if why != "" {
			return nil, why, try
		}
		if !got.Scalar() {
			return nil, source.Quoted(inner) + ": a list or mapping does not fit into a name", ""
		}
		inner = got.Value.Value
	}
	m := resolverPattern.FindStringSubmatch(inner)
	if m == nil {
		return h.reference(strings.TrimSpace(inner), path, depth)
	}
	name, arg := m[1], strings.TrimSpace(m[2])
	switch {
	case functions[name] != nil:
		for _, known := range functions[name] {
			if arg == known {
				return &Node{Value: source.ScalarNode(arg)}, "", ""
			}
		}
		if try = source.DidYouMean(arg, functions[name]); try == "" {
			try = source.OneOf(functions[name])
		}
		return nil, fmt.Sprintf("${%s:%s}: there is no such function", name, arg), try
	case name == "oc.env":
		return h.environment(arg)
	case name == "moe_freq":
		list, err := evalList(unquote(arg))
		if err != nil {
			return nil, fmt.Sprintf("${moe_freq:%s}: %v", arg, err), `write it like "[0]*3+[1]*58"`
		}
		return &Node{Value: list}, "", ""
	}
	known := append(source.SortedKeys(functions), "oc.env", "moe_freq")
	if try = source.DidYouMean(name, known); try == "" {
		try = source.OneOf(known)
	}
	return nil, fmt.Sprintf("${%s:…}: there is no such resolver", name), try
}

func unquote(s string) string {
	if n := len(s); n >= 2 && s[0] == s[n-1] && (s[0] == '"' || s[0] == '\'') {
		return s[1 : n-1]
	}
	return s
}

// environment is the value of a variable, else the default behind a comma. LOONGFORGE_PATH is known without
// being set: the directory above configs/models.
func (h *Composition) environment(arg string) (out *Node, why, try string) {
	name, def, hasDefault := strings.Cut(arg, ",")
	name = strings.TrimSpace(name)
	value := ""
	if h.getenv != nil {
		value = h.getenv(name)
	}
	switch {
	case value != "":
	case hasDefault:
		value = unquote(strings.TrimSpace(def))
	case name == "LOONGFORGE_PATH":
		value = h.root
		if before, _, ok := strings.Cut(filepath.ToSlash(h.root)+"/", "/configs/models/"); ok {
			value = before
		}
	default:
		return nil, fmt.Sprintf("the environment has no variable %s",
			source.Quoted(name)), fmt.Sprintf("export it, or give a default: ${oc.env:%s,…}", name)
	}
	return &Node{Value: source.ScalarNode(value)}, "", ""
}

// reference is the value that a path names: from the root, or with leading dots from the mapping around.
func (h *Composition) reference(name string, path []string, depth int) (out *Node, why, try string) {
	rest := strings.TrimLeft(name, ".")
	dots := len(name) - len(rest)
	var from []string
	if dots > len(path) {
		return nil, fmt.Sprintf("${%s}: there is nothing so far up", name), ""
	} else if dots > 0 {
		from = path[:len(path)-dots]
	}
	if rest == "" {
		return nil, "${} names nothing", ""
	}
	words := append(from[:len(from):len(from)], strings.Split(rest, ".")...)
	n := h.Tree.At(words...)
	if n == nil || n.Null() || n.Scalar() && n.Value.Value == "???" {
		if around := h.Tree.At(words[:len(words)-1]...); around != nil {
			try = source.DidYouMean(words[len(words)-1], around.Keys)
		}
		return nil, fmt.Sprintf("${%s} has no value", name), try
	}
	if n.Kids != nil && len(words) <= len(path) && slices.Equal(words, path[:len(words)]) {
		return nil, fmt.Sprintf("${%s} contains itself", name), ""
	}
	if n.Value != nil {
		if why, try := h.settle(n, words, depth); why != "" {
			return nil, why, try
		}
	}
	return &Node{Value: n.Value, Keys: n.Keys, Kids: n.Kids}, "", ""
}

// evalList evaluates what moe_freq takes: whole numbers, lists of them in brackets, + and *, parentheses.
func evalList(text string) (*yaml.Node, error) {
	p := &listParser{rest: text}
	v, err := p.sum(0)
	if err == nil {
		if p.space(); p.rest != "" {
			err = fmt.Errorf("%s is not understood", source.Quoted(p.rest))
		}
	}
	if err != nil {
		return nil, err
	}
	if !v.list {
		return source.ScalarNode(strconv.Itoa(v.items[0])), nil
	}
	words := make([]string, len(v.items))
	for i, n := range v.items {
		words[i] = strconv.Itoa(n)
	}
	return source.ListNode(words), nil
}

// listValue is a number, or a list of them.
type listValue struct {
	items []int
	list  bool
}

type listParser struct{ rest string }

func (p *listParser) space() { p.rest = strings.TrimLeft(p.rest, " \t\n") }

// take removes a symbol that comes next and says whether it did.
func (p *listParser) take(symbol string) bool {
	p.space()
	rest, ok := strings.CutPrefix(p.rest, symbol)
	p.rest = rest
	return ok
}

// sum reads terms joined by +, which adds numbers or joins lists.
func (p *listParser) sum(depth int) (listValue, error) {
	a, err := p.product(depth)
	for err == nil && p.take("+") {
		var b listValue
		if b, err = p.product(depth); err != nil {
			break
		}
		switch {
		case a.list != b.list:
			err = fmt.Errorf("a number and a list do not add up")
		case a.list:
			a.items = append(a.items, b.items...)
		default:
			a.items = []int{a.items[0] + b.items[0]}
		}
		if len(a.items) > interpolationMax {
			err = fmt.Errorf("more than %d entries", interpolationMax)
		}
	}
	return a, err
}

// product reads factors joined by *; a list times a number repeats it.
func (p *listParser) product(depth int) (listValue, error) {
	a, err := p.term(depth)
	for err == nil && p.take("*") {
		var b listValue
		if b, err = p.term(depth); err != nil {
			break
		}
		if b.list {
			a, b = b, a
		}
		switch {
		case b.list:
			err = fmt.Errorf("two lists do not multiply")
		case a.list:
			a.items, err = repeat(a.items, b.items[0])
		case a.items[0] > 1<<24 || b.items[0] > 1<<24:
			err = fmt.Errorf("numbers too large")
		default:
			a.items = []int{a.items[0] * b.items[0]}
		}
	}
	return a, err
}

func repeat(items []int, n int) ([]int, error) {
	if n > interpolationMax || len(items)*n > interpolationMax {
		return nil, fmt.Errorf("more than %d entries", interpolationMax)
	}
	var out []int
	for range n {
		out = append(out, items...)
	}
	return out, nil
}

// term reads a number, a list of numbers, or an expression in parentheses.
func (p *listParser) term(depth int) (listValue, error) {
	if depth > interpolationDepth {
		return listValue{}, fmt.Errorf("more than %d levels", interpolationDepth)
	}
	switch {
	case p.take("("):
		v, err := p.sum(depth + 1)
		if err == nil && !p.take(")") {
			err = fmt.Errorf("a parenthesis is not closed")
		}
		return v, err
	case p.take("["):
		v := listValue{list: true}
		for !p.take("]") {
			if len(v.items) > 0 && !p.take(",") {
				return v, fmt.Errorf("a list is not closed")
			}
			item, err := p.sum(depth + 1)
			if err != nil {
				return v, err
			}
			if item.list {
				return v, fmt.Errorf("a list within a list")
			}
			v.items = append(v.items, item.items[0])
		}
		return v, nil
	}
	p.space()
	end := strings.IndexFunc(p.rest, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(p.rest)
	}
	n, err := strconv.ParseInt(p.rest[:end], 10, 32)
	if err != nil {
		return listValue{}, fmt.Errorf("%s is not a number", source.Quoted(p.rest))
	}
	p.rest = p.rest[end:]
	return listValue{items: []int{int(n)}}, nil
}
