package configs

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/lfactor/lfactor/configs/source"
)

// Bytes is a size, written as a number or with a unit: 512MiB, 80GB.
type Bytes int64

// WeightPath is a place of data and its share in a mixture.
type WeightPath struct {
	Path   string
	Weight float64 // 1 if it is not given
	Name   string  // of the validation set that it belongs to; "" where there is one set
	Turns  []Turn  // other weights from later steps on, in their order
	Linear bool    // the weight changes evenly from one of those to the next
}

// Turn is a weight from a step on.
type Turn struct {
	Step   int64
	Weight float64
}

var units = []struct {
	suffix string
	factor float64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"KB", 1e3}, {"kB", 1e3}, {"MB", 1e6},
	{"GB", 1e9}, {"TB", 1e12}, {"B", 1}, {"", 1}}

// ParseBytes is the inverse of Bytes.String.
func ParseBytes(s string) (Bytes, error) {
	for _, u := range units {
		number, ok := strings.CutSuffix(strings.TrimSpace(s), u.suffix)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || v < 0 || v*u.factor >= math.MaxInt64 || v != v {
			break
		}
		return Bytes(v * u.factor), nil
	}
	return 0, fmt.Errorf("%s is not a size", source.Quoted(s))
}

// String writes the size in the largest binary unit that divides it.
func (b Bytes) String() string {
	for i := 3; i >= 0; i-- {
		if f := int64(units[i].factor); b != 0 && int64(b)%f == 0 {
			return fmt.Sprintf("%d%s", int64(b)/f, units[i].suffix)
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// setValue decodes a node into a field. The error says what the value should be, and perhaps how to write it.
func setValue(dst reflect.Value, node *yaml.Node) (why, try string) {
	switch v := dst.Addr().Interface().(type) {
	case *Bytes:
		return setBytes(v, node)
	case *RopeScaling:
		return setRopeScaling(v, node)
	case *WeightPath:
		return setWeightPath(v, node)
	case *changing:
		return v.set(node)
	}
	if dst.Kind() == reflect.Slice {
		return setSlice(dst, node)
	}
	if node.Kind != yaml.ScalarNode || node.Tag == "!!null" {
		return fmt.Sprintf("%s, want %s", source.NodeKind(node), article(typeName(dst.Type()))), ""
	}
	switch dst.Kind() {
	case reflect.String:
		dst.SetString(node.Value)
	case reflect.Bool:
		return setBool(dst, node)
	case reflect.Int:
		return setInt(dst, node)
	default:
		return setFloat(dst, node)
	}
	return "", ""
}

func article(typ string) string {
	if strings.HasPrefix(typ, "integer") {
		return "an integer"
	}
	return "a " + typ
}

// setBool reads true or false. Other words that YAML once took for booleans are refused, with what to write.
func setBool(dst reflect.Value, node *yaml.Node) (why, try string) {
	switch strings.ToLower(node.Value) {
	case "true":
		dst.SetBool(true)
	case "false":
		dst.SetBool(false)
	case "yes", "on", "1":
		return source.Quoted(node.Value) + ", want a boolean", "write true"
	case "no", "off", "0":
		return source.Quoted(node.Value) + ", want a boolean", "write false"
	default:
		return source.Quoted(node.Value) + ", want a boolean", "write true or false"
	}
	return "", ""
}

// setInt reads a whole number, in which underscores may group digits.
func setInt(dst reflect.Value, node *yaml.Node) (why, try string) {
	v, err := strconv.ParseInt(strings.ReplaceAll(node.Value, "_", ""), 10, 64)
	if err == nil {
		dst.SetInt(v)
		return "", ""
	}
	if f, err := strconv.ParseFloat(node.Value, 64); err == nil && f == math.Trunc(f) && math.Abs(f) < 1e15 {
		try = fmt.Sprintf("write %d", int64(f))
	}
	return source.Quoted(node.Value) + ", want an integer", try
}

// setFloat reads a finite number.
func setFloat(dst reflect.Value, node *yaml.Node) (why, try string) {
	v, err := strconv.ParseFloat(node.Value, 64)
	if err != nil || math.IsInf(v, 0) || v != v {
		return source.Quoted(node.Value) + ", want a finite number", ""
	}
	dst.SetFloat(v)
	return "", ""
}

func setBytes(dst *Bytes, node *yaml.Node) (why, try string) {
	v, err := ParseBytes(node.Value)
	if node.Kind != yaml.ScalarNode || err != nil {
		return source.NodeKind(node) + ", want a size", "write it like 16GiB"
	}
	*dst = v
	return "", ""
}

// setSlice takes a list, or a single value as a list of one.
func setSlice(dst reflect.Value, node *yaml.Node) (why, try string) {
	items := []*yaml.Node{node}
	if node.Kind == yaml.SequenceNode {
		items = node.Content
	} else if node.Tag == "!!null" {
		return "no value, want " + article(typeName(dst.Type())), "write [] for none"
	}
	out := reflect.MakeSlice(dst.Type(), len(items), len(items))
	for i, item := range items {
		if why, try := setValue(out.Index(i), item); why != "" {
			return fmt.Sprintf("entry %d: %s", i+1, why), try
		}
	}
	dst.Set(out)
	return "", ""
}

// setWeightPath reads a path, alone or with its weight, which is 1 if it is not given.
func setWeightPath(dst *WeightPath, node *yaml.Node) (why, try string) {
	*dst = WeightPath{Weight: 1}
	if node.Kind == yaml.ScalarNode && node.Tag != "!!null" {
		dst.Path = node.Value
		return "", ""
	}
	return setFields(node, map[string]any{"path": &dst.Path, "weight": (*changing)(dst), "name": &dst.Name, "linear": &dst.Linear})
}

// changing is a path whose weight is read: a number, or numbers by the steps from which on they are its.
type changing WeightPath

func (w *changing) set(node *yaml.Node) (why, try string) {
	if node.Kind != yaml.MappingNode {
		return setValue(reflect.ValueOf(&w.Weight).Elem(), node)
	}
	const want = "weights by steps that grow, the first of them 0"
	var all []Turn
	for i := 0; i+1 < len(node.Content); i += 2 {
		var t Turn
		step, err := strconv.ParseInt(node.Content[i].Value, 10, 64)
		if why, try := setFloat(reflect.ValueOf(&t.Weight).Elem(), node.Content[i+1]); why != "" {
			return why, try
		}
		if t.Step = step; err != nil || t.Weight < 0 || len(all) == 0 && step != 0 || len(all) > 0 && step <= all[len(all)-1].Step {
			return source.Quoted(node.Content[i].Value) + ": " + want, "write {0: 0.8, 9000: 0.2}"
		}
		all = append(all, t)
	}
	if len(all) == 0 {
		return "no weight, want " + want, ""
	}
	w.Weight, w.Turns = all[0].Weight, slices.Clip(all[1:])
	if len(w.Turns) == 0 {
		w.Turns = nil
	}
	return "", ""
}

// setRopeScaling reads the settings of long contexts; "none" and null mean that there are none.
func setRopeScaling(dst *RopeScaling, node *yaml.Node) (why, try string) {
	*dst = RopeScaling{}
	if node.Kind == yaml.ScalarNode && (node.Tag == "!!null" || node.Value == "none") {
		return "", ""
	}
	fields, truncate := map[string]any{"type": &dst.Type}, true
	v := reflect.ValueOf(dst).Elem()
	for i := range v.NumField() {
		fields[v.Type().Field(i).Tag.Get("key")] = v.Field(i).Addr().Interface()
	}
	fields["truncate"] = &truncate
	if why, try := setFields(node, fields); why != "" {
		return why, try
	}
	dst.Smooth = !truncate
	return dst.check(), ""
}

// setFields decodes a mapping into pointers by key.
func setFields(node *yaml.Node, fields map[string]any) (why, try string) {
	if node.Kind != yaml.MappingNode {
		return source.NodeKind(node) + ", want a mapping", ""
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i].Value
		dst, ok := fields[key]
		if !ok {
			return fmt.Sprintf("unknown key %s", source.Quoted(key)), source.DidYouMean(key, source.SortedKeys(fields))
		}
		if why, try := setValue(reflect.ValueOf(dst).Elem(), node.Content[i+1]); why != "" {
			return key + ": " + why, try
		}
	}
	return "", ""
}

// check says why a decoded value is not allowed.
func (k *Key) check(v reflect.Value) (why, try string) {
	if v.Kind() == reflect.Slice && len(k.OneOf) > 0 {
		for i := range v.Len() {
			if why, try = k.check(v.Index(i)); why != "" {
				return why, try
			}
		}
	}
	if k.now != nil && slices.Contains(k.now(), v.String()) {
		return "", ""
	}
	if len(k.OneOf) > 0 && v.Kind() == reflect.String && v.String() != "" {
		for _, word := range k.OneOf {
			if matches(word, v.String()) {
				return "", ""
			}
		}
		if try := source.DidYouMean(v.String(), k.OneOf); try != "" {
			return fmt.Sprintf("%s, want %s", source.Quoted(v.String()), source.OneOf(k.OneOf)), try
		}
		return fmt.Sprintf("%s, want %s", source.Quoted(v.String()), source.OneOf(k.OneOf)), ""
	}
	var x float64
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		x = float64(v.Int())
	case reflect.Float64:
		x = v.Float()
	default:
		return "", ""
	}
	switch {
	case k.Min != nil && x < *k.Min:
		return fmt.Sprintf("%s, want at least %s", formatValue(v), trim(*k.Min)), ""
	case k.Max != nil && x > *k.Max:
		return fmt.Sprintf("%s, want at most %s", formatValue(v), trim(*k.Max)), ""
	}
	return "", ""
}

func trim(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// formatValue writes a value as YAML that decodes to it again.
func formatValue(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case Bytes:
		return x.String()
	case WeightPath:
		if x.Weight == 1 && x.Name == "" && x.Turns == nil {
			return formatString(x.Path)
		}
		s := "{path: " + formatString(x.Path)
		if x.Turns != nil {
			s += ", weight: {0: " + formatFloat(x.Weight)
			for _, t := range x.Turns {
				s += fmt.Sprintf(", %d: %s", t.Step, formatFloat(t.Weight))
			}
			s += "}"
		} else if x.Weight != 1 {
			s += ", weight: " + formatFloat(x.Weight)
		}
		if x.Linear {
			s += ", linear: true"
		}
		if x.Name != "" {
			s += ", name: " + formatString(x.Name)
		}
		return s + "}"
	case RopeScaling:
		return x.String()
	case string:
		return formatString(x)
	case float64:
		return formatFloat(x)
	}
	if v.Kind() != reflect.Slice {
		return fmt.Sprint(v.Interface())
	}
	var items []string
	for i := range v.Len() {
		items = append(items, formatValue(v.Index(i)))
	}
	return "[" + strings.Join(items, ", ") + "]"
}

func formatFloat(f float64) string {
	if f == math.Trunc(f) && math.Abs(f) < 1e15 {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// formatString quotes only what YAML would otherwise read as something else.
func formatString(s string) string {
	var n yaml.Node
	plain := yaml.Unmarshal([]byte("["+s+"]"), &n) == nil && len(n.Content) == 1 && len(n.Content[0].Content) == 1
	if plain {
		item := n.Content[0].Content[0]
		plain = item.Kind == yaml.ScalarNode && item.Tag == "!!str" && item.Style == 0 && item.Value == s &&
			item.Anchor == "" && item.LineComment == ""
	}
	if plain {
		return s
	}
	return strconv.Quote(s)
}

// String writes the scaling as a YAML mapping.
func (r RopeScaling) String() string {
	if r.None() {
		return "none"
	}
	var items []string
	v := reflect.ValueOf(r)
	for i := range v.NumField() {
		switch f := v.Type().Field(i); {
		case v.Field(i).IsZero():
		case f.Name == "Smooth":
			items = append(items, "truncate: false")
		default:
			items = append(items, v.Type().Field(i).Tag.Get("key")+": "+formatValue(v.Field(i)))
		}
	}
	return "{" + strings.Join(items, ", ") + "}"
}

// format is a value of the key as it would be written, from another way of writing it; "" is the empty value.
func (k *Key) format(text string) string {
	v := reflect.New(k.typ).Elem()
	if text != "" {
		mustSet(v, k.Name, text)
	}
	return formatValue(v)
}

// ours are texts of our own, parsed: there are few, and every model that is looked at has the same defaults.
var ours sync.Map

// mustSet decodes text of our own, such as a default, into a field.
func mustSet(dst reflect.Value, key, text string) {
	node, ok := ours.Load(text)
	if !ok {
		parsed, err := source.ParseValue(text)
		if err != nil {
			panic(fmt.Sprintf("configs: %s: %s: %v", key, text, err))
		}
		node, _ = ours.LoadOrStore(text, parsed)
	}
	if why, _ := setValue(dst, node.(*yaml.Node)); why != "" {
		panic(fmt.Sprintf("configs: %s: %s: %s", key, text, why))
	}
}
