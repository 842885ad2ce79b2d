package token

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/dataset/token/jinja"
)

// This file is the one place that gives messages the form that templates read, whoever wrote them: training,
// pairs, prompts, judged answers and the server all render through it. docs/data.md has the table of forms.

// reasoningKeys are the names under which a message's reasoning comes. As in transformers, the first that
// is there counts, and templates read the first two.
var reasoningKeys = []string{"reasoning_content", "thinking", "reasoning"}

// form is a choice between ways in which templates want the same message.
type form struct {
	callText bool    // arguments of calls are JSON text, and not objects
	content  listing // of texts
	system   bool    // what a developer says is the system's
}

// listing says whether texts are lists of parts.
type listing int

const (
	asGiven listing = iota
	asParts         // a text is a list of one part
	asText          // a list of parts that are all texts is their text, and no content an empty one
)

// formsOf are the forms in which these messages may be wanted, the usual one first. They are tried in order
// until a template writes all that is said.
func formsOf(messages []Message) (out []form) {
	calls, lists, developer := false, false, false
	for _, m := range messages {
		calls = calls || bytes.Contains(m.Raw, []byte("call"))
		lists = lists || bytes.Contains(m.Raw, []byte(`[`))
		developer = developer || m.Role == "developer"
	}
	for _, system := range []bool{false, true} {
		for _, content := range []listing{asGiven, asParts, asText} {
			for _, text := range []bool{false, true} {
				if (!system || developer) && (content != asText || lists || calls) && (!text || calls) {
					out = append(out, form{text, content, system})
				}
			}
		}
	}
	return out
}

// messageValue is message i as a template sees it: its own JSON object where there is one, else role and
// content. Keys without a value are dropped, as transformers does.
func messageValue(m Message, i int, f form) (*jinja.Map, error) {
	out := jinja.NewMap()
	if m.Raw == nil {
		out.Set("role", strings.ToValidUTF8(m.Role, "\uFFFD"))
		out.Set("content", f.said(strings.ToValidUTF8(m.Content, "\uFFFD")))
		return out, nil
	}
	v, err := jinja.FromJSON(m.Raw)
	if err != nil {
		return nil, err
	}
	given, ok := v.(*jinja.Map)
	if !ok {
		return nil, errors.New("it is not a JSON object")
	}
	out = withoutNulls(given)
	if err := modernCalls(out, i, f); err != nil {
		return nil, err
	}
	if content, ok := out.Get("content"); ok {
		out.Set("content", f.said(content))
	} else if f.content == asText {
		out.Set("content", "")
	}
	return aliased(out), nil
}

// said is the content of a message as the form wants it.
func (f form) said(content any) any {
	switch x := content.(type) {
	case string:
		if f.content == asParts {
			part := jinja.NewMap()
			part.Set("type", "text")
			part.Set("text", x)
			return jinja.NewList([]any{part})
		}
	case *jinja.List:
		x = eachMap(x, withoutNulls)
		if text, ok := textOf(x); ok && f.content == asText {
			return text
		}
		return x
	}
	return content
}

// textOf is the text of a list of parts that are all texts.
func textOf(l *jinja.List) (string, bool) {
	var out strings.Builder
	for _, e := range l.Elems() {
		m, _ := e.(*jinja.Map)
		if m == nil {
			m = jinja.NewMap()
		}
		s, ok := get[string](m, "text")
		if kind, _ := get[string](m, "type"); !ok || kind != "text" {
			return "", false
		}
		out.WriteString(s)
	}
	return out.String(), true
}

// get is a key's value of a type.
func get[T any](m *jinja.Map, key string) (v T, ok bool) {
	x, _ := m.Get(key)
	v, ok = x.(T)
	return v, ok
}

// withoutNulls leaves out the keys that have no value: tables fill absent keys with null.
func withoutNulls(m *jinja.Map) *jinja.Map {
	out := jinja.NewMap()
	for _, k := range m.Keys() {
		if v, _ := m.Get(k); v != nil {
			out.Set(k, v)
		}
	}
	return out
}

// eachMap maps the objects of a list.
func eachMap(l *jinja.List, f func(*jinja.Map) *jinja.Map) *jinja.List {
	elems := slices.Clone(l.Elems())
	for i, e := range elems {
		if m, ok := e.(*jinja.Map); ok {
			elems[i] = f(m)
		}
	}
	return jinja.NewList(elems)
}

