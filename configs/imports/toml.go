package imports

import (
	"bufio"
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// readTOML reads what configurations use of TOML 1.0: tables, and keys with strings, numbers, booleans and
// arrays, which may go over lines. Names are dotted. What it does not know is an error with its line.
func readTOML(file string, text []byte) (map[string]any, error) {
	out, table := map[string]any{}, ""
	in := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; in.Scan(); n++ {
		line := strings.TrimSpace(uncommented(in.Text()))
		switch {
		case line == "":
			continue
		case strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]") && !strings.HasPrefix(line, "[["):
			table = strings.TrimSpace(line[1:len(line)-1]) + "."
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			return nil, fmt.Errorf("line %d: %q is neither a table nor a key with a value", n, line)
		}
		value = strings.TrimSpace(value)
		first := n
		for strings.Count(value, "[") > strings.Count(value, "]") && in.Scan() {
			n++
			value += " " + strings.TrimSpace(uncommented(in.Text()))
		}
		v, err := tomlValue(value)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", first, err)
		}
		name := table + strings.Trim(strings.TrimSpace(key), `"`)
		if _, twice := out[name]; twice {
			return nil, fmt.Errorf("line %d: %s is given twice", first, name)
		}
		out[name] = v
	}
	return out, in.Err()
}

// uncommented is a line without what follows a # outside quotes.
func uncommented(line string) string {
	quote := rune(0)
	for i, c := range line {
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '#':
			return line[:i]
		}
	}
	return line
}

func tomlValue(s string) (any, error) {
	switch {
	case s == "true" || s == "false":
		return s == "true", nil
	case len(s) > 1 && s[0] == '\'' && s[len(s)-1] == '\'':
		return s[1 : len(s)-1], nil
	case len(s) > 1 && s[0] == '"':
		return strconv.Unquote(s)
	case strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]"):
		list := []any{}
		for _, part := range parts(s[1 : len(s)-1]) {
			v, err := tomlValue(part)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	}
	plain := strings.ReplaceAll(s, "_", "")
	if n, err := strconv.Atoi(plain); err == nil {
		return n, nil
	}
	if x, err := strconv.ParseFloat(plain, 64); err == nil {
		return x, nil
	}
	return nil, fmt.Errorf("%s is no string, number, boolean or array", s)
}

// parts are the elements of an array, between commas outside quotes and brackets.
func parts(s string) (out []string) {
	depth, quote, from := 0, rune(0), 0
	end := func(i int) {
		if p := strings.TrimSpace(s[from:i]); p != "" {
			out = append(out, p)
		}
	}
	for i, c := range s {
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '[':
			depth++
		case c == ']':
			depth--
		case c == ',' && depth == 0:
			end(i)
			from = i + 1
		}
	}
	end(len(s))
	return out
}
