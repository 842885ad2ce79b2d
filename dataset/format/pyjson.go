package format

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"unicode/utf16"
)

// pyMember is a member of an object to write.
type pyMember struct {
	key   string
	value json.RawMessage
}

// pyObject writes an object as Python's json.dumps does: ", " and ": " between, everything but ASCII
// escaped, members in the order given.
func pyObject(members ...pyMember) ([]byte, error) {
	out := []byte{'{'}
	for i, m := range members {
		if i > 0 {
			out = append(out, ", "...)
		}
		out = append(pyString(out, m.key), ": "...)
		v, err := pyJSON(m.value)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", m.key, err)
		}
		out = append(out, v...)
	}
	return append(out, '}'), nil
}

// pyJSON writes a JSON text again as Python's json.dumps(json.loads(text)) does, but for numbers, which stay
// as they are.
func pyJSON(raw []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var out []byte
	var open []json.Delim // brackets
	values := []int{0}    // written in each, keys counted
	for {
		t, err := d.Token()
		if err == io.EOF && len(open) == 0 {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		n := values[len(values)-1]
		object := len(open) > 0 && open[len(open)-1] == '{'
		closing := t == json.Delim('}') || t == json.Delim(']')
		switch {
		case closing:
		case object && n%2 == 1:
			out = append(out, ": "...)
		case n > 0:
			out = append(out, ", "...)
		}
		values[len(values)-1]++
		switch t := t.(type) {
		case json.Delim:
			out = append(out, byte(t))
			if closing {
				open, values = open[:len(open)-1], values[:len(values)-1]
				break
			}
			open, values = append(open, t), append(values, 0)
		case string:
			out = pyString(out, t)
		case json.Number:
			out = append(out, t...)
		case bool:
			out = strconv.AppendBool(out, t)
		case nil:
			out = append(out, "null"...)
		}
	}
}

// pyString appends a text in quotes and in ASCII.
func pyString(out []byte, s string) []byte {
	out = append(out, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			out = append(out, '\\', byte(r))
		case r == '\n':
			out = append(out, `\n`...)
		case r == '\r':
			out = append(out, `\r`...)
		case r == '\t':
			out = append(out, `\t`...)
		case r == '\b':
			out = append(out, `\b`...)
		case r == '\f':
			out = append(out, `\f`...)
		case r >= ' ' && r < 0x7f:
			out = append(out, byte(r))
		case r > 0xffff:
			a, b := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, a, b)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return append(out, '"')
}