// aliased enters reasoning under the names that templates read.
func aliased(m *jinja.Map) *jinja.Map {
	for _, k := range reasoningKeys {
		v, ok := m.Get(k)
		if !ok {
			continue
		}
		out := jinja.NewMap()
		out.Set("thinking", v)
		for _, k := range m.Keys() {
			v, _ := m.Get(k)
			out.Set(k, v)
		}
		out.Set("reasoning_content", v)
		return out
	}
	return m
}

// modernCalls gives calls of functions the form that templates read: function_call becomes tool_calls, and
// arguments that are JSON as text an object. An empty list is no call.
func modernCalls(m *jinja.Map, i int, f form) error {
	calls, has := m.Get("tool_calls")
	if text, ok := calls.(string); ok {
		v, err := jinja.FromJSON([]byte(text))
		if err != nil {
			return errors.New("its tool_calls are a text that is not JSON")
		}
		calls = v
	}
	old, _ := m.Get("function_call")
	call, ok := old.(*jinja.Map)
	switch {
	case old != nil && !ok:
		return errors.New("its function_call is not an object with a name and arguments")
	case old != nil && !has:
		id, _ := call.Get("id")
		if s, ok := id.(string); !ok || s == "" {
			id = fmt.Sprintf("call_%d", i)
		}
		one := jinja.NewMap()
		one.Set("id", id)
		one.Set("type", "function")
		one.Set("function", withoutKeys(call, "id"))
		calls, has = jinja.NewList([]any{one}), true
	}
	*m = *withoutKeys(m, "function_call")
	if !has {
		return nil
	}
	list, ok := calls.(*jinja.List)
	if !ok {
		return errors.New("its tool_calls are no list")
	}
	if len(list.Elems()) == 0 {
		*m = *withoutKeys(m, "tool_calls")
		return nil
	}
	var err error
	m.Set("tool_calls", eachMap(list, func(c *jinja.Map) *jinja.Map {
		c, bad := modernCall(c, f)
		err = errors.Join(err, bad)
		return c
	}))
	return err
}

// withoutKeys leaves keys out.
func withoutKeys(m *jinja.Map, keys ...string) *jinja.Map {
	out := jinja.NewMap()
	for _, k := range m.Keys() {
		if s, ok := k.(string); !ok || !slices.Contains(keys, s) {
			v, _ := m.Get(k)
			out.Set(k, v)
		}
	}
	return out
}

// modernCall reads one call: {id, type, function: {name, arguments}}, or {name, arguments} alone.
func modernCall(c *jinja.Map, want form) (*jinja.Map, error) {
	c = withoutNulls(c)
	f, nested := get[*jinja.Map](c, "function")
	if !nested {
		f = c
	}
	f = withoutNulls(f)
	name, _ := get[string](f, "name")
	if name == "" {
		return c, errors.New("a call of its tool_calls has no name")
	}
	given, _ := f.Get("arguments")
	object, text, err := callArguments(given)
	if err != nil {
		return c, fmt.Errorf("the arguments of its call of %q are %w", name, err)
	}
	if f.Set("arguments", object); want.callText {
		f.Set("arguments", text)
	}
	if !nested {
		return f, nil
	}
	c.Set("function", f)
	return c, nil
}

// callArguments are the arguments of a call as an object, and as JSON in the way that they were given. No
// arguments are an empty object.
func callArguments(given any) (object *jinja.Map, text string, err error) {
	text, isText := given.(string)
	if isText && strings.TrimSpace(text) != "" {
		if given, err = jinja.FromJSON([]byte(text)); err != nil {
			return nil, "", errors.New("no JSON")
		}
	} else if isText || given == nil {
		given = jinja.NewMap()
		isText = false
	}
	object, ok := given.(*jinja.Map)
	if !ok {
		return nil, "", errors.New("no object")
	}
	if !isText {
		text, err = jinja.PythonJSON(object)
	}
	return object, text, err
}

