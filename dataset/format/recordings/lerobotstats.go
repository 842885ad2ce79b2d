package recordings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// Shape is the height and width of a camera's pictures by meta/info.json, 0 where it does not say: its axes lie in the
// order that names has, without which channels come last, or first where there are few of them.
func (l *LeRobot) Shape(camera string) (side [2]int) {
	f := l.info.Features[camera]
	var shape []int
	var names []string
	if json.Unmarshal(f.Shape, &shape) != nil || len(shape) != 3 {
		return side
	}
	first := json.Unmarshal(f.Names, &names) == nil && len(names) == 3 && strings.HasPrefix(names[0], "channel") ||
		len(names) != 3 && shape[0] <= 4 && shape[2] > 4
	if first {
		return [2]int{shape[1], shape[2]}
	}
	return [2]int{shape[0], shape[1]}
}

// none are the numbers that Python writes into JSON and JSON does not have.
var none = regexp.MustCompile(`^\s*[\[,]?\s*(-?(?:NaN|Infinity))\b`)

// brokenAt names the key in which JSON ends to be any, and says what it is where it is NaN or an infinity, which Python
// writes of frames that lack a number; "" where no key came before.
func brokenAt(b []byte) string {
	d := json.NewDecoder(bytes.NewReader(b))
	var keys []string // of the objects that are open; "" until one has a key, "[" for a list
	wanted := false   // a key comes next
	for {
		t, err := d.Token()
		if err != nil {
			break
		}
		switch v := t.(type) {
		case json.Delim:
			switch v {
			case '{':
				keys, wanted = append(keys, ""), true
				continue
			case '[':
				keys, wanted = append(keys, "["), false
				continue
			}
			keys = keys[:len(keys)-1]
		case string:
			if wanted {
				keys[len(keys)-1], wanted = v, false
				continue
			}
		}
		wanted = len(keys) > 0 && keys[len(keys)-1] != "["
	}
	var path []string
	for _, k := range keys {
		if k != "[" && k != "" {
			path = append(path, k)
		}
	}
	if path == nil {
		return ""
	}
	text := fmt.Sprintf(", in the value of %s", strings.Join(path, "."))
	rest := bytes.TrimLeft(b[d.InputOffset():], " \t\r\n:")
	if m := none.FindSubmatch(rest); m != nil {
		text += fmt.Sprintf(": %s, which JSON does not have; frames without that number were recorded: compute the "+
			"statistics without them", m[1])
	}
	return text
}