// eachCall changes the functions of a message's calls, which become its own.
func eachCall(m *jinja.Map, change func(function *jinja.Map)) {
	list, ok := get[*jinja.List](m, "tool_calls")
	if !ok {
		return
	}
	m.Set("tool_calls", eachMap(list, func(c *jinja.Map) *jinja.Map {
		c = withoutKeys(c)
		f, nested := get[*jinja.Map](c, "function")
		if !nested {
			change(c)
			return c
		}
		f = withoutKeys(f)
		change(f)
		c.Set("function", f)
		return c
	}))
}

// alter puts a mark in place of what a message says. With calls, of its calls' arguments too, and of their
// names where it says nothing else.
func alter(v any, calls bool) any {
	m, ok := v.(*jinja.Map)
	if !ok {
		return v
	}
	out, said := withoutKeys(m), false
	mark := func(in *jinja.Map, key string) {
		if s, ok := get[string](in, key); ok && s != "" {
			in.Set(key, turnMark)
			said = true
		}
	}
	mark(out, "content")
	for _, k := range reasoningKeys {
		mark(out, k)
	}
	if parts, ok := get[*jinja.List](m, "content"); ok {
		out.Set("content", eachMap(parts, func(p *jinja.Map) *jinja.Map {
			p = withoutKeys(p)
			mark(p, "text")
			return p
		}))
	}
	if calls || !said {
		eachCall(out, func(f *jinja.Map) {
			a, _ := f.Get("arguments")
			if b, changed := alterLeaves(a); changed {
				f.Set("arguments", b)
				said = true
			}
		})
	}
	if said {
		return out
	}
	if _, has := m.Get("tool_calls"); has {
		eachCall(out, func(f *jinja.Map) { f.Set("name", turnMark) })
	} else {
		out.Set("content", turnMark)
	}
	return out
}

// alterLeaves puts marks in place of the texts and numbers of a call's arguments.
func alterLeaves(v any) (out any, changed bool) {
	switch x := v.(type) {
	case string, int64, float64, bool:
		return turnMark, true
	case *jinja.List:
		elems := slices.Clone(x.Elems())
		for i, e := range elems {
			var c bool
			elems[i], c = alterLeaves(e)
			changed = changed || c
		}
		return jinja.NewList(elems), changed
	case *jinja.Map:
		m := jinja.NewMap()
		for _, k := range x.Keys() {
			e, _ := x.Get(k)
			e, c := alterLeaves(e)
			m.Set(k, e)
			changed = changed || c
		}
		return m, changed
	}
	return v, false
}

// contains tells whether all that a message says stands in a text as it was given.
func contains(text string, m *jinja.Map) bool {
	if _, has := m.Get("tool_calls"); has && lostCall(text, m) != "" {
		return false
	}
	if s, ok := get[string](m, "content"); ok {
		return strings.Contains(text, strings.TrimSpace(s))
	}
	parts, _ := get[*jinja.List](m, "content")
	all := true
	if parts != nil {
		eachMap(parts, func(p *jinja.Map) *jinja.Map {
			s, _ := get[string](p, "text")
			all = all && strings.Contains(text, strings.TrimSpace(s))
			return p
		})
	}
	return all
}

// callText matches arguments that are given as text.
var callText = regexp.MustCompile(`"arguments"\s*:\s*"`)

// asPython names a part of a message that stands in a text in the way Python writes lists and objects, which no
// template means: its content, or where they were given as text the arguments of a call. It is "" for none.
func asPython(text string, m *jinja.Map, calls bool) (found string) {
	if l, ok := get[*jinja.List](m, "content"); ok && strings.Contains(text, jinja.Text(l)) {
		return "content"
	}
	if !calls {
		return ""
	}
	eachCall(withoutKeys(m), func(f *jinja.Map) {
		a, _ := get[*jinja.Map](f, "arguments")
		if a == nil || len(a.Keys()) == 0 {
			return
		}
		want, err := jinja.PythonJSON(a)
		if python := jinja.Text(a); err == nil && python != want &&
			strings.Contains(text, python) && !strings.Contains(text, want) {
			found = "arguments"
		}
	})
	return found
}

// lostCall is the name of a called function that stands nowhere in a text, "" if all do.
func lostCall(text string, m *jinja.Map) (name string) {
	eachCall(withoutKeys(m), func(f *jinja.Map) {
		if s, _ := get[string](f, "name"); !strings.Contains(text, s) {
			name = s
		}
	})
	return name
}
